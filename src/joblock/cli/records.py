"""Leases and waiters as JSON: what scripts read, so its names and types are kept stable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from joblock.cli.text import now

if TYPE_CHECKING:
    from datetime import datetime

    from joblock.values.records import JobLock, Waiting, Worker


def lease(of: JobLock) -> dict[str, Any]:
    """One lease; ``lapses_in`` is in seconds, by this machine's clock."""
    return {
        "key": of.key,
        "state": of.state,
        "holder": of.holder,
        "token": of.token,
        "weight": of.weight,
        "limit": of.limit,
        "acquired_at": _moment(of.acquired_at),
        "expires_at": _moment(of.expires_at),
        "ended_at": _moment(of.ended_at) if of.ended_at else None,
        "lapses_in": lapses_in(of),
        **_worker(of.worker),
    }


def waiter(of: Waiting) -> dict[str, Any]:
    """One waiter; ``live`` is false once its process has stopped reporting."""
    return {
        "holder": of.holder,
        "arrival": of.arrival,
        "weight": of.weight,
        "limit": of.limit,
        "queued_at": _moment(of.queued_at),
        "live": of.live,
        **_worker(of.worker),
    }


def lapses_in(of: JobLock) -> float:
    """Seconds until it lapses, 0 if it has."""
    return round(max(0.0, (of.expires_at - now()).total_seconds()), 3)


def _worker(of: Worker) -> dict[str, Any]:
    return {"host": of.host, "pid": of.pid or None, "label": of.label}


def _moment(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
