"""A lease in the hands of its holder: facts, whether it is still held, and giving it back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import ref

from joblock.store.contract import Guarding
from joblock.values.errors import LockLost
from joblock.values.records import moment

if TYPE_CHECKING:
    from datetime import datetime

    from joblock.borrowed import Rows, Statement
    from joblock.client.hub import Hub
    from joblock.protocol.hold import Hold


class BaseLease:
    """What the leases of both clients have in common."""

    __slots__ = ("__weakref__", "_hub", "_lost", "hold")

    def __init__(self, hub: Hub, hold: Hold) -> None:
        self._hub = hub
        self.hold = hold
        self._lost: Any = None
        hold.handle = ref(self)

    @property
    def key(self) -> str:
        """What is locked, as the caller wrote it: without the client's prefix."""
        return self.hold.name

    @property
    def holder(self) -> str:
        """Who holds it: this acquisition."""
        return self.hold.holder

    @property
    def token(self) -> int:
        """The fencing token: greater than that of every earlier lease of this key."""
        return self.hold.token

    @property
    def exclusive(self) -> bool:
        """Whether it takes the whole key; only then do tokens order the holders of the key."""
        return self.hold.exclusive

    @property
    def acquired_at(self) -> datetime:
        """When it was granted, by the store's clock."""
        return moment(self.hold.acquired_at)

    @property
    def held(self) -> bool:
        """Whether it still counts, by the local clock; False from the local deadline on."""
        return self.hold.held

    @property
    def remaining(self) -> float:
        """Seconds left until the local deadline, unless it is renewed."""
        return self.hold.remaining

    @property
    def ended(self) -> bool:
        """Whether it was given back, or its block left after a loss, or it is a forked parent's."""
        hold = self.hold
        return hold.left or (hold.over and (not hold.lost or hold.lost == "forked"))

    @property
    def lost(self) -> Any:
        """An event that is set when the lease is lost: threading.Event, or asyncio.Event."""
        if self._lost is None:
            waker = self._hub.waker
            with self._hub.lock:
                if self._lost is None:
                    event = self._lost = waker.event()
                    # Not by way of this lease: the hold must not keep its own handle alive.
                    self.hold.when_lost(lambda: waker.set(event))
        return self._lost

    def check(self) -> None:
        """Raise LockLost if it is not held any more."""
        if not self.hold.held:
            raise self.hold.loss()

    def _guard_statement(self) -> Statement:
        """What guards it in a transaction on its store's database."""
        self.check()
        if not self.exclusive:
            raise ValueError(
                f"the lease on {self.key!r} takes only a part of it; only one that takes the whole "
                "key can be guarded"
            )
        store = self._hub.store
        if not isinstance(store, Guarding):
            raise TypeError(
                f"leases in {store.url} cannot be guarded: that takes leases in the database of "
                "the transaction, PostgreSQL, or an SQLite file. Fence the writes with lease.token "
                "instead: see joblock.fencing"
            )
        self.hold.guarded = True
        return store.guard(self.hold.key, self.holder, self.token)

    def _check_guarded(self, rows: Rows) -> None:
        """Raise LockLost if that statement found no lease."""
        if not rows:
            raise LockLost(self.key, self.holder, self.token, "guard")

    def __repr__(self) -> str:
        state = "held" if self.held else self.hold.lost or "released"
        return f"<{type(self).__name__} {self.key!r} token={self.token} {state}>"
