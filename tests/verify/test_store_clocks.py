"""A store's own clock is set forward and back while leases are held and waited for."""

from __future__ import annotations

import time

import pytest
from network import Later
from redis_servers import wait_until
from test_stores import SECONDS, passed
from turned_clocks import TurnedPostgres, TurnedValkey

from joblock import JobLocks, LockLost
from joblock.store.ops import Acquire, Granted, Holders, Refresh, Renewal
from joblock.stores.registry import open_store
from joblock.verify import Plan
from joblock.verify.nemesis import ServerFault

HOUR = 3600.0
BACK = 3.0
"""Seconds by which it is set back again and again; the ttls of the workers are shorter."""


@pytest.fixture(scope="module", params=["postgresql", "valkey"])
def turned(request, tmp_path_factory):
    """One for all, whose clock goes on from where the last test left it."""
    if request.param == "valkey":
        server = TurnedValkey(tmp_path_factory.mktemp("valkey"))
    else:
        server = TurnedPostgres()
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
    turned.clock.step(-2)
    begin = time.monotonic()
    with others.lock("k", ttl=60, wait=60):
        assert time.monotonic() - begin > 2


@pytest.mark.parametrize(("before", "after"), [(1, 1), (1, 2), (2, 1), (2, 2)])
def test_leases_that_others_took_stand_no_more_when_the_clock_is_set_back(turned, before, after):
    """Mutexes (limit 1) and permits."""
    store, key = open_store(turned.url), f"taken {before} {after}"
    try:
        driver = store.driver()
        old = [Acquire(key, f"old {number}", 60_000, limit=before) for number in range(before)]
        new = [Acquire(key, f"new {number}", 60_000, limit=after) for number in range(after)]
        assert all(isinstance(driver.call(op), Granted) for op in old)
        turned.clock.step(100)
        assert all(isinstance(driver.call(op), Granted) for op in new)
        turned.clock.step(-100)
        assert {seen.holder for seen in driver.call(Holders(key))} == {op.holder for op in new}
        late = tuple(Renewal(key, op.holder, 0, 60_000) for op in old)
        assert driver.call(Refresh(late, extend_only=False)).renewed == (False,) * before
    finally:
        store.close()


def test_a_lapsed_lease_that_nobody_took_stands_again_when_the_clock_is_set_back(turned, locks):
    assert locks.model.acquire("nobody's", 60, "whoever")
    turned.clock.step(100)
    assert locks.model.peek("nobody's").state == "expired"
    turned.clock.step(-100)
    assert locks.model.peek("nobody's").state == "held"
    locks.model.release("nobody's", "whoever")


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
    forward = ServerFault(lambda: turned.clock.step(HOUR), voids=True)
    assert passed(plan(turned, 49, {"leap": forward})).faults["leap"]


def test_all_promises_are_kept_while_the_clock_is_set_back(turned):
    """Leases only last longer, by what the checker is told."""
    back = ServerFault(lambda: turned.clock.step(-BACK), delays=BACK)
    assert passed(plan(turned, 59, {"back": back})).faults["back"]


def plan(turned, seed, faults):
    return Plan(
        turned.url,
        seconds=SECONDS,
        workers=3,
        seed=seed,
        faults=("pause", "kill"),
        server_faults=faults,
    )
