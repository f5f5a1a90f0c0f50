"""Leases and waiters in words, for messages to a person."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from joblock.cli.text import moment, now, span, visible
from joblock.protocol.request import SHARED_LIMIT

if TYPE_CHECKING:
    from datetime import datetime

    from joblock.values.records import JobLock, Waiting, Worker


def in_the_way(leases: Sequence[JobLock], queue: Sequence[Waiting]) -> str:
    """Why a key was not to be had, as the end of a sentence that begins with the key."""
    closed = [lease for lease in leases if lease.state != "expired"]
    if closed:
        more = f" (and by {len(closed) - 1} more)" if len(closed) > 1 else ""
        return _about(closed[0]) + more
    live = [waiter for waiter in queue if waiter.live]
    if live:
        return f"is waited for by others, first {where(live[0].worker)}, holder {_holder(live[0])}"
    return "was held a moment ago, and is free now"


def _about(lease: JobLock) -> str:
    if lease.state == "grace" and lease.ended_at is not None:
        return (
            f"is in grace: its run by {where(lease.worker)} ended at {moment(lease.ended_at)}, "
            f"and it opens at {until(lease.expires_at)}"
        )
    return (
        f"is held since {since(lease.acquired_at)} by {where(lease.worker)}, "
        f"holder {_holder(lease)}, until {until(lease.expires_at)} unless renewed"
    )


def where(worker: Worker) -> str:
    """On which machine, as which process, running what."""
    host = f"host {visible(worker.host)}" if worker.host else "an unknown host"
    pid = f", pid {worker.pid}" if worker.pid else ""
    return host + pid + (f" ({visible(worker.label)})" if worker.label else "")


def since(at: datetime) -> str:
    """A moment in the past."""
    return f"{moment(at)} ({span(now() - at)} ago)"


def until(at: datetime) -> str:
    """A moment to come."""
    return f"{moment(at)} (in {span(at - now())})"


def share(lease: JobLock | Waiting) -> str:
    """What of the key it takes; empty if all of it."""
    if lease.weight >= lease.limit:
        return ""
    return "shared" if lease.limit >= SHARED_LIMIT else f"{lease.weight} of {lease.limit}"


def _holder(of: JobLock | Waiting) -> str:
    return visible(of.holder)
