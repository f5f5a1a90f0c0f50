"""Several acquisitions at once, with every step, fault and lapse of time a choice of Hypothesis.

The flows of `joblock.protocol` are driven one step at a time, on the real desk and keeper of a
client but without their threads, over the memory store and a clock turned by hand. Then the faults
stop, and everybody is run to the end.
"""

from __future__ import annotations

from asyncio import CancelledError
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joblock.client.hub import Hub
from joblock.client.keeper import Keeper
from joblock.protocol.acquire import OUTAGE_LIMIT, acquire, release
from joblock.protocol.hold import Hold
from joblock.protocol.request import make_request
from joblock.protocol.run import Ended, run_with_lock
from joblock.protocol.steps import Pause, Work
from joblock.store.ops import Busy, Force, Holders, Waiters
from joblock.stores.memory import MemoryStore
from joblock.testing import ManualClock
from joblock.values.errors import LockNotAcquired, StoreUnavailable
from joblock.values.log import logger

BOUNDS = settings(max_examples=300, deadline=None, derandomize=True, database=None)
LIMITS = {"mutex": 1, "permits": 2}


@pytest.fixture(autouse=True, scope="module")
def quiet():
    log = logger("lease").parent
    before = log.level
    log.setLevel("CRITICAL")
    yield
    log.setLevel(before)


class Bell:
    """What a paused flow waits for."""

    rung = False

    def clear(self):
        self.rung = False


class Turned(Keeper):
    """A keeper without threads: the test lets it have its rounds."""

    def _wake(self):
        pass

    def _request(self, call, *, may_hang=False):  # noqa: ARG002 - nothing hangs here
        call()

    def up_at(self):
        return self._moment

    def has_errands(self):
        return bool(self._errands)

    def turn(self):
        self._round()


class Link:
    """The memory store as one client reaches it: its notices and replies can be lost."""

    def __init__(self, client):
        self.client = client
        self.call = client.ask

    def driver(self):
        return self

    def subscribe(self, client, deliver, connected):
        notices = self.client.notices
        return self.client.inner.subscribe(
            client, lambda notice: notices.append(partial(deliver, notice)), connected
        )

    def close(self):
        pass


class Client(Hub):
    """A real desk that is also its own waker.

    A cancelled request may still be on its way: what is to follow it waits in `after`.
    """

    def __init__(self, store, clock, number):
        self.inner = store
        self.number = number
        self.notices = []
        self.flying = []
        self.after = []
        self.down = ""
        super().__init__(lambda: Link(self), prefix="", label="", clock=clock, waker=self)
        assert self.store.client is self  # opened, as by a first request

    def _begin(self):
        super()._begin()
        self.keeper = Turned(self)

    def ask(self, op):
        """A request of the keeper."""
        if self.down == "before":
            raise StoreUnavailable("down")
        reply = self.inner.driver().call(op)
        if self.down == "after":
            raise StoreUnavailable("the reply is lost")
        return reply

    # As its waker.

    def owner(self):
        return None

    def event(self):
        return Bell()

    def set(self, event):
        event.rung = True

    def settled(self, op, then=None):
        if then is None:
            super().settled(op)
        else:
            self.after.append((op, then))
            self.follow()

    def follow(self):
        waiting, self.after = self.after, []
        for holder, then in waiting:
            if any(op.holder == holder for op in self.flying):
                self.after.append((holder, then))
            else:
                then()


class Actor:
    """One caller: an acquisition or a run, from its first request to its release."""

    def __init__(self, world, client, kind, key, wait, holder):
        self.world, self.client, self.wait = world, client, wait
        self.began = world.clock.monotonic()
        request = make_request(
            "",
            key,
            ttl=6,
            wait=True if wait is None else wait,
            holder=holder,
            limit=LIMITS[key],
            weight=1,
            on_lost="warn",
        )
        self.key = key
        self.thrown = self.error = self.hold = self.failing = None
        self.state = ""
        if kind == "run":
            flow = run_with_lock(client, request, lambda: None, "raise")
        else:
            flow = acquire(client, request)
        self.flow = flow
        self.go(partial(next, flow))

    def go(self, advance):
        try:
            self.step = advance()
        except StopIteration as stop:
            self.end(stop.value)
        except BaseException as error:  # noqa: BLE001 - it is looked at right here
            self.fail(error)
        else:
            self.state = {Pause: "paused", Work: "working"}.get(type(self.step), "asking")
            if self.state == "working":
                self.hold = self.step.hold

    def reply(self, value):
        self.failing = None
        self.go(partial(self.flow.send, value))

    def throw(self, error):
        if isinstance(error, StoreUnavailable):
            if self.failing is None:
                self.failing = self.world.clock.monotonic()
        else:
            self.thrown = error
        if self.state == "working":
            self.go(partial(self.flow.send, (None, error)))
        else:
            self.go(partial(self.flow.throw, error))

    def drop(self):
        self.flow.close()
        self.state, self.hold = "ended", None

    def end(self, result):
        self.state = "ended"
        if isinstance(result, Hold):
            self.hold, self.state = result, "holding"
            assert self.thrown is None
        elif isinstance(result, Busy):
            assert self.wait is not None
            assert self.world.clock.monotonic() >= self.began + self.wait
        elif isinstance(result, Ended):
            assert result.error is self.thrown
        if self.state == "ended":
            self.hold = None

    def fail(self, error):
        self.state, self.hold = "ended", None
        if isinstance(error, StoreUnavailable):
            now = self.world.clock.monotonic()
            if self.wait is None:
                assert now >= self.failing + OUTAGE_LIMIT
            else:
                assert now >= self.began + self.wait
        elif isinstance(error, LockNotAcquired):
            assert error.reason == "closed"
            assert self.client.number in self.world.closed
        else:
            assert error is self.thrown, "what was thrown comes out, and nothing else"

    def may_wake(self):
        bell = self.step.seat.before_pause()
        until = self.step.until
        on_time = until is not None and self.world.clock.monotonic() >= until
        return bell is None or bell.rung or on_time

    def release(self):
        self.state = "releasing"
        self.wait = None
        self.flow = release(self.client, self.hold)
        self.hold = None
        self.go(partial(next, self.flow))


class World:
    """The clients, their callers, and what must be true of them and the store."""

    def __init__(self):
        self.clock = ManualClock()
        self.store = MemoryStore(clock=self.clock)
        self.call = self.store.driver().call
        self.clients = [Client(self.store, self.clock, number) for number in range(2)]
        self.actors = []
        self.newest = dict.fromkeys(LIMITS, 0)
        self.seen = set()
        self.broken = set()
        self.closed = set()

    def in_state(self, *states):
        return [actor for actor in self.actors if actor.state in states]

    def start(self, number):
        if len(self.actors) < 12:
            client = self.clients[number % 2]
            kind = ("acquire", "acquire", "run")[number % 3]
            key = ("mutex", "mutex", "permits")[number // 6 % 3]
            wait = 0 if kind == "run" else (None, None, 3, 0)[number // 18 % 4]
            holder = f"given-{client.number}" if key == "mutex" and number % 5 == 0 else None
            self.actors.append(Actor(self, client, kind, key, wait, holder))

    def ask(self, actor):
        return self.call(actor.step)

    def move(self, number, how):
        """One caller makes a step, well or badly."""
        movable = self.in_state("asking", "paused", "working", "holding")
        if not movable:
            return
        actor = movable[number % len(movable)]
        if how == "drop" and actor.state != "holding":
            actor.drop()
        elif how == "interrupt" and actor.state != "holding":
            actor.throw(KeyboardInterrupt())
        elif actor.state == "asking":
            self.answer(actor, how)
        elif actor.state == "paused":
            if how == "cancel":
                actor.throw(CancelledError())
            elif actor.may_wake():
                actor.go(partial(actor.flow.send, None))
        elif actor.state == "working":
            actor.throw(ValueError()) if how == "cancel" else actor.reply((None, None))
        elif how == "well":
            actor.release()

    def answer(self, actor, how):
        if how == "cancel":
            actor.client.flying.append(actor.step)
            actor.throw(CancelledError())
        elif how == "lost":
            actor.throw(StoreUnavailable("lost on its way"))
        elif how == "reply lost":
            self.ask(actor)
            actor.throw(StoreUnavailable("its reply is lost"))
        elif how == "interrupted late":
            self.ask(actor)
            actor.throw(KeyboardInterrupt())
        else:
            actor.reply(self.ask(actor))

    def land(self, number, *, arrives=True):
        """A cancelled request arrives, or is known to have been lost."""
        client = self.clients[number % 2]
        if client.flying:
            op = client.flying.pop(number // 2 % len(client.flying))
            if arrives:
                self.call(op)
            client.follow()

    def turn(self, number):
        """A keeper has its round; it is up only when it said so."""
        keeper = self.clients[number % 2].keeper
        if keeper.up_at() <= self.clock.monotonic():
            keeper.turn()

    def notice(self, number, *, lost=False):
        notices = self.clients[number % 2].notices
        if notices:
            tell = notices.pop(0)
            if not lost:
                tell()

    def force(self, number):
        key = list(LIMITS)[number % 2]
        self.broken |= {lease.token for lease in self.call(Force(key, "somebody", "a test")).broken}

    def close(self, number):
        client = self.clients[number % 2]
        self.closed.add(client.number)
        for seat in client.seated():
            seat.dismiss()

    # What always holds.

    def check(self):
        for key, limit in LIMITS.items():
            leases = self.call(Holders(key))
            live = [lease for lease in leases if lease.state == "held"]
            assert len(live) <= limit
            fresh = sorted({lease.token for lease in leases} - self.seen)
            assert all(token > self.newest[key] for token in fresh), "tokens grow"
            self.seen.update(fresh)
            self.newest[key] = max([self.newest[key], *fresh])
            tokens = {lease.token for lease in live}
            for actor in self.actors:
                if actor.key == key and actor.hold is not None and actor.hold.held:
                    assert actor.hold.token in tokens | self.broken
        now = self.clock.monotonic()
        for client in self.clients:
            for hold in client.kept():
                assert client.keeper.up_at() <= max(now, min(hold.due, hold.deadline))

    # The end: no more faults, and everybody is run to the end.

    def calm(self):
        for client in self.clients:
            client.down = ""
            client.notices.clear()  # the last ones are lost: checks make up for that
        began = self.clock.monotonic()
        while self.settle() and self.clock.monotonic() < began + 120:
            self.clock.advance(0.125)
        assert not self.in_state("asking", "paused", "working", "holding"), "nobody is forgotten"
        for key in LIMITS:
            assert not self.call(Waiters(key)), "nobody is left in a queue"
            assert all(lease.state != "held" for lease in self.call(Holders(key))), "a leak"
        assert not any(client.nested or client.seats for client in self.clients)

    def settle(self):
        """Do all that can be done now; whether there is anything left for later."""
        for number, client in enumerate(self.clients):
            while client.flying:
                self.land(number)
            while client.notices:
                self.notice(number)
            self.turn(number)
        for actor in self.in_state("asking", "paused", "working", "holding"):
            self.move(self.in_state("asking", "paused", "working", "holding").index(actor), "well")
            self.check()
        later = [client.keeper.has_errands() for client in self.clients]
        return bool(self.in_state("asking", "paused", "working", "holding") or any(later))

    def forget(self):
        for client in self.clients:
            client.holds.clear()
        for actor in self.actors:
            actor.flow.close()


HOWS = ("well", "cancel", "interrupt", "drop", "lost", "reply lost", "interrupted late")
DO = {
    "start": World.start,
    **{how: partial(World.move, how=how) for how in HOWS},
    "advance a little": lambda it, number: it.clock.advance((0.125, 0.5, 1.0)[number % 3]),
    "advance": lambda it, number: it.clock.advance((2.0, 4.0, 7.0, 16.0)[number % 4]),
    "turn": World.turn,
    "notice": World.notice,
    "notice lost": partial(World.notice, lost=True),
    "land": World.land,
    "lost in flight": partial(World.land, arrives=False),
    "link": lambda it, number: setattr(
        it.clients[number % 2], "down", ("", "before", "after")[number // 2 % 3]
    ),
    "force": World.force,
    "close": World.close,
}
OFTEN = ("start",) * 4 + ("well",) * 12 + ("turn", "turn", "notice", "notice lost", "advance")
STEPS = st.lists(
    st.tuples(st.sampled_from([*DO, *OFTEN]), st.integers(0, 71)), min_size=30, max_size=70
)


@BOUNDS
@given(STEPS)
def test_whatever_happens_nothing_is_held_twice_leaked_or_forgotten(steps):
    it = World()
    try:
        for name, number in steps:
            DO[name](it, number)
            it.check()
        it.calm()
    finally:
        it.forget()


def test_a_cancelled_request_that_arrives_after_a_release_under_its_holder_leaks_nothing():
    it = World()
    try:
        first = Actor(it, it.clients[0], "acquire", "mutex", 0, "given")
        second = Actor(it, it.clients[0], "acquire", "mutex", 0, "given")
        it.actors += [first, second]
        first.reply(it.ask(first))
        it.answer(second, "cancel")
        first.release()
        it.move(0, "well")  # a release that is sent is done before the request arrives
        it.calm()
        assert first.state == second.state == "ended"
    finally:
        it.forget()
