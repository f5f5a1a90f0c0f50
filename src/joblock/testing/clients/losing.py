"""Renewal by the keeper, and what happens when a lease is lost all the same."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from joblock.store.ops import Acquire, Refresh, Release
from joblock.testing.clients.stage import (
    PATIENCE,
    Actor,
    Client,
    ClientScenarios,
    Stage,
    keepers,
    until,
)
from joblock.values.errors import LockLost


class Losing(ClientScenarios):
    """See the module."""

    # A late end of somebody who lost it.

    def test_a_release_after_the_lease_lapsed_leaves_the_next_holder_alone(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        lapsed = a.do(locks.acquire, stage.key, stage.ttl, renew=False)
        stage.lapse(lapsed)
        with b.inside(others.lock(stage.key, stage.ttl)) as lease:
            assert a.do(lapsed.release) is False
            stage.settle()
            self._only_this_is_held(stage, lease)

    def test_the_end_of_a_block_after_the_lease_lapsed_leaves_the_next_holder_alone(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        lock = locks.lock(stage.key, stage.ttl, renew=False)
        stage.lapse(a.enter(lock))
        with b.inside(others.lock(stage.key, stage.ttl)) as lease:
            with pytest.raises(LockLost):
                a.leave(lock)
            stage.settle()
            self._only_this_is_held(stage, lease)

    def test_a_refresh_after_the_lease_lapsed_leaves_the_next_holder_alone(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        lapsed = a.do(locks.acquire, stage.key, stage.ttl, renew=False)
        stage.lapse(lapsed)
        with b.inside(others.lock(stage.key, stage.ttl)) as lease:
            with pytest.raises(LockLost):
                a.do(lapsed.refresh, stage.ttl)
            stage.settle()
            self._only_this_is_held(stage, lease)

    def test_the_end_of_a_run_after_its_lease_lapsed_leaves_the_next_holder_alone(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        work = stage.work(paused=True)
        running = a.start(
            locks.run_with_lock, stage.key, stage.ttl, work, renew=False, on_lost="raise"
        )
        work.wait_until_begun()
        stage.elapse(1.1 * stage.ttl)
        with b.inside(others.lock(stage.key, stage.ttl)) as lease:
            work.finish()
            with pytest.raises(LockLost):
                running.result(PATIENCE)
            stage.settle()
            self._only_this_is_held(stage, lease)

    def test_a_holder_that_slept_past_its_lease_does_not_touch_the_next_one(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        """Not even with the renewal that it sends as soon as it is awake."""
        clock = stage.manual
        gate = stage.faults(locks).delay(Refresh, times=None)
        lock = locks.lock(stage.key, stage.ttl)
        a.enter(lock)
        stage.settle()
        clock.advance(stage.ttl / 3, settle=False)
        gate.wait_for_arrival()
        clock.advance(stage.ttl, settle=False)
        with b.inside(others.lock(stage.key, stage.ttl)) as lease:
            gate.open()
            stage.settle()
            with pytest.raises(LockLost):
                a.leave(lock)
            stage.settle()
            self._only_this_is_held(stage, lease)

    def _only_this_is_held(self, stage: Stage, lease: Any) -> None:
        assert stage.holders() == [lease.holder]
        assert lease.held
        other = stage.client()
        assert stage.actor().do(other.acquire, stage.key, stage.ttl) is None

    # How a loss is told.

    def test_a_lease_that_was_broken_is_lost_at_its_next_renewal(
        self,
        stage: Stage,
        a: Actor,
        b: Actor,
        locks: Client,
        others: Client,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        lease = a.do(locks.acquire, stage.key, stage.ttl)
        lost = a.do(lambda: lease.lost)
        (broken,) = b.do(others.model.delete, stage.key, by="ops", why="it hangs")
        assert broken.holder == lease.holder
        with caplog.at_level(logging.WARNING, "joblock"):
            stage.elapse(0.5 * stage.ttl)
        until(lost.is_set, lambda: "the event should be set")
        assert not lease.held
        with pytest.raises(LockLost) as caught:
            lease.check()
        assert caught.value.reason == "refused"
        told = [record.message for record in caplog.records if "lost by" in record.message]
        assert len(told) == 1
        assert stage.key in told[0]
        assert a.do(lease.release) is False

    def test_everybody_who_waits_for_the_loss_is_told(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        lease = a.do(locks.acquire, stage.key, stage.ttl)
        lost = a.do(lambda: lease.lost)
        waiting = [actor.start(lost.wait) for actor in (a, b)]
        stage.actor("ops").do(others.model.delete, stage.key)
        stage.elapse(0.5 * stage.ttl)
        for waits in waiting:
            assert waits.result(PATIENCE) is True

    def test_a_lease_that_cannot_be_renewed_is_lost_at_its_deadline_and_not_before(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        stage.needs_manual_clock()
        lease = a.do(locks.acquire, stage.key, 30)
        lost = a.do(lambda: lease.lost)
        stage.faults(locks).go_down()
        stage.elapse(29.625)
        assert lease.held
        assert not lost.is_set()
        stage.elapse(0.125)
        until(lost.is_set, lambda: "the event should be set")
        with pytest.raises(LockLost) as caught:
            lease.check()
        assert caught.value.reason == "deadline"

    def test_a_lost_lease_is_not_revived_when_the_store_is_back_but_given_back(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        lease = a.do(locks.acquire, stage.key, stage.ttl)
        faults = stage.faults(locks)
        faults.go_down()
        stage.elapse(1.05 * stage.ttl)
        assert not lease.held
        faults.clear()
        stage.elapse(stage.ttl)
        assert not lease.held
        assert stage.leases() == ()

    def test_a_renewal_confirmed_after_the_deadline_does_not_revive_the_lease(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        clock = stage.manual
        lease = a.do(locks.acquire, stage.key, 30)
        gate = stage.faults(locks).delay(Refresh, done=True)
        stage.settle()
        clock.advance(10, settle=False)
        gate.wait_for_arrival()
        clock.advance(20, settle=False)
        until(lambda: not lease.held, lambda: "should be lost")
        gate.open()
        stage.settle()
        assert not lease.held
        stage.until_free()

    def test_a_loss_is_told_in_time_while_the_store_does_not_answer(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        clock = stage.manual
        lease = a.do(locks.acquire, stage.key, 30)
        lost = a.do(lambda: lease.lost)
        gate = stage.faults(locks).delay(Refresh, times=None)
        stage.settle()
        clock.advance(10, settle=False)
        gate.wait_for_arrival()
        clock.advance(19.75, settle=False)
        until(lost.is_set, lambda: "the event should be set though the renewal is on its way")
        gate.open()

    def test_a_lease_taken_while_the_store_does_not_answer_renewals_is_lost_in_time_too(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        clock = stage.manual
        long = a.do(locks.acquire, stage.key, 300)
        gate = stage.faults(locks).delay(Refresh, times=None)
        stage.settle()
        clock.advance(100, settle=False)
        gate.wait_for_arrival()
        brief = a.do(locks.acquire, f"{stage.key}:brief", 10)
        lost = a.do(lambda: brief.lost)
        for _ in range(10):
            clock.advance(1, settle=False)
        until(lost.is_set, lambda: "the event should be set though a renewal is on its way")
        gate.open()
        a.do(long.release)

    def test_one_error_in_a_renewal_is_not_a_loss(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        faults = stage.faults(locks)
        lease = a.do(locks.acquire, stage.key, stage.ttl)
        for fault in (faults.fail, faults.lose_reply):
            fault(Refresh)
            stage.elapse(1.5 * stage.ttl)
            assert lease.held
        assert stage.holders() == [lease.holder]
        a.do(lease.release)

    def test_an_outage_shorter_than_the_ttl_is_not_a_loss(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        faults = stage.faults(locks)
        lease = a.do(locks.acquire, stage.key, stage.ttl)
        faults.go_down()
        stage.elapse(0.85 * stage.ttl)
        faults.clear()
        stage.elapse(2 * stage.ttl)
        assert lease.held
        a.do(lease.release)

    @pytest.mark.parametrize("error", [RuntimeError("a bug in the driver"), MemoryError()])
    def test_an_unexpected_error_in_a_renewal_does_not_end_the_keeper(
        self, stage: Stage, a: Actor, locks: Client, error: Exception
    ) -> None:
        lease = a.do(locks.acquire, stage.key, stage.ttl)
        stage.faults(locks).fail(Refresh, times=2, failure=lambda: error)
        stage.elapse(3 * stage.ttl)
        assert lease.held
        a.do(lease.release)

    def test_an_outage_is_asked_about_at_a_measured_pace(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        clock, faults = stage.manual, stage.faults(locks)
        with a.inside(locks.lock(stage.key, 300)):
            faults.go_down()
            stage.settle()
            for _ in range(8 * 250):
                clock.advance(0.125)
            assert 20 < len(faults.sent(Refresh)) < 160
            faults.clear()

    def test_a_release_that_hangs_keeps_no_renewal_waiting(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        """As that of a lost lease does while the transaction is open that it was guarded in."""
        stage.needs_manual_clock()
        other = a.do(locks.acquire, f"{stage.key}:2", stage.ttl)
        stage.settle()
        gate = stage.faults(locks).delay(Release)
        bound = {"max_duration": stage.ttl / 10, "on_lost": "warn"}
        lost = a.do(locks.acquire, stage.key, stage.ttl / 20, **bound)
        clock = stage.manual
        clock.advance(stage.ttl / 5, settle=False)
        gate.wait_for_arrival()

        def left_to_hang() -> bool:
            clock.advance(0.125, settle=False)
            return clock.at_rest()

        until(left_to_hang, lambda: "the keeper should look after the others by now")
        stage.elapse(2 * stage.ttl)
        assert (lost.held, other.held) == (False, True)
        gate.open()
        a.do(other.release)

    def test_a_new_lease_after_a_loss_is_renewed_as_any_other(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        first = a.do(locks.acquire, stage.key, stage.ttl)
        b.do(others.model.delete, stage.key)
        stage.elapse(0.5 * stage.ttl)
        assert not first.held
        with a.inside(locks.lock(stage.key, stage.ttl)) as second:
            stage.elapse(3 * stage.ttl)
            assert second.held
            assert not first.held

    def test_renewals_answered_slowly_are_neither_a_loss_nor_a_storm(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        clock, faults = stage.manual, stage.faults(locks)
        lease = a.do(locks.acquire, stage.key, 30)
        stage.settle()
        for _ in range(3):
            gate = faults.delay(Refresh, done=True)
            clock.advance(10, settle=False)
            gate.wait_for_arrival()
            clock.advance(15, settle=False)
            assert lease.held
            gate.open()
            stage.settle()
        assert len(faults.sent(Refresh)) <= 6
        before = len(faults.sent(Refresh))
        stage.elapse(60)
        assert lease.held
        assert len(faults.sent(Refresh)) - before <= 7
        a.do(lease.release)

    # A release and a renewal that cross.

    def test_a_release_beats_a_renewal_that_has_not_arrived_yet(
        self, stage: Stage, a: Actor, locks: Client, caplog: pytest.LogCaptureFixture
    ) -> None:
        clock = stage.manual
        lease = a.do(locks.acquire, stage.key, 30)
        lost = a.do(lambda: lease.lost)
        gate = stage.faults(locks).delay(Refresh)
        stage.settle()
        clock.advance(10, settle=False)
        gate.wait_for_arrival()
        with caplog.at_level(logging.WARNING, "joblock"):
            assert a.do(lease.release) is True
            assert stage.holders() == []
            gate.open()
            stage.settle()
        assert stage.leases() == ()
        assert not lost.is_set()
        assert not caplog.records

    def test_a_release_beats_a_renewal_whose_reply_is_on_its_way(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        clock = stage.manual
        lease = a.do(locks.acquire, stage.key, 30)
        gate = stage.faults(locks).delay(Refresh, done=True)
        stage.settle()
        clock.advance(10, settle=False)
        gate.wait_for_arrival()
        a.do(lease.release)
        with b.inside(others.lock(stage.key, 30)) as second:
            gate.open()
            stage.settle()
            assert not lease.held
            self._only_this_is_held(stage, second)

    def test_a_renewal_sent_while_a_release_is_on_its_way_does_not_bring_the_lease_back(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        stage.needs_manual_clock()
        lease = a.do(locks.acquire, stage.key, 30)
        gate = stage.faults(locks).delay(Release)
        releasing = a.start(lease.release)
        gate.wait_for_arrival()
        stage.elapse(25)
        gate.open()
        assert releasing.result(PATIENCE) is True
        stage.elapse(30)
        assert stage.leases() == ()

    def test_a_release_that_fails_lets_the_key_lapse_at_its_ttl(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        lease = a.do(locks.acquire, stage.key, stage.ttl)
        stage.faults(locks).go_down()
        assert a.do(lease.release) is True
        waiting = b.start(others.acquire, stage.key, stage.ttl, wait=True)
        stage.until_queued(1)
        stage.elapse(1.1 * stage.ttl)
        second = waiting.result(PATIENCE)
        assert second.token > lease.token
        b.do(second.release)

    # What a block does about a loss.

    def test_leaving_a_block_whose_lease_was_lost_raises(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        lock = locks.lock(stage.key, stage.ttl)
        lease = a.enter(lock)
        b.do(others.model.delete, stage.key)
        stage.elapse(0.5 * stage.ttl)
        with pytest.raises(LockLost) as caught:
            a.leave(lock)
        lost = caught.value
        assert (lost.key, lost.holder, lost.token) == (stage.key, lease.holder, lease.token)
        assert lost.reason == "refused"

    def test_leaving_a_block_finds_a_loss_that_nobody_was_told_of_yet(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        lock = locks.lock(stage.key, stage.ttl)
        a.enter(lock)
        b.do(others.model.delete, stage.key)
        with pytest.raises(LockLost):
            a.leave(lock)

    @pytest.mark.parametrize("told", [True, False])
    def test_a_loss_is_a_note_on_the_exception_of_the_body(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client, told: bool
    ) -> None:
        lock = locks.lock(stage.key, stage.ttl, on_lost="raise")
        a.enter(lock)
        b.do(others.model.delete, stage.key)
        if told:
            stage.elapse(0.5 * stage.ttl)
        error = KeyError("of the body")
        with pytest.raises(KeyError) as caught:
            a.leave(lock, error)
        assert caught.value is error
        (note,) = caught.value.__notes__
        assert "lost by" in note

    def test_the_exception_of_check_is_the_one_that_leaves_the_block(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        lock = locks.lock(stage.key, stage.ttl, on_lost="raise")
        lease = a.enter(lock)
        b.do(others.model.delete, stage.key)
        stage.elapse(0.5 * stage.ttl)
        with pytest.raises(LockLost) as checked:
            lease.check()
        with pytest.raises(LockLost) as caught:
            a.leave(lock, checked.value)
        assert caught.value is checked.value

    def test_a_loss_that_only_warns_leaves_the_block_as_it_is(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        lock = locks.lock(stage.key, stage.ttl, on_lost="warn")
        with a.inside(lock) as lease:
            b.do(others.model.delete, stage.key)
            stage.elapse(0.5 * stage.ttl)
            assert not lease.held
            with pytest.raises(LockLost):
                lease.check()

    def test_losing_both_of_two_nested_blocks_is_told_by_each(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        outer = locks.lock(stage.key, stage.ttl, renew=False, on_lost="raise")
        inner = locks.lock(f"{stage.key}:2", stage.ttl, renew=False, on_lost="raise")
        a.enter(outer)
        stage.lapse(a.enter(inner))
        with pytest.raises(LockLost) as first:
            a.leave(inner)
        with pytest.raises(LockLost) as second:
            a.leave(outer, first.value)
        assert second.value is first.value
        assert (first.value.key, len(first.value.__notes__)) == (f"{stage.key}:2", 1)
        assert stage.key in first.value.__notes__[0]

    def test_one_loss_does_not_touch_other_leases(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        with a.inside(locks.lock(f"{stage.key}:2", stage.ttl)) as kept:
            lease = a.do(locks.acquire, stage.key, stage.ttl)
            b.do(others.model.delete, stage.key)
            stage.elapse(2 * stage.ttl)
            assert not lease.held
            assert kept.held

    # The bound.

    @pytest.mark.parametrize("door", ["lock", "acquire"])
    def test_max_duration_ends_a_lease_however_it_is_renewed(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client, door: str
    ) -> None:
        stage.needs_manual_clock()
        bound = {"max_duration": "75s", "on_lost": "warn"}
        if door == "lock":
            lock = locks.lock(stage.key, 30, **bound)
            lease = a.enter(lock)
        else:
            lock = lease = a.do(locks.acquire, stage.key, 30, **bound)
        stage.settle()
        stage.elapse(74.875)
        assert lease.held
        (stored,) = stage.leases()
        age = (stored.expires_at - stored.acquired_at).total_seconds()
        assert age <= 75.001
        stage.elapse(0.125)
        assert not lease.held
        with pytest.raises(LockLost) as caught:
            lease.check()
        assert caught.value.reason == "max_duration"
        assert b.gets(others.lock(stage.key, 30))
        a.do(lock.release)

    def test_a_lease_without_a_bound_is_warned_of_once_when_it_gets_old(
        self, stage: Stage, a: Actor, locks: Client, caplog: pytest.LogCaptureFixture
    ) -> None:
        stage.needs_manual_clock()
        with (
            caplog.at_level(logging.WARNING, "joblock"),
            a.inside(locks.lock(stage.key, 30)),
            a.inside(locks.lock(f"{stage.key}:bounded", 30, max_duration="1h")),
        ):
            stage.settle()
            stage.elapse(290)
            assert not caplog.records
            stage.elapse(600)
        (record,) = caplog.records
        assert "max_duration" in record.message
        assert repr(stage.key) in record.message

    # The keeper.

    def test_many_leases_are_renewed_in_batches_by_one_thread(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        faults, many = stage.faults(locks), stage.harness.many
        stage.needs_manual_clock()
        leases = stage.acquire_many(a, locks, [f"{stage.key}:{n}" for n in range(many)], 30)
        stage.settle()
        threads = threading.active_count()
        stage.elapse(60)
        assert all(lease.held for lease in leases)
        renewals = faults.sent(Refresh)
        assert len(renewals) <= 8
        assert {len(refresh.renewals) for refresh in renewals} == {many}
        assert len(keepers()) == 1
        assert threading.active_count() <= threads + 1
        a.do(locks.close)

    def test_leases_taken_at_different_times_are_soon_renewed_together(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        stage.needs_manual_clock()
        faults = stage.faults(locks)
        leases: list[Any] = []
        for number in range(8):
            leases.append(a.do(locks.acquire, f"{stage.key}:{number}", 30))
            stage.settle()
            stage.elapse(0.25)
        stage.elapse(60)
        before = len(faults.sent(Refresh))
        stage.elapse(60)
        assert len(faults.sent(Refresh)) - before <= 7
        assert all(lease.held for lease in leases)
        for lease in leases:
            a.do(lease.release)

    def test_a_client_that_holds_nothing_soon_has_no_thread(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        stage.needs_manual_clock()
        for _ in range(2):
            before = keepers()
            with a.inside(locks.lock(stage.key, 30)):
                stage.settle()
                stage.elapse(10)
                assert len(keepers() - before) == 1
            stage.elapse(180)
            until(lambda before=before: keepers() <= before, lambda: "the keeper should have ended")

    def test_a_keeper_that_wakes_late_says_so(
        self, stage: Stage, a: Actor, locks: Client, caplog: pytest.LogCaptureFixture
    ) -> None:
        clock = stage.manual
        with (
            caplog.at_level(logging.WARNING, "joblock"),
            a.inside(locks.lock(stage.key, 30)) as lease,
        ):
            stage.settle()
            clock.advance(25)
            assert lease.held
        assert any("late" in record.message for record in caplog.records)

    def test_a_refused_renewal_of_one_lease_is_not_one_of_its_successor(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        """The same explicit holder has the key again: another lease, with another token."""
        stage.needs_manual_clock()
        first = a.do(locks.acquire, stage.key, 30, holder="h")
        b.do(others.model.delete, stage.key)
        other = b.do(others.acquire, stage.key, 30, holder="h")
        stage.settle()
        stage.elapse(15)
        assert not first.held
        assert other.held
        assert stage.holders() == ["h"]
        b.do(other.release)

    def test_a_reply_that_grants_what_was_given_up_is_given_back(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        faults = stage.faults(locks)
        faults.lose_reply(Acquire, times=None)
        waiting = a.start(locks.acquire, stage.key, stage.ttl, wait=stage.ttl / 10)
        until(lambda: len(stage.holders()) == 1, lambda: "the store should have granted it")
        stage.until_asleep(1)
        stage.elapse(stage.ttl / 9)
        with pytest.raises(Exception, match="cannot be reached"):
            waiting.result(PATIENCE)
        stage.until_free()
