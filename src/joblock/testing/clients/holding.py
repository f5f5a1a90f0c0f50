"""Leases in the hands of their holders: facts, the local count of time, handing over, refresh."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from joblock.client.current import current, require
from joblock.store.ops import Acquire, Refresh, Release
from joblock.testing.clients.stage import PATIENCE, Actor, Client, ClientScenarios, Stage, until
from joblock.values.errors import LockLost, LockNotAcquired, StoreUnavailable
from joblock.values.identity import worker_id


class Holding(ClientScenarios):
    """See the module."""

    def test_a_lease_states_the_facts_of_its_grant(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        before = datetime.fromtimestamp(stage.clock.wall(), UTC)
        lease = a.do(locks.acquire, stage.key, stage.ttl)
        (stored,) = stage.leases()
        assert lease.key == stage.key
        assert lease.holder == stored.holder
        assert lease.holder.startswith(worker_id())
        assert lease.token == stored.token
        assert 0 < lease.token < 2**53
        assert lease.acquired_at == stored.acquired_at
        assert abs((lease.acquired_at - before).total_seconds()) < 1 + stage.harness.slack / 1000
        assert lease.held is True
        assert stage.about(lease.remaining, 0.99 * stage.ttl)
        assert repr(stage.key) in repr(lease)
        assert "held" in repr(lease)
        a.do(lease.release)
        assert "released" in repr(lease)

    def test_each_grant_has_a_greater_token(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        tokens: list[int] = []
        for actor, client in [(a, locks), (b, others), (a, locks), (a, others)]:
            lease = actor.do(client.acquire, stage.key, stage.ttl)
            tokens.append(lease.token)
            actor.do(lease.release)
        assert tokens == sorted(set(tokens))

    def test_the_store_says_where_a_holder_runs(self, stage: Stage, a: Actor) -> None:
        locks = stage.client(label="night shift")
        with a.inside(locks.lock(stage.key, stage.ttl)):
            (stored,) = stage.leases()
            assert stored.worker.host
            assert stored.worker.pid > 0
            assert stored.worker.label == "night shift"

    def test_an_explicit_acquisition_tries_once_unless_told_to_wait(
        self, stage: Stage, a: Actor, b: Actor, locks: Client
    ) -> None:
        first = a.do(locks.acquire, stage.key, stage.ttl)
        assert b.do(locks.acquire, stage.key, stage.ttl) is None
        assert stage.queue() == ()
        waiting = b.start(locks.acquire, stage.key, stage.ttl, wait=True)
        stage.until_queued(1)
        a.do(first.release)
        second = waiting.result(PATIENCE)
        assert second.token > first.token
        b.do(second.release)

    def test_a_bounded_wait_for_a_handle_ends_with_none(
        self, stage: Stage, a: Actor, b: Actor, locks: Client
    ) -> None:
        with a.inside(locks.lock(stage.key, stage.ttl)):
            waiting = b.start(locks.acquire, stage.key, stage.ttl, wait=stage.ttl / 4)
            stage.until_queued(1)
            stage.elapse(stage.ttl / 4)
            assert waiting.result(PATIENCE) is None
            assert stage.queue() == ()

    def test_a_handle_is_released_by_whoever_has_it(
        self, stage: Stage, a: Actor, b: Actor, locks: Client
    ) -> None:
        lease = a.do(locks.acquire, stage.key, stage.ttl)
        assert b.do(lease.release) is True
        assert not lease.held
        assert stage.holders() == []

    def test_a_second_release_of_a_handle_does_nothing(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        lease = a.do(locks.acquire, stage.key, stage.ttl)
        a.do(lease.release)
        with b.inside(others.lock(stage.key, stage.ttl)) as current_one:
            a.do(lease.release)
            assert stage.holders() == [current_one.holder]

    def test_a_handle_outlives_the_caller_that_took_it(
        self, stage: Stage, locks: Client, b: Actor
    ) -> None:
        taker = stage.actor("taker")
        lease = taker.do(locks.acquire, stage.key, stage.ttl)
        taker.end()
        stage.elapse(2 * stage.ttl)
        assert lease.held
        b.do(lease.release)

    def test_a_block_on_a_handle_releases_it(
        self, stage: Stage, a: Actor, b: Actor, locks: Client
    ) -> None:
        lease = a.do(locks.acquire, stage.key, stage.ttl)
        with b.inside(lease) as entered:
            assert entered is lease
            assert stage.holders() == [lease.holder]
        assert stage.holders() == []

    def test_a_handle_that_was_released_cannot_be_used(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        lease = a.do(locks.acquire, stage.key, stage.ttl)
        a.do(lease.release)
        assert (lease.held, lease.remaining) == (False, 0)
        for use in (lambda: a.enter(lease), lease.check, lambda: a.do(lease.refresh, stage.ttl)):
            with pytest.raises(LockLost) as caught:
                use()
            assert caught.value.reason == "released"

    # The local count of time.

    def test_a_holder_gives_up_before_the_store_does(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        stage.needs_manual_clock()
        lease = a.do(locks.acquire, stage.key, 30, renew=False)
        stage.elapse(29.625)
        assert lease.held
        assert lease.remaining == pytest.approx(0.075)
        lease.check()
        stage.elapse(0.125)
        assert (lease.held, lease.remaining) == (False, 0)
        assert stage.holders() == []  # given back, as far as possible
        with pytest.raises(LockLost) as caught:
            lease.check()
        assert caught.value.reason == "deadline"

    def test_the_deadline_is_counted_from_before_the_request(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        clock = stage.manual
        gate = stage.faults(locks).delay(Acquire, done=True)
        acquiring = a.start(locks.acquire, stage.key, 30, renew=False)
        gate.wait_for_arrival()
        clock.advance(10)
        gate.open()
        lease = acquiring.result(PATIENCE)
        assert lease.remaining == pytest.approx(19.7)
        a.do(lease.release)

    def test_a_grant_that_arrives_after_its_deadline_is_asked_for_once_more(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        faults = stage.faults(locks)
        gate = faults.delay(Acquire, done=True)
        acquiring = a.start(locks.acquire, stage.key, 30)
        gate.wait_for_arrival()
        stage.manual.advance(31)
        gate.open()
        lease = acquiring.result(PATIENCE)
        assert lease.held
        assert lease.remaining == pytest.approx(29.7)
        assert stage.holders() == [lease.holder]
        assert len(faults.sent(Acquire)) == 2
        a.do(lease.release)
        stage.until_free()

    def test_a_grant_at_the_end_of_a_wait_that_arrives_late_is_asked_for_once_more(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        faults, clock = stage.faults(locks), stage.manual
        faults.drop_notices()
        other = b.do(others.acquire, stage.key, 300)
        acquiring = a.start(locks.acquire, stage.key, 30, wait=0.5)
        stage.until_queued(1)
        stage.until_asleep(1)
        b.do(other.release)
        gate = faults.delay(Acquire, done=True)
        clock.advance(0.5, settle=False)
        gate.wait_for_arrival()
        clock.advance(31, settle=False)
        gate.open()
        lease = acquiring.result(PATIENCE)
        assert lease.held
        a.do(lease.release)

    def test_a_late_grant_that_is_anothers_by_then_is_no_grant(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        gate = stage.faults(locks).delay(Acquire, done=True)
        acquiring = a.start(locks.acquire, stage.key, 30)
        gate.wait_for_arrival()
        stage.manual.advance(31)
        lease = b.do(others.acquire, stage.key, 30)
        gate.open()
        assert acquiring.result(PATIENCE) is None
        assert stage.holders() == [lease.holder]
        b.do(lease.release)

    def test_a_grant_that_arrives_late_again_is_lost_from_the_start(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        faults = stage.faults(locks)
        gate = faults.delay(Acquire, done=True)
        acquiring = a.start(locks.acquire, stage.key, 30)
        gate.wait_for_arrival()
        stage.manual.advance(31)
        again = faults.delay(Acquire, done=True)
        gate.open()
        again.wait_for_arrival()
        stage.manual.advance(31)
        again.open()
        lease = acquiring.result(PATIENCE)
        assert not lease.held
        with pytest.raises(LockLost):
            a.enter(lease)
        assert a.do(lease.release) is False
        stage.until_free()

    def test_after_a_pause_longer_than_the_ttl_the_first_thing_to_see_is_the_loss(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        clock = stage.manual
        lease = a.do(locks.acquire, stage.key, 30)
        gate = stage.faults(locks).delay(Refresh, Release, times=None)
        clock.advance(60, settle=False)
        assert not lease.held
        with pytest.raises(LockLost) as caught:
            lease.check()
        assert caught.value.reason == "deadline"
        gate.open()
        stage.settle()
        assert not lease.held

    def test_steps_of_the_wall_clock_change_nothing_about_who_holds_what(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        clock = stage.manual
        with a.inside(locks.lock(stage.key, 30)) as lease:
            for step in (180, -180, -86_400, 86_400):
                clock.step_wall(step)
                stage.elapse(15)
                assert lease.held
                assert not b.gets(others.lock(stage.key, 30))
        second = b.do(others.acquire, stage.key, 30)
        assert second.token > lease.token
        b.do(second.release)

    @pytest.mark.parametrize("ttl", [0.05, 0.5, 30 * 86_400, (365, "days")])
    def test_a_lease_of_any_length_is_kept(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client, ttl: Any
    ) -> None:
        clock = stage.manual
        with a.inside(locks.lock(stage.key, ttl)) as lease:
            third = lease.remaining / 0.99 / 3
            for _ in range(12):
                stage.settle()
                clock.advance(third)
                assert lease.held
                assert not b.gets(others.lock(stage.key, 1))

    # Refreshing.

    def test_a_refresh_sets_the_end_now_and_the_ttl_from_now_on(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        lease = a.do(locks.acquire, stage.key, stage.ttl)
        a.do(lease.refresh, 4 * stage.ttl)
        assert stage.about(lease.remaining, 0.99 * 4 * stage.ttl)
        (stored,) = stage.leases()
        ends_in = stored.expires_at.timestamp() - lease.acquired_at.timestamp()
        assert ends_in >= 4 * stage.ttl
        stage.elapse(9 * stage.ttl)
        assert lease.held
        a.do(lease.release)

    def test_a_lease_refreshed_to_a_shorter_ttl_is_renewed_at_that_pace(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        lease = a.do(locks.acquire, stage.key, 20 * stage.ttl)
        stage.settle()
        a.do(lease.refresh, stage.ttl)
        assert stage.about(lease.remaining, 0.99 * stage.ttl)
        stage.elapse(3.5 * stage.ttl)
        assert lease.held
        a.do(lease.release)

    def test_a_refresh_keeps_a_lease_that_is_not_renewed(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        lease = a.do(locks.acquire, stage.key, stage.ttl, renew=False)
        for _ in range(3):
            stage.elapse(0.6 * stage.ttl)
            a.do(lease.refresh, stage.ttl)
        assert lease.held
        stage.lapse(lease)
        assert not lease.held
        with pytest.raises(LockLost):
            a.do(lease.refresh, stage.ttl)
        stage.until_free()

    def test_a_refresh_that_the_store_refuses_is_a_loss(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        lease = a.do(locks.acquire, stage.key, stage.ttl, renew=False)
        lost = a.do(lambda: lease.lost)
        b.do(others.model.delete, stage.key)
        with pytest.raises(LockLost) as caught:
            a.do(lease.refresh, stage.ttl)
        assert caught.value.reason == "refused"
        assert not lease.held
        until(lost.is_set, lambda: "the event should be set")

    def test_a_refresh_while_the_store_is_down_raises_and_loses_nothing(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        lease = a.do(locks.acquire, stage.key, stage.ttl)
        stage.faults(locks).fail(Refresh)
        with pytest.raises(StoreUnavailable):
            a.do(lease.refresh, 2 * stage.ttl)
        assert lease.held
        stage.elapse(3 * stage.ttl)
        assert lease.held
        a.do(lease.release)

    def test_the_keeper_rests_after_a_failed_refresh_of_a_lease_it_does_not_renew(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        lease = a.do(locks.acquire, stage.key, stage.ttl, renew=False)
        stage.faults(locks).fail(Refresh)
        with pytest.raises(StoreUnavailable):
            a.do(lease.refresh, stage.ttl)
        other = a.do(locks.acquire, f"{stage.key}:other", stage.ttl)
        stage.settle()
        a.do(other.release)
        a.do(lease.release)

    def test_a_shorter_refresh_that_hangs_is_a_loss_told_in_time(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        clock, faults = stage.manual, stage.faults(locks)
        lease = a.do(locks.acquire, stage.key, 300)
        lost = a.do(lambda: lease.lost)
        stage.settle()
        gate = faults.delay(Refresh, times=None)
        refreshing = a.start(lease.refresh, 6)
        gate.wait_for_arrival()
        stage.settle()
        clock.advance(6, settle=False)
        until(lost.is_set, lambda: "the loss should be told by now")
        gate.open()
        with pytest.raises(LockLost):
            refreshing.result(PATIENCE)
        assert a.do(lease.release) is False

    @pytest.mark.parametrize(("first", "second"), [(60, 6), (6, 60)])
    def test_of_two_refreshes_at_once_the_later_one_counts(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, first: int, second: int
    ) -> None:
        stage.needs_manual_clock()
        faults = stage.faults(locks)
        lease = a.do(locks.acquire, stage.key, 30, renew=False)
        late = faults.delay(Refresh)
        refreshing = a.start(lease.refresh, first)
        late.wait_for_arrival()
        b.do(lease.refresh, second)
        assert lease.remaining <= 6
        late.open()
        refreshing.result(PATIENCE)
        assert lease.remaining == pytest.approx(0.99 * second)
        (stored,) = stage.leases()
        assert stored.expires_at.timestamp() - stage.clock.wall() == pytest.approx(second, abs=0.01)
        a.do(lease.release)

    def test_a_refresh_does_not_go_past_max_duration(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        lease = a.do(locks.acquire, stage.key, stage.ttl, max_duration=2 * stage.ttl)
        a.do(lease.refresh, 2 * stage.ttl)
        assert lease.remaining <= 2 * stage.ttl
        (stored,) = stage.leases()
        assert (stored.expires_at - stored.acquired_at).total_seconds() <= 2 * stage.ttl + 0.001
        stage.elapse(2 * stage.ttl)
        assert not lease.held

    # Nobody holds on to it.

    def test_a_handle_that_nothing_refers_to_any_more_is_released_with_a_warning(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        with pytest.warns(ResourceWarning, match="never released"):
            collect_after(lambda: a.do(locks.acquire, stage.key, stage.ttl))
        stage.until_free()

    def test_a_handle_that_is_part_of_a_cycle_is_released_when_that_is_collected(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        box: list[Any] = [[a.do(locks.acquire, stage.key, stage.ttl)]]
        box[0].append(box[0])
        with pytest.warns(ResourceWarning, match="never released"):
            collect_after(box.clear)
        stage.until_free()

    def test_a_lock_that_nothing_refers_to_any_more_gives_its_hold_back(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        with pytest.warns(ResourceWarning, match="never released"):
            collect_after(lambda: a.do(locks.lock(stage.key, stage.ttl).acquire))
        stage.until_free()

    def test_a_handle_that_was_released_goes_without_a_word(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        lease = a.do(locks.acquire, stage.key, stage.ttl)
        a.do(lease.release)
        sent = len(stage.faults(locks).requests)
        del lease
        gc.collect()
        stage.settle()
        assert len(stage.faults(locks).requests) == sent

    # The context.

    def test_the_current_lease_is_the_innermost_block_of_the_context(
        self, stage: Stage, a: Actor, b: Actor, locks: Client
    ) -> None:
        assert a.do(current) is None
        with a.inside(locks.lock(stage.key, stage.ttl)) as outer:
            assert a.do(current) is outer
            with a.inside(locks.lock(f"{stage.key}:2", stage.ttl)) as inner:
                assert a.do(current) is inner
                assert b.do(current) is None
            assert a.do(current) is outer
        assert a.do(current) is None

    def test_an_explicit_handle_is_current_only_in_its_block(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        lease = a.do(locks.acquire, stage.key, stage.ttl)
        assert a.do(current) is None
        with a.inside(lease):
            assert a.do(current) is lease
        assert a.do(current) is None

    def test_blocks_left_in_any_order_leave_the_right_one_current(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        first = a.do(locks.acquire, stage.key, stage.ttl)
        second = a.do(locks.acquire, f"{stage.key}:2", stage.ttl)
        a.enter(first)
        a.enter(second)
        a.leave(first)
        assert a.do(current) is second
        a.leave(second)
        assert a.do(current) is None

    def test_require_finds_the_lease_of_its_key(
        self, stage: Stage, a: Actor, b: Actor, locks: Client
    ) -> None:
        with (
            a.inside(locks.lock(stage.key, stage.ttl)) as outer,
            a.inside(locks.lock(f"{stage.key}:2", stage.ttl)),
        ):
            assert a.do(require, stage.key) is outer
            with pytest.raises(LockNotAcquired) as caught:
                b.do(require, stage.key)
            assert (caught.value.key, caught.value.reason) == (stage.key, "unheld")
        with pytest.raises(LockNotAcquired):
            a.do(require, stage.key)

    def test_require_tells_of_a_loss(self, stage: Stage, a: Actor, locks: Client) -> None:
        lock = locks.lock(stage.key, stage.ttl, renew=False, on_lost="warn")
        lease = a.enter(lock)
        stage.lapse(lease)
        assert a.do(current) is lease
        with pytest.raises(LockLost):
            a.do(require, stage.key)
        a.leave(lock)
        assert a.do(current) is None

    def test_a_nested_block_leaves_the_current_lease_as_it_is(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        lock = locks.lock(stage.key, stage.ttl, reentrant=True)
        with a.inside(lock) as lease:
            with a.inside(lock):
                assert a.do(current) is lease
            assert a.do(current) is lease
        assert a.do(current) is None

    # The event.

    def test_the_lost_event_is_not_set_by_a_release(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        lease = a.do(locks.acquire, stage.key, stage.ttl)
        lost = a.do(lambda: lease.lost)
        assert not lost.is_set()
        a.do(lease.release)
        stage.settle()
        assert not lost.is_set()

    def test_the_lost_event_can_be_waited_for(
        self, stage: Stage, a: Actor, b: Actor, locks: Client
    ) -> None:
        lease = a.do(locks.acquire, stage.key, stage.ttl, renew=False)
        lost = a.do(lambda: lease.lost)
        waiting = b.start(lost.wait)
        stage.lapse(lease)
        waiting.result(PATIENCE)

    def test_the_lost_event_of_a_lease_that_is_lost_already_is_set(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        lease = a.do(locks.acquire, stage.key, stage.ttl, renew=False)
        stage.lapse(lease)
        stage.settle()
        lost = a.do(lambda: lease.lost)
        until(lost.is_set, lambda: "the event should be set")

    def test_the_lost_event_is_one_and_the_same_whoever_asks_first(
        self, stage: Stage, locks: Client
    ) -> None:
        actors = stage.actors(4)
        for _ in range(25):
            lease = actors[0].do(locks.acquire, stage.key, stage.ttl)
            barrier = threading.Barrier(4)

            def look(lease: Any = lease, barrier: threading.Barrier = barrier) -> Any:
                if not stage.asynchronous:
                    barrier.wait(PATIENCE)
                return lease.lost

            seen = [actor.start(look) for actor in actors]
            assert len({id(one.result(PATIENCE)) for one in seen}) == 1
            actors[0].do(lease.release)


def collect_after(call: Callable[[], object]) -> None:
    """Do that, and collect what nothing refers to after it."""
    call()
    gc.collect()
