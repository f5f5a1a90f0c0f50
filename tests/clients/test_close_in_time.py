"""Closing takes bounded time, by the real clock, and still releases what it can."""

from __future__ import annotations

import time

from joblock import JobLocks
from joblock.store.ops import Holders, Refresh
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
