"""What is the memory store's own: whose leases it shares, and that a fork begins anew."""

from __future__ import annotations

import os
import re

import pytest

from joblock.store.ops import Acquire, Busy, Check, Granted, Purge, Queueing, Waiters
from joblock.stores.memory import MemoryStore
from joblock.stores.registry import open_store
from joblock.testing import ManualClock

HOUR = 3_600_000


def test_stores_of_one_name_share_their_leases() -> None:
    one, other = MemoryStore("shared by two"), MemoryStore("shared by two")
    assert isinstance(one.driver().call(Acquire("key", "A", 1_000)), Granted)
    assert isinstance(other.driver().call(Acquire("key", "B", 1_000)), Busy)


def test_stores_of_different_names_share_nothing() -> None:
    one, other = MemoryStore("one of two"), MemoryStore("other of two")
    assert isinstance(one.driver().call(Acquire("key", "A", 1_000)), Granted)
    assert isinstance(other.driver().call(Acquire("key", "B", 1_000)), Granted)


def test_a_store_without_a_name_is_private() -> None:
    one, other = MemoryStore(), MemoryStore()
    assert isinstance(one.driver().call(Acquire("key", "A", 1_000)), Granted)
    assert isinstance(other.driver().call(Acquire("key", "B", 1_000)), Granted)


def test_one_name_has_one_clock() -> None:
    store = MemoryStore("one clock")
    with pytest.raises(ValueError, match="another clock"):
        MemoryStore("one clock", clock=ManualClock())
    assert store.url == "memory://one clock"


def test_purge_forgets_clients_that_waited_long_ago() -> None:
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    driver = store.driver()
    driver.call(Acquire("key", "A", 60_000))
    waiting = Acquire("key", "W", 60_000, queue=Queueing("client"))
    before = driver.call(waiting)
    driver.call(Check("client", ()))
    clock.advance(3_600)
    driver.call(Purge(idle=1_000))
    after = driver.call(Check("client", ("key",))).states[0]
    assert isinstance(before, Busy)
    assert after.epoch != before.epoch


def test_a_forked_child_begins_with_no_leases_and_the_parent_keeps_its_own() -> None:
    store = MemoryStore("forked")
    granted = store.driver().call(Acquire("key", "parent", 60_000))
    assert isinstance(granted, Granted)
    pid = os.fork()
    if not pid:
        reply = MemoryStore("forked").driver().call(Acquire("key", "child", 60_000))
        fresh = isinstance(reply, Granted) and reply.token > granted.token
        os._exit(0 if fresh else 1)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    busy = store.driver().call(Acquire("key", "B", 60_000))
    assert isinstance(busy, Busy)
    assert busy.holder == "parent"


def test_purge_forgets_who_no_longer_waits_for_a_key_that_is_never_vacant() -> None:
    clock = ManualClock()
    driver = MemoryStore(clock=clock).driver()
    for key in ("looked at", "left alone"):
        driver.call(Acquire(key, "A", 10 * HOUR))
        for holder in ("gone", "waits"):
            driver.call(Acquire(key, holder, HOUR, queue=Queueing(holder)))
    clock.advance(3_600)
    driver.call(Check("waits", ("looked at",)))  # which parks whoever is gone
    assert [waiter.live for waiter in driver.call(Waiters("looked at"))] == [False, True]
    clock.advance(1_799)
    driver.call(Purge(idle=HOUR // 2))
    assert len(driver.call(Waiters("looked at"))) == 2
    assert [waiter.holder for waiter in driver.call(Waiters("left alone"))] == ["waits"]
    clock.advance(1)
    driver.call(Purge(idle=HOUR // 2))
    assert [waiter.holder for waiter in driver.call(Waiters("looked at"))] == ["waits"]


@pytest.mark.parametrize("url", ["memory://a?x=1", "memory://?x=1", "memory://a#b", "memory:a?b"])
def test_a_memory_url_has_no_options(url: str) -> None:
    with pytest.raises(ValueError, match=f"without options.*{re.escape(url)}"):
        open_store(url)
