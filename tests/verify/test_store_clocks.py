"""A store's own clock is set forward and back while leases are held and waited for."""

from __future__ import annotations

import time

import pytest
from network import Later
from redis_servers import wait_until
from test_stores import SECONDS, passed
from turned_clocks import TurnedPostgres, TurnedValkey

from joblock import JobLocks, LockLost
from joblock.verify import Plan
from joblock.verify.nemesis import ServerFault

HOUR = 3600.0


@pytest.fixture(params=["postgresql", "valkey"])
def turned(request, tmp_path):
    server = TurnedValkey(tmp_path / "valkey") if request.param == "valkey" else TurnedPostgres()
    yield server
    server.remove()


@pytest.fixture
def locks(turned):
    with JobLocks(turned.url) as locks:
        yield locks


@pytest.fixture
def others(turned):
    with JobLocks(turned.url) as others:
        yield others


def test_the_clock_that_is_turned_is_the_servers_and_no_other(turned):
    before = time.time()
    for offset in (HOUR, 0.0):
        turned.clock.step(offset - turned.clock.offset)
        assert abs(turned.now() - before - offset) < 100


def test_a_clock_set_forward_lets_leases_lapse_and_their_holders_are_told(turned, locks, others):
    lease = locks.acquire("k", ttl=60)
    turned.clock.step(HOUR)
    other = others.acquire("k", ttl=60)
    assert other.token > lease.token
    with pytest.raises(LockLost):
        lease.refresh(60)
    assert not lease.held
    assert other.held
    assert other.release()


def test_a_holder_whose_lease_nobody_took_keeps_it_when_the_clock_is_set_forward(turned, locks):
    with locks.lock("k", ttl=60) as lease:
        turned.clock.step(300)  # Redis keeps it for ten minutes
        lease.refresh(60)
        assert lease.held
    assert locks.model.peek("k") is None


def test_a_waiter_is_let_in_when_the_clock_is_set_forward(turned, locks, others):
    lease = locks.acquire("k", ttl=600)
    waiting = Later(lambda: others.acquire("k", ttl=60, wait=60))
    wait_until(lambda: locks.model.waiters("k"), "it is in line")
    turned.clock.step(HOUR)
    with waiting.result() as other:
        assert other.token > lease.token
    with pytest.raises(LockLost):
        lease.refresh(60)


def test_a_clock_set_back_lets_leases_lapse_later_by_that_much(turned, locks, others):
    assert locks.model.acquire("k", 1, "whoever")  # nobody renews it
    turned.clock.step(-4)
    begin = time.monotonic()
    with others.lock("k", ttl=60, wait=60):
        assert time.monotonic() - begin > 4


def test_tokens_go_on_growing_when_the_clock_is_set_back(turned, locks, others):
    """Of a key that is held, handed on, or was free for a moment."""
    turned.clock.step(HOUR)
    with locks.lock("free") as lease:
        tokens = [lease.token]
    held = locks.acquire("held", ttl=60)
    waiting = Later(lambda: others.acquire("held", ttl=60, wait=60))
    wait_until(lambda: locks.model.waiters("held"), "it is in line")
    turned.clock.step(-HOUR)
    for _ in range(3):
        with others.lock("free") as lease:
            tokens.append(lease.token)
    assert tokens == sorted(set(tokens))
    held.refresh(60)
    assert held.held
    assert held.release()
    with waiting.result() as other:
        assert other.token > held.token


def test_promises_are_kept_while_the_clock_is_set_forward(turned):
    """But for those leases that lapsed early: two may then believe in a key."""
    report = passed(
        Plan(
            turned.url,
            seconds=SECONDS,
            workers=3,
            seed=49,
            faults=("pause", "kill"),
            server_faults={"leap": ServerFault(lambda: turned.clock.step(HOUR), voids=True)},
        )
    )
    assert report.faults["leap"]
