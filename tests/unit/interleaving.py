"""Flows of several clients at once, with every step, fault and lapse of time chosen by a test.

The flows of `joblock.protocol` are driven one step at a time, on the real desk and keeper of a
client but without their threads, over the memory store and a clock turned by hand.
"""

from __future__ import annotations

from asyncio import CancelledError
from functools import partial
from typing import ClassVar

from joblock.client.hub import Hub
from joblock.client.keeper import Keeper
from joblock.protocol.acquire import OUTAGE_LIMIT, release
from joblock.protocol.hold import Hold
from joblock.protocol.run import Ended
from joblock.protocol.steps import Pause, Work
from joblock.store.ops import Busy, Force, Holders, Waiters
from joblock.stores.memory import MemoryStore
from joblock.testing import ManualClock
from joblock.values.errors import LockNotAcquired, StoreUnavailable


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

    def __init__(self, store, do, clock, number):
        self.inner = store
        self.do = do
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
        reply = self.do(op)
        if self.down == "after":
            raise StoreUnavailable("the reply is lost")
        return reply

    # As its waker.

    def owner(self):
        return None

    def seat_event(self):
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
    """One caller: a flow, from its first request to its end, or to its release."""

    def __init__(self, world, client, key, wait, flow):
        self.world, self.client, self.key, self.wait = world, client, key, wait
        self.began = world.clock.monotonic()
        self.thrown = self.hold = self.failing = None
        self.state = ""
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

    limits: ClassVar[dict[str, int]]
    """The keys, and how many may hold each of them."""

    def __init__(self):
        self.clock = ManualClock()
        self.store = MemoryStore(clock=self.clock)
        self.call = self.store.driver().call
        self.clients = [self.new_client(number) for number in range(2)]
        self.actors = []
        self.newest = dict.fromkeys(self.limits, 0)
        self.seen = set()
        self.broken = set()
        self.closed = set()

    def in_state(self, *states):
        return [actor for actor in self.actors if actor.state in states]

    def new_client(self, number):
        return Client(self.store, self.do, self.clock, number)

    def do(self, op):
        """Every request of every client comes by here."""
        return self.call(op)

    def ask(self, actor):
        return self.do(actor.step)

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
                self.do(op)
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
        key = list(self.limits)[number % len(self.limits)]
        self.broken |= {lease.token for lease in self.call(Force(key, "somebody", "a test")).broken}

    def close(self, number):
        client = self.clients[number % 2]
        self.closed.add(client.number)
        for seat in client.seated():
            seat.dismiss()

    # What always holds.

    def check(self):
        for key, limit in self.limits.items():
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

    def play(self, moves, steps):
        """Make these moves, each with its number; then run everybody to the end."""
        try:
            for name, number in steps:
                moves[name](self, number)
                self.check()
            self.calm()
        finally:
            self.forget()

    # The end: no more faults, and everybody is run to the end.

    def calm(self):
        for client in self.clients:
            client.down = ""
            client.notices.clear()  # the last ones are lost: checks make up for that
        began = self.clock.monotonic()
        while self.settle() and self.clock.monotonic() < began + 120:
            self.clock.advance(0.125)
            self.look_on()
        assert not self.in_state("asking", "paused", "working", "holding"), "nobody is forgotten"
        self.check_nothing_is_left()

    def check_nothing_is_left(self):
        for key in self.limits:
            assert not self.call(Waiters(key)), "nobody is left in a queue"
            assert all(lease.state != "held" for lease in self.call(Holders(key))), "a leak"
        assert not any(client.nested or client.seats for client in self.clients)

    def look_on(self):
        """Nothing fails any more, and time has passed."""

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


def _move(name, **options):
    """A method by its name, which a kind of world may have of its own."""
    return lambda it, number: getattr(it, name)(number, **options)


HOWS = ("well", "cancel", "interrupt", "drop", "lost", "reply lost", "interrupted late")
MOVES = {
    **{how: _move("move", how=how) for how in HOWS},
    "advance a little": lambda it, number: it.clock.advance((0.125, 0.5, 1.0)[number % 3]),
    "advance": lambda it, number: it.clock.advance((2.0, 4.0, 7.0, 16.0)[number % 4]),
    "turn": _move("turn"),
    "notice": _move("notice"),
    "notice lost": _move("notice", lost=True),
    "land": _move("land"),
    "lost in flight": _move("land", arrives=False),
    "link": lambda it, number: setattr(
        it.clients[number % 2], "down", ("", "before", "after")[number // 2 % 3]
    ),
    "force": _move("force"),
    "close": _move("close"),
}
"""What a test may choose, each with a number that says which of all."""
