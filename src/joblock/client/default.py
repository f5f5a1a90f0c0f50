"""`joblock.run_with_lock`: one call, on the store that the environment names."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from joblock.client.sync import JobLocks
from joblock.protocol.occurrences import Occurrence
from joblock.protocol.request import OnLost, OnStoreError
from joblock.values.durations import Duration


@cache
def default_locks() -> JobLocks:
    """The client of this process for the store that the environment names."""
    return JobLocks()


def run_with_lock(
    key: str,
    ttl: Duration,
    work: Callable[[], object],
    *,
    holder: str | None = None,
    renew: bool = True,
    max_duration: Duration | None = None,
    on_lost: OnLost | None = None,
    on_store_error: OnStoreError = "raise",
    occurrence: Occurrence | None = None,
    occurrence_ttl: Duration | None = None,
) -> bool:
    """As `joblock.JobLocks.run_with_lock`, on the store that the environment names."""
    return default_locks().run_with_lock(
        key,
        ttl,
        work,
        holder=holder,
        renew=renew,
        max_duration=max_duration,
        on_lost=on_lost,
        on_store_error=on_store_error,
        occurrence=occurrence,
        occurrence_ttl=occurrence_ttl,
    )
