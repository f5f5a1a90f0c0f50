"""The SQLite store beside the bare sqlite3 module doing the same two statements, and its peers."""

from __future__ import annotations

from benchmarks.fleet import Cycles
from benchmarks.measure import compare
from benchmarks.result import Result, at_most, cycle_table
from benchmarks.servers import sqlite
from benchmarks.subjects import Bench

THREADS = (
    *("bare_sqlite", "bare_flock", "joblock_client"),
    *("filelock_lock", "fasteners_lock", "portalocker_file", "tooz_file"),
)
TASKS = ("bare_sqlite", "joblock_client")


def run(bench: Bench) -> Result:
    """An uncontended acquire and release in WAL mode with synchronous NORMAL."""
    result = Result("embedded")
    for mode, who, names in ("cycle", "threads", THREADS), ("tasks", "tasks", TASKS):
        with sqlite() as store, Cycles() as cycles:
            for name in names:
                cycles.add(name, store.url, mode)
            found = compare(
                cycles.candidates, rounds=bench.turns_about(9), seconds=bench.seconds(0.5)
            )
            title = f"{store.name} and files: acquire + release, {who}"
            result.tables.append(cycle_table(title, found, cycles.contenders))
        measured = found.ratio("joblock", "sqlite3, two statements")
        result.goals.append(
            at_most(
                f"SQLite, a cycle, {who}",
                "at most 1.3 times the bare sqlite3 module",
                measured,
                1.3,
                " times",
            )
        )
    return result
