"""Several keys at once: all of them or none.

They are taken one after the other in sorted order, whatever order the caller named them in, so two
such calls can never wait for each other; if one is not to be had in time, those already taken are
given back. A lease of several is lost with the first of them that is lost.
"""

from __future__ import annotations

from contextlib import AsyncExitStack, ExitStack
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from joblock.client.lease import BaseLease
from joblock.values.names import full_key
from joblock.values.shown import shown

if TYPE_CHECKING:
    from types import TracebackType

    from joblock.client.aio import AsyncLease
    from joblock.client.hub import Hub
    from joblock.client.sync import Lease
    from joblock.protocol.request import Request
    from joblock.values.durations import Duration
    from joblock.values.names import Keys

L = TypeVar("L", bound=BaseLease)


def requests_for(prefix: str, request: Request, keys: Keys) -> list[Request]:
    """One request a key, in the order in which they are taken; none twice, and at least one."""
    if not keys:
        raise ValueError("a lock on several keys needs at least one; got none")
    found = [request._replace(key=full_key(prefix, key), name=key) for key in keys]
    if len({each.key for each in found}) != len(found):
        raise ValueError(f"the keys of one lock must differ; got {shown(keys)}")
    return sorted(found, key=lambda each: each.key)


class BaseLeases(Generic[L]):
    """The leases of several keys, as one."""

    __slots__ = ("_hub", "_lost", "members")

    def __init__(self, hub: Hub, members: tuple[L, ...]) -> None:
        self._hub = hub
        self.members = members
        self._lost: Any = None

    @property
    def keys(self) -> tuple[str, ...]:
        """What is locked, sorted."""
        return tuple(lease.key for lease in self.members)

    @property
    def tokens(self) -> dict[str, int]:
        """The fencing token of each key."""
        return {lease.key: lease.token for lease in self.members}

    @property
    def held(self) -> bool:
        """Whether all of them are still held."""
        return all(lease.held for lease in self.members)

    @property
    def remaining(self) -> float:
        """Seconds left until the first of the local deadlines."""
        return min(lease.remaining for lease in self.members)

    @property
    def lost(self) -> Any:
        """An event that is set when any of them is lost."""
        if self._lost is None:
            waker = self._hub.waker
            event = self._lost = waker.event()
            for lease in self.members:
                lease.hold.when_lost(lambda: waker.set(event))
        return self._lost

    def check(self) -> None:
        """Raise LockLost if any of them is not held any more."""
        for lease in self.members:
            lease.check()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join(map(repr, self.keys))}>"


class Leases(BaseLeases["Lease"]):
    """Leases of the sync client on several keys."""

    __slots__ = ()

    def refresh(self, ttl: Duration) -> None:
        """Renew them now, and from now on, with that ttl; raises LockLost, StoreError."""
        for lease in self.members:
            lease.refresh(ttl)

    def guard(self, connection: Any) -> None:
        """As `joblock.Lease.guard`, for all of them."""
        for lease in self.members:
            lease.guard(connection)


class AsyncLeases(BaseLeases["AsyncLease"]):
    """Leases of the asyncio client on several keys."""

    __slots__ = ()

    async def refresh(self, ttl: Duration) -> None:
        """Renew them now, and from now on, with that ttl; raises LockLost, StoreError."""
        for lease in self.members:
            await lease.refresh(ttl)

    async def guard(self, connection: Any) -> None:
        """As `joblock.Lease.guard`, for all of them."""
        for lease in self.members:
            await lease.guard(connection)


class _Deadline:
    """What is left of a wait that several acquisitions share, in milliseconds."""

    __slots__ = ("_end", "_hub")

    def __init__(self, hub: Hub, wait: int | None) -> None:
        self._hub = hub
        self._end = None if not wait else hub.clock.monotonic() + wait / 1000

    def left(self, wait: int | None) -> int | None:
        if self._end is None:
            return wait
        return max(0, int((self._end - self._hub.clock.monotonic()) * 1000))


class _BaseSeveral:
    """The locks on the single keys, and who is inside them."""

    __slots__ = ("_hub", "_inside", "_locks", "_wait")

    def __init__(self, hub: Hub, locks: tuple[Any, ...], wait: int | None) -> None:
        self._hub = hub
        self._locks = locks
        self._wait = wait
        self._inside: dict[Any, list[Any]] = {}

    def _enter(self, stack: Any) -> None:
        self._inside.setdefault(self._hub.waker.owner(), []).append(stack)

    def _leave(self) -> Any:
        """The block of this owner, or the only one if a framework leaves it elsewhere."""
        owner = self._hub.waker.owner()
        if owner not in self._inside and len(self._inside) == 1:
            owner = next(iter(self._inside))
        stacks = self._inside.get(owner)
        if not stacks:
            raise RuntimeError("this thread or task is not inside a block of this lock")
        stack = stacks.pop()
        if not stacks:
            del self._inside[owner]
        return stack


class LockSeveral(_BaseSeveral):
    """A lock of the sync client on several keys, for `with`."""

    __slots__ = ()

    def __enter__(self) -> Leases:
        deadline = _Deadline(self._hub, self._wait)
        with ExitStack() as stack:
            members: list[Lease] = []
            for lock in self._locks:
                lease: Lease = lock.enter(deadline.left(self._wait))
                stack.push(lock)
                members.append(lease)
            self._enter(stack.pop_all())
        return Leases(self._hub, tuple(members))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        return self._leave().__exit__(kind, error, traceback)


class AsyncLockSeveral(_BaseSeveral):
    """A lock of the asyncio client on several keys, for `async with`."""

    __slots__ = ()

    async def __aenter__(self) -> AsyncLeases:
        deadline = _Deadline(self._hub, self._wait)
        async with AsyncExitStack() as stack:
            members: list[AsyncLease] = []
            for lock in self._locks:
                lease: AsyncLease = await lock.enter(deadline.left(self._wait))
                stack.push_async_exit(lock)
                members.append(lease)
            self._enter(stack.pop_all())
        return AsyncLeases(self._hub, tuple(members))

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        return await self._leave().__aexit__(kind, error, traceback)
