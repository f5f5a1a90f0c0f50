"""Jobs: functions whose calls exclude each other, skip, wait, join, and leave a grace."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from joblock.client.current import require
from joblock.protocol.job import Outcome
from joblock.store.ops import Acquire, Release
from joblock.testing.clients.stage import PATIENCE, Actor, Client, ClientScenarios, Stage
from joblock.values.errors import LockLost, LockNotAcquired, StoreUnavailable

TICK = datetime(2027, 1, 31, 3, tzinfo=UTC)


class Peculiar(Exception):
    """What a run raises."""


def raises() -> None:
    """A run that fails."""
    raise Peculiar


class Jobs(ClientScenarios):
    """See the module."""

    def job(self, stage: Stage, client: Client, work: Any, **options: Any) -> Any:
        """A job of that client on the test's key."""
        return client.job(**{"name": stage.key, "ttl": stage.ttl, **options})(work)

    # Running and skipping.

    def test_a_job_runs_under_its_lease_and_tells_how_it_went(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        job = self.job(stage, locks, stage.work(lambda: require(stage.key).token))
        outcome = a.do(job)
        assert outcome == Outcome(ran=True, value=outcome.token, reason="ran", token=outcome.token)
        assert outcome
        assert outcome.token > 0
        assert stage.holders() == []

    def test_a_call_skips_while_another_run_is_in_progress(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        work, other = stage.work(paused=True), stage.work()
        running = a.start(self.job(stage, locks, work).run)
        work.wait_until_begun()
        outcome = b.do(self.job(stage, others, other).run)
        token = stage.leases()[0].token
        work.finish()
        assert running.result(PATIENCE).ran
        assert outcome == Outcome(ran=False, reason="held", token=token)
        assert not outcome
        assert other.calls == 0
        assert stage.queue() == ()

    def test_the_call_of_a_job_gives_the_bare_value(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        assert a.do(self.job(stage, locks, stage.work(lambda: "value")).call) == "value"

    def test_the_call_of_a_job_that_does_not_run_raises_and_says_who_is_in_the_way(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        job = self.job(stage, others, stage.work())
        with (
            a.inside(locks.lock(stage.key, stage.ttl)) as lease,
            pytest.raises(LockNotAcquired) as refused,
        ):
            b.do(job.call)
        assert refused.value.key == stage.key
        assert refused.value.holder == lease.holder
        assert refused.value.reason == "held"

    def test_what_a_run_raises_is_raised_and_the_key_is_free(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        with pytest.raises(Peculiar):
            a.do(self.job(stage, locks, stage.work(raises)))
        assert stage.leases() == ()

    def test_a_computed_name_lets_calls_with_other_arguments_run(
        self, stage: Stage, a: Actor, b: Actor, locks: Client
    ) -> None:
        work = stage.work(paused=True)

        def name(file: str) -> str:
            return f"{stage.key}:{file}"

        def body(file: str) -> Any:
            return work() if file == "slow" else file

        async def abody(file: str) -> Any:
            return await work() if file == "slow" else file

        job = locks.job(name=name)(abody if stage.asynchronous else body)
        running = a.start(job, "slow")
        work.wait_until_begun()
        assert b.do(job, "slow").reason == "held"
        assert b.do(job, file="other").value == "other"
        work.finish()
        assert running.result(PATIENCE).ran
        assert job.key("slow") == f"{stage.key}:slow"

    def test_a_name_that_raises_reaches_the_caller_and_nothing_is_acquired(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        work = stage.work()
        with pytest.raises(Peculiar):
            a.do(self.job(stage, locks, work, name=raises))
        assert work.calls == 0
        assert stage.faults(locks).sent(Acquire) == []

    @pytest.mark.parametrize("bad", ["", "a\0b", 7, None])
    def test_a_name_that_is_no_key_is_shown_and_nothing_is_acquired(
        self, stage: Stage, a: Actor, locks: Client, bad: Any
    ) -> None:
        work = stage.work()
        with pytest.raises((TypeError, ValueError), match="key"):
            a.do(self.job(stage, locks, work, name=lambda: bad))
        assert work.calls == 0
        assert stage.faults(locks).sent(Acquire) == []

    def test_a_store_that_is_down_is_an_error_or_a_skip_as_the_job_says(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        work = stage.work()
        stage.faults(locks).fail(Acquire, times=2)
        with pytest.raises(StoreUnavailable):
            a.do(self.job(stage, locks, work))
        outcome = a.do(self.job(stage, locks, work, on_store_error="skip"))
        assert outcome == Outcome(ran=False, reason="store_error")
        assert work.calls == 0

    # Waiting.

    def test_a_job_that_waits_runs_in_its_turn(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        work = stage.work()
        with a.inside(locks.lock(stage.key, stage.ttl)):
            waiting = b.start(self.job(stage, others, work, wait=True))
            stage.until_queued(1)
            assert work.calls == 0
        assert waiting.result(PATIENCE).ran
        assert work.calls == 1

    def test_a_job_that_waited_long_enough_gives_up(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        work = stage.work()
        with a.inside(locks.lock(stage.key, stage.ttl)) as lease:
            waiting = b.start(self.job(stage, others, work, wait=0.5))
            stage.until_queued(1)
            stage.elapse(0.5)
            outcome = waiting.result(PATIENCE)
            assert outcome == Outcome(ran=False, reason="timeout", token=lease.token)
        assert work.calls == 0
        assert stage.queue() == ()

    # Joining.

    def test_those_who_join_a_run_that_ends_well_do_not_run_again(
        self, stage: Stage, a: Actor, locks: Client, others: Client
    ) -> None:
        work, again = stage.work(paused=True), stage.work()
        running = a.start(self.job(stage, locks, work, join=True))
        work.wait_until_begun()
        job = self.job(stage, others, again, join=True)
        joining = [actor.start(job) for actor in stage.actors(5)]
        stage.until_queued(5)
        work.finish()
        token = running.result(PATIENCE).token
        outcomes = [joined.result(PATIENCE) for joined in joining]
        assert outcomes == [Outcome(ran=False, reason="joined", token=token)] * 5
        assert again.calls == 0
        assert stage.queue() == ()

    def test_a_join_that_is_over_just_after_the_run_has_ended_well_does_not_run_again(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        work, again = stage.work(paused=True), stage.work()
        running = a.start(self.job(stage, locks, work))
        work.wait_until_begun()
        stage.faults(others).drop_notices()
        joining = b.start(self.job(stage, others, again, join=True, wait=0.5))
        stage.until_queued(1)
        work.finish()
        token = running.result(PATIENCE).token
        stage.elapse(0.5)
        assert joining.result(PATIENCE) == Outcome(ran=False, reason="joined", token=token)
        assert again.calls == 0

    def test_exactly_one_of_those_who_join_runs_in_the_stead_of_a_run_that_failed(
        self, stage: Stage, a: Actor, locks: Client, others: Client
    ) -> None:
        work, again = stage.work(raises, paused=True), stage.work(lambda: "done")
        running = a.start(self.job(stage, locks, work, join=True))
        work.wait_until_begun()
        job = self.job(stage, others, again, join=True)
        joining = [actor.start(job) for actor in stage.actors(5)]
        stage.until_queued(5)
        work.finish()
        with pytest.raises(Peculiar):
            running.result(PATIENCE)
        outcomes = [joined.result(PATIENCE) for joined in joining]
        assert sorted(outcome.reason for outcome in outcomes) == ["joined"] * 4 + ["ran"]
        assert again.calls == 1

    def test_a_call_that_joins_after_the_run_has_ended_runs(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        job = self.job(stage, locks, stage.work(), join=True)
        assert [a.do(job).reason for _ in range(3)] == ["ran"] * 3

    # Grace, at_least, max_duration.

    def test_a_run_that_ended_well_leaves_its_grace(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        job = self.job(stage, locks, stage.work(), grace_period=stage.ttl)
        again = self.job(stage, others, stage.work(), wait=True)
        token = a.do(job).token
        assert b.do(again) == Outcome(ran=False, reason="grace", token=token)
        assert [lease.state for lease in stage.leases()] == ["grace"]
        stage.elapse(stage.ttl + 0.01)
        assert b.do(again).ran

    def test_a_run_that_failed_leaves_a_grace_only_if_it_always_does(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        work = stage.work(raises)
        with pytest.raises(Peculiar):
            a.do(self.job(stage, locks, work, grace_period=stage.ttl))
        assert stage.leases() == ()
        with pytest.raises(Peculiar):
            a.do(self.job(stage, locks, work, grace_period=stage.ttl, grace_on="always"))
        assert [lease.state for lease in stage.leases()] == ["grace"]

    def test_a_grace_may_depend_on_the_arguments_and_be_none(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        graces = iter([None, stage.ttl])
        job = self.job(stage, locks, stage.work(), grace_period=lambda: next(graces))
        assert a.do(job).ran
        assert a.do(job).ran
        assert [lease.state for lease in stage.leases()] == ["grace"]

    def test_a_job_that_waits_in_grace_runs_once_it_is_over(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        a.do(self.job(stage, locks, stage.work(), grace_period=stage.ttl))
        job = self.job(stage, others, stage.work(), wait=True, in_grace="wait")
        waiting = b.start(job)
        stage.until_queued(1)
        stage.elapse(stage.ttl + 0.01)
        assert waiting.result(PATIENCE).ran

    def test_a_job_that_joins_and_waits_in_grace_runs_though_the_run_before_ended_well(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        a.do(self.job(stage, locks, stage.work(), grace_period=stage.ttl))
        work = stage.work()
        joining = b.start(self.job(stage, others, work, join=True, in_grace="wait"))
        stage.until_queued(1)
        stage.elapse(stage.ttl + 0.01)
        assert joining.result(PATIENCE).ran
        assert work.calls == 1

    def test_those_who_wait_and_skip_grace_return_when_the_run_leaves_one(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        work = stage.work(paused=True)
        running = a.start(self.job(stage, locks, work, grace_period=stage.ttl))
        work.wait_until_begun()
        waiting = b.start(self.job(stage, others, stage.work(), wait=True))
        stage.until_queued(1)
        work.finish()
        assert running.result(PATIENCE).ran
        assert waiting.result(PATIENCE).reason == "grace"
        assert stage.queue() == ()

    def test_at_least_keeps_the_key_closed_after_a_run_however_it_ended(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        job = self.job(stage, locks, stage.work(raises), at_least=stage.ttl)
        with pytest.raises(Peculiar):
            a.do(job)
        assert a.do(job).reason == "grace"
        stage.elapse(stage.ttl + 0.01)
        with pytest.raises(Peculiar):
            a.do(job)

    def test_a_run_that_is_older_than_its_max_duration_is_told(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        work = stage.work(lambda: "late", paused=True)
        running = a.start(self.job(stage, locks, work, ttl=None, max_duration=stage.ttl))
        work.wait_until_begun()
        stage.elapse(stage.ttl)
        stage.until_free()
        work.finish()
        with pytest.raises(LockLost) as lost:
            running.result(PATIENCE)
        assert lost.value.reason == "max_duration"
        assert lost.value.value == (None if stage.asynchronous else "late")

    # Occurrences.

    def test_an_occurrence_is_run_once_whoever_comes_when(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        work = stage.work()
        first = self.job(stage, locks, work, occurrence=TICK)
        assert a.do(first).ran
        for late in (TICK, TICK - timedelta(days=1)):
            outcome = b.do(self.job(stage, others, work, occurrence=late, wait=True))
            assert outcome == Outcome(ran=False, reason="done")
        assert b.do(self.job(stage, others, work, occurrence=TICK + timedelta(days=1))).ran
        assert work.calls == 2

    def test_an_occurrence_whose_run_failed_is_run_again(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        with pytest.raises(Peculiar):
            a.do(self.job(stage, locks, stage.work(raises), occurrence=7))
        assert b.do(self.job(stage, others, stage.work(), occurrence=7)).ran

    def test_those_who_wait_for_an_occurrence_that_is_run_meanwhile_return(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        work, again = stage.work(paused=True), stage.work()
        running = a.start(self.job(stage, locks, work, occurrence=7))
        work.wait_until_begun()
        waiting = b.start(self.job(stage, others, again, occurrence=7, wait=True))
        stage.until_queued(1)
        work.finish()
        assert running.result(PATIENCE).ran
        assert waiting.result(PATIENCE).reason == "done"
        assert again.calls == 0
        assert stage.leases() == ()
        assert stage.queue() == ()

    def test_an_occurrence_may_depend_on_the_arguments_and_is_kept_as_long_as_said(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        ticks = iter([7, 7, 7])
        options = {"occurrence": lambda: next(ticks), "occurrence_ttl": stage.ttl}
        job = self.job(stage, locks, stage.work(), **options)
        assert [a.do(job).reason for _ in range(2)] == ["ran", "done"]
        stage.elapse(stage.ttl + 0.01)
        assert a.do(job).ran

    def test_an_occurrence_that_is_none_reaches_the_caller_and_nothing_is_acquired(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        work = stage.work()
        naive = TICK.replace(tzinfo=None)
        for bad, error in ((naive, ValueError), (-1, ValueError), (2**53, ValueError)):
            with pytest.raises(error, match="occurrence"):
                a.do(self.job(stage, locks, work, occurrence=lambda bad=bad: bad))
        for bad in (True, 1.5, "monday", None):
            with pytest.raises(TypeError, match="occurrence"):
                a.do(self.job(stage, locks, work, occurrence=lambda bad=bad: bad))
        assert work.calls == 0
        assert stage.faults(locks).sent(Acquire) == []

    def test_run_with_lock_runs_an_occurrence_once(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        work = stage.work()
        tick = {"occurrence": TICK}
        assert a.do(locks.run_with_lock, stage.key, stage.ttl, work, **tick)
        assert not b.do(others.run_with_lock, stage.key, stage.ttl, work, **tick)
        assert work.calls == 1
        with pytest.raises(ValueError, match="without a time zone"):
            a.do(
                locks.run_with_lock,
                stage.key,
                stage.ttl,
                work,
                occurrence=TICK.replace(tzinfo=None),
            )
        with pytest.raises(ValueError, match="occurrence_ttl"):
            a.do(locks.run_with_lock, stage.key, stage.ttl, work, occurrence_ttl="1d")

    def test_an_occurrence_is_done_though_the_first_release_did_not_reach_the_store(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        stage.faults(locks).fail(Release)
        assert a.do(self.job(stage, locks, stage.work(), occurrence=7)).ran
        stage.until_free()
        assert b.do(self.job(stage, others, stage.work(), occurrence=7)).reason == "done"

    # Permits, and asking about one job.

    def test_a_limit_lets_so_many_runs_in(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        first, second = stage.work(paused=True), stage.work(paused=True)
        runs = [a.start(self.job(stage, locks, first, limit=2))]
        first.wait_until_begun()
        runs.append(b.start(self.job(stage, others, second, limit=2)))
        second.wait_until_begun()
        assert stage.actor().do(self.job(stage, others, stage.work(), limit=2)).reason == "held"
        first.finish()
        second.finish()
        assert all(run.result(PATIENCE).ran for run in runs)

    def test_a_job_can_be_asked_about_and_released(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        job = self.job(stage, locks, stage.work(), grace_period=stage.ttl)
        assert a.do(job.peek) is None
        a.do(job)
        assert a.do(job.peek).state == "grace"
        assert [lease.state for lease in a.do(job.release)] == ["grace"]
        assert a.do(job).ran
