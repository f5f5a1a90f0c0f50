"""Two clients that wait under one given holder: to the store they are one waiter.

Whoever asked last is told; the other asks again now and then, so it waits no longer than for that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import NamedTuple

import pytest

from joblock import JobLocks, Lease
from joblock.store.ops import CHECK_MS, Acquire, Check
from joblock.stores.memory import MemoryStore
from joblock.testing import ManualClock
from joblock.testing.faults import FaultyStore

PATIENCE = 20.0
CHECKS = 10
TTL = 600


class Pair(NamedTuple):
    """Two clients with a waiter each, and the lease that they wait for."""

    clock: ManualClock
    held: Lease
    first: Future[Lease | None]
    second: Future[Lease | None]

    def check_until(self, reached: Callable[[], bool]) -> None:
        """Let time pass, check by check; what they lead to happens in other threads."""
        for _ in range(CHECKS):
            self.clock.advance(CHECK_MS / 1000)
            end = time.monotonic() + PATIENCE / CHECKS
            while time.monotonic() < end:
                if reached():
                    return
                time.sleep(0.001)
        assert reached(), "it should have come to that by now"


@pytest.fixture
def pair() -> Iterator[Pair]:
    clock = ManualClock()
    inner = MemoryStore(clock=clock)
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(2))
        stores = [FaultyStore(inner) for _ in range(3)]
        clients = [stack.enter_context(JobLocks(store, clock=clock)) for store in stores]
        held = clients[0].acquire("key", TTL)
        assert held is not None
        waiting: list[Future[Lease | None]] = []
        for client, store in zip(clients[1:], stores[1:], strict=True):
            waiting.append(pool.submit(client.acquire, "key", TTL, wait=True, holder="shared"))
            # From here on it is looked after at each check, whenever its keeper got to the first.
            until(lambda store=store: done(store, Acquire) and done(store, Check))
        yield Pair(clock, held, *waiting)


def done(store: FaultyStore, kind: type) -> bool:
    return any(isinstance(op, kind) for op in tuple(store.faults.done))


def until(reached: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not reached():
        assert time.monotonic() < end, "it should have come to that by now"
        time.sleep(0.001)


def test_the_client_that_asked_last_is_told_and_the_other_finds_the_same_lease(pair: Pair) -> None:
    assert pair.held.release()
    lease = pair.second.result(PATIENCE)
    assert lease is not None
    pair.check_until(pair.first.done)
    again = pair.first.result(PATIENCE)
    assert again is not None
    assert again.token == lease.token


def test_a_waiter_whose_name_had_its_turn_in_another_client_is_not_forgotten(pair: Pair) -> None:
    assert pair.held.release()
    lease = pair.second.result(PATIENCE)
    assert lease is not None
    assert lease.release()
    pair.check_until(pair.first.done)
    again = pair.first.result(PATIENCE)
    assert again is not None
    assert again.token > lease.token
