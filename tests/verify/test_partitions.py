"""Workers that a network cuts off from their store, which goes on without them: packets are dropped
in both directions, or in one, for longer than any ttl.

The server is in a network namespace with an address for each worker; needs root and Linux.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor

import network
import pytest
from network import FarPostgres, FarRedis, Impossible, Network
from redis_servers import wait_until
from test_stores import passed

from joblock import JobLocks, LockLost, StoreUnavailable
from joblock.verify import Plan

WORKERS = 3
TTL = 2.0
"""Seconds; while it is cut off a holder is silent for longer."""

SECONDS = 8.0
"""Its seed draws each fault; docs/faults.md tells of long runs."""

BOUND = 20.0
"""A request is to give up after 6 seconds at most; a busy machine may take its time."""


@pytest.fixture(scope="module")
def network_there():
    try:
        there = Network(WORKERS)
    except Impossible as reason:
        why = f"this machine lets nobody make a network namespace: {reason}"
        if os.environ.get("CI"):
            pytest.fail(why)
        pytest.skip(why)
    yield there
    there.remove()


@pytest.fixture(scope="module", params=["postgresql", "redis"])
def far(request, network_there, tmp_path_factory):
    if request.param == "redis":
        server = FarRedis(tmp_path_factory.mktemp("redis"), network_there)
        yield server
        server.stop()
    else:
        server = FarPostgres(network_there)
        yield server
        server.remove()


@pytest.fixture
def cable(network_there):
    yield network_there
    network_there.mend()


def test_promises_are_kept_while_workers_are_cut_off(far, cable):
    urls = tuple(far.url_at(cable.address(number + 1)) for number in range(WORKERS))
    report = passed(
        Plan(
            far.url,
            seconds=SECONDS,
            workers=WORKERS,
            seed=65,
            faults=("kill",),
            worker_faults={
                "partition": cable.partition,
                "deaf": cable.deaf,
                "mute": cable.mute,
            },
            urls=urls,
        )
    )
    assert set(report.faults) & {"partition", "deaf", "mute"}


def test_holders_that_are_cut_off_know_before_others_get_in(far, cable):
    """Whether what they send is lost, what they are sent, or both. And all go on afterwards."""
    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(cut_off, [far] * 3, [cable] * 3, range(3), ["partition", "deaf", "mute"]))


def cut_off(far, cable, worker, way):
    """Cut that worker off while it holds a key, until another has it."""
    with (
        JobLocks(far.url_at(cable.address(worker + 1))) as here,
        JobLocks(far.url_at(cable.address(0))) as there,
    ):
        lease = here.acquire(way, ttl=TTL)
        mend = getattr(cable, way)(worker)
        with there.lock(way, ttl=60, wait=60) as other:
            assert not lease.held
            assert other.token > lease.token
            for _ in ("on a connection on which nothing comes", "on a new one"):
                begin = time.monotonic()
                with pytest.raises(StoreUnavailable):
                    here.acquire("another")
                assert time.monotonic() - begin < BOUND
            with pytest.raises(LockLost):
                lease.check()
            mend()
        again = []

        def acquired():
            try:
                again.append(here.acquire(way, ttl=TTL))
            except StoreUnavailable:
                return False
            return again[-1] is not None

        wait_until(acquired, "who was cut off goes on", 60)
        assert again[-1].token > other.token


def test_a_waiter_that_is_cut_off_is_passed_over_and_gets_its_turn_afterwards(far, cable):
    with (
        JobLocks(far.url_at(cable.address(1))) as here,
        JobLocks(far.url_at(cable.address(0))) as there,
    ):
        mine = there.acquire("k", ttl=60)
        got = network.Later(lambda: here.acquire("k", ttl=60, wait=120))
        wait_until(lambda: there.model.waiters("k"), "it is in line")
        mend = cable.partition(0)
        mine.release()
        with there.lock("k", ttl=60, wait=60):
            pass
        mend()
        assert got.result() is not None
