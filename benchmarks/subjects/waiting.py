"""A thousand waiters on a key that stays held: what they cost while nothing happens."""

from __future__ import annotations

import time
from typing import NamedTuple

from benchmarks import contenders, servers
from benchmarks.fleet import Failed, Host
from benchmarks.result import Goal, Result, Table, at_most, number
from benchmarks.servers import Store
from benchmarks.subjects import OVER, Bench

WAITERS = 1_000
WEIGHED = 200
"""So many are enough to weigh one, and tracemalloc makes all that they do slow."""

SETTLE = 2.0
"""Seconds after which so many wait, and nothing more happens."""

REDIS = (
    *("joblock_client", "redis_list", "redis_py_lock", "redis_lock_py", "redis_semaphore"),
    "redis_fifo_lock",
)


class Idle(NamedTuple):
    """What waiting takes, of the store and of the process."""

    commands: float | None
    processor: float
    traced: float
    resident: float


def run(bench: Bench) -> Result:
    """Tasks of one process."""
    result = Result("waiting")
    # Those that ask again and again come last: they are what could take all the time there is.
    _table(bench, result, Store("memory://bench", "memory"), ("std_lock", "joblock_client"))
    with servers.sqlite() as store:
        _table(bench, result, store, ("joblock_client",))
    with servers.postgres(fsync=True) as store:
        of_postgres = _table(bench, result, store, ("joblock_client",))
    with servers.redis() as store:
        of_redis = _table(bench, result, store, REDIS)
    for name, found in ("Redis", of_redis), ("PostgreSQL", of_postgres):
        idle = found.get("joblock")
        what = f"{WAITERS:,} waiters on a held key, {name}"
        if idle is None or idle.commands is None:
            result.goals.append(Goal(what, "at most 1 command a second", "not measured", None))
        else:
            result.goals.append(
                at_most(what, "at most 1 command a second", idle.commands, 1.0, " a second")
            )
    ours = of_redis.get("joblock")
    result.goals.append(
        at_most(
            "memory of a waiting task, Redis",
            "at most 3 kB",
            ours.traced / 1000 if ours else None,
            3.0,
            " kB",
        )
    )
    return result


def _table(bench: Bench, result: Result, store: Store, names: tuple[str, ...]) -> dict[str, Idle]:
    found: dict[str, Idle] = {}
    missing: dict[str, str] = {}
    for name in names:
        shown = contenders.load(name).NAME
        if bench.over:
            missing[shown] = OVER
            continue
        store.empty()
        try:
            found[shown] = _idle(bench, name, store)
        except Failed as failure:
            missing[shown] = str(failure)
    rows = [
        [
            f"**{shown}**" if shown == "joblock" else shown,
            "" if idle.commands is None else number(idle.commands),
            f"{idle.processor * 100:.1f}%",
            number(idle.traced / 1000),
            number(idle.resident / 1000),
        ]
        for shown, idle in found.items()
    ]
    columns = ["who", "commands a second", "of a processor"]
    columns += ["a waiter by tracemalloc, kB", "resident, kB"]
    title = f"{store.name}: {WAITERS:,} waiting tasks of one process"
    result.tables.append(Table(title, columns, rows, None, missing))
    return found


def _idle(bench: Bench, name: str, store: Store) -> Idle:
    key = f"held-{name}"
    if store.name == "memory":
        return _idle_here(bench, name, store, key)
    with Host(name, store.url, key) as holder, Host(name, store.url, key) as host:
        _take(name, holder)
        host.do("ready")
        idle = _watched(bench, store, host)
    with Host(name, store.url, f"{key}-too") as holder, Host(name, store.url, f"{key}-too") as host:
        _take(name, holder)
        return idle._replace(traced=host.do("weigh", WEIGHED, SETTLE / 2))


def _take(name: str, holder: Host) -> None:
    """A library without a blocking form takes the key as a task, too."""
    holder.do("take" if hasattr(contenders.load(name), "make") else "take_async")


def _idle_here(bench: Bench, name: str, store: Store, key: str) -> Idle:
    """Where a store is of one process, the holder is in it."""
    with Host(name, store.url, key) as host:
        host.do("take_async")
        idle = _watched(bench, store, host)
    with Host(name, store.url, key) as host:
        host.do("take_async")
        return idle._replace(traced=host.do("weigh", WEIGHED, SETTLE / 2))


def _watched(bench: Bench, store: Store, host: Host) -> Idle:
    # The loop, the first connection and what else is shared are there before it is weighed.
    host.do("wait", 1, 0.3)
    before = host.do("usage")
    host.do("wait", WAITERS, SETTLE)
    settled = host.do("usage")
    seconds = bench.seconds(8.0)
    with store.counting() as counted:
        time.sleep(seconds)
        after = host.do("usage")
    return Idle(
        counted[0] / seconds if counted else None,
        (after["cpu"] - settled["cpu"]) / seconds,
        0.0,
        (settled["rss"] - before["rss"]) / WAITERS,
    )
