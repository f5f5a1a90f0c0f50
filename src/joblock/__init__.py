"""joblock keeps a job to one run at a time when the same code runs as many processes.

The names below are loaded when they are first used, so that importing the package costs little
and brings in neither a driver nor asyncio.
"""

from __future__ import annotations

from joblock.values.identity import worker_id as worker_id
from joblock.values.imports import importing

TYPE_CHECKING = False  # what type checkers take for true: to import typing costs more than the rest

if TYPE_CHECKING:
    from typing import Any

    from joblock.client.aio import AsyncJobLockModel as AsyncJobLockModel
    from joblock.client.aio import AsyncJobLocks as AsyncJobLocks
    from joblock.client.aio import AsyncLease as AsyncLease
    from joblock.client.aio import AsyncLock as AsyncLock
    from joblock.client.current import current as current
    from joblock.client.current import require as require
    from joblock.client.default import run_with_lock as run_with_lock
    from joblock.client.events import Event as Event
    from joblock.client.events import Subscription as Subscription
    from joblock.client.jobs import AsyncJob as AsyncJob
    from joblock.client.jobs import Job as Job
    from joblock.client.leader import AsyncLeader as AsyncLeader
    from joblock.client.leader import Leader as Leader
    from joblock.client.leader import Leadership as Leadership
    from joblock.client.signals import release_on_sigterm as release_on_sigterm
    from joblock.client.sync import JobLockModel as JobLockModel
    from joblock.client.sync import JobLocks as JobLocks
    from joblock.client.sync import Lease as Lease
    from joblock.client.sync import Lock as Lock
    from joblock.protocol.job import Outcome as Outcome
    from joblock.values.errors import JobLockError as JobLockError
    from joblock.values.errors import LockLost as LockLost
    from joblock.values.errors import LockNotAcquired as LockNotAcquired
    from joblock.values.errors import StaleToken as StaleToken
    from joblock.values.errors import StoreError as StoreError
    from joblock.values.errors import StoreMisconfigured as StoreMisconfigured
    from joblock.values.errors import StoreUnavailable as StoreUnavailable
    from joblock.values.records import JOB_LOCKS_TABLE as JOB_LOCKS_TABLE
    from joblock.values.records import JobLock as JobLock
    from joblock.values.records import Waiting as Waiting
    from joblock.values.records import Worker as Worker

    WORKER_ID: str

__version__ = "0.1.0"

__all__ = [
    "JOB_LOCKS_TABLE",
    "WORKER_ID",
    "AsyncJob",
    "AsyncJobLockModel",
    "AsyncJobLocks",
    "AsyncLeader",
    "AsyncLease",
    "AsyncLock",
    "Event",
    "Job",
    "JobLock",
    "JobLockError",
    "JobLockModel",
    "JobLocks",
    "Leader",
    "Leadership",
    "Lease",
    "Lock",
    "LockLost",
    "LockNotAcquired",
    "Outcome",
    "StaleToken",
    "StoreError",
    "StoreMisconfigured",
    "StoreUnavailable",
    "Subscription",
    "Waiting",
    "Worker",
    "current",
    "release_on_sigterm",
    "require",
    "run_with_lock",
    "worker_id",
]

_HOMES = {
    "AsyncJob": "joblock.client.jobs",
    "AsyncJobLockModel": "joblock.client.aio",
    "AsyncJobLocks": "joblock.client.aio",
    "AsyncLeader": "joblock.client.leader",
    "AsyncLease": "joblock.client.aio",
    "AsyncLock": "joblock.client.aio",
    "JOB_LOCKS_TABLE": "joblock.values.records",
    "Event": "joblock.client.events",
    "Job": "joblock.client.jobs",
    "JobLock": "joblock.values.records",
    "JobLockError": "joblock.values.errors",
    "JobLockModel": "joblock.client.sync",
    "JobLocks": "joblock.client.sync",
    "Leader": "joblock.client.leader",
    "Leadership": "joblock.client.leader",
    "Lease": "joblock.client.sync",
    "Lock": "joblock.client.sync",
    "LockLost": "joblock.values.errors",
    "LockNotAcquired": "joblock.values.errors",
    "Outcome": "joblock.protocol.job",
    "StaleToken": "joblock.values.errors",
    "StoreError": "joblock.values.errors",
    "StoreMisconfigured": "joblock.values.errors",
    "StoreUnavailable": "joblock.values.errors",
    "Subscription": "joblock.client.events",
    "Waiting": "joblock.values.records",
    "Worker": "joblock.values.records",
    "current": "joblock.client.current",
    "release_on_sigterm": "joblock.client.signals",
    "require": "joblock.client.current",
    "run_with_lock": "joblock.client.default",
}


def __getattr__(name: str) -> Any:
    if name == "WORKER_ID":
        # Read anew each time: a forked child has another one.
        return worker_id()
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'joblock' has no attribute {name!r}")
    from importlib import import_module

    with importing():
        module = import_module(home)
    value = globals()[name] = getattr(module, name)
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
