"""SQLite and lock files: from the release in one process to the first step of the next."""

from __future__ import annotations

from benchmarks.handoffs import Handing, everybody
from benchmarks.result import Result, at_most
from benchmarks.servers import sqlite
from benchmarks.subjects import Bench
from benchmarks.subjects.handoff_redis import order

THREADS = (
    *("bare_flock", "joblock_client", "filelock_lock", "fasteners_lock", "portalocker_file"),
    "tooz_file",
)
TASKS = ("joblock_client",)


def run(bench: Bench) -> Result:
    """A blocking flock wakes the next in the kernel; most libraries over it ask again and again."""
    result = Result("handoff_embedded")
    with sqlite() as store:
        handing = Handing(bench, store, everybody(THREADS, TASKS))
        title = f"{store.name} and files: hand-off between eight processes"
        result.tables.append(handing.table(title))
    ours, floor = handing.median("joblock"), handing.median("flock, blocking")
    result.goals = [
        at_most(
            "hand-off, SQLite, eight processes",
            "at most 0.5 ms where a blocking flock takes 0.09, 5.6 times",
            ours / floor if ours and floor else None,
            0.5 / 0.09,
            " times",
        ),
        order(handing, "SQLite"),
    ]
    return result
