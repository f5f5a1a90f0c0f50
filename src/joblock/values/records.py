"""What the store tells about a lock to somebody who reads it: leases, waiters, workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from joblock.values.shown import shown

if TYPE_CHECKING:
    from datetime import datetime

LeaseState = Literal["held", "expired", "grace"]

JOB_LOCKS_TABLE = "job_locks"


class Worker(NamedTuple):
    """Where a holder runs: host name, process id (0 if unknown) and the client's label."""

    host: str = ""
    pid: int = 0
    label: str = ""

    @classmethod
    def parse(cls, text: str) -> Worker:
        """Read what `joblock.values.identity.describe_worker` wrote."""
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"a worker is read from the text that a store keeps; got {shown(text)}")
        host, _, rest = text.partition("\x1f")
        pid, _, label = rest.partition("\x1f")
        return cls(host, int(pid) if pid.isascii() and pid.isdigit() else 0, label)


class JobLock(NamedTuple):
    """One lease as it stands in the store; all times are the store's, in UTC.

    ``state`` is ``"held"``, ``"expired"`` (its time is over but nobody has taken it yet, so its
    holder may still refresh it) or ``"grace"`` (its run ended at ``ended_at`` and the key stays
    closed until ``expires_at``).
    """

    key: str
    holder: str
    token: int
    weight: int
    limit: int
    acquired_at: datetime
    expires_at: datetime
    ended_at: datetime | None
    state: LeaseState
    worker: Worker


class Waiting(NamedTuple):
    """One queued waiter, oldest first; ``live`` is false once its process stopped reporting."""

    key: str
    holder: str
    arrival: int
    weight: int
    limit: int
    queued_at: datetime
    live: bool
    worker: Worker


def moment(ms: int) -> datetime:
    """A store's milliseconds since 1970 as an aware datetime."""
    from datetime import UTC, datetime, timedelta

    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
