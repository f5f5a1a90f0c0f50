"""The raw lease operations, as flows: what `JobLockModel` offers in both clients.

Nothing here is renewed, nested or remembered: the holder is the caller's, and so is the care.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from joblock.protocol.steps import Flow
from joblock.store.ops import (
    Acquire,
    Count,
    Force,
    Forced,
    Granted,
    Holders,
    Page,
    Refresh,
    Refreshed,
    Release,
    Renewal,
    Waiters,
)
from joblock.values.durations import Duration, to_ms
from joblock.values.log import logger
from joblock.values.names import checked_holder, checked_prefix, checked_text, full_key
from joblock.values.records import JobLock, Waiting

if TYPE_CHECKING:
    from joblock.protocol.tell import Teller

PAGE = 200


def acquire(prefix: str, worker: str, key: str, ttl: Duration, holder: str) -> Flow[bool]:
    """Take the lease if it is free, or mine already, until exactly ``ttl`` from now."""
    op = Acquire(full_key(prefix, key), checked_holder(holder), to_ms(ttl, "ttl"), worker=worker)
    return type((yield op)) is Granted


def refresh(prefix: str, key: str, ttl: Duration, holder: str) -> Flow[bool]:
    """Let the lease end exactly ``ttl`` from now, if it is mine and nobody took it."""
    renewal = Renewal(full_key(prefix, key), checked_holder(holder), 0, to_ms(ttl, "ttl"))
    reply: Refreshed = yield Refresh((renewal,), extend_only=False)
    return reply.renewed[0]


def release(prefix: str, key: str, holder: str) -> Flow[None]:
    """End the lease if it is mine."""
    yield Release(full_key(prefix, key), checked_holder(holder))


def peek(prefix: str, key: str) -> Flow[JobLock | None]:
    """The lease of the key as it stands, the oldest one if there are several; None if free."""
    leases = yield from holders(prefix, key)
    return leases[0] if leases else None


def holders(prefix: str, key: str) -> Flow[tuple[JobLock, ...]]:
    """All leases of the key, oldest first."""
    leases: tuple[JobLock, ...] = yield Holders(full_key(prefix, key))
    return _bare(prefix, leases)


def waiters(prefix: str, key: str) -> Flow[tuple[Waiting, ...]]:
    """The queue of the key, oldest first."""
    queue: tuple[Waiting, ...] = yield Waiters(full_key(prefix, key))
    return tuple(waiter._replace(key=waiter.key[len(prefix) :]) for waiter in queue)


def is_locked(key: str) -> Flow[bool]:
    """Whether anybody holds that key (given with its prefix)."""
    leases: tuple[JobLock, ...] = yield Holders(key)
    return any(lease.state == "held" for lease in leases)


def page(prefix: str, within: str, after: str) -> Flow[tuple[JobLock, ...]]:
    """The next leases, by key, of keys that begin with ``within`` and sort after ``after``."""
    start = prefix + checked_prefix(within)
    leases: tuple[JobLock, ...] = yield Page(start, prefix + after if after else "", PAGE)
    return _bare(prefix, leases)


def count(prefix: str, within: str) -> Flow[int]:
    """How many leases there are of keys that begin with ``within``."""
    return (yield Count(prefix + checked_prefix(within)))


def delete(
    events: Teller | None, prefix: str, worker: str, key: str, by: str, why: str
) -> Flow[tuple[JobLock, ...]]:
    """Break every lease of the key, whoever holds it; the leases that were broken."""
    checked_text(by, "by")
    checked_text(why, "why")
    reply: Forced = yield Force(full_key(prefix, key), by or worker.replace("\x1f", " "), why)
    for lease in reply.broken:
        logger("lease").warning(
            "%r, held by %r (token %d), was broken by %s: %s",
            lease.key,
            lease.holder,
            lease.token,
            by or "this process",
            why or "no reason given",
        )
        if events is not None:
            name = lease.key[len(prefix) :]
            events.tell(
                "broken", name, lease.holder, lease.token, reason=why, other=by or "this process"
            )
    return _bare(prefix, reply.broken)


def _bare(prefix: str, leases: tuple[JobLock, ...]) -> tuple[JobLock, ...]:
    if not prefix:
        return leases
    return tuple(lease._replace(key=lease.key[len(prefix) :]) for lease in leases)
