"""Held and renewed leases: what 100, 1,000 and 10,000 of them take while nothing happens."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from benchmarks import contenders, servers
from benchmarks.fleet import Failed, Host
from benchmarks.result import Result, Table, number
from benchmarks.servers import Store
from benchmarks.subjects import OVER, Bench

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

TTL = 6
"""Seconds: joblock renews after a third of it, python-redis-lock after two."""

SIZES = (100, 1_000, 10_000)
THREADS_AT_MOST = 1_000
"""A thread for each lease is not tried beyond this."""

STORES: dict[str, Callable[[], AbstractContextManager[Store]]] = {
    "Redis": servers.redis,
    "PostgreSQL with fsync": partial(servers.postgres, fsync=True),
    "SQLite": servers.sqlite,
}


def run(bench: Bench) -> Result:
    """One process holds them all."""
    columns = ["store", "who", "leases", "of a processor", "commands a second"]
    table = Table("held and renewed leases", [*columns, "threads", "a lease, kB"], [])
    for name, start in STORES.items():
        with start() as store:
            who = ("joblock_client", "python_redis_lock")[: 2 if name == "Redis" else 1]
            for contender in who:
                for leases in SIZES:
                    if contender == "joblock_client" or leases <= THREADS_AT_MOST:
                        _row(bench, table, name, store, contender, leases)
    table.title += f", renewed with a ttl of {TTL} s"
    return Result("holding", [table])


def _row(bench: Bench, table: Table, name: str, store: Store, contender: str, leases: int) -> None:
    shown = contenders.load(contender).NAME
    if bench.over:
        table.missing[f"{name}, {shown}, {leases:,}"] = OVER
        return
    store.empty()
    try:
        with Host(contender, store.url, f"held{leases}") as host:
            host.do("ready")
            host.do("hold", 1, TTL)
            before = host.do("usage")
            host.do("hold", leases, TTL, patience=60)
            settled = host.do("usage")
            seconds = bench.seconds(TTL)
            with store.counting() as counted:
                time.sleep(seconds)
                after = host.do("usage")
    except Failed as failure:
        table.missing[f"{name}, {shown}, {leases:,}"] = str(failure)
        return
    table.rows.append(
        [
            name,
            f"**{shown}**" if shown == "joblock" else shown,
            f"{leases:,}",
            f"{(after['cpu'] - settled['cpu']) / seconds * 100:.1f}%",
            number(counted[0] / seconds) if counted else "",
            f"{after['threads']:.0f}",
            number((settled["rss"] - before["rss"]) / leases / 1000),
        ]
    )
