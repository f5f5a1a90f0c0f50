"""Where a waiter sits: woken from any thread, sync and async alike.

The event is made only when the waiter really has to pause, since most acquisitions never do. The
order of the two writes in `wake` and of the two reads in `before_pause` matters: whichever comes
first, one of them sees the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from joblock.client.hub import Hub


class Waker(Protocol):
    """How one kind of client waits: for what, who it is that waits, and what may be on its way."""

    def owner(self) -> Any:
        """The calling thread or task, as something that names it while it lives."""
        ...

    def settled(self, holder: str, then: Callable[[], None]) -> None:
        """Call ``then`` once no cancelled request for ``holder`` is on its way."""
        ...

    def forked(self) -> Any:
        """In a forked child: what is the parent's, to be kept and never used or closed."""
        ...

    def event(self) -> Any:
        """A new event of the client's kind, for any number of threads or tasks to wait for."""
        ...

    def seat_event(self) -> Any:
        """One for the only one who waits at a seat."""
        ...

    def set(self, event: Any) -> None:
        """Set it, from any thread."""
        ...


class ClientSeat:
    """See `joblock.protocol.steps.Seat`."""

    # Defaults of the class: most seats are left before any of this is needed.
    epoch = 0
    join = 0
    joined = 0
    skip_grace = False
    shared = False
    dismissed = False
    _flag = False
    _event: Any = None

    def __init__(self, hub: Hub, key: str, holder: str) -> None:
        self._hub = hub
        self.key = key
        self.holder = holder

    def wake(self) -> None:
        """Let the waiter ask the store again; from any thread."""
        self._flag = True
        if self._event is not None:
            self._hub.waker.set(self._event)

    def dismiss(self) -> None:
        """Let the waiter give up: its client is being closed."""
        self.dismissed = True
        self.wake()

    def woken(self) -> bool:
        """Whether it was woken since this was last asked."""
        was, self._flag = self._flag, False
        if self._event is not None:
            self._event.clear()
        return was

    def before_pause(self) -> Any:
        """The event to wait on, or None if it was woken already."""
        if self._event is None:
            self._event = self._hub.waker.seat_event()
        return None if self._flag else self._event

    def sit(self, epoch: int, remaining: int, join: int, skip_grace: bool) -> None:
        """The store has queued the waiter: let the checks look after it."""
        self.epoch = epoch
        self.join = join
        self.skip_grace = skip_grace
        self._hub.watch(self.key, remaining)

    def leave(self) -> None:
        """It waits no longer."""
        self._hub.unseat(self)
