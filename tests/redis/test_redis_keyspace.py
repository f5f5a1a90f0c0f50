"""Whatever was done with a key, the server forgets it by itself: the names that are left behind."""

from __future__ import annotations

import pytest
from redis_harness import TurnedHarness
from redis_servers import wait_until

from joblock import AsyncJobLocks, JobLocks
from joblock.store.ops import (
    CLAIM_MS,
    LINGER_MS,
    Acquire,
    Check,
    Done,
    Force,
    Granted,
    Leave,
    Queueing,
    Refresh,
    Release,
    Renewal,
    Strike,
)
from joblock.stores.redis import RedisStore
from joblock.stores.redis.scripts import FLOOR_MS, row_name

ROW = row_name("k")
TTL, LONGEST = 60_000, 90_000


@pytest.fixture
def store(own_server):
    store = RedisStore.from_url(own_server.url)
    yield store
    store.close()


class Caller:
    """Does operations on the key "k", and looks after each that no name is there for ever."""

    def __init__(self, store, server):
        self._driver = store.driver()
        self._server = server

    def do(self, op):
        reply = self._driver.call(op)
        left = {name: self._server.ask("PTTL", name) for name in self._server.keys()}  # noqa: SIM118
        assert all(ms != -1 and ms <= LONGEST + LINGER_MS for ms in left.values()), (op, left)
        return reply

    def acquire(self, holder, queue=None, **terms):
        return self.do(Acquire("k", holder, terms.pop("ttl", TTL), queue=queue, **terms))

    def release(self, holder, **terms):
        assert self.do(Release("k", holder, **terms)).freed

    def leave(self, holder):
        self.do(Leave("k", holder))


def a_mutex(a):
    a.acquire("A")
    a.acquire("A")
    a.do(Refresh((Renewal("k", "A", 0, TTL),)))
    a.release("A")


def an_end_that_was_well(a):
    a.acquire("A")
    a.release("A", ok=True)


def permits(a):
    for holder in "ABC":
        a.acquire(holder, limit=3)
    a.do(Refresh(tuple(Renewal("k", holder, 0, TTL) for holder in "ABC")))
    for holder in "ABC":
        a.release(holder)


def waiters_that_are_served(a):
    a.acquire("A")
    for holder in "BC":
        a.acquire(holder, Queueing(f"client of {holder}"))
    a.do(Check("client of B", ("k",)))
    a.release("A")
    for holder in "BC":
        a.acquire(holder, Queueing(f"client of {holder}"))
        a.release(holder)


def waiters_that_give_up(a):
    a.acquire("A")
    for holder in "BC":
        a.acquire(holder, Queueing("client"))
        a.leave(holder)
    a.release("A")


def a_waiter_that_gives_up_what_it_was_handed(a):
    a.acquire("A")
    a.acquire("B", Queueing("client"))
    a.release("A")
    a.leave("B")


def joiners_that_are_done(a):
    token = a.acquire("A").token
    for holder in "BC":
        a.acquire(holder, Queueing("client", join=0))
    a.release("A", ok=True)
    for holder in "BC":
        a.acquire(holder, Queueing("client", join=token))


def joiners_of_a_run_that_failed(a):
    token = a.acquire("A").token
    for holder in "BC":
        a.acquire(holder, Queueing("client", join=0))
    a.release("A")
    a.acquire("B", Queueing("client", join=token))
    a.release("B", ok=True)
    a.acquire("C", Queueing("client", join=token))


def dead_waiters_that_are_struck(a):
    a.acquire("A")
    a.acquire("B", Queueing("dead"))
    a.acquire("C", Queueing("alive"))
    a.release("A")
    a.do(Strike("k", "B"))
    a.acquire("C", Queueing("alive"))
    a.release("C")
    a.leave("B")


def an_occurrence_that_is_done(a):
    a.acquire("A", occurrence=7)
    a.acquire("B", Queueing("client"), occurrence=7)
    a.release("A", done=Done(7, 1))
    a.acquire("B", Queueing("client"), occurrence=7)
    a.leave("B")


def a_grace_that_is_over(a):
    a.acquire("A")
    a.release("A", grace=1)
    take = Acquire("k", "B", TTL, at_least=1)
    wait_until(lambda: isinstance(a.do(take), Granted), "the grace is over")
    assert a.do(Release("k", "B")).freed


EPISODES = [
    a_mutex,
    an_end_that_was_well,
    permits,
    waiters_that_are_served,
    waiters_that_give_up,
    a_waiter_that_gives_up_what_it_was_handed,
    joiners_that_are_done,
    joiners_of_a_run_that_failed,
    dead_waiters_that_are_struck,
    an_occurrence_that_is_done,
    a_grace_that_is_over,
]


@pytest.mark.parametrize("episode", EPISODES, ids=lambda episode: episode.__name__)
def test_of_a_free_key_only_its_last_token_is_left_and_that_for_a_minute(
    episode, store, own_server
):
    episode(Caller(store, own_server))
    # What is remembered as done has a time of its own, a millisecond here.
    wait_until(lambda: own_server.keys() == [ROW], "nothing else is left")
    assert own_server.ask("GET", ROW).startswith(b"F")
    assert FLOOR_MS - 10_000 < own_server.ask("PTTL", ROW) <= FLOOR_MS


def test_what_is_done_is_remembered_as_long_as_it_was_said_and_no_longer(store, own_server):
    caller = Caller(store, own_server)
    caller.acquire("A", occurrence=7)
    caller.release("A", done=Done(7, 300_000))
    assert own_server.keys() == ["joblock:done:{.k}", ROW]
    assert 290_000 < own_server.ask("PTTL", "joblock:done:{.k}") <= 300_000


@pytest.mark.parametrize("crowd", [0, 3])
def test_of_a_broken_lease_is_left_who_broke_it_for_ten_minutes(crowd, store, own_server):
    caller = Caller(store, own_server)
    caller.acquire("A", limit=crowd or 1)
    for number in range(1, crowd):
        caller.acquire(f"A{number}", limit=crowd)
    caller.do(Force("k", "ops", "it hangs"))
    assert own_server.keys() == [ROW]
    assert LINGER_MS - 10_000 < own_server.ask("PTTL", ROW) <= LINGER_MS


def test_every_name_of_a_crowded_key_ends_together(store, own_server):
    """A row without its queue would be a queue that is forgotten, and the other way round."""
    caller = Caller(store, own_server)
    caller.acquire("A", limit=3)
    caller.acquire("B", limit=3, ttl=5_000)
    caller.acquire("C", Queueing("client", join=0))
    caller.do(Refresh((Renewal("k", "B", 0, LONGEST),)))
    caller.do(Refresh((Renewal("k", "A", 0, 3_000),), extend_only=False))
    caller.do(Check("client", ("k",)))
    names = own_server.keys()
    assert len(names) == 6
    ends = [own_server.ask("PEXPIRETIME", name) for name in names]
    assert max(ends) - min(ends) <= 1
    assert own_server.ask("PTTL", ROW) > LINGER_MS + 80_000


def test_what_lapsed_of_a_key_that_is_never_vacant_is_forgotten(redis_server, monkeypatch):
    harness = TurnedHarness(redis_server, monkeypatch)
    store = harness.make_store()
    driver, shared = store.driver(), {"weight": 1, "limit": 1_000_000}
    key = "never vacant"
    driver.call(Acquire(key, "stays", LINGER_MS * 10, **shared))
    for number in range(50):
        driver.call(Acquire(key, f"killed{number}", 1_000, **shared))
    harness.elapse(LINGER_MS / 1000)
    driver.call(Acquire(key, "other", 1_000, **shared))
    assert redis_server.ask("HLEN", f"joblock:leases:{{.{key}}}") == 52
    harness.elapse(1)
    driver.call(Acquire(key, "next", 1_000, **shared))
    held = redis_server.ask("HKEYS", f"joblock:leases:{{.{key}}}")
    assert sorted(held) == [b"next", b"other", b"stays"]
    store.close()
    harness.close()


def test_a_client_that_was_used_for_everything_leaves_only_rows(own_server):
    with JobLocks(own_server.url) as locks:
        locks.run_with_lock("run", "5s", lambda: None)
        with locks.lock(["one", "two"]), locks.lock("shared", shared=True):
            pass
        lease = locks.acquire("held")
        assert locks.acquire("held", wait="50ms") is None
        lease.release()
        locks.job(name="job", join=True)(lambda: None)()
    _only_rows_are_left(own_server)


async def test_an_async_client_that_was_used_for_everything_leaves_only_rows(own_server):
    async with AsyncJobLocks(own_server.url) as locks:
        async with locks.lock(["one", "two"]), locks.lock("shared", shared=True):
            pass
        lease = await locks.acquire("held")
        assert await locks.acquire("held", wait="50ms") is None
        await lease.release()

        @locks.job(name="job", join=True)
        async def job():
            pass

        await job()
    _only_rows_are_left(own_server)


def _only_rows_are_left(server):
    names = server.keys()
    assert names
    assert all(name.startswith("joblock:{.") for name in names)
    assert all(0 < server.ask("PTTL", name) <= FLOOR_MS for name in names)


def test_claims_that_nobody_confirms_leave_no_more_than_a_lapsed_lease_does(
    redis_server, monkeypatch
):
    harness = TurnedHarness(redis_server, monkeypatch)
    store = harness.make_store()
    driver, key = store.driver(), "nobody confirms"
    driver.call(Acquire(key, "A", TTL))
    driver.call(Acquire(key, "B", TTL, queue=Queueing("gone")))
    driver.call(Release(key, "A"))
    harness.elapse(CLAIM_MS / 1000)
    driver.call(Acquire(key, "C", TTL))
    driver.call(Release(key, "C"))
    names = [name for name in redis_server.keys() if key in name]  # noqa: SIM118
    assert all(0 < redis_server.ask("PTTL", name) <= LINGER_MS for name in names)
    store.close()
    harness.close()
