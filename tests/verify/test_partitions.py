"""Workers that a network cuts off from their store, which goes on without them: packets are dropped
in both directions, or in one, for longer than any ttl.

The server is in a network namespace with an address for each worker; needs root and Linux.
"""

from __future__ import annotations

import time

import network
import pytest
from network import FarPostgres, FarRedis, Impossible, Network
from redis_servers import wait_until
from test_stores import SECONDS, passed

from joblock import JobLocks, LockLost, StoreUnavailable
from joblock.verify import Plan

WORKERS = 3
TTL = 2.0
"""Seconds; while it is cut off a holder is silent for longer."""


@pytest.fixture
def cable():
    try:
        cable = Network(WORKERS)
    except Impossible as reason:
        pytest.skip(f"this machine lets nobody make a network namespace: {reason}")
    yield cable
    cable.remove()


@pytest.fixture(params=["postgresql", "redis"])
def far(request, cable, tmp_path):
    if request.param == "redis":
        server = FarRedis(tmp_path / "redis", cable)
        yield server
        server.stop()
    else:
        server = FarPostgres(cable)
        yield server
        server.remove()


def test_promises_are_kept_while_workers_are_cut_off(far, cable):
    urls = tuple(far.url_at(cable.address(number + 1)) for number in range(WORKERS))
    report = passed(
        Plan(
            far.url,
            seconds=SECONDS,
            workers=WORKERS,
            seed=48,
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


@pytest.mark.parametrize("way", ["partition", "deaf", "mute"])
def test_a_holder_that_is_cut_off_knows_before_another_gets_in(far, cable, way):
    """And both go on when the network is whole again."""
    with (
        JobLocks(far.url_at(cable.address(1))) as here,
        JobLocks(far.url_at(cable.address(0))) as there,
    ):
        lease = here.acquire("k", ttl=TTL)
        token, held = lease.token, []
        mend = getattr(cable, way)(0)
        with there.lock("k", ttl=60, wait=60) as other:
            held.append(lease.held)
            assert other.token > token
            begin = time.monotonic()
            with pytest.raises(StoreUnavailable):
                here.acquire("another")
            # It may try again on other connections, each within what a request may take.
            assert time.monotonic() - begin < 60
            with pytest.raises(LockLost):
                lease.check()
            mend()
        assert held == [False]
        again = []

        def acquired():
            try:
                again.append(here.acquire("k", ttl=TTL))
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
