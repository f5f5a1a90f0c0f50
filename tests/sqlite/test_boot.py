"""The store's clock across boots of the machine: what ends with a boot, and what outlives it."""

from __future__ import annotations

import sqlite3

import pytest

from joblock.store.ops import (
    Acquire,
    Busy,
    Check,
    Force,
    Granted,
    Holders,
    Queueing,
    Refresh,
    Release,
    Renewal,
    Waiters,
)
from joblock.stores.sqlite import SqliteStore, boot
from joblock.testing import ManualClock
from joblock.values.clock import SYSTEM_CLOCK

LONG = 3_600_000


@pytest.fixture
def machine(path):
    """A machine that can be booted anew; its clock since boot then begins again."""
    machine = Machine(path)
    yield machine
    machine.store.close()


class Machine:
    def __init__(self, path):
        self.path = path
        self.clock = ManualClock(monotonic=5_000)
        self.store = SqliteStore(path, clock=self.clock)
        self.call = self.store.driver().call

    def boot(self, *, after=60.0, wall_is_off_by=0.0):
        self.store.close()
        wall = self.clock.wall() + after + wall_is_off_by
        self.clock = ManualClock(wall=wall, monotonic=10)
        self.store = SqliteStore(self.path, clock=self.clock)
        self.call = self.store.driver().call

    def states(self):
        return {lease.holder: lease.state for lease in self.call(Holders("key"))}


def test_stores_of_one_boot_share_the_clock_of_the_first(path, clock, open_store):
    first = open_store().driver().call(Acquire("one", "A", LONG))
    clock.step_wall(-1_000)
    clock.advance(2)
    second = open_store().driver().call(Acquire("two", "A", LONG))
    assert second.acquired_at == first.acquired_at + 2_000


def test_a_lease_of_an_earlier_boot_is_void(machine):
    before = machine.call(Acquire("key", "A", LONG))
    machine.boot()
    assert machine.states() == {}
    assert not machine.call(Refresh((Renewal("key", "A", before.token, LONG),))).renewed[0]
    assert not machine.call(Release("key", "A")).freed
    after = machine.call(Acquire("key", "B", LONG))
    assert isinstance(after, Granted)
    assert after.replaced == ""


def test_tokens_grow_across_a_boot_even_if_the_wall_clock_was_set_back(machine):
    before = machine.call(Acquire("key", "A", LONG))
    machine.boot(wall_is_off_by=-86_400)
    after = machine.call(Acquire("key", "B", LONG))
    assert after.token > before.token
    assert after.acquired_at > before.acquired_at


def test_permits_and_claims_of_an_earlier_boot_are_void(machine):
    machine.call(Acquire("key", "A", LONG, 1, 2))
    machine.call(Acquire("key", "B", LONG, 1, 2))
    machine.call(Acquire("key", "W", LONG, 1, 2, queue=Queueing("client")))
    machine.call(Release("key", "A"))
    assert machine.states() == {"B": "held", "W": "held"}
    machine.boot(after=0.1)
    assert machine.states() == {}
    assert isinstance(machine.call(Acquire("key", "C", LONG)), Granted)
    machine.call(Release("key", "C"))
    assert isinstance(machine.call(Acquire("key", "D", LONG, 2, 2)), Granted)


def test_waiters_and_presence_of_an_earlier_boot_are_void(machine):
    machine.call(Acquire("key", "A", LONG))
    before = machine.call(Acquire("key", "W", LONG, queue=Queueing("client")))
    machine.boot(after=0.1)
    assert machine.call(Waiters("key")) == ()
    assert isinstance(machine.call(Acquire("key", "B", LONG)), Granted)
    assert machine.call(Check("client", ("key",))).states[0].epoch > before.epoch


def test_a_grace_outlives_a_boot_and_ends_when_it_should(machine):
    machine.call(Acquire("key", "A", LONG))
    machine.call(Release("key", "A", grace=600_000))
    machine.boot(after=60)
    assert machine.states() == {"A": "grace"}
    busy = machine.call(Acquire("key", "B", LONG))
    assert (busy.why, busy.remaining) == ("grace", 540_000)
    machine.clock.advance(540)
    assert isinstance(machine.call(Acquire("key", "B", LONG)), Granted)


def test_a_permit_in_grace_outlives_a_boot(machine):
    machine.call(Acquire("key", "A", LONG, 1, 2))
    machine.call(Release("key", "A", grace=600_000))
    machine.boot(after=60)
    assert machine.states() == {"A": "grace"}
    assert isinstance(machine.call(Acquire("key", "B", LONG, 1, 2)), Granted)
    assert isinstance(machine.call(Acquire("key", "C", LONG, 1, 2)), Busy)


@pytest.mark.parametrize("size", [(1, 1), (1, 2)])
def test_what_must_stay_closed_at_least_until_a_moment_does_although_its_run_died(machine, size):
    machine.call(Acquire("key", "A", 1_000, *size, at_least=600_000))
    machine.boot(after=60)
    assert machine.states() == {"A": "grace"}
    assert not machine.call(Release("key", "A")).freed
    machine.clock.advance(540)
    assert isinstance(machine.call(Acquire("key", "B", LONG, 2, 2)), Granted)


def test_how_the_last_run_ended_outlives_a_boot(machine):
    token = machine.call(Acquire("key", "A", LONG)).token
    machine.call(Release("key", "A", ok=True))
    machine.boot()
    assert machine.call(Check("client", ("key",))).states[0].ok_token == token


def test_time_never_goes_back_although_the_wall_clock_did(machine):
    machine.call(Acquire("key", "A", LONG))
    machine.clock.advance(100)
    last = machine.call(Acquire("other", "A", LONG)).acquired_at
    machine.boot(wall_is_off_by=-86_400)
    assert machine.call(Acquire("key", "B", LONG)).acquired_at > last


def test_time_is_that_of_the_wall_again_after_a_boot(machine):
    machine.call(Acquire("key", "A", LONG))
    machine.boot(after=7_200)
    assert machine.call(Acquire("key", "B", LONG)).acquired_at == int(machine.clock.wall() * 1000)


def test_another_boot_id_alone_makes_it_another_boot(path, store, call):
    """On the machine's own clock, which went on since: only the id tells the two boots apart."""
    call(Acquire("key", "A", LONG))
    store.close()
    with sqlite3.connect(path) as con:
        con.execute("UPDATE meta SET boot_id = 'an earlier boot'")
    con.close()
    assert isinstance(call(Acquire("key", "B", LONG)), Granted)


def test_the_same_boot_id_keeps_what_is_there(store, call):
    call(Acquire("key", "A", LONG))
    store.close()
    assert isinstance(call(Acquire("key", "B", LONG)), Busy)


def test_who_broke_a_lease_outlives_a_boot(path, machine):
    machine.call(Acquire("key", "A", LONG))
    machine.call(Force("key", "ops@example.org", "it hangs"))
    machine.boot()
    machine.call(Holders("key"))
    with sqlite3.connect(path) as con:
        kept = con.execute("SELECT forced_by, forced_why FROM job_locks").fetchall()
    con.close()
    assert kept == [("ops@example.org", "it hangs")]


def test_the_machines_boot_has_a_name_and_a_turned_clock_has_its_own():
    assert boot.boot_id(SYSTEM_CLOCK) not in ("", boot.MANUAL)
    assert boot.boot_id(ManualClock()) == boot.MANUAL
