"""PostgreSQL with fsync: from the release in one process to the first step of the next."""

from __future__ import annotations

from benchmarks import servers
from benchmarks.handoffs import Handing, everybody
from benchmarks.result import Result, at_most
from benchmarks.subjects import Bench
from benchmarks.subjects.handoff_redis import order

THREADS = (
    *("advisory_lock", "joblock_client", "pals_lock", "tooz_postgres", "mithril_postgres"),
    "postgres_mutex_lock",
)
TASKS = ("joblock_client",)


def run(bench: Bench) -> Result:
    """A grant and its confirmation are commits on disk; an advisory lock writes nothing."""
    result = Result("handoff_postgres")
    with servers.postgres(fsync=True) as store:
        handing = Handing(bench, store, everybody(THREADS, TASKS))
        title = f"{store.name} with fsync: hand-off between eight processes"
        result.tables.append(handing.table(title))
    with servers.postgres(fsync=False) as store:
        without = Handing(bench, store, everybody(("advisory_lock", "joblock_client"), ()))
        title = f"{store.name} without fsync: hand-off between eight processes"
        result.tables.append(without.table(title))
    ours, floor = handing.median("joblock"), handing.median("advisory lock")
    result.goals = [
        at_most(
            "hand-off, PostgreSQL with fsync, eight processes",
            "at most 1.2 ms where an advisory lock takes 0.28, 4.3 times",
            ours / floor if ours and floor else None,
            1.2 / 0.28,
            " times",
        ),
        at_most("commands a hand-off, PostgreSQL", "3", handing.commands.get("joblock"), 3.25),
        order(handing, "PostgreSQL"),
    ]
    return result
