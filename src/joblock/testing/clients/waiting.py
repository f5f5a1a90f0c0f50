"""Waiting for a key: in order of arrival, woken and not polled, and never forgotten."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from joblock.store.ops import CHECK_MS, CLAIM_MS, PRESENCE_MS, Acquire, Check, Leave, Release
from joblock.testing.clients.stage import PATIENCE, Actor, Client, ClientScenarios, Stage, until
from joblock.values.errors import LockNotAcquired, StoreUnavailable

if TYPE_CHECKING:
    from concurrent.futures import Future

CHECK = CHECK_MS / 1000
CLAIM = CLAIM_MS / 1000


class Waiting(ClientScenarios):
    """See the module."""

    # In order.

    def test_those_who_wait_are_served_in_the_order_of_their_arrival(
        self, stage: Stage, a: Actor, locks: Client, others: Client
    ) -> None:
        """Whichever of two clients they wait in."""
        order: list[int] = []
        actors = stage.actors(6)
        held = a.do(locks.acquire, stage.key, stage.ttl)
        turns: list[Future[Any]] = []
        for number, actor in enumerate(actors):
            client = (locks, others)[number % 2]
            turns.append(actor.start(client.acquire, stage.key, stage.ttl, wait=True))
            stage.until_queued(number + 1)
        a.do(held.release)
        for number, (actor, turn) in enumerate(zip(actors, turns, strict=True)):
            lease = turn.result(PATIENCE)
            order.append(number)
            assert not any(later.done() for later in turns[number + 1 :])
            actor.do(lease.release)
        assert order == list(range(6))

    def test_two_hundred_contenders_are_all_served_in_order_and_nobody_spins(
        self, stage: Stage, a: Actor
    ) -> None:
        clients = [stage.client() for _ in range(4)]
        held = a.do(clients[0].acquire, stage.key, stage.ttl)
        actors = stage.actors(199)
        turns: dict[str, tuple[Actor, Future[Any]]] = {}
        for number, actor in enumerate(actors):
            client = clients[number % 4]
            holder = f"{stage.key}:{number}"
            turn = actor.start(client.acquire, stage.key, stage.ttl, wait=True, holder=holder)
            turns[holder] = (actor, turn)
        stage.until_queued(199)
        line = [waiter.holder for waiter in stage.queue()]
        a.do(held.release)
        tokens: list[int] = []
        for holder in line:
            actor, turn = turns[holder]
            lease = turn.result(PATIENCE)
            tokens.append(lease.token)
            actor.do(lease.release)
        assert tokens == sorted(tokens)
        assert stage.holders() == []
        assert stage.queue() == ()
        asked = sum(len(stage.faults(client).sent(Acquire)) for client in clients)
        assert asked <= 1 + 2 * 199 + 20

    def test_a_newcomer_does_not_overtake_those_who_wait(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        c = stage.actor("C")
        permit = a.do(locks.acquire, stage.key, stage.ttl, limit=2)
        heavy = b.start(others.acquire, stage.key, stage.ttl, wait=True, limit=2, weight=2)
        stage.until_queued(1)
        newcomer = c.start(locks.acquire, stage.key, stage.ttl, wait=True, limit=2)
        stage.until_queued(2)
        a.do(permit.release)
        lease = heavy.result(PATIENCE)
        assert not newcomer.done()
        b.do(lease.release)
        c.do(newcomer.result(PATIENCE).release)

    def test_a_heavy_waiter_is_not_starved_by_light_ones(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        """A stream of readers that overlap does not keep a writer out."""
        shared = locks.lock(stage.key, stage.ttl, shared=True)
        a.do(shared.acquire)
        writer = b.start(others.acquire, stage.key, stage.ttl, wait=True)
        stage.until_queued(1)
        assert not stage.actor("another reader").gets(shared)
        a.do(shared.release)
        b.do(writer.result(PATIENCE).release)

    def test_one_release_serves_as_many_as_fit(
        self, stage: Stage, a: Actor, locks: Client, others: Client
    ) -> None:
        readers = stage.actors(3)
        held = a.do(locks.acquire, stage.key, stage.ttl)
        turns: list[Future[Any]] = []
        for number, reader in enumerate(readers):
            turns.append(reader.start(others.acquire, stage.key, stage.ttl, wait=True, shared=True))
            stage.until_queued(number + 1)
        a.do(held.release)
        leases = [turn.result(PATIENCE) for turn in turns]
        assert len(stage.holders()) == 3
        for reader, lease in zip(readers, leases, strict=True):
            reader.do(lease.release)

    # Woken, not polled.

    def test_a_waiter_is_woken_by_the_release_and_asks_once(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        held = a.do(locks.acquire, stage.key, stage.ttl)
        waiting = b.start(others.acquire, stage.key, stage.ttl, wait=True)
        stage.until_queued(1)
        faults = stage.faults(others)
        assert len(faults.sent(Acquire)) == 1
        a.do(held.release)
        lease = waiting.result(PATIENCE)
        assert len(faults.sent(Acquire)) == 2
        b.do(lease.release)
        assert len(faults.sent(Leave)) == 0

    def test_a_hand_over_takes_three_requests_however_many_wait(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        """The release, the confirmation, and at most a check."""
        stage.needs_manual_clock()
        actors, held = stage.actors(20), a.do(locks.acquire, stage.key, stage.ttl)
        turns = [actor.start(locks.acquire, stage.key, stage.ttl, wait=True) for actor in actors]
        stage.until_queued(20)
        place = dict(zip(turns, actors, strict=True))
        stage.settle()
        before = len(stage.faults(locks).requests)
        a.do(held.release)
        for _ in range(20):
            until(lambda: any(turn.done() for turn in place), lambda: "one should have its turn")
            turn = next(turn for turn in place if turn.done())
            place.pop(turn)
            actors[turns.index(turn)].do(turn.result().release)
        stage.settle()
        assert len(stage.faults(locks).requests) - before <= 3 * 20 + 3

    def test_a_client_that_waits_sends_less_than_a_request_a_second(
        self, stage: Stage, a: Actor, locks: Client, others: Client
    ) -> None:
        stage.needs_manual_clock()
        with a.inside(locks.lock(stage.key, 30)):
            waiters = stage.actors(20)
            turns = [waiter.start(others.acquire, stage.key, 30, wait=True) for waiter in waiters]
            stage.until_queued(20)
            before = len(stage.faults(others).requests)
            stage.elapse(120)
            assert len(stage.faults(others).requests) - before <= 60
            assert not any(turn.done() for turn in turns)
        for _ in range(20):
            until(lambda: any(turn.done() for turn in turns), lambda: "one should have its turn")
            at = next(at for at, turn in enumerate(turns) if turn.done())
            waiters.pop(at).do(turns.pop(at).result().release)

    def test_a_wait_through_a_long_grace_sends_less_than_a_request_a_second(
        self, stage: Stage, locks: Client, others: Client
    ) -> None:
        stage.needs_manual_clock()
        driver = locks.store.inner.driver()
        driver.call(Acquire(stage.key, "earlier", 60_000))
        driver.call(Release(stage.key, "earlier", grace=300_000))
        waiters = stage.actors(20)
        turns = [waiter.start(others.acquire, stage.key, 30, wait=True) for waiter in waiters]
        stage.until_queued(20)
        before = len(stage.faults(others).requests)
        stage.elapse(200)
        assert len(stage.faults(others).requests) - before <= 200
        assert not any(turn.done() for turn in turns)
        stage.elapse(101)
        for _ in range(20):
            until(lambda: any(turn.done() for turn in turns), lambda: "one should have its turn")
            at = next(at for at, turn in enumerate(turns) if turn.done())
            waiters.pop(at).do(turns.pop(at).result().release)

    def test_a_listening_connection_is_opened_by_the_first_wait_and_closed_when_idle(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        stage.needs_manual_clock()
        faults = stage.faults(others)
        with b.inside(others.lock(stage.key, 30)):
            assert faults.connects == []
        held = a.do(locks.acquire, stage.key, 30)
        waiting = b.start(others.acquire, stage.key, 30, wait=True)
        stage.until_queued(1)
        assert len(faults.connects) == 1
        a.do(held.release)
        lease = waiting.result(PATIENCE)
        stage.settle()
        stage.elapse(90)
        until(lambda: faults.connects == [], lambda: "the connection should be closed by now")
        assert lease.held
        again = a.start(others.acquire, stage.key, 30, wait=True)
        stage.until_queued(1)
        assert len(faults.connects) == 1
        b.do(lease.release)
        a.do(again.result(PATIENCE).release)

    # What is missed is made up for.

    def test_a_release_between_being_refused_and_listening_is_not_missed(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        held = a.do(locks.acquire, stage.key, stage.ttl)
        gate = stage.faults(others).delay(Acquire, done=True)
        waiting = b.start(others.acquire, stage.key, stage.ttl, wait=True)
        gate.wait_for_arrival()
        a.do(held.release)
        gate.open()
        b.do(waiting.result(CHECK / 2).release)

    def test_a_notice_that_is_lost_costs_time_and_no_more(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        held = a.do(locks.acquire, stage.key, stage.ttl)
        waiting = b.start(others.acquire, stage.key, stage.ttl, wait=True)
        stage.until_queued(1)
        stage.faults(others).drop_notices()
        a.do(held.release)
        stage.elapse(CHECK + CLAIM)
        b.do(waiting.result(PATIENCE).release)

    def test_a_waiter_that_hears_nothing_is_served_when_the_lease_in_its_way_lapses(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        held = a.do(locks.acquire, stage.key, stage.ttl, renew=False)
        waiting = b.start(others.acquire, stage.key, stage.ttl, wait=True)
        stage.until_queued(1)
        stage.faults(others).drop_notices()
        stage.faults(locks).go_down()
        stage.elapse(1.05 * stage.ttl)
        b.do(waiting.result(PATIENCE).release)
        assert not held.held

    def test_a_waiter_is_told_the_moment_the_lease_in_its_way_lapses(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        stage.needs_manual_clock()
        held = a.do(locks.acquire, stage.key, 2, renew=False)
        stage.faults(locks).go_down()
        waiting = b.start(others.acquire, stage.key, 30, wait=True)
        stage.until_queued(1)
        stage.elapse(1.875)
        assert not waiting.done()
        stage.elapse(0.25)
        b.do(waiting.result(PATIENCE).release)
        assert not held.held

    def test_a_client_that_cannot_be_notified_asks_often_and_is_served_soon(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        faults = stage.faults(others)
        faults.deaf = True
        faults.drop_notices()
        held = a.do(locks.acquire, stage.key, stage.ttl)
        waiting = b.start(others.acquire, stage.key, stage.ttl, wait=True)
        stage.until_queued(1)
        stage.elapse(1)
        a.do(held.release)
        stage.elapse(0.5)
        b.do(waiting.result(PATIENCE).release)
        assert len(faults.sent(Check)) <= 40

    def test_a_client_that_listens_again_asks_at_once(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        faults = stage.faults(others)
        held = a.do(locks.acquire, stage.key, stage.ttl)
        waiting = b.start(others.acquire, stage.key, stage.ttl, wait=True)
        stage.until_queued(1)
        faults.drop_notices()
        a.do(held.release)
        faults.drop_notices(0)
        faults.reconnect()
        b.do(waiting.result(PATIENCE).release)

    def test_a_waiter_wakes_for_nothing_at_most_once_when_the_key_changes_hands(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        """Released and re-acquired several times by others, while it sleeps behind them."""
        first = a.do(locks.acquire, stage.key, stage.ttl)
        c, d = stage.actors(2)
        ahead = c.start(locks.acquire, stage.key, stage.ttl, wait=True)
        stage.until_queued(1)
        behind = d.start(locks.acquire, stage.key, stage.ttl, wait=True)
        stage.until_queued(2)
        waiting = b.start(others.acquire, stage.key, stage.ttl, wait=True)
        stage.until_queued(3)
        faults = stage.faults(others)
        a.do(first.release)
        second = ahead.result(PATIENCE)
        c.do(second.release)
        third = behind.result(PATIENCE)
        assert not waiting.done()
        d.do(third.release)
        b.do(waiting.result(PATIENCE).release)
        assert len(faults.sent(Acquire)) <= 3

    # The end of a wait.

    def test_a_wait_ends_to_the_millisecond_where_time_can_be_told_so(
        self, stage: Stage, a: Actor, b: Actor, locks: Client
    ) -> None:
        stage.needs_manual_clock()
        with a.inside(locks.lock(stage.key, 30)):
            for wait, seconds in [(0.09, 0.09), ("250ms", 0.25), (10, 10), ((1, "minute"), 60)]:
                waiting = b.start(locks.acquire, stage.key, 30, wait=wait)
                stage.until_queued(1)
                stage.elapse(seconds - 0.001)
                assert not waiting.done()
                assert len(stage.queue()) == 1
                stage.elapse(0.002)
                assert waiting.result(PATIENCE) is None
                assert stage.queue() == ()

    @pytest.mark.parametrize("wait", [0.09, 0.5])
    def test_a_short_wait_is_neither_given_up_early_nor_rounded_to_seconds(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, wait: float
    ) -> None:
        with a.inside(locks.lock(stage.key, stage.ttl)):
            begun = stage.clock.monotonic()
            waiting = b.start(locks.lock(stage.key, stage.ttl).acquire, timeout=wait)
            stage.until_asleep(1)
            stage.elapse(wait)
            assert waiting.result(PATIENCE) is False
            taken = stage.clock.monotonic() - begun
            assert wait <= taken <= wait + stage.harness.slack / 1000 + 0.001

    def test_a_short_wait_is_long_enough_for_a_release_within_it(
        self, stage: Stage, a: Actor, b: Actor, locks: Client
    ) -> None:
        stage.needs_manual_clock()
        held = a.do(locks.acquire, stage.key, 30)
        waiting = b.start(locks.acquire, stage.key, 30, wait=0.09)
        stage.until_queued(1)
        stage.elapse(0.089)
        a.do(held.release)
        b.do(waiting.result(PATIENCE).release)

    def test_a_short_lease_is_given_to_the_waiter_as_asked_for(
        self, stage: Stage, a: Actor, b: Actor, locks: Client
    ) -> None:
        stage.needs_manual_clock()
        held = a.do(locks.acquire, stage.key, 30)
        waiting = b.start(locks.acquire, stage.key, 0.09, wait=True, renew=False)
        stage.until_queued(1)
        a.do(held.release)
        lease = waiting.result(PATIENCE)
        (stored,) = stage.leases()
        assert (stored.expires_at - stored.acquired_at).total_seconds() == pytest.approx(0.09)
        b.do(lease.release)

    def test_the_end_of_a_wait_tells_who_has_the_key_by_then(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        stage.needs_manual_clock()
        first = a.do(locks.acquire, stage.key, 30, renew=False)
        c = stage.actor("C")
        ahead = c.start(locks.acquire, stage.key, 20, wait=True, renew=False)
        stage.until_queued(1)
        entering = b.start_entering(others.lock(stage.key, wait=10))
        stage.until_queued(2)
        stage.elapse(5)
        a.do(first.release)
        second = ahead.result(PATIENCE)
        stage.elapse(5)
        with pytest.raises(LockNotAcquired) as caught:
            entering.result(PATIENCE)
        assert caught.value.holder == second.holder
        assert caught.value.remaining == pytest.approx(15)
        assert caught.value.reason == "timeout"
        c.do(second.release)

    def test_what_is_free_at_the_very_end_of_a_wait_is_still_taken(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        held = a.do(locks.acquire, stage.key, stage.ttl)
        faults = stage.faults(others)
        waiting = b.start(others.acquire, stage.key, stage.ttl, wait=0.5)
        stage.until_queued(1)
        faults.drop_notices()
        gate = faults.delay(Check, times=None)
        a.do(held.release)
        if stage.harness.slack:
            stage.elapse(0.5)
        else:
            stage.manual.advance(0.5, settle=False)
        lease = waiting.result(PATIENCE)
        gate.open()
        assert lease is not None
        b.do(lease.release)

    def test_a_waiter_that_gives_up_when_it_was_just_handed_the_key_passes_it_on(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        held = a.do(locks.acquire, stage.key, stage.ttl)
        faults, c = stage.faults(others), stage.actor("C")
        giving_up = b.start(others.acquire, stage.key, stage.ttl, wait=0.5)
        stage.until_queued(1)
        gate = faults.delay(Acquire, done=True)  # the last chance: refused, and not told yet
        if stage.harness.slack:
            stage.elapse(0.5)
        else:
            stage.manual.advance(0.5, settle=False)
        gate.wait_for_arrival()
        next_one = c.start(locks.acquire, stage.key, stage.ttl, wait=True)
        stage.until_sent(locks, 2, Acquire)
        until(lambda: len(stage.queue()) == 2, lambda: "two should be queued")
        faults.drop_notices()
        a.do(held.release)
        gate.open()
        assert giving_up.result(PATIENCE) is None
        c.do(next_one.result(PATIENCE).release)

    def test_a_waiter_that_was_handed_the_key_and_is_gone_costs_those_behind_one_claim(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        stage.needs_manual_clock()
        held = a.do(locks.acquire, stage.key, 30)
        dead = b.start(others.acquire, stage.key, 30, wait=True)
        stage.until_queued(1)
        alive = stage.actor("C").start(locks.acquire, stage.key, 30, wait=True)
        stage.until_queued(2)
        stage.until_listening(locks, others)
        faults = stage.faults(others)
        faults.drop_notices()
        gate = faults.delay(Acquire, Check, times=None)
        a.do(held.release)
        heard = stage.faults(locks).heard
        until(
            lambda: any(notice.after for notice in heard),
            lambda: "the next in line should know when it is worth asking",
        )
        assert not alive.done()
        stage.manual.advance(CLAIM + 0.25, settle=False)
        lease = alive.result(PATIENCE)
        assert not dead.done()
        gate.open()
        faults.clear()
        stage.actor().do(lease.release)
        stage.elapse(2 * CHECK)
        b.do(dead.result(PATIENCE).release)

    def test_many_waiters_of_a_client_that_died_cost_those_behind_one_check(
        self, stage: Stage, a: Actor, locks: Client, others: Client
    ) -> None:
        stage.needs_manual_clock()
        held = a.do(locks.acquire, stage.key, 30)
        dead = [actor.start(others.acquire, stage.key, 30, wait=True) for actor in stage.actors(5)]
        stage.until_queued(5)
        alive = stage.actor("C").start(locks.acquire, stage.key, 30, wait=True)
        stage.until_queued(6)
        faults = stage.faults(others)
        faults.drop_notices()
        gate = faults.delay(Acquire, Check, times=None)
        a.do(held.release)
        stage.manual.advance(CHECK + 0.25, settle=False)
        lease = alive.result(PATIENCE)
        gate.open()
        faults.clear()
        a.do(lease.release)
        for _ in range(5):
            stage.elapse(CHECK)
            until(lambda: any(turn.done() for turn in dead), lambda: "one should have its turn")
            turn = next(turn for turn in dead if turn.done())
            dead.remove(turn)
            a.do(turn.result().release)

    def test_a_client_that_was_away_for_long_keeps_its_place_in_the_queue(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        stage.needs_manual_clock()
        held = a.do(locks.acquire, stage.key, 30)
        paused = b.start(others.acquire, stage.key, 30, wait=True)
        stage.until_queued(1)
        faults = stage.faults(others)
        faults.go_down()
        stage.elapse(PRESENCE_MS / 1000 + 1)
        newcomer = stage.actor("C").start(locks.acquire, stage.key, 30, wait=True)
        until(lambda: len(stage.queue()) == 2, lambda: "two should be queued")
        faults.clear()
        stage.elapse(2 * CHECK)
        a.do(held.release)
        lease = paused.result(PATIENCE)
        assert not newcomer.done()
        b.do(lease.release)
        a.do(newcomer.result(PATIENCE).release)

    # Outages.

    def test_a_wait_outlives_an_outage(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        held = a.do(locks.acquire, stage.key, stage.ttl)
        faults = stage.faults(others)
        faults.go_down()
        waiting = b.start(others.acquire, stage.key, stage.ttl, wait=True)
        stage.until_asleep(1)
        stage.elapse(1)
        faults.clear()
        stage.elapse(2)
        stage.until_queued(1)
        a.do(held.release)
        b.do(waiting.result(PATIENCE).release)

    def test_an_outage_while_a_waiter_sleeps_does_not_end_its_wait(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        held = a.do(locks.acquire, stage.key, 10 * stage.ttl)
        waiting = b.start(others.acquire, stage.key, stage.ttl, wait=True)
        stage.until_queued(1)
        faults = stage.faults(others)
        faults.go_down()
        stage.elapse(2 * CHECK)
        assert not waiting.done()
        faults.clear()
        stage.elapse(CHECK)
        a.do(held.release)
        b.do(waiting.result(PATIENCE).release)

    def test_a_wait_without_end_gives_up_after_thirty_seconds_of_outage(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        clock = stage.manual
        stage.faults(locks).go_down()
        waiting = a.start(locks.acquire, stage.key, 30, wait=True)
        stage.until_asleep(1)
        for _ in range(8 * 29):
            clock.advance(0.125)
            stage.until_asleep(1)
        assert not waiting.done()
        for _ in range(8):
            clock.advance(0.125)
        with pytest.raises(StoreUnavailable):
            waiting.result(PATIENCE)
        assert len(stage.faults(locks).sent(Acquire)) <= 60

    def test_a_wait_that_ends_during_an_outage_says_so(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        faults = stage.faults(locks)
        faults.go_down()
        waiting = a.start(locks.acquire, stage.key, stage.ttl, wait=0.5)
        stage.until_asleep(1)
        stage.elapse(0.5)
        with pytest.raises(StoreUnavailable):
            waiting.result(PATIENCE)
        faults.clear()
        stage.until_free()

    def test_a_confirmation_whose_reply_is_lost_is_simply_sent_again(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        held = a.do(locks.acquire, stage.key, stage.ttl)
        waiting = b.start(others.acquire, stage.key, stage.ttl, wait=True)
        stage.until_queued(1)
        stage.faults(others).lose_reply(Acquire)
        a.do(held.release)
        stage.until_sent(others, 2, Acquire)
        stage.elapse_until(waiting.done)
        lease = waiting.result(PATIENCE)
        assert stage.holders() == [lease.holder]
        b.do(lease.release)
        assert stage.holders() == []

    def test_a_request_whose_reply_is_lost_is_found_to_be_ours(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        stage.faults(locks).lose_reply(Acquire)
        waiting = a.start(locks.acquire, stage.key, stage.ttl, wait=5)
        stage.until_sent(locks, 1, Acquire)
        stage.until_asleep(1)
        stage.elapse(0.25)
        lease = waiting.result(PATIENCE)
        assert stage.holders() == [lease.holder]
        a.do(lease.release)
        assert stage.leases() == ()

    def test_leaving_a_queue_that_cannot_be_reached_does_not_hide_who_has_the_key(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        with a.inside(locks.lock(stage.key, stage.ttl)) as lease:
            entering = b.start_entering(others.lock(stage.key, wait=0.5))
            stage.until_queued(1)
            stage.faults(others).fail(Leave)
            stage.elapse(0.5)
            with pytest.raises(LockNotAcquired) as caught:
                entering.result(PATIENCE)
            assert caught.value.holder == lease.holder
            until(lambda: stage.queue() == (), lambda: f"still queued: {stage.queue()}")

    def test_a_holder_that_died_is_replaced_at_its_ttl(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        dead = a.do(locks.acquire, stage.key, stage.ttl)
        stage.faults(locks).go_down()
        waiting = b.start(others.acquire, stage.key, stage.ttl, wait=True)
        stage.until_queued(1)
        stage.elapse(0.9 * stage.ttl)
        assert not waiting.done()
        stage.elapse(0.2 * stage.ttl)
        lease = waiting.result(PATIENCE)
        assert lease.token > dead.token
        b.do(lease.release)

    def test_many_callers_of_a_new_key_see_no_error(self, stage: Stage) -> None:
        clients = [stage.client() for _ in range(4)]
        actors = stage.actors(24)
        for round_ in range(5):
            key = f"{stage.key}:{round_}"
            tries = [
                actor.start(clients[number % 4].acquire, key, stage.ttl)
                for number, actor in enumerate(actors)
            ]
            leases = [one for one in (each.result(PATIENCE) for each in tries) if one is not None]
            assert len(leases) == 1
            actors[0].do(leases[0].release)

    def test_a_waiter_of_one_key_is_not_woken_by_another(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        with a.inside(locks.lock(stage.key, stage.ttl)):
            waiting = b.start(others.acquire, stage.key, stage.ttl, wait=True)
            stage.until_queued(1)
            sent = len(stage.faults(others).sent(Acquire))
            with stage.actor("C").inside(locks.lock(f"{stage.key}:2", stage.ttl)):
                pass
            stage.settle()
            assert len(stage.faults(others).sent(Acquire)) == sent
        b.do(waiting.result(PATIENCE).release)

    def test_nothing_sleeps_where_time_is_turned_by_hand(
        self, stage: Stage, a: Actor, b: Actor, locks: Client
    ) -> None:
        stage.needs_manual_clock()
        begun = time.monotonic()
        held = a.do(locks.acquire, stage.key, "1h")
        waiting = b.start(locks.acquire, stage.key, "1h", wait="30m")
        stage.until_queued(1)
        stage.elapse(1800)
        assert waiting.result(PATIENCE) is None
        a.do(held.release)
        assert time.monotonic() - begun < 30
