"""Redis: from the release in one process to the first step of the next."""

from __future__ import annotations

from benchmarks import servers
from benchmarks.handoffs import Handing, everybody
from benchmarks.result import Goal, Result, at_most
from benchmarks.subjects import Bench

THREADS = (
    *("redis_list", "joblock_client", "python_redis_lock", "redis_lock_py", "redis_py_lock"),
    *("redis_semaphore", "mithril_redis", "pottery_lock", "portalocker_redis", "tooz_redis"),
    *("sherlock_redis", "redlock_py"),
)
TASKS = ("joblock_client", "redis_fifo_lock")


def run(bench: Bench) -> Result:
    """Those that wait at a list, for a message, and by asking again and again."""
    result = Result("handoff_redis")
    with servers.redis() as store:
        handing = Handing(bench, store, everybody(THREADS, TASKS))
        result.tables.append(handing.table(f"{store.name}: hand-off between eight processes"))
    result.goals = [
        at_most(
            "hand-off, Redis, eight processes",
            "at most 0.4 ms where a token through a list takes 0.28, 1.43 times",
            _ratio(handing),
            0.4 / 0.28,
            " times",
        ),
        at_most("commands a hand-off, Redis", "3", handing.commands.get("joblock"), 3.25),
        order(handing, "Redis"),
    ]
    return result


def _ratio(handing: Handing) -> float | None:
    ours, floor = handing.median("joblock"), handing.median("token in a list")
    return ours / floor if ours and floor else None


def order(handing: Handing, where: str) -> Goal:
    """Whether everybody's turn came in the order of asking."""
    what, goal = f"order of arrival, {where}", "always, among live waiters"
    share = handing.in_order("joblock")
    if share is None:
        return Goal(what, goal, "not measured", None)
    return Goal(what, goal, f"{share * 100:.1f}% of turns", share >= 0.999)
