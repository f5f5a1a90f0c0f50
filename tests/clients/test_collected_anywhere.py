"""A forgotten lease may be collected anywhere, in the middle of the library's own code too."""

from __future__ import annotations

import threading
import time
import warnings
from typing import Any

import pytest

from joblock import JobLocks
from joblock.store.ops import Holders
from joblock.stores.memory import MemoryStore


def drop(box: list[Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        box.clear()


@pytest.mark.parametrize("taken", ["lock", "event"])
def test_a_lease_collected_while_the_keeper_is_being_told_something_blocks_nobody(taken):
    store = MemoryStore()
    locks = JobLocks(store)
    box = [locks.acquire("key")]
    keeper = locks._hub.keeper  # noqa: SLF001 - no test can choose where the collector runs
    inside = keeper._lock if taken == "lock" else keeper._event._cond  # noqa: SLF001

    def collect() -> None:
        with inside:
            drop(box)

    collecting = threading.Thread(target=collect, daemon=True)
    collecting.start()
    collecting.join(10)
    assert not collecting.is_alive()
    end = time.monotonic() + 10
    while store.driver().call(Holders("key")):
        assert time.monotonic() < end, "it should have been released"
        time.sleep(0.001)
    locks.close()


def test_a_lease_collected_just_before_its_client_is_closed_is_released_by_that():
    store = MemoryStore()
    locks = JobLocks(store)
    box = [locks.acquire("key")]
    drop(box)
    locks.close()
    assert store.driver().call(Holders("key")) == ()


def test_a_lease_that_ends_while_the_keeper_goes_through_all_counts_as_released():
    store = MemoryStore()
    locks = JobLocks(store)
    first, second = (locks.acquire("key", holder="shared") for _ in range(2))
    assert first is not None
    assert second is not None
    gone_through = list(locks._hub.holds.values())  # noqa: SLF001 - as the keeper does
    assert first.release()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", ResourceWarning)
        del first
    assert [reference() is None for reference in gone_through] == [True, False]
    assert told == []
    # Nor was it counted as out twice: the other one would be the last, and be taken for none.
    assert [lease.holder for lease in store.driver().call(Holders("key"))] == ["shared"]
    assert second.release()
    locks.close()
