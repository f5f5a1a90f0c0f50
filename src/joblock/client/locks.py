"""What the lock objects of both clients share: who holds what through one, and how it nests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from joblock.client import current
from joblock.client.lease import BaseLease
from joblock.protocol.request import flag, refuse_more
from joblock.protocol.run import give_back
from joblock.values.durations import to_ms
from joblock.values.shown import shown

if TYPE_CHECKING:
    from joblock.client.hub import Hub
    from joblock.protocol.request import Request

L = TypeVar("L", bound=BaseLease)


class BaseLock(Generic[L]):
    """A key and how it is to be locked; each thread or task that uses it has its own holds."""

    __slots__ = ("_hub", "_levels", "_reentrant", "_request")

    def __init__(self, hub: Hub, request: Request, reentrant: bool) -> None:
        self._hub = hub
        self._request = request
        self._reentrant = flag(reentrant, "reentrant")
        # Per owner, innermost last: the leases to release; None for a level that only nests.
        self._levels: dict[Any, list[L | None]] = {}

    @property
    def key(self) -> str:
        """What is locked, as the caller wrote it."""
        return self._request.name

    @property
    def lease(self) -> L | None:
        """The lease of this thread's or task's hold through this lock, or None."""
        owner = self._hub.waker.owner()
        levels = self._levels.get(owner)
        if not levels:
            return None
        hold = self._hub.owned_by(owner, self._request.key)
        return levels[-1] or (None if hold is None else hold.handle())

    def owned(self) -> bool:
        """Whether this thread or task holds it through this lock, and has not lost it."""
        lease = self.lease
        return lease is not None and lease.held

    def _nest(self, owner: Any) -> L | None:
        """Go in once more under the lease that the owner has, if that is possible."""
        hold = self._hub.owned_by(owner, self._request.key)
        if hold is None or not hold.held:
            return None
        if not hold.covers(self._request):
            refuse_more(self._request)
        self._levels.setdefault(owner, []).append(None)
        return hold.handle()

    def _push(self, owner: Any, lease: L) -> None:
        levels = self._levels.get(owner)
        if levels is None:
            self._levels[owner] = [lease]
        else:
            levels.append(lease)
        self._hub.own(owner, lease.hold)
        current.enter(lease)

    def _pop(self, owner: Any) -> L | None:
        """The lease to release, None for a nested level; raises RuntimeError if there is none."""
        levels = self._levels.get(owner)
        if not levels:
            raise RuntimeError(
                f"this thread or task holds nothing of {self.key!r} through this lock: it was "
                "released already, or acquired elsewhere (hand over the lease, not the lock)"
            )
        lease = levels[-1]
        try:
            levels.pop()
            if not levels:
                del self._levels[owner]
            if lease is not None:
                current.leave(lease)
                self._hub.disown(owner, lease.hold)
        except BaseException:
            if lease is not None:
                self._hub.collected(lease.hold)
            raise
        return lease

    def _take_back(self, owner: Any, won: Any) -> None:
        """An acquisition was interrupted just as it was won."""
        give_back(self._hub, won)
        levels = self._levels.get(owner)
        if levels and levels[-1] is not None and levels[-1].hold is won:
            self._pop(owner)

    def _leaver(self) -> Any:
        """Who leaves a block: whoever entered it, even if a framework leaves it elsewhere."""
        owner = self._hub.waker.owner()
        if owner not in self._levels and len(self._levels) == 1:
            return next(iter(self._levels))
        return owner

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.key!r}>"


def wait_of(blocking: Any, timeout: Any) -> int | None:
    """The wait that threading's arguments mean, in milliseconds."""
    if blocking not in {True, False}:
        raise TypeError(
            f"blocking must be True or False; got {shown(blocking)}: for a time write "
            f"timeout={shown(blocking)}"
        )
    if not blocking:
        if timeout is not None and timeout != -1:
            raise ValueError(f"timeout={shown(timeout)} goes only with blocking=True")
        return 0
    if timeout is None or timeout == -1:
        return None
    return 0 if timeout is not False and timeout == 0 else to_ms(timeout, "timeout")
