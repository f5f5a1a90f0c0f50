"""A queue of 1 to 10,000 tasks on one key, and whether a hand-off stays as fast and as cheap."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from benchmarks import servers
from benchmarks.fleet import Crew, Failed, HandOff, hand_off
from benchmarks.result import Goal, Plot, Result, Table, number
from benchmarks.servers import Store
from benchmarks.subjects import OVER, Bench

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

ONE_PROCESS = (1, 8, 32, 200, 1_000, 10_000)
"""Waiters behind a holder, all of them tasks of one process."""

GOAL_UP_TO = 1_000
"""Waiters: the goal says nothing of longer queues."""

EIGHT_PROCESSES = (8, 32, 200, 1_000)
"""Tasks in all, the holder among them."""

STORES: dict[str, Callable[[], AbstractContextManager[Store]]] = {
    "Redis": servers.redis,
    "PostgreSQL with fsync": partial(servers.postgres, fsync=True),
    "SQLite": servers.sqlite,
}

_keys = itertools.count(1)


def run(bench: Bench) -> Result:
    """Ours only: the others' queues, where they have any, are in the tables of hand-offs."""
    result = Result("queue")
    table = Table("hand-offs behind a queue", [], [])
    table.columns = [
        "store",
        "waiters",
        "in",
        "median, ms",
        "99 of 100, ms",
        "commands",
        "in order",
    ]
    lines: dict[str, list[tuple[float, float]]] = {}
    counts: dict[str, list[float]] = {}
    for name, start in STORES.items():
        with start() as store:
            for waiters, crew in _crews():
                try:
                    found, commands = _handed_on(bench, store, crew)
                except Failed as failure:
                    table.missing[f"{name}, {waiters:,} in {crew.processes}"] = str(failure)
                    continue
                table.rows.append(_row(name, waiters, crew, found, commands))
                if crew.processes == 1:
                    lines.setdefault(name, []).append((waiters, found.median))
                if commands is not None and waiters <= GOAL_UP_TO:
                    counts.setdefault(name, []).append(commands)
    table.plot = Plot("hand-off behind a queue, tasks of one process", "ms", lines=lines)
    table.plot.across = "waiters"
    result.tables.append(table)
    result.goals = [_flat(name, counts[name]) for name in counts]
    return result


def _crews() -> list[tuple[int, Crew]]:
    one = [(waiters, Crew(1, waiters + 1, "tasks")) for waiters in ONE_PROCESS]
    return one + [(tasks, Crew(8, tasks // 8, "tasks")) for tasks in EIGHT_PROCESSES]


def _handed_on(bench: Bench, store: Store, crew: Crew) -> tuple[HandOff, float | None]:
    """Long enough for every one of many to have queued."""
    seconds = bench.seconds(1.5) + crew.processes * crew.waiters / 2_000
    if bench.over or (crew.waiters > 1_000 and bench.quick):
        raise Failed(OVER)
    store.empty()
    key = f"queue{next(_keys)}"
    found = hand_off("joblock_client", store, crew, seconds, key=key, count=True)
    return found, found.commands


def _row(name: str, waiters: int, crew: Crew, found: HandOff, commands: float | None) -> list[str]:
    return [
        name,
        f"{waiters:,}",
        "one process" if crew.processes == 1 else f"{crew.processes} processes",
        number(found.median),
        number(found.high),
        "" if commands is None else number(commands),
        "" if found.in_order is None else f"{found.in_order * 100:.0f}%",
    ]


def _flat(name: str, counts: list[float]) -> Goal:
    what, goal = f"commands a hand-off, 1 to 1,000 waiters, {name}", "3, flat"
    lowest, highest = min(counts), max(counts)
    return Goal(what, goal, f"{number(lowest)} to {number(highest)}", highest <= 3.5)
