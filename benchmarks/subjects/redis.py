"""Redis: an uncontended acquire and release, threads and tasks, over TCP and a Unix socket."""

from __future__ import annotations

from benchmarks import servers
from benchmarks.fleet import Cycles
from benchmarks.measure import Compared, compare
from benchmarks.result import Result, at_most, cycle_table
from benchmarks.subjects import Bench

FLOORS = ("redis_socket", "redis_connection", "redis_client")
THREADS = (
    *("joblock_client", "redis_py_lock", "redis_lock_py", "python_redis_lock", "pottery_lock"),
    *("redlock_py", "redilock", "redis_semaphore", "mithril_redis", "portalocker_redis"),
    *("tooz_redis", "sherlock_redis", "cachify"),
)
TASKS = (
    *("joblock_client", "redis_py_lock", "redis_lock_py", "pottery_lock", "redilock"),
    *("redis_fifo_lock", "redis_semaphore", "mithril_redis", "cachify"),
)
UNIX = ("joblock_client", "redis_py_lock")


def run(bench: Bench) -> Result:
    """Everybody over TCP; the floors, redis-py's Lock and joblock over a Unix socket too."""
    result = Result("redis")
    with servers.redis(pinned=True) as store:
        threads = _compared(bench, result, store.url, "cycle", f"{store.name}: threads", THREADS)
        tasks = _compared(bench, result, store.url, "tasks", f"{store.name}: tasks", TASKS)
        _compared(bench, result, store.unix, "cycle", f"{store.name}, Unix socket: threads", UNIX)
        _compared(bench, result, store.unix, "tasks", f"{store.name}, Unix socket: tasks", UNIX)
    result.goals = [
        at_most(
            "Redis, a cycle, threads",
            "at most 0.8 of redis-py's Lock, fencing included",
            threads.ratio("joblock", "redis-py Lock"),
            0.8,
        ),
        at_most(
            "Redis, a cycle, tasks",
            "at most 0.55 of redis-py's Lock",
            tasks.ratio("joblock", "redis-py Lock"),
            0.55,
        ),
    ]
    return result


def _compared(
    bench: Bench, result: Result, url: str, mode: str, title: str, names: tuple[str, ...]
) -> Compared:
    with Cycles() as cycles:
        for name in (*FLOORS, *names):
            cycles.add(name, url, mode)
        found = compare(cycles.candidates, rounds=bench.turns_about(7), seconds=bench.seconds(0.25))
        result.tables.append(cycle_table(title, found, cycles.contenders))
    return found
