"""What a store is to the rest of joblock: a name, what it can do, and two ways to call it.

A new store states how it does the operations of `joblock.store.ops` and passes the contract suite
of `joblock.testing`. It never decides differently from `joblock.store.machine`, which is the
meaning of each operation in plain Python.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, overload, runtime_checkable

if TYPE_CHECKING:
    from joblock.borrowed import Statement
    from joblock.store.ops import (
        Acquire,
        AcquireReply,
        Check,
        Checked,
        Count,
        Force,
        Forced,
        Holders,
        Leave,
        Notice,
        Page,
        Purge,
        Refresh,
        Refreshed,
        Release,
        Released,
        Strike,
        Waiters,
    )
    from joblock.values.records import JobLock, Waiting

Deliver = Callable[["Notice"], None]


class Abilities(NamedTuple):
    """What a store can do; what it cannot is a documented fallback or a clear error.

    ``shared``: leases are seen by other machines. ``push``: waiters are notified. ``min_ttl``: the
    shortest ttl in milliseconds, of which every ttl is a multiple. ``keeps_expired``: an expired
    lease can still be seen and refreshed while nobody took it.
    """

    shared: bool = True
    push: bool = True
    min_ttl: int = 1
    keeps_expired: bool = True


class Subscription(Protocol):
    """An open ear for one client's notices."""

    @property
    def listening(self) -> bool:
        """Whether a notice sent now would arrive; False while (re)connecting or if it cannot."""
        ...

    def close(self) -> None:
        """Stop listening and give the resources back."""
        ...


class Driver(Protocol):
    """Sends operations, one at a time per caller; safe for many threads.

    Raises StoreUnavailable when the answer could not be had, StoreMisconfigured when a person must
    change something first. Whatever the exception (KeyboardInterrupt included), when `call` ends
    no request of it is still on its way: it was answered or its connection was given up.
    """

    @overload
    def call(self, op: Acquire) -> AcquireReply: ...
    @overload
    def call(self, op: Refresh) -> Refreshed: ...
    @overload
    def call(self, op: Release) -> Released: ...
    @overload
    def call(self, op: Leave | Strike) -> Released: ...
    @overload
    def call(self, op: Check) -> Checked: ...
    @overload
    def call(self, op: Holders | Page) -> tuple[JobLock, ...]: ...
    @overload
    def call(self, op: Waiters) -> tuple[Waiting, ...]: ...
    @overload
    def call(self, op: Count | Purge) -> int: ...
    @overload
    def call(self, op: Force) -> Forced: ...


class AsyncDriver(Protocol):
    """The same for tasks of one event loop.

    When the awaiting task is cancelled, `call` raises CancelledError; if its request may still be
    on its way, `settled` tells when it no longer is.
    """

    @overload
    async def call(self, op: Acquire) -> AcquireReply: ...
    @overload
    async def call(self, op: Refresh) -> Refreshed: ...
    @overload
    async def call(self, op: Release) -> Released: ...
    @overload
    async def call(self, op: Leave | Strike) -> Released: ...
    @overload
    async def call(self, op: Check) -> Checked: ...
    @overload
    async def call(self, op: Holders | Page) -> tuple[JobLock, ...]: ...
    @overload
    async def call(self, op: Waiters) -> tuple[Waiting, ...]: ...
    @overload
    async def call(self, op: Count | Purge) -> int: ...
    @overload
    async def call(self, op: Force) -> Forced: ...

    def settled(self, holder: str, then: Callable[[], None]) -> None:
        """Call ``then`` once no cancelled request for ``holder`` is on its way (maybe at once)."""
        ...

    async def aclose(self) -> None:
        """Give back what belongs to this event loop."""
        ...


class Store(Protocol):
    """Where leases live. Constructing one does no I/O."""

    @property
    def url(self) -> str:
        """What this store is called in messages; never with a password."""
        ...

    @property
    def abilities(self) -> Abilities:
        """What it can do."""
        ...

    def driver(self) -> Driver:
        """The blocking driver, shared by all threads."""
        ...

    def async_driver(self) -> AsyncDriver:
        """A driver for the running event loop."""
        ...

    def subscribe(
        self, client: str, deliver: Deliver, connected: Callable[[], None]
    ) -> Subscription:
        """Hear the notices for ``client``: ``deliver`` is called for each, from any thread.

        ``connected`` is called whenever listening begins (again), since a notice may have been
        missed before that.
        """
        ...

    def after_fork(self) -> None:
        """In a forked child: abandon what was inherited without closing it."""
        ...

    def close(self) -> None:
        """Give back every resource; a later call opens them again."""
        ...


@runtime_checkable
class Guarding(Protocol):
    """A store whose leases can be guarded in a transaction of the caller's on the same database."""

    def guard(self, key: str, holder: str, token: int) -> Statement:
        """What gives a row if that exclusive lease is live, and keeps it so until the commit."""
        ...


ELSEWHERE = "!"
"""What the name of a client begins with that is not notified by the store itself.

Such a client is queued as one that does not listen, since the store cannot know whether it does.
"""


@runtime_checkable
class Handing(Protocol):
    """A store that lets somebody else notify clients."""

    def hand_notices_to(self, post: Callable[[Sequence[Notice]], None]) -> None:
        """From now on, hand over what is for clients `ELSEWHERE`, once it is committed.

        ``post`` may be called from any thread and does not wait. The keys of these notices are
        digests.
        """
        ...


@runtime_checkable
class Notifier(Protocol):
    """What carries notices for other stores; see `Store.subscribe` for the hearing side."""

    @property
    def url(self) -> str:
        """What it is called in messages."""
        ...

    def publish(self, notices: Sequence[Notice]) -> None:
        """Send notices, whose keys are digests; raises StoreError."""
        ...

    def subscribe(
        self, client: str, deliver: Deliver, connected: Callable[[], None]
    ) -> Subscription:
        """See `Store.subscribe`."""
        ...

    def after_fork(self) -> None:
        """See `Store.after_fork`."""
        ...

    def close(self) -> None:
        """See `Store.close`."""
        ...


def digest(key: str) -> str:
    """What stands for a key in a notice where the key itself must not be seen by others."""
    from hashlib import blake2b

    return "#" + blake2b(key.encode(), digest_size=12).hexdigest()
