"""run_with_lock: work that is done by one caller at a time, or not at all."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from joblock.client.current import current, require
from joblock.store.ops import Acquire, Release
from joblock.testing.clients.stage import PATIENCE, Actor, Client, ClientScenarios, Stage
from joblock.values.errors import LockLost, StoreMisconfigured, StoreUnavailable


class Peculiar(Exception):
    """What a piece of work raises."""


class Running(ClientScenarios):
    """See the module."""

    def test_run_with_lock_calls_the_work_and_says_so(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        work = stage.work(lambda: "a value")
        assert a.do(locks.run_with_lock, stage.key, stage.ttl, work) is True
        assert work.calls == 1

    def test_run_with_lock_holds_the_key_while_the_work_runs_and_not_after(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        seen: list[int] = []
        work = stage.work(lambda: seen.append(len(stage.holders())))
        a.do(locks.run_with_lock, stage.key, stage.ttl, work)
        assert seen == [1]
        assert stage.holders() == []

    def test_run_with_lock_is_refused_at_once_while_another_client_holds_the_key(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        work = stage.work()
        with a.inside(locks.lock(stage.key, stage.ttl)):
            assert b.do(others.run_with_lock, stage.key, stage.ttl, work) is False
        assert work.calls == 0
        assert stage.queue() == ()

    def test_run_with_lock_is_refused_while_others_wait(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        """Even though permits of the key are free: a newcomer does not overtake those who wait."""
        work, heavy = stage.work(), others.lock(stage.key, stage.ttl, limit=2, weight=2)
        with a.inside(locks.lock(stage.key, stage.ttl, limit=2)) as lease:
            waiting = b.start(heavy.acquire)
            stage.until_queued(1)
            assert stage.actor().do(locks.run_with_lock, stage.key, stage.ttl, work) is False
            assert lease.held
        assert waiting.result(PATIENCE) is True
        b.do(heavy.release)
        assert work.calls == 0

    def test_run_with_lock_is_refused_in_the_grace_that_a_run_left(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        holder = f"{stage.key}:earlier"
        driver = locks.store.inner.driver()
        driver.call(Acquire(stage.key, holder, 60_000))
        driver.call(Release(stage.key, holder, grace=60_000))
        work = stage.work()
        assert a.do(locks.run_with_lock, stage.key, stage.ttl, work) is False
        assert work.calls == 0

    def test_a_refused_run_may_be_tried_again_and_then_runs(
        self, stage: Stage, a: Actor, b: Actor, locks: Client
    ) -> None:
        work = stage.work()
        with a.inside(locks.lock(stage.key, stage.ttl)):
            assert b.do(locks.run_with_lock, stage.key, stage.ttl, work) is False
        assert b.do(locks.run_with_lock, stage.key, stage.ttl, work) is True

    def test_two_runs_of_one_client_exclude_each_other(
        self, stage: Stage, a: Actor, b: Actor, locks: Client
    ) -> None:
        first, second = stage.work(paused=True), stage.work()
        running = a.start(locks.run_with_lock, stage.key, stage.ttl, first)
        first.wait_until_begun()
        assert b.do(locks.run_with_lock, stage.key, stage.ttl, second) is False
        first.finish()
        assert running.result(PATIENCE) is True
        assert second.calls == 0

    @pytest.mark.parametrize(
        "error",
        [
            Peculiar("of the work"),
            KeyError("k"),
            StoreUnavailable("raised by the work, not by our store"),
            LockLost("another key", "holder", 1, "refused"),
        ],
        ids=lambda error: type(error).__name__,
    )
    def test_what_the_work_raises_is_raised_unchanged_and_the_key_is_free(
        self, stage: Stage, a: Actor, locks: Client, error: BaseException
    ) -> None:
        work = stage.work(raising(error))
        with pytest.raises(type(error)) as caught:
            a.do(locks.run_with_lock, stage.key, stage.ttl, work, on_store_error="skip")
        assert caught.value is error
        assert not getattr(error, "__notes__", ())
        assert stage.holders() == []

    def test_a_key_is_renewed_while_the_work_runs(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        work = stage.work(paused=True)
        running = a.start(locks.run_with_lock, stage.key, stage.ttl, work)
        work.wait_until_begun()
        stage.elapse(3.5 * stage.ttl)
        assert len(stage.holders()) == 1
        work.finish()
        assert running.result(PATIENCE) is True

    def test_without_renewal_the_key_is_free_at_its_ttl_while_the_work_runs_on_unharmed(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        work, second = stage.work(paused=True), stage.work()
        running = a.start(locks.run_with_lock, stage.key, stage.ttl, work, renew=False)
        work.wait_until_begun()
        stage.elapse(1.1 * stage.ttl)
        assert b.do(others.run_with_lock, stage.key, stage.ttl, second) is True
        work.finish()
        assert running.result(PATIENCE) is True

    def test_without_renewal_a_loss_is_raised_if_that_is_asked_for(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        work = stage.work(lambda: "late", paused=True)
        running = a.start(
            locks.run_with_lock, stage.key, stage.ttl, work, renew=False, on_lost="raise"
        )
        work.wait_until_begun()
        stage.elapse(1.1 * stage.ttl)
        work.finish()
        with pytest.raises(LockLost) as caught:
            running.result(PATIENCE)
        assert (caught.value.reason, caught.value.value) == ("deadline", "late")

    def test_a_loss_tells_what_the_work_returned(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        work = stage.work(lambda: 42, paused=True)
        running = a.start(locks.run_with_lock, stage.key, stage.ttl, work, on_lost="raise")
        work.wait_until_begun()
        (lease,) = stage.leases()
        b.do(others.model.delete, stage.key)
        stage.elapse(0.5 * stage.ttl)
        work.finish()
        with pytest.raises(LockLost) as caught:
            running.result(PATIENCE)
        lost = caught.value
        assert (lost.key, lost.holder, lost.token) == (stage.key, lease.holder, lease.token)
        assert (lost.reason, lost.value) == ("refused", 42)

    def test_a_loss_is_a_note_on_what_the_work_itself_raises(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        work = stage.work(raising(Peculiar("of the work")), paused=True)
        running = a.start(locks.run_with_lock, stage.key, stage.ttl, work, on_lost="raise")
        work.wait_until_begun()
        b.do(others.model.delete, stage.key)
        stage.elapse(0.5 * stage.ttl)
        work.finish()
        with pytest.raises(Peculiar) as caught:
            running.result(PATIENCE)
        assert "lost" in "".join(caught.value.__notes__)
        assert stage.key in "".join(caught.value.__notes__)

    def test_a_loss_that_only_warns_leaves_the_run_as_it_is(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        work = stage.work(paused=True)
        running = a.start(locks.run_with_lock, stage.key, stage.ttl, work, on_lost="warn")
        work.wait_until_begun()
        b.do(others.model.delete, stage.key)
        stage.elapse(0.5 * stage.ttl)
        work.finish()
        assert running.result(PATIENCE) is True

    def test_a_loss_that_nobody_was_told_of_yet_is_found_when_the_work_ends(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        work = stage.work(paused=True)
        running = a.start(locks.run_with_lock, stage.key, stage.ttl, work)
        work.wait_until_begun()
        b.do(others.model.delete, stage.key)
        work.finish()
        with pytest.raises(LockLost) as caught:
            running.result(PATIENCE)
        assert caught.value.reason == "refused"

    def test_max_duration_ends_the_renewal_and_the_run_is_told(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        work = stage.work(paused=True)
        running = a.start(
            locks.run_with_lock,
            stage.key,
            stage.ttl,
            work,
            max_duration=2 * stage.ttl,
            on_lost="raise",
        )
        work.wait_until_begun()
        stage.elapse(1.9 * stage.ttl)
        assert len(stage.holders()) == 1
        stage.elapse(0.2 * stage.ttl)
        assert stage.holders() == []
        work.finish()
        with pytest.raises(LockLost) as caught:
            running.result(PATIENCE)
        assert caught.value.reason == "max_duration"

    def test_a_release_that_fails_is_logged_and_not_raised_and_done_later(
        self, stage: Stage, a: Actor, locks: Client, caplog: pytest.LogCaptureFixture
    ) -> None:
        stage.faults(locks).fail(Release)
        with caplog.at_level(logging.WARNING, "joblock"):
            assert a.do(locks.run_with_lock, stage.key, stage.ttl, stage.work()) is True
        assert any("could not release" in record.message for record in caplog.records)
        stage.until_free()

    def test_a_release_that_fails_does_not_hide_what_the_work_raises(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        stage.faults(locks).fail(Release)
        with pytest.raises(Peculiar):
            a.do(locks.run_with_lock, stage.key, stage.ttl, stage.work(raising(Peculiar())))
        stage.until_free()

    def test_a_release_whose_reply_is_lost_counts_as_done(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        stage.faults(locks).lose_reply(Release)
        assert a.do(locks.run_with_lock, stage.key, stage.ttl, stage.work()) is True
        assert stage.holders() == []

    def test_a_release_during_an_outage_frees_the_key_once_the_store_is_back(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        work, faults = stage.work(paused=True), stage.faults(locks)
        running = a.start(locks.run_with_lock, stage.key, stage.ttl, work)
        work.wait_until_begun()
        faults.go_down()
        work.finish()
        assert running.result(PATIENCE) is True
        assert len(stage.holders()) == 1
        faults.clear()
        stage.elapse(stage.ttl / 2)
        stage.until_free()

    def test_a_store_that_is_down_is_not_taken_for_a_held_key(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        stage.faults(locks).go_down()
        work = stage.work()
        with pytest.raises(StoreUnavailable):
            a.do(locks.run_with_lock, stage.key, stage.ttl, work)
        assert work.calls == 0

    def test_a_store_that_is_down_skips_the_run_if_that_is_asked_for(
        self, stage: Stage, a: Actor, locks: Client, caplog: pytest.LogCaptureFixture
    ) -> None:
        stage.faults(locks).go_down()
        work = stage.work()
        with caplog.at_level(logging.WARNING, "joblock"):
            ran = a.do(locks.run_with_lock, stage.key, stage.ttl, work, on_store_error="skip")
        assert ran is False
        assert work.calls == 0
        assert any("skipped" in record.message for record in caplog.records)

    def test_a_store_that_is_set_up_wrongly_is_never_skipped(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        stage.faults(locks).fail(Acquire, failure=lambda: StoreMisconfigured("no such table"))
        with pytest.raises(StoreMisconfigured):
            a.do(locks.run_with_lock, stage.key, stage.ttl, stage.work(), on_store_error="skip")

    def test_a_grant_whose_reply_is_lost_is_given_back(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        stage.faults(locks).lose_reply(Acquire)
        work = stage.work()
        with pytest.raises(StoreUnavailable):
            a.do(locks.run_with_lock, stage.key, stage.ttl, work)
        assert work.calls == 0
        stage.until_free()

    def test_the_work_finds_its_lease(self, stage: Stage, a: Actor, locks: Client) -> None:
        seen: list[Any] = []
        work = stage.work(lambda: seen.append((current(), require(stage.key), stage.holders())))
        a.do(locks.run_with_lock, stage.key, stage.ttl, work)
        ((innermost, required, holders),) = seen
        assert innermost is required
        assert [innermost.holder] == holders
        assert innermost.key == stage.key

    def test_the_lease_of_a_run_is_over_when_the_run_is(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        seen: list[Any] = []
        work = stage.work(lambda: seen.append(current()))
        a.do(locks.run_with_lock, stage.key, stage.ttl, work)
        assert not seen[0].held
        assert a.do(current) is None

    # The same explicit holder.

    def test_the_holder_of_a_run_is_the_one_that_was_given(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        seen: list[str] = []
        work = stage.work(lambda: seen.extend(stage.holders()))
        a.do(locks.run_with_lock, stage.key, stage.ttl, work, holder="job-7")
        assert seen == ["job-7"]

    def test_the_same_explicit_holder_nests_and_the_last_one_out_releases(
        self, stage: Stage, a: Actor, b: Actor, locks: Client
    ) -> None:
        first, second = stage.work(paused=True), stage.work(paused=True)
        one = a.start(locks.run_with_lock, stage.key, stage.ttl, first, holder="h")
        first.wait_until_begun()
        two = b.start(locks.run_with_lock, stage.key, stage.ttl, second, holder="h")
        second.wait_until_begun()
        first.finish()
        assert one.result(PATIENCE) is True
        assert stage.holders() == ["h"]
        second.finish()
        assert two.result(PATIENCE) is True
        assert stage.holders() == []
        assert len(stage.faults(locks).sent(Release)) == 1

    def test_the_same_explicit_holder_nests_within_one_caller(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        outer = a.do(locks.acquire, stage.key, stage.ttl, holder="h")
        inner = a.do(locks.acquire, stage.key, stage.ttl, holder="h")
        assert inner.token == outer.token
        assert a.do(inner.release) is True
        assert stage.holders() == ["h"]
        assert outer.held
        assert a.do(outer.release) is True
        assert stage.holders() == []

    def test_nested_runs_of_one_holder_stay_held_by_whichever_is_left(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        outer = a.do(locks.acquire, stage.key, stage.ttl, holder="h")
        inner = a.do(locks.acquire, stage.key, stage.ttl, holder="h")
        a.do(outer.release)
        stage.elapse(3.5 * stage.ttl)
        assert inner.held
        assert stage.holders() == ["h"]
        a.do(inner.release)
        assert stage.holders() == []

    def test_a_run_that_fails_to_reach_the_store_does_not_free_what_its_holder_has(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        lease = a.do(locks.acquire, stage.key, stage.ttl, holder="h")
        stage.faults(locks).lose_reply(Acquire)
        with pytest.raises(StoreUnavailable):
            a.do(locks.run_with_lock, stage.key, stage.ttl, stage.work(), holder="h")
        stage.settle()
        assert stage.holders() == ["h"]
        assert lease.held
        assert a.do(lease.release) is True
        assert stage.holders() == []

    def test_a_holder_that_was_refused_can_try_again(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        with b.inside(others.lock(stage.key, stage.ttl)):
            assert a.do(locks.acquire, stage.key, stage.ttl, holder="h") is None
        lease = a.do(locks.acquire, stage.key, stage.ttl, holder="h")
        assert a.do(lease.release) is True
        assert stage.holders() == []

    def test_a_holder_that_is_just_being_released_waits_for_that_or_is_refused(
        self, stage: Stage, a: Actor, b: Actor, locks: Client
    ) -> None:
        lease = a.do(locks.acquire, stage.key, stage.ttl, holder="h")
        gate = stage.faults(locks).delay(Release)
        releasing = a.start(lease.release)
        gate.wait_for_arrival()
        assert b.do(locks.acquire, stage.key, stage.ttl, holder="h") is None
        gate.open()
        assert releasing.result(PATIENCE) is True
        again = b.do(locks.acquire, stage.key, stage.ttl, holder="h")
        assert again.token > lease.token
        b.do(again.release)

    def test_a_wait_for_a_holder_that_is_just_being_released_ends_in_time(
        self, stage: Stage, a: Actor, b: Actor, locks: Client
    ) -> None:
        lease = a.do(locks.acquire, stage.key, stage.ttl, holder="h")
        gate = stage.faults(locks).delay(Release)
        releasing = a.start(lease.release)
        gate.wait_for_arrival()
        waiting = b.start(locks.acquire, stage.key, stage.ttl, stage.ttl / 6, holder="h")
        stage.until_asleep(1)
        stage.elapse(stage.ttl / 5)
        assert waiting.result(PATIENCE) is None
        gate.open()
        assert releasing.result(PATIENCE) is True

    def test_who_waits_for_a_holder_that_is_being_released_keeps_nobody_from_running(
        self, stage: Stage, a: Actor, b: Actor, locks: Client
    ) -> None:
        lease = a.do(locks.acquire, stage.key, stage.ttl, holder="h")
        gate = stage.faults(locks).delay(Release)
        releasing = a.start(lease.release)
        gate.wait_for_arrival()
        waiting = b.start(locks.acquire, stage.key, stage.ttl, wait=True, holder="h")
        stage.until_asleep(1)
        for _ in range(3):
            stage.elapse(0.03)
        c = stage.actor("C")
        c.do(c.do(locks.acquire, f"{stage.key}:2", stage.ttl).release)
        gate.open()
        assert releasing.result(PATIENCE) is True
        stage.elapse_until(waiting.done)
        again = waiting.result(PATIENCE)
        assert again.token > lease.token
        b.do(again.release)

    def test_two_waits_of_one_holder_are_both_granted_what_it_gets(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        c = stage.actor("C")
        blocking = c.do(others.acquire, stage.key, stage.ttl)
        one = a.start(locks.acquire, stage.key, stage.ttl, wait=True, holder="h")
        stage.until_queued(1)
        two = b.start(locks.acquire, stage.key, stage.ttl, wait=True, holder="h")
        stage.until_sent(locks, 2, Acquire)
        c.do(blocking.release)
        first, second = one.result(PATIENCE), two.result(PATIENCE)
        assert first.token == second.token
        a.do(first.release)
        assert stage.holders() == ["h"]
        b.do(second.release)
        assert stage.holders() == []

    def test_a_wait_of_a_holder_ends_with_another_grant_to_it_though_no_notice_came(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        c = stage.actor("C")
        blocking = c.do(others.acquire, stage.key, stage.ttl)
        one = a.start(locks.acquire, stage.key, stage.ttl, wait=True, holder="h")
        stage.until_queued(1)
        stage.faults(locks).drop_notices()
        c.do(blocking.release)
        second = b.do(locks.acquire, stage.key, stage.ttl, holder="h")
        first = one.result(PATIENCE)
        assert first.token == second.token
        a.do(first.release)
        b.do(second.release)
        assert stage.holders() == []

    def test_a_wait_of_a_holder_goes_on_when_another_of_the_same_holder_gives_up(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        c = stage.actor("C")
        blocking = c.do(others.acquire, stage.key, stage.ttl)
        patient = a.start(locks.acquire, stage.key, stage.ttl, wait=True, holder="h")
        stage.until_queued(1)
        brief = b.start(locks.acquire, stage.key, stage.ttl, stage.ttl / 10, holder="h")
        stage.until_asleep(2)
        stage.elapse(stage.ttl / 8)
        assert brief.result(PATIENCE) is None
        assert [waiter.holder for waiter in stage.queue()] == ["h"]
        c.do(blocking.release)
        lease = patient.result(PATIENCE)
        assert a.do(lease.release) is True
        assert stage.holders() == []
        assert stage.queue() == ()

    def test_the_same_holder_in_two_clients_is_one_holder_to_the_store(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        """Which is why a holder of one's own must be unique to one process."""
        one = a.do(locks.acquire, stage.key, stage.ttl, holder="h")
        two = b.do(others.acquire, stage.key, stage.ttl, holder="h")
        assert one.token == two.token
        assert a.do(one.release) is True
        assert b.do(two.release) is False


def raising(error: BaseException) -> Any:
    """A function that raises it."""

    def function() -> Any:
        raise error

    return function
