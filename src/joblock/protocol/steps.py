"""What a flow asks of the client that drives it.

A flow is a generator. It yields an operation of `joblock.store.ops` and is sent the store's reply;
it yields a `Pause` and is resumed when the seat is woken or the moment has come; it yields a
`Work` and is sent a pair: what the work returned, and the exception that it raised or None.
Whatever else goes wrong is thrown into it. So the sync and the async client share every decision
and differ only in how they wait.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, TypeVar

from joblock.store.ops import Operation

if TYPE_CHECKING:
    from joblock.protocol.hold import Hold

T = TypeVar("T")


class Seat(Protocol):
    """Where one waiter sits: woken from any thread, counted by the client's checks."""

    epoch: int
    join: int
    joined: int
    dismissed: bool

    def woken(self) -> bool:
        """Whether it was woken since this was last asked."""
        ...

    def sit(self, epoch: int, remaining: int, join: int, skip_grace: bool) -> None:
        """The store has queued the waiter; a check looks after it from now on."""
        ...

    def leave(self) -> None:
        """It waits no longer."""
        ...


class Pause(NamedTuple):
    """Wait until the seat is woken or the monotonic clock reaches ``until`` (``None``: no end)."""

    seat: Seat
    until: float | None


class Work(NamedTuple):
    """Call the caller's function while the hold is this context's current lease."""

    function: Callable[[], Any]
    hold: Hold


Step: TypeAlias = Operation | Pause | Work
Flow: TypeAlias = Generator[Step, Any, T]
