"""PostgreSQL: an uncontended acquire and release, with commits that wait for the disk and not."""

from __future__ import annotations

from benchmarks import servers
from benchmarks.fleet import Cycles
from benchmarks.measure import Compared, compare
from benchmarks.result import Goal, Result, at_most, cycle_table
from benchmarks.subjects import Bench

THREADS = ("psycopg_prepared", "sqlalchemy_core", "joblock_client", "joblock_engine")
TASKS = ("asyncpg_prepared", *THREADS, "joblock_asyncpg")
PEERS = (
    *("advisory_lock", "pals_lock", "tooz_postgres", "mithril_postgres"),
    *("postgres_mutex_lock", "dislock_lease"),
)


def run(bench: Bench) -> Result:
    """The same with fsync, without it, and with fsync but synchronous_commit off."""
    result = Result("postgres")
    for fsync, goal, settings in (
        (False, 1.3, {}),
        (True, 1.0, {}),
        (True, None, {"synchronous_commit": "off"}),
    ):
        manner = ("with fsync" if fsync else "without fsync") + (
            ", synchronous_commit off" if settings else ""
        )
        with servers.postgres(fsync=fsync, pinned=True, **settings) as store:
            title = f"{store.name} {manner}"
            peers = () if settings else PEERS
            threads = _compared(
                bench, result, store.url, "cycle", f"{title}: threads", (*THREADS, *peers)
            )
            tasks = _compared(bench, result, store.url, "tasks", f"{title}: tasks", TASKS)
        if goal is not None:
            result.goals += _goals(manner, goal, threads, tasks)
    return result


def _goals(manner: str, limit: float, threads: Compared, tasks: Compared) -> list[Goal]:
    ours, engine, core = "joblock", "joblock, SQLAlchemy engine", "SQLAlchemy Core"
    pool = "joblock, asyncpg pool"
    return [
        at_most(
            f"PostgreSQL {manner}, a cycle, threads",
            f"at most {limit} times prepared psycopg 3",
            threads.ratio(ours, "psycopg, prepared"),
            limit,
            " times",
        ),
        at_most(
            f"PostgreSQL {manner}, a cycle, tasks",
            f"at most {limit} times prepared asyncpg",
            tasks.ratio(ours, "asyncpg, prepared"),
            limit,
            " times",
        ),
        at_most(
            f"PostgreSQL {manner}, a cycle, tasks over an asyncpg pool",
            f"at most {limit} times prepared asyncpg",
            tasks.ratio(pool, "asyncpg, prepared"),
            limit,
            " times",
        ),
        at_most(
            f"PostgreSQL {manner}, through SQLAlchemy, threads",
            "at most 1.2 times SQLAlchemy Core",
            threads.ratio(engine, core),
            1.2,
            " times",
        ),
        at_most(
            f"PostgreSQL {manner}, through SQLAlchemy, tasks",
            "at most 1.2 times SQLAlchemy Core",
            tasks.ratio(engine, core),
            1.2,
            " times",
        ),
    ]


def _compared(
    bench: Bench, result: Result, url: str, mode: str, title: str, names: tuple[str, ...]
) -> Compared:
    with Cycles() as cycles:
        for name in names:
            cycles.add(name, url, mode)
        found = compare(cycles.candidates, rounds=bench.turns_about(7), seconds=bench.seconds(0.35))
        result.tables.append(cycle_table(title, found, cycles.contenders))
    return found
