"""Closing takes bounded time, by the real clock, and still releases what it can."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

import pytest

from joblock import AsyncJobLocks, JobLocks
from joblock.store.ops import Acquire, Holders, Refresh, Release
from joblock.stores.memory import MemoryStore
from joblock.testing.faults import FaultyStore


def test_a_renewal_that_hangs_does_not_keep_close_from_releasing():
    store = FaultyStore(MemoryStore())
    locks = JobLocks(store)
    lease = locks.acquire("key", ttl=0.5)
    gate = store.faults.delay(Refresh)
    gate.wait_for_arrival()
    begun = time.monotonic()
    other = locks.acquire("other", ttl=60)
    locks.close()
    assert time.monotonic() - begun < 8, "close takes 5 seconds and little more"
    assert lease is not None
    assert other is not None
    assert store.inner.driver().call(Holders("other")) == ()
    gate.open()


class ClosingStore(MemoryStore):
    """Knows whether it is open."""

    def __init__(self) -> None:
        super().__init__()
        self.closings = 0
        self.open = threading.Event()

    def driver(self):
        self.open.set()
        return super().driver()

    def close(self) -> None:
        self.closings += 1
        self.open.clear()
        super().close()


@pytest.mark.parametrize("fails", [False, True], ids=["is answered", "is sent again"])
def test_what_the_keeper_does_after_its_client_was_closed_leaves_no_store_open(fails):
    inner = ClosingStore()
    store = FaultyStore(inner)
    locks = JobLocks(store)
    lease = locks.acquire("key", ttl=60)
    assert lease is not None
    store.faults.fail(Release)
    gate = store.faults.delay(Release)
    if fails:
        store.faults.lose_reply(Release, times=2)
    lease.release()  # that fails, so the keeper does it
    gate.wait_for_arrival()
    locks.close()
    assert inner.closings == 1
    gate.open()
    end = time.monotonic() + 30
    while inner.closings < 2 + fails or inner.open.is_set():
        assert time.monotonic() < end, "it should have closed what it opened"
        time.sleep(0.01)
    assert MemoryStore.driver(inner).call(Holders("key")) == ()
    with locks.lock("key"):
        assert inner.open.is_set()
    locks.close()


async def test_a_task_cancelled_while_its_client_is_being_closed_leaves_nothing():
    before = keepers()
    store = FaultyStore(MemoryStore())
    locks = AsyncJobLocks(store)
    held = await locks.acquire("first", ttl=60)
    assert held is not None
    on_its_way = store.faults.delay(Acquire)
    taking = asyncio.create_task(locks.acquire("key", ttl=60))
    await asyncio.to_thread(on_its_way.wait_for_arrival)
    releasing = store.faults.delay(Release)
    closing = asyncio.create_task(locks.close())
    await asyncio.to_thread(releasing.wait_for_arrival)
    taking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taking
    releasing.open()
    # Its keeper has done by now whatever it was told to.
    await until(lambda: not keepers() - before)
    on_its_way.open()
    await closing
    await until(lambda: not store.inner.driver().call(Holders("key")))


def keepers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "joblock-keeper"}


async def until(fact: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not fact():
        assert time.monotonic() < end, "it should have come to that by now"
        await asyncio.sleep(0.001)
