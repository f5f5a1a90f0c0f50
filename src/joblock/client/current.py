"""Which leases this context holds: inherited by tasks and threads started inside, until the end.

A context outlives a block that an interrupt kept from beginning, so it refers to leases weakly:
whoever really holds one has it in a lock or a variable.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING
from weakref import ref

from joblock.values.errors import LockNotAcquired

if TYPE_CHECKING:
    from joblock.client.lease import BaseLease

_leases: ContextVar[tuple[ref[BaseLease], ...]] = ContextVar("joblock_leases", default=())


def enter(lease: BaseLease) -> None:
    """Make it the innermost lease of this context."""
    _leases.set((*_leases.get(), ref(lease)))


def leave(lease: BaseLease) -> None:
    """Take it out again; in another context than it was entered in there is nothing to take."""
    leases = _leases.get()
    if len(leases) == 1 and leases[0]() is lease:
        _leases.set(())
    else:
        at = next((at for at in range(len(leases) - 1, -1, -1) if leases[at]() is lease), None)
        if at is not None:
            _leases.set(leases[:at] + leases[at + 1 :])


def current() -> BaseLease | None:
    """The innermost lease of this context whose block has not ended, or None."""
    return next(_open(), None)


def require(key: str) -> BaseLease:
    """The lease of that key in this context: an assertion for the code that relies on it.

    Raises LockNotAcquired if the context has none, LockLost if it has lost it.
    """
    for lease in _open():
        if lease.key == key:
            lease.check()
            return lease
    raise LockNotAcquired(key, reason="unheld")


def _open() -> Iterator[BaseLease]:
    for reference in reversed(_leases.get()):
        lease = reference()
        if lease is not None and not lease.ended:
            yield lease
