"""The uncontended lock is one statement each way, and decides as the rows do."""

from __future__ import annotations

import statistics
import time

import pytest

from joblock.store.ops import (
    Acquire,
    Busy,
    Granted,
    Joined,
    Purge,
    Queueing,
    Refresh,
    Refreshed,
    Release,
    Renewal,
)
from joblock.stores.sqlite import fast

LONG = 3_600_000


@pytest.fixture
def statements(store, call):
    """The statements that SQLite is given."""
    call(Acquire("another key", "A", LONG))
    given = []
    store.file.ready().set_trace_callback(given.append)
    return given


@pytest.fixture
def turned(clock, open_store):
    """A store on a clock turned by hand."""
    return open_store().driver().call


def test_a_new_key_is_acquired_and_released_by_one_statement_each(call, statements):
    granted = call(Acquire("key", "A", LONG, worker="here"))
    assert isinstance(granted, Granted)
    assert call(Release("key", "A", granted.token)).freed
    assert len(statements) == 2


def test_a_vacated_key_is_acquired_and_released_by_one_statement_each(call, statements):
    call(Acquire("key", "A", LONG))
    call(Release("key", "A"))
    statements.clear()
    assert isinstance(call(Acquire("key", "B", LONG, 3, 3, at_least=1)), Granted)
    time.sleep(0.002)  # at_least, on the machine's clock
    assert call(Release("key", "B", ok=True)).freed
    assert len(statements) == 2


def test_a_caller_that_would_wait_if_it_had_to_is_granted_by_one_statement(call, statements):
    assert isinstance(call(Acquire("key", "A", LONG, queue=Queueing("client"))), Granted)
    assert len(statements) == 1


def test_one_lease_is_renewed_by_one_statement(call, statements):
    token = call(Acquire("key", "A", LONG)).token
    statements.clear()
    assert call(Refresh((Renewal("key", "A", token, LONG),))) == Refreshed((True,), (False,))
    assert len(statements) == 1


def test_many_leases_are_renewed_by_one_statement_each_in_one_transaction(call, statements):
    keys = [str(number) for number in range(100)]
    tokens = [call(Acquire(key, "A", LONG)).token for key in keys]
    statements.clear()
    renewals = tuple(
        Renewal(key, "A", token, LONG) for key, token in zip(keys, tokens, strict=True)
    )
    assert call(Refresh(renewals)).renewed == (True,) * 100
    assert len(statements) == 102


def test_a_cycle_costs_little_more_than_its_statements_alone(store, call):
    """Measured in pairs, against the same two statements through the bare module."""
    call(Acquire("key", "A", LONG))
    call(Release("key", "A"))
    con = store.file.ready()
    acquire, release = Acquire("key", "A", LONG), Release("key", "A")
    token = iter(range(int(time.time() * 1e6), 1 << 53))

    def through_the_driver():
        for _ in range(100):
            call(acquire)
            call(release)

    def bare():
        for _ in range(100):
            mine = next(token)
            values = ("bare", "A", mine, 1, 1, 1_700_000_000_000, 1_700_000_030_000, 0, "")
            assert con.execute(fast.ACQUIRE, values).rowcount == 1
            assert con.execute(fast.RELEASE, ("bare", "A", mine, 1_700_000_000_001)).rowcount == 1

    pairs = [(cost(through_the_driver), cost(bare)) for _ in range(60)]
    assert statistics.median(mine / theirs for mine, theirs in pairs) < 1.35


def cost(work):
    begin = time.thread_time()
    work()
    return time.thread_time() - begin


# What the driver tells of rows that a statement changed: ownership hangs on it.


def test_rowcount_is_one_for_what_was_done_and_zero_for_what_was_not(store, call):
    call(Acquire("other", "A", LONG))
    cursor = store.file.ready().cursor()

    def acquire(holder, token):
        values = ("key", holder, token, 1, 1, 1_000, 2_000, 0, "")
        return cursor.execute(fast.ACQUIRE, values).rowcount

    def release(holder, token):
        return cursor.execute(fast.RELEASE, ("key", holder, token, 1_500)).rowcount

    assert [acquire("A", 10), acquire("A", 11), acquire("B", 12)] == [1, 0, 0]
    assert [release("B", 0), release("A", 11), release("A", 10), release("A", 10)] == [0, 0, 1, 0]
    assert [acquire("B", 10), acquire("B", 13), release("B", 0)] == [0, 1, 1]


# Each rule that the statements must not pass over.


def test_a_key_that_is_held_is_not_granted(turned):
    turned(Acquire("key", "A", LONG))
    assert turned(Acquire("key", "B", LONG)) == Busy(
        "A", LONG, "held", turned(Acquire("key", "A", LONG)).token
    )


def test_a_holder_that_acquires_again_keeps_its_token(turned, clock):
    first = turned(Acquire("key", "A", 1_000))
    clock.advance(0.5)
    again = turned(Acquire("key", "A", 1_000))
    assert again == first._replace(
        acquired_at=first.acquired_at + 500, expires_at=first.expires_at + 500, reentered=True
    )


def test_an_expired_lease_is_taken_over_and_said_to_be(turned, clock):
    turned(Acquire("key", "A", 1_000))
    clock.advance(1)
    assert turned(Acquire("key", "B", 1_000)).replaced == "A"


def test_an_expired_lease_is_still_its_holders_to_renew_and_to_release(turned, clock):
    token = turned(Acquire("key", "A", 1_000)).token
    clock.advance(2)
    assert turned(Refresh((Renewal("key", "A", token, 1_000),))).renewed == (True,)
    clock.advance(2)
    assert turned(Release("key", "A", token)).freed


def test_an_expired_lease_that_keeps_the_key_closed_is_nobodys(turned, clock):
    token = turned(Acquire("key", "A", 1_000, at_least=10_000)).token
    clock.advance(2)
    assert turned(Refresh((Renewal("key", "A", token, 1_000),))).renewed == (False,)
    assert not turned(Release("key", "A", token)).freed
    assert turned(Acquire("key", "B", 1_000)).why == "grace"


def test_a_key_in_grace_is_closed_to_its_holder_too(turned):
    token = turned(Acquire("key", "A", LONG)).token
    turned(Release("key", "A", token, grace=1_000))
    assert turned(Acquire("key", "A", LONG)).why == "grace"
    assert turned(Refresh((Renewal("key", "A", token, LONG),))).renewed == (False,)
    assert not turned(Release("key", "A", token)).freed


def test_a_key_with_permits_is_closed_to_an_exclusive_lease(turned):
    turned(Acquire("key", "A", LONG, 1, 2))
    assert isinstance(turned(Acquire("key", "B", LONG)), Busy)


def test_a_key_with_waiters_goes_to_the_first_of_them(turned):
    turned(Acquire("key", "A", LONG))
    turned(Acquire("key", "W", LONG, queue=Queueing("client")))
    turned(Release("key", "A"))
    assert isinstance(turned(Acquire("key", "B", LONG)), Busy)
    assert isinstance(turned(Acquire("key", "W", LONG, queue=Queueing("client", 1))), Granted)


def test_a_renewal_says_that_somebody_waits(turned):
    token = turned(Acquire("key", "A", LONG)).token
    turned(Acquire("key", "W", LONG, queue=Queueing("client")))
    assert turned(Refresh((Renewal("key", "A", token, LONG),))).waiting == (True,)


def test_a_claim_is_not_renewed(turned):
    turned(Acquire("key", "A", LONG))
    turned(Acquire("key", "W", LONG, queue=Queueing("client")))
    turned(Release("key", "A"))
    assert turned(Refresh((Renewal("key", "W", 0, LONG),))).renewed == (False,)


def test_a_joiner_of_a_run_that_ended_well_is_done_although_the_key_is_free(turned):
    token = turned(Acquire("key", "A", LONG)).token
    turned(Release("key", "A", ok=True))
    assert turned(Acquire("key", "J", LONG, queue=Queueing("client", join=token))) == Joined(token)


def test_a_token_is_above_the_last_one_although_the_wall_clock_went_back(turned, clock):
    first = turned(Acquire("key", "A", LONG)).token
    turned(Release("key", "A"))
    clock.step_wall(-3_600)
    second = turned(Acquire("key", "A", LONG)).token
    assert second == first + 1


def test_a_purged_key_begins_above_its_last_token_although_the_wall_clock_went_back(turned, clock):
    first = turned(Acquire("key", "A", LONG)).token
    turned(Release("key", "A"))
    clock.advance(3_600)
    assert turned(Purge()) == 1
    clock.step_wall(-86_400)
    assert turned(Acquire("key", "A", LONG)).token == first + 1


def test_extend_only_never_brings_an_end_forward(turned):
    granted = turned(Acquire("key", "A", 10_000))
    short = (Renewal("key", "A", granted.token, 1_000),)
    turned(Refresh(short, extend_only=True))
    assert turned(Acquire("key", "B", LONG)).remaining == 10_000
    turned(Refresh(short, extend_only=False))
    assert turned(Acquire("key", "B", LONG)).remaining == 1_000
