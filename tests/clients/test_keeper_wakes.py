"""The keeper sleeps while leases come and go: waking it for each would cost more than that."""

from __future__ import annotations

import threading

from joblock import JobLocks
from joblock.stores.memory import MemoryStore
from joblock.testing import ManualClock

CYCLES = 50


class CountingClock(ManualClock):
    """How often its background threads went to sleep."""

    naps = 0

    def idle(self, event: threading.Event, until: float | None) -> None:
        self.naps += 1
        super().idle(event, until)


def test_leases_taken_and_released_one_after_the_other_wake_it_once():
    clock = CountingClock()
    locks = JobLocks(MemoryStore(clock=clock), clock=clock)
    for _ in range(CYCLES):
        with locks.lock("key", ttl=30):
            pass
        clock.settle(1)
    assert clock.naps <= 2  # when it was started, and for the first lease if that came after
    locks.close()


def test_after_them_a_lease_that_is_kept_is_renewed_in_time():
    clock = CountingClock()
    store = MemoryStore(clock=clock)
    locks = JobLocks(store, clock=clock)
    for _ in range(CYCLES):
        with locks.lock("key", ttl=30):
            pass
    with locks.lock("shorter", ttl=3) as shorter, locks.lock("key", ttl=30) as lease:
        clock.settle(1)
        for _ in range(120):
            clock.run(1)
            assert shorter.held
            assert lease.held
    locks.close()


def test_with_nothing_left_to_do_for_a_minute_it_ends():
    clock = CountingClock()
    locks = JobLocks(MemoryStore(clock=clock), clock=clock)
    before = set(threading.enumerate())
    with locks.lock("key", ttl="3h"):
        pass
    clock.settle(1)
    (keeper,) = {
        thread for thread in threading.enumerate() if thread.name == "joblock-keeper"
    } - before
    clock.run(61)
    keeper.join(10)
    assert not keeper.is_alive()
    locks.close()
