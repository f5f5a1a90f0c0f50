"""What flows tell of themselves, if anybody listens: each acquisition, from asking to its end.

An acquisition ends as one of ``acquired``, ``skipped`` and ``joined``, unless it raises. Before
that it is ``contended`` if the first answer was no, and ``queued`` if it waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol

from joblock.store.ops import Busy, Joined

if TYPE_CHECKING:
    from joblock.protocol.acquire import Desk
    from joblock.protocol.hold import Hold
    from joblock.protocol.request import Request
    from joblock.store.ops import Granted
    from joblock.values.errors import StoreError

Kind = Literal[
    "acquired",
    "contended",
    "queued",
    "released",
    "lost",
    "took_over",
    "broken",
    "skipped",
    "joined",
    "held_long",
    "store_error",
]


class Teller(Protocol):
    """Takes in what happens, at once and from any thread; its key is the one the caller wrote."""

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
        """One thing that has happened."""
        ...


def granted(teller: Teller, hold: Hold, reply: Granted, waited: float) -> None:
    """The lease is there, maybe in place of one that had lapsed."""
    reason = "reentered" if reply.reentered else ""
    teller.tell("acquired", hold.name, hold.holder, hold.token, waited=waited, reason=reason)
    if reply.replaced:
        teller.tell("took_over", hold.name, hold.holder, hold.token, other=reply.replaced)


def refused_at_first(desk: Desk, request: Request, holder: str, reply: Any) -> None:
    """The first answer was no, or none at all."""
    if desk.events is None:
        return
    if isinstance(reply, Busy):
        desk.events.tell(
            "contended", request.name, holder, reply.token, reason=reply.why, other=reply.holder
        )
    elif not isinstance(reply, Joined):
        outage(desk, request.name, holder, 0, reply)


def queued(desk: Desk, request: Request, holder: str, busy: Busy) -> None:
    """It waits from now on."""
    if desk.events is not None:
        desk.events.tell("queued", request.name, holder, busy.token, other=busy.holder)


def given_up(desk: Desk, request: Request, holder: str, reply: Any, began: float) -> None:
    """It ends without the lease, refused or content with another's run."""
    if desk.events is None:
        return
    waited = desk.clock.monotonic() - began
    if isinstance(reply, Joined):
        desk.events.tell("joined", request.name, holder, reply.token, waited=waited)
        return
    desk.events.tell(
        "skipped",
        request.name,
        holder,
        reply.token,
        waited=waited,
        reason=reply.why if request.wait == 0 or reply.why == "done" else "timeout",
        other=reply.holder,
    )


def released(desk: Desk, hold: Hold) -> None:
    """The lease was given back."""
    if desk.events is not None:
        held = desk.clock.monotonic() - hold.since
        desk.events.tell("released", hold.name, hold.holder, hold.token, held=held)


def outage(desk: Desk, key: str, holder: str, token: int, error: StoreError) -> None:
    """The store did not do what it was asked."""
    if desk.events is not None:
        desk.events.tell("store_error", key, holder, token, reason=str(error))
