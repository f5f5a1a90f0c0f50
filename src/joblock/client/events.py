"""Events: what happens to the leases of one client, as a stream for metrics, audits and alerts.

Nothing that a subscriber does can break or delay a lease. Whoever acquires, renews or releases only
puts an event into a queue; a thread of its own, which begins with the first event that somebody
wants, takes it out and calls the subscribers, one after the other, in order, under no lock. The
queue has room for `ROOM` events: if subscribers are too slow for that, the newest are dropped and
counted. Until somebody listens a client has no `Events` at all, which is what keeps it cheap.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, fields
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Self

from joblock.client.callables import is_async
from joblock.values.log import logger
from joblock.values.shown import shown

if TYPE_CHECKING:
    from joblock.client.hub import Hub
    from joblock.protocol.tell import Kind
    from joblock.values.clock import Clock

ROOM = 10_000
"""How many events may wait to be delivered."""

IDLE = 60.0
"""Seconds without an event after which the thread ends, until the next one."""


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened to a lease, or to somebody who wants one.

    ``key`` is as the caller wrote it, ``holder`` and ``token`` name the lease (or, while there is
    none, who asks, and the token in the way). ``at`` is this machine's clock, seconds since 1970.
    ``waited`` and ``held`` are seconds: from asking to this event, from the grant to this event.
    ``reason`` says why, ``other`` who else is concerned: who is in the way, who was replaced, who
    broke it.
    """

    kind: Kind
    key: str
    holder: str = ""
    token: int = 0
    at: float = 0.0
    waited: float | None = None
    held: float | None = None
    reason: str = ""
    other: str = ""

    def __str__(self) -> str:
        facts = [
            f"{field.name}={getattr(self, field.name)!r}"
            for field in fields(self)[2:]
            if field.name != "at" and getattr(self, field.name) not in ("", 0, None)
        ]
        return " ".join([self.kind, repr(self.key), *facts])


class Subscription:
    """One subscriber; `close` it, or leave its `with` block, to hear no more."""

    __slots__ = ("_events", "callback")

    def __init__(self, events: Events, callback: Callable[[Event], object]) -> None:
        self._events = events
        self.callback = callback

    def close(self) -> None:
        """Hear no more; what is on its way may still come."""
        self._events.unsubscribe(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class Events:
    """The queue and the subscribers of one client."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._subscriptions: tuple[Subscription, ...] = ()
        self.dropped = 0
        self.logged = False
        self._begin()

    def _begin(self) -> None:
        # A queue that a signal handler and a weakref's callback may use as well: its put takes no
        # lock that this very thread could hold.
        self._queue: SimpleQueue[Event | threading.Event] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def subscribe(self, callback: Callable[[Event], object]) -> Subscription:
        """Call it for each event from now on."""
        subscription = Subscription(self, callback)
        with self._lock:
            self._subscriptions = (*self._subscriptions, subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Call it no more."""
        with self._lock:
            self._subscriptions = tuple(
                each for each in self._subscriptions if each is not subscription
            )

    def tell(
        self,
        kind: Kind,
        key: str,
        holder: str = "",
        token: int = 0,
        *,
        waited: float | None = None,
        held: float | None = None,
        reason: str = "",
        other: str = "",
    ) -> None:
        """See `joblock.protocol.tell.Teller`."""
        if not self._subscriptions and not self.logged:
            return
        event = Event(kind, key, holder, token, self._clock.wall(), waited, held, reason, other)
        if self._queue.qsize() >= ROOM:
            self.dropped += 1
            return
        self._queue.put(event)
        if self._thread is None:
            self._start()

    def flush(self, patience: float) -> None:
        """Wait until what was told so far is delivered, but no longer than that many seconds."""
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return
        done = threading.Event()
        self._queue.put(done)
        if self._thread is None:
            self._start()
        done.wait(patience)

    def after_fork(self) -> None:
        """In a forked child: the subscribers stay, what the parent has yet to deliver does not."""
        self._begin()

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="joblock-events", daemon=True)
                thread.start()
                self._thread = thread

    def _run(self) -> None:
        told = 0
        while True:
            try:
                event = self._queue.get(timeout=IDLE)
            except Empty:
                with self._lock:
                    if not self._queue.empty():
                        continue
                    self._thread = None
                    return
            if isinstance(event, threading.Event):
                event.set()
                continue
            self._deliver(event)
            if self.dropped != told:
                told = self.dropped
                logger("events").warning("subscribers are too slow: %d event(s) dropped", told)

    def _deliver(self, event: Event) -> None:
        logger("events").debug("%s", event)
        for subscription in self._subscriptions:
            try:
                subscription.callback(event)
            except Exception:  # noqa: BLE001 - it must not keep the others from hearing
                logger("events").exception("a subscriber failed on: %s", event)


def subscribe(hub: Hub, callback: Callable[[Event], object]) -> Subscription:
    """Let the client's events reach that function, in the thread of the events."""
    if not callable(callback):
        raise TypeError(f"a subscriber is a function that takes an Event; got {shown(callback)}")
    if is_async(callback):
        raise TypeError(
            f"{shown(callback)} is a coroutine function: a subscriber is called in a thread, so "
            "pass a plain one that hands over with loop.call_soon_threadsafe"
        )
    return hub.tell_events().subscribe(callback)
