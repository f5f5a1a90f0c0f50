"""Many tasks at once, each on a key of its own: what one cycle costs when they share a client."""

from __future__ import annotations

from benchmarks import contenders, servers
from benchmarks.fleet import Cycles
from benchmarks.measure import compare
from benchmarks.result import Plot, Result, Table, at_most, number
from benchmarks.subjects import Bench

SIZES = (1, 10, 100, 1_000)
NAMES = (
    *("redis_socket", "redis_client", "joblock_client", "redis_py_lock", "redis_lock_py"),
    *("pottery_lock", "redis_semaphore", "cachify"),
)


def run(bench: Bench) -> Result:
    """Redis: one connection with requests in order, against a connection for each task."""
    result = Result("crowd")
    medians: dict[str, dict[int, float]] = {}
    table = Table("", ["tasks, each on its key", *(f"{size:,}" for size in SIZES)], [])
    with servers.redis(pinned=True) as store:
        table.title = f"{store.name}: us a cycle, with so many tasks at once"
        for size in SIZES:
            with Cycles() as cycles:
                for name in NAMES:
                    cycles.add(name, store.url, "crowd", size)
                # A turn is a cycle of each task.
                found = compare(
                    cycles.candidates, rounds=bench.turns_about(5), seconds=bench.seconds(0.4)
                )
            for shown, figure in found.figures.items():
                medians.setdefault(shown, {})[size] = figure.median / size
            table.missing |= {f"{shown}, {size:,}": why for shown, why in found.failures.items()}
    for shown, by_size in medians.items():
        strong = "**" if shown == "joblock" else ""
        cells = [number(by_size[size]) if size in by_size else "" for size in SIZES]
        table.rows.append([f"{strong}{shown}{strong}", *cells])
    lines = {shown: list(by_size.items()) for shown, by_size in medians.items()}
    table.plot = Plot(table.title, "us", lines=lines, across="tasks at once")
    result.tables.append(table)
    result.goals.append(_goal(medians))
    return result


def _goal(medians: dict[str, dict[int, float]]):
    peers = {contenders.load(name).NAME for name in NAMES if contenders.load(name).KIND == "peer"}
    best = min(
        (by_size[100] for shown, by_size in medians.items() if shown in peers and 100 in by_size),
        default=None,
    )
    ours = medians.get("joblock", {}).get(100)
    return at_most(
        "a cycle of 100 tasks on 100 keys, Redis",
        "a quarter of the best peer's",
        ours / best if ours and best else None,
        0.25,
    )
