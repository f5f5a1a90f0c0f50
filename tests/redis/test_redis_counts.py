"""How many commands it takes, what is left behind, and where it lies."""

from __future__ import annotations

import threading
import time

import pytest
from redis_servers import wait_until

from joblock import JobLocks
from joblock.store.ops import Acquire, Check, Force, Leave, Queueing, Refresh, Release, Renewal
from joblock.stores.redis import RedisStore
from joblock.stores.redis.route import slot_of_name
from joblock.stores.redis.scripts import LINGER_MS, packed_keys
from joblock.stores.redis.wire import Parser

NAMES = [
    "a",
    "}",
    "}{",
    "{",
    "{}",
    "{a}b",
    "a{b}c}d",
    ":",
    " x y ",
    "k}",
    "\u202e\U0001f512",
    "*?[a]",
]


@pytest.fixture
def store(own_server):
    store = RedisStore.from_url(own_server.url)
    yield store
    store.close()


def names_of(key: str) -> list[bytes]:
    packed = packed_keys(key)
    return Parser().feed(packed)


@pytest.mark.parametrize("key", NAMES)
def test_all_that_belongs_to_a_key_is_in_one_slot(key, cluster):
    names = names_of(key)
    assert len(set(names)) == 6
    assert len({slot_of_name(name) for name in names}) == 1
    asked = {cluster.nodes[0].ask("CLUSTER", "KEYSLOT", name) for name in names}
    assert asked == {slot_of_name(names[0])}


def test_keys_of_all_kinds_are_listed_as_they_were_named(store):
    driver = store.driver()
    from joblock.store.ops import Count, Page

    for key in NAMES:
        driver.call(Acquire(key, "h", 60_000))
    assert [lease.key for lease in driver.call(Page())] == sorted(NAMES)
    for key in NAMES:
        found = {lease.key for lease in driver.call(Page(key))}
        assert found == {name for name in NAMES if name.startswith(key)}
    assert driver.call(Count("{")) == 3


def test_a_free_key_leaves_its_last_token_behind_for_a_minute_and_nothing_else(store, own_server):
    driver = store.driver()
    driver.call(Acquire("k", "h", 60_000))
    queue = Queueing("client")
    driver.call(Acquire("k", "w", 60_000, queue=queue))
    assert len(own_server.keys()) > 2
    driver.call(Release("k", "h"))
    driver.call(Acquire("k", "w", 60_000, queue=queue))
    assert own_server.keys() == ["joblock:{.k}"]
    driver.call(Release("k", "w"))
    assert own_server.keys() == ["joblock:{.k}"]
    assert 55_000 < own_server.ask("PTTL", "joblock:{.k}") <= 60_000


def test_who_broke_a_lease_and_why_is_kept_with_the_row(store, own_server):
    driver = store.driver()
    driver.call(Acquire("k", "h", 60_000))
    driver.call(Force("k", "ops@example.org", "it hangs"))
    assert b"\0ops@example.org\0it hangs\0" in own_server.ask("GET", "joblock:{.k}")
    assert LINGER_MS - 5_000 < own_server.ask("PTTL", "joblock:{.k}") <= LINGER_MS


def test_everything_a_key_has_goes_away_by_itself_some_time_after_its_lease_ended(
    store, own_server
):
    driver = store.driver()
    driver.call(Acquire("k", "h", 5_000))
    driver.call(Acquire("k", "w", 5_000, queue=Queueing("client", join=0)))
    for name in own_server.keys():  # noqa: SIM118 - a server, not a dict
        assert LINGER_MS < own_server.ask("PTTL", name) <= LINGER_MS + 5_000


def test_a_question_about_an_unknown_key_leaves_nothing_behind(store, own_server):
    driver = store.driver()
    driver.call(Leave("k", "h"))
    driver.call(Release("k", "h"))
    driver.call(Check("client", ("k", "l")))
    driver.call(Refresh((Renewal("k", "h", 0, 1_000),)))
    assert own_server.keys() == []


def test_a_thousand_leases_are_renewed_by_one_command(store, own_server):
    driver = store.driver()
    keys = [f"k{number}" for number in range(1_000)]
    for key in keys:
        driver.call(Acquire(key, "h", 60_000))
    driver.call(Refresh((Renewal("k0", "h", 0, 1_000),)))
    own_server.ask("CONFIG", "RESETSTAT")
    renewals = tuple(Renewal(key, "h", 0, 90_000) for key in keys)
    assert driver.call(Refresh(renewals)).renewed == (True,) * 1_000
    assert own_server.calls("evalsha") == 1


def test_ten_thousand_clients_that_each_waited_once_do_not_add_up(store, own_server):
    driver = store.driver()
    driver.call(Acquire("k", "h", 60_000))
    driver.call(Acquire("k", "keeps-waiting", 60_000, queue=Queueing("patient")))
    for number in range(300):
        driver.call(Acquire("k", f"w{number}", 60_000, queue=Queueing(f"c{number}")))
        driver.call(Leave("k", f"w{number}"))
        if number % 60 == 0:
            own_server.ask("HSET", "joblock:present:{.k}", f"gone{number}", "1 1 0")
    present = own_server.ask("HKEYS", "joblock:present:{.k}")
    assert not [name for name in present if name.startswith(b"gone") and name != b"gone240"]


@pytest.mark.parametrize("others", [0, 10, 1_000])
def test_a_hand_off_takes_three_commands_however_many_wait(store, own_server, others):
    driver = store.driver()
    driver.call(Acquire("k", "h", 600_000))
    driver.call(Release("k", "h"))
    driver.call(Acquire("k", "h0", 600_000))
    for number in range(others):
        driver.call(Acquire("k", f"behind{number}", 600_000, queue=Queueing("crowd", 2**52)))
    for number in range(1, 4):
        driver.call(Acquire("k", f"h{number}", 600_000, queue=Queueing("line")))
    own_server.ask("CONFIG", "RESETSTAT")
    for number in range(1, 4):
        driver.call(Release("k", f"h{number - 1}"))
        assert driver.call(Acquire("k", f"h{number}", 600_000, queue=Queueing("line"))).token
    # Queueing was the third of each; here two are left.
    assert own_server.calls("evalsha") == 6
    assert own_server.calls("publish") <= 6


def test_hand_offs_between_waiting_threads_take_three_commands_each(own_server):
    threads, ready = [], threading.Barrier(11)
    with JobLocks(own_server.url) as locks:

        def work() -> None:
            ready.wait(60)
            with locks.lock("k", ttl=60, wait=60):
                pass

        with locks.lock("k", ttl=60):
            for _ in range(10):
                threads.append(threading.Thread(target=work))
                threads[-1].start()
            own_server.ask("CONFIG", "RESETSTAT")
            ready.wait(60)
            wait_until(lambda: len(locks.model.waiters("k")) == 10, "all are queued")
            looked, begun = own_server.calls("evalsha"), time.monotonic()
        for thread in threads:
            thread.join(60)
        # The first release, some checks; and for each second that a busy machine takes, another
        # check, or a claim that was confirmed too late.
        more = 5 + 4 * int(time.monotonic() - begun)
        assert own_server.calls("evalsha") - looked <= 2 * 10 + more


def test_a_thousand_waiters_that_idle_cost_less_than_a_command_a_second(own_server):
    import asyncio

    from joblock import AsyncJobLocks

    async def idle() -> tuple[int, int]:
        async with AsyncJobLocks(own_server.url) as locks, locks.lock("k", ttl=60):
            waiters = [
                asyncio.create_task(locks.acquire("k", ttl=60, wait=60)) for _ in range(1_000)
            ]
            while len(await locks.model.waiters("k")) < 1_000:  # noqa: ASYNC110 - the store tells
                await asyncio.sleep(0.05)
            while not own_server.ask("PUBSUB", "CHANNELS"):  # noqa: ASYNC110 - the same
                await asyncio.sleep(0.01)
            own_server.ask("CONFIG", "RESETSTAT")
            begin = time.monotonic()
            await asyncio.sleep(8)  # so long it idles: two checks, and the one upon listening
            seconds = time.monotonic() - begin
            calls = sum(own_server.calls(name) for name in ("evalsha", "eval", "ping"))
            for waiter in waiters:
                waiter.cancel()
            await asyncio.gather(*waiters, return_exceptions=True)
        return calls, int(seconds)

    calls, seconds = asyncio.run(idle())
    assert calls <= seconds
