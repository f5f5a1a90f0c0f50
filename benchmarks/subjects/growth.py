"""A store that fills: what a cycle costs beside 10 to 1,000,000 leases of others."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from benchmarks import servers
from benchmarks.fleet import Cycles
from benchmarks.measure import compare
from benchmarks.result import Plot, Result, Table, number
from benchmarks.subjects import Bench
from joblock import JobLocks

SIZES = (10, 1_000, 100_000, 1_000_000)
CHUNK = 10_000

Fill = Callable[[int, int], None]
"""Adds the leases from one number up to another."""


def run(bench: Bench) -> Result:
    """One lease is taken as any client does, and the store copies it under other keys."""
    sizes = [bench.many(size) for size in SIZES]
    table = Table("us a cycle beside so many leases", [], [])
    table.columns = ["store", *(f"{size:,}" for size in sizes)]
    lines: dict[str, list[tuple[float, float]]] = {}
    with servers.redis(pinned=True) as store:
        _grow(bench, "Redis", store.url, _fill_redis(store), sizes, table, lines)
    with servers.postgres(fsync=False, pinned=True) as store:
        fill = _fill_postgres(store)
        _grow(bench, "PostgreSQL without fsync", store.url, fill, sizes, table, lines)
    with servers.sqlite() as store:
        _grow(bench, "SQLite", store.url, _fill_sqlite(store.url), sizes, table, lines)
    table.plot = Plot(table.title, "us", lines=lines, across="leases of others")
    return Result("growth", [table])


def _grow(
    bench: Bench,
    name: str,
    url: str,
    fill: Fill,
    sizes: list[int],
    table: Table,
    lines: dict[str, list[tuple[float, float]]],
) -> None:
    row, full = [name], 0
    for size in sizes:
        fill(full, size)
        full = size
        with Cycles() as cycles:
            cycles.add("joblock_client", url, "cycle")
            found = compare(
                cycles.candidates, rounds=bench.turns_about(5), seconds=bench.seconds(0.5)
            )
        table.missing |= {f"{name}, {size:,}": why for why in found.failures.values()}
        figure = found.figures.get("joblock")
        row.append(number(figure.median) if figure else "")
        if figure:
            lines.setdefault(name, []).append((size, figure.median))
    table.rows.append(row)


def _take_seed(url: str) -> None:
    """A lease of a day, taken as the raw model does: nobody renews or releases it."""
    with JobLocks(url) as locks:
        assert locks.model.acquire("seed", "24h", "bench")


def _fill_redis(store: servers.Redis) -> Fill:
    script = (
        "for i = ARGV[1], ARGV[2] - 1 do "
        "redis.call('copy', KEYS[1], (KEYS[1]:gsub('seed', 'seed' .. i))) end"
    )
    _take_seed(store.url)
    every: list[str] = store.server.keys()
    (key,) = (name for name in every if "seed" in name)

    def fill(first: int, last: int) -> None:
        for start in range(first, last, CHUNK):
            store.server.ask("EVAL", script, 1, key, start, min(last, start + CHUNK))

    return fill


def _fill_postgres(store: servers.Postgres) -> Fill:
    _take_seed(store.url)

    def fill(first: int, last: int) -> None:
        numbers = f"generate_series({first}, {last - 1}) as number"
        store.server.run(
            "insert into job_locks select (jsonb_populate_record(one, "  # noqa: S608 - our own
            "jsonb_build_object('key', one.key || number))).* from job_locks as one, "
            f"{numbers} where one.key = 'seed'",
            "vacuum analyze job_locks",
        )

    return fill


def _fill_sqlite(url: str) -> Fill:
    _take_seed(url)
    path = url.removeprefix("sqlite:///")

    def fill(first: int, last: int) -> None:
        connection = sqlite3.connect(path)
        names = [f'"{row[1]}"' for row in connection.execute("pragma table_info(job_locks)")]
        values = ", ".join('"key" || number' if name == '"key"' else name for name in names)
        connection.execute(
            f"with recursive numbers (number) as (select {first} union all "  # noqa: S608 - our own
            f"select number + 1 from numbers where number < {last - 1}) "
            f"insert into job_locks ({', '.join(names)}) "
            f"select {values} from job_locks, numbers where key = 'seed'"
        )
        connection.commit()
        connection.close()

    return fill
