"""Election: one of all who stand for a key leads, until it stops, fails or loses its lease."""

from __future__ import annotations

from itertools import pairwise
from queue import SimpleQueue
from typing import Any

import pytest

from joblock.store.ops import Acquire
from joblock.testing.clients.stage import PATIENCE, Actor, Client, ClientScenarios, Stage, until


class Candidate:
    """A leader of that client and what happened to it; its work goes on until its term is over."""

    def __init__(self, stage: Stage, actor: Actor, client: Client, **options: Any) -> None:
        self.elected: SimpleQueue[Any] = SimpleQueue()
        self.lost: SimpleQueue[str] = SimpleQueue()
        self.actor = actor
        callbacks = self._later() if stage.asynchronous else self._now()
        options = {"on_elected": callbacks[0], "on_lost": callbacks[1], **options}
        self.leader = client.leader(stage.key, stage.ttl, **options)
        actor.do(self.leader.start)

    def _now(self) -> tuple[Any, Any]:
        def elected(term: Any) -> None:
            self.elected.put(term)
            assert term.over.wait(PATIENCE)

        def lost(term: Any) -> None:
            self.lost.put(term.reason)

        return elected, lost

    def _later(self) -> tuple[Any, Any]:
        async def elected(term: Any) -> None:
            self.elected.put(term)
            await term.over.wait()

        async def lost(term: Any) -> None:
            self.lost.put(term.reason)

        return elected, lost

    def leads(self) -> Any:
        """Its next term, which must come."""
        return self.elected.get(timeout=PATIENCE)

    def stop(self) -> None:
        assert self.actor.do(self.leader.stop)


def failing(stage: Stage) -> Any:
    """An ``on_elected`` that fails."""

    def fails(term: Any) -> None:
        raise RuntimeError(term)

    async def afails(term: Any) -> None:
        raise RuntimeError(term)

    return afails if stage.asynchronous else fails


class Election(ClientScenarios):
    """See the module."""

    def test_one_leads_within_its_block_and_the_next_after_it(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        with a.inside(locks.leader(stage.key, stage.ttl)) as leadership:
            assert leadership.held
            candidate = others.leader(stage.key, stage.ttl)
            entering = b.start_entering(candidate)
            stage.until_queued(1)
            assert not entering.done()
        assert entering.result(PATIENCE).token > leadership.token
        b.leave(candidate)
        assert stage.leases() == ()

    def test_one_of_many_leads_and_they_follow_in_the_order_in_which_they_came(
        self, stage: Stage, a: Actor, locks: Client, others: Client
    ) -> None:
        candidates = [Candidate(stage, a, locks)]
        first = candidates[0].leads()
        for number in (1, 2):
            candidates.append(Candidate(stage, a, (locks, others)[number % 2]))
            stage.until_queued(number)
        tokens = [first.token]
        assert [each.leader.is_leader for each in candidates] == [True, False, False]
        assert candidates[0].leader.leadership is first
        for before, after in pairwise(candidates):
            before.stop()
            assert before.lost.get(timeout=PATIENCE) == "stopped"
            assert not before.leader.is_leader
            tokens.append(after.leads().token)
        candidates[-1].stop()
        assert tokens == sorted(set(tokens))
        assert stage.leases() == ()

    def test_a_candidate_is_woken_and_sends_nothing_but_its_place_and_its_confirmation(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        first = Candidate(stage, a, locks)
        first.leads()
        second = Candidate(stage, b, others)
        stage.until_queued(1)
        first.stop()
        second.leads()
        assert len(stage.faults(others).sent(Acquire)) == 2
        second.stop()

    def test_one_that_is_stopped_while_it_waits_leaves_the_queue(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        with a.inside(locks.lock(stage.key, stage.ttl)):
            waiting = Candidate(stage, b, others)
            stage.until_queued(1)
            waiting.stop()
            until(lambda: not stage.queue(), lambda: f"{stage.queue()} still waits")
            assert waiting.elected.empty()

    def test_one_that_loses_its_lease_is_told_and_stands_again(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        first, second = Candidate(stage, a, locks), None
        term = first.leads()
        second = Candidate(stage, b, others)
        stage.until_queued(1)
        stage.break_leases(stage.key)
        other = second.leads()
        stage.lapse(term.lease)
        assert first.lost.get(timeout=PATIENCE) in ("refused", "deadline")
        assert not term.held
        stage.until_queued(1)
        second.stop()
        assert first.leads().token > other.token > term.token
        first.stop()

    def test_one_whose_work_fails_steps_down_and_says_so_in_the_log(
        self,
        stage: Stage,
        a: Actor,
        b: Actor,
        locks: Client,
        others: Client,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        with b.inside(others.lock(stage.key, stage.ttl)):
            fails = Candidate(stage, a, locks, on_elected=failing(stage))
            stage.until_queued(1)
            second = Candidate(stage, b, others)
            stage.until_queued(2)
        second.leads()
        assert fails.lost.get(timeout=PATIENCE) == "failed"
        assert "of the candidate for" in caplog.text
        fails.stop()
        second.stop()

    def test_a_failure_to_take_leave_keeps_nobody_from_leading(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        first = Candidate(stage, a, locks, on_lost=failing(stage))
        first.leads()
        second = Candidate(stage, b, others)
        stage.until_queued(1)
        first.stop()
        second.leads()
        second.stop()

    def test_one_without_callbacks_leads_until_it_is_stopped(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        leader = locks.leader(stage.key, stage.ttl)
        a.do(leader.start)
        until(lambda: leader.is_leader, lambda: f"{leader} does not lead")
        with pytest.raises(RuntimeError, match="started already"):
            a.do(leader.start)
        assert a.do(leader.stop)
        assert stage.leases() == ()
        a.do(leader.start)
        until(lambda: leader.is_leader, lambda: f"{leader} does not lead again")
        assert a.do(leader.stop)
        assert a.do(leader.stop)

    def test_a_store_that_is_down_does_not_end_the_candidacy(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        stage.faults(locks).fail(Acquire, times=2)
        candidate = Candidate(stage, a, locks)
        until(lambda: bool(stage.faults(locks).sent(Acquire)), lambda: "it does not stand")
        stage.elapse_until(lambda: not candidate.elected.empty())
        candidate.leads()
        candidate.stop()

    def test_closing_its_client_ends_a_candidacy(self, stage: Stage, a: Actor, b: Actor) -> None:
        client, other = stage.client(), stage.client()
        leads = Candidate(stage, a, client)
        leads.leads()
        waits = Candidate(stage, b, other)
        stage.until_queued(1)
        b.do(other.close)
        a.do(client.close)
        assert leads.lost.get(timeout=PATIENCE) == "closed"
        for candidate in (leads, waits):
            candidate.stop()
        assert stage.leases() == ()
        assert waits.elected.empty()

    def test_callbacks_of_the_other_kind_are_refused(self, stage: Stage, locks: Client) -> None:
        def plain(term: Any) -> None:
            del term

        async def coroutine(term: Any) -> None:
            del term

        wrong = plain if stage.asynchronous else coroutine
        for options in ({"on_elected": wrong}, {"on_lost": wrong}, {"on_elected": 5}):
            with pytest.raises(TypeError):
                locks.leader(stage.key, **options)
