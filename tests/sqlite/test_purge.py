"""What a purge deletes from the file, and that it costs nobody anything else."""

from __future__ import annotations

import sqlite3

import pytest

from joblock.store.ops import (
    PRESENCE_MS,
    Acquire,
    Busy,
    Check,
    Granted,
    Holders,
    Purge,
    Queueing,
    Release,
    Strike,
    Waiters,
)

LONG = 600_000
IDLE = 3_600_000


@pytest.fixture
def purged(path, clock, open_store):
    return Purged(path, clock, open_store())


class Purged:
    def __init__(self, path, clock, store):
        self.path = path
        self.clock = clock
        self.store = store
        self.call = store.driver().call

    def after(self, ms):
        self.clock.advance(ms / 1000)
        return self.call(Purge(idle=IDLE))

    def rows(self, table):
        con = sqlite3.connect(self.path)
        [(count,)] = con.execute(f"SELECT count(*) FROM {table}")  # noqa: S608 - names above
        con.close()
        return count


def test_a_vacated_key_goes_once_it_was_idle_for_long_enough(purged):
    purged.call(Acquire("key", "A", LONG))
    purged.call(Release("key", "A"))
    assert purged.after(IDLE - 1) == 0
    assert purged.after(1) == 1
    assert purged.rows("job_locks") == 0


def test_a_lease_that_nobody_took_over_goes_once_it_was_over_for_long_enough(purged):
    purged.call(Acquire("key", "A", LONG))
    assert purged.after(LONG + IDLE - 1) == 0
    assert [lease.state for lease in purged.call(Holders("key"))] == ["expired"]
    assert purged.after(1) == 1
    assert purged.call(Holders("key")) == ()


def test_permits_go_when_the_last_of_them_is_over_for_long_enough(purged):
    purged.call(Acquire("key", "A", LONG, 1, 2))
    purged.call(Acquire("key", "B", 2 * LONG, 1, 2))
    assert purged.after(LONG + IDLE) == 0
    assert purged.after(LONG) == 1
    assert purged.rows("job_locks") == purged.rows("permits") == 0


def test_a_grace_stays_until_it_is_over_for_long_enough(purged):
    purged.call(Acquire("key", "A", LONG))
    purged.call(Release("key", "A", grace=IDLE))
    assert purged.after(2 * IDLE - 1) == 0
    assert purged.after(1) == 1


def test_a_key_goes_although_a_parked_waiter_is_left_over_from_long_ago(purged):
    purged.call(Acquire("key", "A", LONG))
    purged.call(Acquire("key", "W", LONG, queue=Queueing("client")))
    purged.call(Release("key", "A"))
    purged.call(Strike("key", "W"))
    assert purged.after(IDLE - 1) == 0
    assert purged.rows("waiters") == 1
    assert purged.after(1) == 1
    assert purged.rows("waiters") == 0


def test_waiters_of_a_client_that_is_long_gone_go_although_nobody_came_upon_them(purged):
    purged.call(Acquire("key", "A", LONG))
    for waiter in "WVU":
        purged.call(Acquire("key", waiter, LONG, queue=Queueing("client")))
    assert purged.after(PRESENCE_MS + IDLE - 1) == 0
    assert purged.rows("waiters") == 3
    assert purged.after(1) == 0
    assert purged.rows("waiters") == purged.rows("presence") == 0
    assert purged.call(Waiters("key")) == ()


def test_the_waiters_of_a_client_that_reports_stay_however_long_they_wait(purged):
    purged.call(Acquire("key", "A", 10 * IDLE))
    first = purged.call(Acquire("key", "W", LONG, queue=Queueing("client")))
    for _ in range(30):
        purged.call(Check("client", ("key",)))
        purged.after(IDLE // 300)
    purged.clock.advance(10 * IDLE / 1000)
    purged.call(Check("client", ("key",)))
    purged.call(Purge(idle=IDLE))
    [waiter] = purged.call(Waiters("key"))
    assert (waiter.holder, waiter.arrival) == ("W", first.arrival)


def test_presence_goes_when_it_has_been_over_for_long_enough(purged):
    purged.call(Check("client", ("key",)))
    purged.after(PRESENCE_MS + IDLE - 1)
    assert purged.rows("presence") == 1
    purged.after(1)
    assert purged.rows("presence") == 0


def test_a_purge_takes_no_more_than_its_batch_and_the_next_one_goes_on(purged):
    for number in range(25):
        purged.call(Acquire(f"{number}", "A", LONG))
        purged.call(Release(f"{number}", "A"))
    purged.clock.advance(IDLE / 1000)
    assert [purged.call(Purge(10, IDLE)) for _ in range(4)] == [10, 10, 5, 0]


def test_a_key_that_lost_its_left_over_waiters_is_acquired_by_one_statement_again(purged):
    purged.call(Acquire("key", "A", LONG))
    purged.call(Acquire("key", "W", LONG, queue=Queueing("client")))
    assert purged.after(PRESENCE_MS + IDLE) == 0
    assert isinstance(purged.call(Acquire("key", "B", LONG)), Granted)
    purged.call(Release("key", "B"))
    purged.clock.advance(0.1)
    given = []
    purged.store.file.ready().set_trace_callback(given.append)
    assert isinstance(purged.call(Acquire("key", "B", LONG)), Granted)
    assert len(given) == 1


def test_a_waiter_purged_while_it_was_away_is_queued_again_where_it_was(purged):
    purged.call(Acquire("key", "A", 10 * IDLE))
    first = purged.call(Acquire("key", "W", LONG, queue=Queueing("client")))
    purged.after(PRESENCE_MS + IDLE)
    assert purged.call(Waiters("key")) == ()
    purged.call(Acquire("key", "V", LONG, queue=Queueing("other")))
    again = purged.call(Acquire("key", "W", LONG, queue=Queueing("client", first.arrival)))
    assert isinstance(again, Busy)
    assert again.epoch != first.epoch
    assert [waiter.holder for waiter in purged.call(Waiters("key"))] == ["W", "V"]
