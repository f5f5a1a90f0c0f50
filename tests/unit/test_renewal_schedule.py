"""The renewal schedule under any interleaving: nobody counts on a lease that the store has ended.

A small keeper sends, loses and answers the requests of `joblock.protocol.renew` in the order that
Hypothesis chooses, on a clock that is turned by hand; the leases themselves are the memory store's.
"""
# ruff: noqa: ARG005 - each step is given two numbers, of which it may need none

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joblock.protocol.acquire import refresh
from joblock.protocol.hold import NEVER, Hold
from joblock.protocol.renew import (
    FIRST_PAUSE,
    batch,
    batches,
    confirm,
    due_holds,
    ended_holds,
    next_moment,
    postpone,
    set_aside,
)
from joblock.protocol.request import make_request
from joblock.store.ops import Acquire, Force, Granted, Holders
from joblock.stores.memory import MemoryStore
from joblock.testing import ManualClock
from joblock.values.errors import LockLost, StoreUnavailable

BOUNDS = settings(max_examples=300, deadline=None, derandomize=True, database=None)

ROUNDING = 0.001
"""A ttl is sent in whole milliseconds."""


class Asked:
    """A request on its way: done by the store or not, answered or not."""

    def __init__(self, op, sent, holds):
        self.op = op
        self.sent = sent
        self.holds = holds
        self.reply = None


class Keeping:
    """Some holds, the store that granted them, and a keeper in which every step is a choice."""

    def __init__(self):
        self.clock = ManualClock()
        self.call = MemoryStore(clock=self.clock).driver().call
        self.holds = []
        self.asked = []
        self.refreshing = []
        self.adrift = []
        self.pause = FIRST_PAUSE
        self.over = set()
        self.forced = set()

    # What a flow asks of its desk.

    def expect(self, hold):
        """It is looked for at each step."""

    def lose(self, hold, reason):
        hold.lose(reason)
        hold.over = True

    # What may happen.

    def take(self, ttl, longest, renew, guarded):
        now = self.clock.monotonic()
        request = make_request(
            "",
            f"key-{len(self.holds)}",
            ttl=min(ttl, longest or ttl),
            wait=False,
            max_duration=longest or None,
            renew=renew,
            on_lost="warn",
        )
        granted = self.call(Acquire(request.key, "me", request.ttl))
        hold = Hold(self.clock, request, "me", granted, now)
        hold.guarded = guarded
        self.holds.append(hold)

    def kept(self):
        return [hold for hold in self.holds if not hold.over]

    def advance_to_next_moment(self):
        moment = next_moment(self.kept())
        if self.clock.monotonic() < moment < NEVER:
            # The clock turns by whole microseconds: one more, or it might never get there.
            self.clock.advance(moment - self.clock.monotonic() + 0.000001)

    def turn(self):
        """A round of the keeper; while an answer to the common batch is due, it only loses."""
        now = self.clock.monotonic()
        for hold in ended_holds(self.kept(), now):
            if not hold.held:
                self.lose(hold, hold.lost)
        if any(not asked.holds[0].guarded for asked in self.asked):
            return
        due = due_holds(self.kept(), now)
        assert all(hold.renew for hold in due)
        for holds in batches(due):
            if holds[0].guarded:
                set_aside(holds)
            self.send(holds, now)

    def send(self, holds, now):
        op = batch(holds, now)
        for hold, renewal in zip(holds, op.renewals, strict=True):
            assert now + renewal.ttl / 1000 <= hold.ends + ROUNDING
        self.asked.append(Asked(op, now, holds))

    def arrive(self, which):
        waiting = [asked for asked in self.asked if asked.reply is None]
        if waiting:
            asked = waiting[which % len(waiting)]
            asked.reply = self.call(asked.op)

    def answer(self, which):
        done = [asked for asked in self.asked if asked.reply is not None]
        if done:
            asked = done[which % len(done)]
            self.asked.remove(asked)
            self.pause = FIRST_PAUSE
            for hold in confirm(asked.holds, asked.reply, asked.sent):
                if not hold.over:
                    self.lose(hold, "refused")

    def fail(self, which):
        """It never arrived, or its reply is lost."""
        if self.asked:
            asked = self.asked.pop(which % len(self.asked))
            self.pause = postpone(asked.holds, self.clock.monotonic(), self.pause)

    def begin_refresh(self, which, ttl):
        kept = self.kept()
        if kept:
            self.clock.advance(0.000001)  # never in the same moment as a renewal before it
            flow = refresh(self, kept[which % len(kept)], ttl)
            with suppress(LockLost):
                self.refreshing.append((flow, Asked(next(flow), self.clock.monotonic(), [])))

    def refresh_arrives(self, which):
        waiting = [asked for _, asked in self.refreshing if asked.reply is None]
        if waiting:
            asked = waiting[which % len(waiting)]
            asked.reply = self.call(asked.op)

    def end_refresh(self, which, lost):
        """It is answered; or its reply is lost, or it is, or it is still to arrive."""
        ready = [each for each in self.refreshing if lost or each[1].reply is not None]
        if not ready:
            return
        self.clock.advance(0.000001)
        flow, asked = ready[which % len(ready)]
        self.refreshing.remove((flow, asked))
        if lost and asked.reply is None:
            self.adrift.append(asked.op)
        with suppress(StopIteration, StoreUnavailable, LockLost):
            again = flow.throw(StoreUnavailable("gone")) if lost else flow.send(asked.reply)
            self.refreshing.append((flow, Asked(again, self.clock.monotonic(), [])))

    def drift(self, which):
        """What its sender has given up arrives all the same."""
        if self.adrift:
            self.call(self.adrift.pop(which % len(self.adrift)))

    def force(self, which):
        """Somebody breaks a lease: its holder is told by the next renewal, not before."""
        if self.holds:
            hold = self.holds[which % len(self.holds)]
            self.call(Force(hold.key, "somebody", "a test"))
            self.forced.add(hold.key)

    def contend(self):
        """Others take whatever has lapsed."""
        for hold in self.holds:
            self.call(Acquire(hold.key, "another", 1))

    # What always holds.

    def check(self):
        now = self.clock.monotonic()
        for hold in self.holds:
            assert not (hold.held and hold.key in self.over), "a loss is final"
            if not hold.held:
                assert hold.lost or hold.over
                self.over.add(hold.key)
                continue
            assert now < hold.ends
            assert hold.remaining <= hold.ends - now
            if hold.key not in self.forced:
                left = self.lives_until(hold) - self.clock.wall()
                assert 0 < hold.remaining <= left + ROUNDING
        moment = next_moment(self.kept())
        for hold in self.kept():
            assert moment <= hold.deadline
            assert moment <= hold.due or not hold.renew

    def lives_until(self, hold):
        """When the store ends it, in seconds since 1970."""
        mine = [lease for lease in self.call(Holders(hold.key)) if lease.token == hold.token]
        assert mine, f"{hold.key} is held and the store has given it to somebody else"
        return (mine[0].expires_at - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()


DO = {
    "turn": lambda it, number, _: it.turn(),
    "turn, a moment later": lambda it, number, _: (it.clock.advance(0.125), it.turn()),
    "turn and arrive": lambda it, number, _: (it.turn(), it.arrive(number)),
    "arrive": lambda it, number, _: it.arrive(number),
    "arrive and answer": lambda it, number, _: (it.arrive(number), it.answer(number)),
    "answer": lambda it, number, _: it.answer(number),
    "fail": lambda it, number, _: it.fail(number),
    "advance to the next moment": lambda it, number, _: it.advance_to_next_moment(),
    "advance": lambda it, number, other: it.clock.advance((0.25, 0.5, 1.0, 2.5, 10.0)[other % 5]),
    "refresh": lambda it, number, other: it.begin_refresh(number, (2000, 9000, 30000)[other % 3]),
    "refresh arrives": lambda it, number, _: it.refresh_arrives(number),
    "refresh ends": lambda it, number, _: it.end_refresh(number, lost=False),
    "refresh is lost": lambda it, number, _: it.end_refresh(number, lost=True),
    "a lost refresh arrives": lambda it, number, _: it.drift(number),
    "contend": lambda it, number, _: it.contend(),
    "force": lambda it, number, _: it.force(number),
}
OFTEN = ("turn and arrive", "arrive and answer", "answer", "advance to the next moment", "advance")
STEPS = st.lists(
    st.tuples(st.sampled_from([*DO, *OFTEN]), st.integers(0, 5), st.integers(0, 5)),
    min_size=25,
    max_size=60,
)
HOLDS = st.lists(
    st.tuples(
        st.sampled_from([3, 9, 30, 60]),
        st.sampled_from([0, 0, 5, 20]),
        st.sampled_from([True, True, True, False]),
        st.booleans(),
    ),
    min_size=1,
    max_size=3,
)


@BOUNDS
@given(HOLDS, STEPS)
def test_nobody_counts_on_a_lease_that_the_store_has_ended(holds, steps):
    it = Keeping()
    for hold in holds:
        it.take(*hold)
    for name, number, other in steps:
        DO[name](it, number, other)
        it.check()


@BOUNDS
@given(
    ttl=st.integers(1, 60),
    begins=st.floats(0, 120),
    lasts=st.floats(0, 80),
    arrive=st.booleans(),
)
def test_a_blip_that_leaves_time_for_one_more_try_loses_nothing(ttl, begins, lasts, arrive):
    it = Keeping()
    it.take(ttl, 0, True, False)
    (hold,) = it.holds
    start = it.clock.monotonic()
    down, up = start + begins, start + begins + lasts
    confirmed = start
    while it.clock.monotonic() < up + ttl and hold.held:
        it.advance_to_next_moment()
        now = it.clock.monotonic()
        it.turn()
        if not it.asked:
            continue
        if down <= now < up:
            if arrive:
                it.arrive(0)
            it.fail(0)
        else:
            it.arrive(0)
            it.answer(0)
            confirmed = now
    assert hold.held or up + ttl / 6 >= confirmed + ttl * 0.99 - ROUNDING
    assert hold.held or hold.lost == "deadline"


def test_a_longer_refresh_is_not_believed_on_the_strength_of_an_older_renewal():
    it = Keeping()
    it.take(3, 0, True, False)
    it.clock.advance(1)
    it.turn()  # sent with the old ttl, and long in coming
    it.begin_refresh(0, 300_000)
    it.arrive(0)
    it.answer(0)
    it.end_refresh(0, lost=True)
    (hold,) = it.holds
    assert hold.remaining <= 3
    it.check()


def test_a_shorter_refresh_counts_from_when_it_is_sent_since_its_reply_may_be_lost():
    it = Keeping()
    it.take(30, 0, True, False)
    it.begin_refresh(0, 2_000)
    it.refresh_arrives(0)
    it.end_refresh(0, lost=True)
    (hold,) = it.holds
    assert 0 < hold.remaining <= 2
    it.clock.advance(2)
    assert not hold.held


def test_an_older_renewal_does_not_undo_a_shorter_refresh():
    it = Keeping()
    it.take(30, 0, True, False)
    it.clock.advance(10)
    it.turn()
    it.arrive(0)
    it.clock.advance(1)
    it.begin_refresh(0, 2_000)
    it.refresh_arrives(0)
    it.end_refresh(0, lost=False)
    it.answer(0)
    (hold,) = it.holds
    assert hold.remaining <= 2
    it.check()


@pytest.mark.parametrize("does_first", [0, 1])
@pytest.mark.parametrize("answered_first", [0, 1])
@pytest.mark.parametrize("ttls", [(2_000, 30_000), (30_000, 2_000)])
def test_of_two_refreshes_at_once_the_later_one_counts(ttls, does_first, answered_first):
    it = Keeping()
    it.take(9, 0, False, False)
    (hold,) = it.holds
    for ttl in ttls:
        it.begin_refresh(0, ttl)
    it.refresh_arrives(does_first)
    it.clock.advance(0.001)
    it.refresh_arrives(0)
    it.end_refresh(answered_first, lost=False)
    assert hold.remaining <= 2
    it.check()
    it.end_refresh(0, lost=False)
    it.refresh_arrives(0)
    it.end_refresh(0, lost=False)
    assert it.refreshing == []
    assert hold.remaining == pytest.approx(ttls[1] / 1000 * 0.99, abs=0.01)
    assert it.lives_until(hold) - it.clock.wall() == pytest.approx(ttls[1] / 1000, abs=0.01)


def test_a_shorter_refresh_that_was_given_up_and_may_yet_arrive_keeps_the_count_short():
    it = Keeping()
    it.take(30, 0, True, False)
    it.begin_refresh(0, 2_000)
    it.end_refresh(0, lost=True)
    it.begin_refresh(0, 30_000)
    it.refresh_arrives(0)
    it.end_refresh(0, lost=False)
    it.drift(0)
    (hold,) = it.holds
    assert hold.remaining <= 2
    it.check()


def test_the_first_grant_is_counted_from_before_its_request():
    clock = ManualClock()
    request = make_request("", "key", ttl=10, wait=False, on_lost="warn")
    sent = clock.monotonic()
    clock.advance(4)
    hold = Hold(clock, request, "me", Granted(1, 0, 10_000), sent)
    assert hold.remaining == pytest.approx(5.9)
