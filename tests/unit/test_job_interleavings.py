"""Jobs of several clients at once: joined, in grace, killed and closed, in every order of steps.

Every step, fault and lapse of time is a choice of Hypothesis, as for acquisitions. A client can be
killed, and then does nothing ever again, but what it sent may still arrive; or it is closed, while
its callers are anywhere, and used again. Then the faults stop, and everybody is run to the end.

What must be true is said in terms of runs: when they began and ended in the store, and how.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import ClassVar, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from interleaving import MOVES, Actor, World

from joblock.protocol.acquire import acquire
from joblock.protocol.job import Verdict, make_terms, run_job
from joblock.protocol.request import make_request
from joblock.store.ops import CHECK_MS, CLAIM_MS, Acquire, Busy, Granted, Holders, Release, Waiters
from joblock.values.durations import to_ms
from joblock.values.errors import LockLost

pytestmark = pytest.mark.usefixtures("quiet")

BOUNDS = settings(max_examples=300, deadline=None, derandomize=True, database=None)

KEY = "job"
TTL = 6
USUAL = {
    "name": KEY,
    "wait": None,
    "join": False,
    "in_grace": "skip",
    "ttl": TTL,
    "max_duration": None,
    "grace_period": None,
    "grace_on": "success",
    "at_least": None,
    "limit": None,
    "weight": None,
    "renew": True,
    "on_lost": "warn",
    "on_store_error": "raise",
    "occurrence": None,
    "occurrence_ttl": None,
}
KINDS = {
    "joins": {"join": True},
    "joins for a while": {"join": True, "wait": 4},
    "joins, then is closed for long": {"join": True, "grace_period": 20},
    "joins, closed however it ends": {"join": True, "grace_period": 9, "grace_on": "always"},
    "joins, and is told of a loss": {"join": True, "on_lost": "raise", "max_duration": 8},
    "skips": {"wait": False, "grace_period": 5},
    "waits, but for no grace": {"wait": True, "grace_period": 20},
    "waits for a grace, too": {"in_grace": "wait", "grace_period": 5},
    "joins, and waits for a grace": {"join": True, "in_grace": "wait", "grace_period": 5},
    "stays closed for a while": {"wait": True, "at_least": 12},
    "is for the first tick": {"wait": True, "occurrence": 1},
    "is for the second tick": {"join": True, "occurrence": 2},
    "just locks": None,
}

TOLD = CHECK_MS / 1000 + 1.5
"""Seconds in which whoever waits for nothing any more has learnt it, if every notice was lost."""


class Run(NamedTuple):
    """A fresh grant: to whom, when in steps of the world, and when on the clock."""

    holder: str
    step: int
    at: float


class Caller(Actor):
    """One call of a job, or one acquisition."""

    terms = None
    joined = 0
    joined_at = 0
    worked = 0
    well = False
    closing = False
    saw_grace = False

    def __init__(self, world, client, kind):
        self.created = world.step
        self.holders = set()
        self.boom = None
        options = KINDS[kind]
        if options is None:
            request = make_request("", KEY, ttl=TTL, wait=True, on_lost="warn")
            super().__init__(world, client, KEY, None, acquire(client, request))
            return
        self.terms = make_terms("", **{**USUAL, **options})
        wait = self.terms.request.wait
        flow = run_job(client, "", self.terms, lambda: None, (), {})
        super().__init__(world, client, KEY, None if wait is None else wait / 1000, flow)

    def go(self, advance):
        hold = self.hold if self.state == "working" else None
        live = hold is not None and hold.live
        super().go(advance)
        assert not self.closing or self.state == "ended", "who waits while it is closed gives up"
        if self.state == "asking" and isinstance(self.step, Acquire):
            self.holders.add(self.step.holder)
        elif live and self.state == "asking" and self.terms is not None:
            self.check_release(self.step)
        elif self.state == "working":
            self.worked += 1
            self.world.began(self)

    def reply(self, value):
        if isinstance(value, Busy) and value.arrival and not self.joined and self.is_joiner:
            self.joined, self.joined_at = value.token, self.world.step
        if self.state == "working":
            self.well = True
            if self.hold.live:
                # From here on, however late the store hears of it.
                self.world.well.add(self.hold.token)
        super().reply(value)

    def throw(self, error):
        if self.state == "working":
            self.boom = error
        super().throw(error)

    def check_release(self, op):
        grace = to_ms(self.terms.grace) if self.terms.grace is not None else 0
        assert isinstance(op, Release)
        assert op.ok == self.well
        assert op.grace == (grace if self.well or self.terms.grace_always else 0)
        assert (op.done is not None) == (self.well and self.terms.occurrence is not None)

    @property
    def is_joiner(self):
        return self.terms is not None and self.terms.join

    def end(self, result):
        if isinstance(result, Verdict):
            self.state, self.hold = "ended", None
            self.check_verdict(result)
        else:
            super().end(result)

    def check_verdict(self, verdict):
        outcome, world = verdict.outcome, self.world
        assert self.worked == outcome.ran
        if outcome.ran:
            assert verdict.error is self.boom or isinstance(verdict.error, LockLost)
            return
        assert verdict.error is None
        if outcome.reason == "joined":
            assert self.is_joiner
            assert world.ended_well[outcome.token] > self.created, "it began after that run"
            assert outcome.token >= self.joined
        elif outcome.reason == "grace":
            assert self.terms.skip_grace
            assert self.saw_grace
        elif outcome.reason == "done":
            assert world.tick >= self.terms.occurrence
        else:
            assert outcome.reason == ("held" if self.wait == 0 else "timeout")
            assert self.wait is not None
            assert world.clock.monotonic() >= self.began + self.wait

    def die(self):
        """Its process is killed. What it had is kept, so that nothing is given back."""
        self.buried = self.hold, self.flow
        self.state, self.hold = "killed", None


class Jobs(World):
    """Several clients with callers of one key, and what has come of each run."""

    limits: ClassVar = {KEY: 1}

    def __init__(self, kinds):
        self.kinds = kinds
        self.step = 0
        self.runs = {}
        self.opens = {}
        self.well = set()
        self.ended_well = {}
        self.tick = 0
        self.dead = []
        self.late = []
        self.since = {}
        self.wasted = {}
        self.given_up = set()
        super().__init__()

    # What may happen, beside what may happen to all.

    def start(self, number):
        if len(self.actors) < 14:
            client = self.clients[number % 2]
            self.actors.append(Caller(self, client, self.kinds[number // 2 % len(self.kinds)]))

    def finish(self, number, *, well=True):
        """A run that is under way ends."""
        working = self.in_state("working")
        if working:
            actor = working[number % len(working)]
            actor.reply((None, None)) if well else actor.throw(ValueError())

    def ask(self, actor):
        actor.saw_grace = self.in_grace()
        return super().ask(actor)

    def kill(self, number):
        """A process is gone, and another one is started in its place."""
        client = self.clients[number % 2]
        if len(self.dead) == 3:
            return
        for actor in self.actors:
            if actor.client is client and actor.state not in ("ended", "killed"):
                if actor.state in ("asking", "releasing"):
                    self.late.append(actor.step)
                actor.die()
        self.late += client.flying
        client.do = None
        client.stop_listening()
        self.dead.append(client)
        self.clients[number % 2] = self.new_client(len(self.dead) * 10 + number % 2)

    def arrive(self, number):
        """What a process sent before it was killed arrives after that."""
        if self.late:
            self.do(self.late.pop(number % len(self.late)))

    def shut(self, number):
        """A client is closed, as `Hub.close` does when the second is over that waiters have."""
        client = self.clients[number % 2]
        self.closed.add(client.number)
        held = {hold.token for hold in client.kept() if hold.live}
        client._dismissed = threading.Event()  # noqa: SLF001 - the steps of its `close`
        for seat in client.seated():
            seat.dismiss()
        waiting = [holder for _, holder in client.seats]
        for actor in self.in_state("paused"):
            actor.closing = actor.client is client
        client.shut(patience=5.0)
        client._dismissed = None  # noqa: SLF001
        assert not client.kept()
        if client.down:
            self.given_up |= self.holders_of(client)
        else:
            leases = self.call(Holders(KEY))
            assert not held & {lease.token for lease in leases if lease.state == "held"}
            assert not {waiter.holder for waiter in self.call(Waiters(KEY))} & {*waiting}

    # What is noted, and must be true of each request.

    def do(self, op):
        self.step += 1
        closed = self.in_grace()
        reply = super().do(op)
        if isinstance(op, Acquire) and isinstance(reply, Granted):
            if reply.token not in self.runs:
                now = self.clock.monotonic()
                self.runs[reply.token] = Run(op.holder, self.step, now)
                assert not closed, "nobody is let in during a grace"
                assert now >= max(self.opens.values(), default=0), "it was to be closed for longer"
                assert op.occurrence is None or op.occurrence > self.tick
        elif isinstance(op, Release) and reply.freed:
            if op.ok:
                assert op.token in self.well, "only a run that ended well, and held it until then"
                self.ended_well.setdefault(op.token, self.step)
            if op.done is not None:
                assert op.token in self.well
                self.tick = max(self.tick, op.done.occurrence)
        return reply

    def force(self, number):
        super().force(number)
        self.opens.clear()

    def in_grace(self):
        return any(lease.state == "grace" for lease in self.call(Holders(KEY)))

    def began(self, caller):
        """It is the caller's turn: unless a run that it had joined has ended well."""
        token = caller.hold.token
        self.opens[token] = self.runs[token].at + caller.terms.request.at_least / 1000
        began = self.runs[token].step
        for token, step in self.ended_well.items():
            missed = caller.joined and token >= caller.joined and caller.joined_at < step < began
            assert not missed, "it runs again what it had joined"

    # The end.

    def calm(self):
        while self.late:
            self.arrive(0)
        super().calm()

    def look_on(self):
        leases = self.call(Holders(KEY))
        self.check_that_all_are_told(leases)
        for client in self.dead:
            mine = self.holders_of(client)
            claims = {lease.token for lease in leases if lease.holder in mine} - set(self.runs)
            self.wasted.setdefault(client.number, set()).update(claims)
            assert len(self.wasted[client.number]) <= 1, "its waiters cost the others one claim"

    def check_that_all_are_told(self, leases):
        now = self.clock.monotonic()
        free = not any(lease.state != "expired" for lease in leases)
        grace = any(lease.state == "grace" for lease in leases)
        for actor in self.actors:
            over = actor.state == "paused" and (
                free
                or (grace and actor.terms is not None and actor.terms.skip_grace)
                or any(
                    actor.joined and token >= actor.joined and step > actor.joined_at
                    for token, step in self.ended_well.items()
                )
            )
            if not over:
                self.since.pop(id(actor), None)
            assert now - self.since.setdefault(id(actor), now) <= TOLD, "it waits for nothing"

    def check_nothing_is_left(self):
        self.clock.advance(max(TTL, CLAIM_MS / 1000))  # what the dead held has lapsed
        dead = {holder for client in self.dead for holder in self.holders_of(client)}
        left = {waiter.holder for waiter in self.call(Waiters(KEY))}
        assert left <= dead | self.given_up, "nobody else is left in the queue"
        assert all(lease.state != "held" for lease in self.call(Holders(KEY))), "a leak"
        assert not any(client.nested or client.seats for client in self.clients)

    def holders_of(self, client):
        callers = [actor for actor in self.actors if actor.client is client]
        return {holder for caller in callers for holder in caller.holders}

    def forget(self):
        for client in self.dead:
            client.holds.clear()
        super().forget()


DO = {
    "start": Jobs.start,
    **MOVES,
    "finish": Jobs.finish,
    "fail": partial(Jobs.finish, well=False),
    "kill": Jobs.kill,
    "arrive": Jobs.arrive,
    "shut": Jobs.shut,
}
OFTEN = (
    *("start",) * 5,
    *("well",) * 14,
    *("finish",) * 3,
    *("fail",) * 2,
    *("turn", "turn", "notice", "notice lost", "advance"),
)
STEPS = st.lists(
    st.tuples(st.sampled_from([*DO, *OFTEN]), st.integers(0, 71)), min_size=30, max_size=80
)


@BOUNDS
@given(st.lists(st.sampled_from([*KINDS]), min_size=1, max_size=4), STEPS)
def test_whatever_happens_runs_are_joined_and_keys_stay_closed_as_was_said(kinds, steps):
    Jobs(kinds).play(DO, steps)


def test_a_joiner_whose_wait_ends_just_after_the_run_has_ended_well_does_not_run_it_again():
    it = Jobs([])
    try:
        first = Caller(it, it.clients[0], "joins")
        first.reply(it.ask(first))
        late = Caller(it, it.clients[1], "joins for a while")
        late.reply(it.ask(late))
        first.reply((None, None))
        it.clock.advance(4)
        first.reply(it.ask(first))
        it.clients[1].notices.clear()
        late.go(partial(late.flow.send, None))
        late.reply(it.ask(late))
        assert (late.state, late.worked) == ("ended", 0)
    finally:
        it.forget()


def test_a_join_that_waits_for_a_grace_runs_after_it_and_is_not_content_with_the_run_before():
    it = Jobs([])
    try:
        first = Caller(it, it.clients[0], "joins, and waits for a grace")
        it.actors.append(first)
        first.reply(it.ask(first))
        first.reply((None, None))
        first.reply(it.ask(first))
        assert it.in_grace()
        later = Caller(it, it.clients[1], "joins, and waits for a grace")
        it.actors.append(later)
        it.calm()
        assert later.worked
    finally:
        it.forget()
