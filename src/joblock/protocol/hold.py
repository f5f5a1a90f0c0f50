"""A lease as its holder sees it: until when it counts on it, and how it was lost.

The local deadline is counted from before the request was sent, less 1% for the drift of two
clocks, so a holder that runs gives up no later than the store does. Loss is final: once a reader
or the keeper has seen the deadline pass, no late reply revives the hold. Readers need no lock; what
moves the deadline takes one, since the keeper and any thread that refreshes may do so.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from joblock.protocol.request import OnLost, Request
from joblock.store.ops import Granted, Renewal
from joblock.values.errors import LockLost
from joblock.values.identity import on_fork

if TYPE_CHECKING:
    from joblock.values.clock import Clock

MARGIN = 0.99
HELD_LONG = 300.0
"""Seconds after which a hold that nothing bounds is worth a warning."""

NEVER = float("inf")

_moving = threading.RLock()


def _fork() -> None:
    global _moving  # noqa: PLW0603 - a thread of the parent may hold it
    _moving = threading.RLock()


on_fork(_fork)


class Refreshing(NamedTuple):
    """A refresh on its way: what was sent, its ttl in seconds, and when."""

    renewal: Renewal
    ttl: float
    sent: float


class Hold:
    """One granted lease of this process."""

    # Defaults of the class: most holds end before any of this changes.
    ends = NEVER
    extended = -NEVER
    refreshing: tuple[float, ...] = ()
    crossed = False
    doubt = NEVER
    lost = ""
    over = False
    warned = False
    detached = False
    left = False
    told = False
    guarded = False
    limit = 1
    handle: Any = None
    usual: Renewal | None = None
    on_loss: Sequence[Callable[[], None]] = ()

    def __init__(
        self, clock: Clock, request: Request, holder: str, granted: Granted, sent: float
    ) -> None:
        self.clock = clock
        self.key = request.key
        self.name = request.name
        self.holder = holder
        self.token = granted.token
        self.acquired_at = granted.acquired_at
        self.waiting = granted.waiting
        self.weight = 0 if request.weight >= request.limit else request.weight
        if self.weight:
            self.limit = request.limit
        self.ttl = ttl = request.ttl / 1000
        self.renew = request.renew
        self.on_lost: OnLost = request.on_lost
        self.since = sent
        self.ends = sent + request.max_duration / 1000 if request.max_duration else NEVER
        self.deadline = min(sent + ttl * MARGIN, self.ends)
        self.due = sent + ttl / 3 if request.renew else self.deadline

    @property
    def held(self) -> bool:
        """Whether the holder may still count on it; past the deadline it never may again."""
        return not self.over and self.live

    @property
    def live(self) -> bool:
        """The same for whoever ends it, and so knows that nobody else has."""
        if self.lost:
            return False
        if self.clock.monotonic() < self.deadline:
            return True
        self.lost = self._too_late()
        return False

    @property
    def remaining(self) -> float:
        """Seconds left on the local deadline, 0 if not held."""
        return max(0.0, self.deadline - self.clock.monotonic()) if self.held else 0.0

    @property
    def exclusive(self) -> bool:
        """Takes the whole key."""
        return not self.weight

    def covers(self, request: Request) -> bool:
        """Whether whoever goes under it has what that asks for: no less weight, no lower limit."""
        return self.exclusive or (
            self.weight >= request.weight and self.limit <= request.limit and not request.exclusive
        )

    def loss(self) -> LockLost:
        """The error that tells of the loss."""
        return LockLost(self.name, self.holder, self.token, self.lost or "released")

    def lose(self, reason: str) -> None:
        """Count it as lost, whatever comes later; the first reason stays."""
        if not self.lost:
            self.lost = reason

    def when_lost(self, callback: Callable[[], None]) -> None:
        """Call that when the loss is told, from any thread; at once if it was told already.

        It may be called twice, if it is handed over just as the loss is told.
        """
        # Both steps are atomic: several threads may come at once.
        callbacks: list[Callable[[], None]] = vars(self).setdefault("on_loss", [])
        callbacks.append(callback)
        if self.told:
            callback()

    def tell(self) -> None:
        """The loss is known: call those who asked."""
        self.told = True
        for callback in tuple(self.on_loss):
            callback()

    def renewal(self, now: float) -> Renewal:
        """The renewal to send now, clipped so that the store holds nothing past `ends`."""
        if self.ends is not NEVER:
            return self._renewal(min(self.ttl, self.ends - now))
        if self.usual is None:
            self.usual = self._renewal(self.ttl)
        return self.usual

    def _renewal(self, ttl: float) -> Renewal:
        # Rounded up: the holder counts on it to the very end.
        ms = math.ceil(round(ttl * 1000, 3))
        return Renewal(self.key, self.holder, self.token, max(1, ms))

    @property
    def pace(self) -> float:
        """The ttl to count on: the shortest that the store may yet set, in seconds.

        A refresh that is on its way may be done at any time; one whose answer never came, too.
        """
        if self.doubt is NEVER and not self.refreshing:
            return self.ttl
        return min(self.ttl, self.doubt, *self.refreshing)

    def renewed(self, sent: float, now: float) -> None:
        """The store has renewed what was sent then; too late if the deadline passed by now.

        What was sent before it came to live by another ttl says nothing about that one: the store
        may hold it for less, and the next renewal is due at once.
        """
        with _moving:
            if self.over or self.lost:
                return
            if now >= self.deadline:
                self.lost = self._too_late()
                return
            if sent < self.extended:
                return
            pace = self.pace
            self.deadline = max(self.deadline, min(sent + pace * MARGIN, self.ends))
            self.due = sent + pace / 3

    def refresh(self, ttl: int) -> Refreshing:
        """Live by another ttl (milliseconds) from now on; what to send for that.

        A shorter one counts at once: the store may do what is sent, and its reply be lost.
        """
        with _moving:
            self.ttl, self.usual = ttl / 1000, None
            self.crossed = bool(self.refreshing)
            return self._refreshing()

    def refreshed(self, asked: Refreshing) -> Refreshing | None:
        """The store has done it; what to send now, if anything.

        Of several that were on their way at once nobody knows which the store did last: so whoever
        is answered last sends the newest ttl again, and until then the shortest counts.
        """
        with _moving:
            self._answered(asked)
            if not self.held:
                return None
            if self.crossed:
                # Nor does a renewal count that may have been done before the last of them.
                self.extended = self.clock.monotonic()
                if self.refreshing:
                    return None
                self.crossed = False
                return self._refreshing()
            pace = self.pace
            self.deadline = min(asked.sent + pace * MARGIN, self.ends)
            self.due = asked.sent + pace / 3 if self.renew else self.deadline
            return None

    def unanswered(self, asked: Refreshing) -> None:
        """Nobody knows whether the store has done it or will; a renewal is due."""
        with _moving:
            self.doubt = min(self.doubt, asked.ttl)
            self._answered(asked)
            if self.renew:
                self.due = self.clock.monotonic()

    def _refreshing(self) -> Refreshing:
        self.extended = now = self.clock.monotonic()
        self.deadline = min(self.deadline, now + self.ttl * MARGIN)
        self.refreshing = (*self.refreshing, self.ttl)
        self.due = min(self.due, now + self.pace / 3) if self.renew else self.deadline
        return Refreshing(self.renewal(now), self.ttl, now)

    def _answered(self, asked: Refreshing) -> None:
        ttls = list(self.refreshing)
        ttls.remove(asked.ttl)
        self.refreshing = tuple(ttls)

    def held_long(self, now: float) -> bool:
        """True once, when a hold that nothing bounds has become old."""
        if self.warned or self.ends is not NEVER or now - self.since < HELD_LONG:
            return False
        self.warned = True
        return True

    def _too_late(self) -> str:
        return "max_duration" if self.deadline >= self.ends else "deadline"
