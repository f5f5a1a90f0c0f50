"""The memory store: what joblock itself costs, with no store behind it."""

from __future__ import annotations

from benchmarks.fleet import Crew, Cycles, Failed, hand_off
from benchmarks.measure import compare
from benchmarks.result import Goal, Result, Table, at_most, cycle_table, number
from benchmarks.servers import Store
from benchmarks.subjects import Bench

FLOOR, OURS = "standard library's Lock", "joblock"
STORE = Store("memory://bench", "memory")


def run(bench: Bench) -> Result:
    """An uncontended cycle beside a bare lock, and handing on inside the process."""
    result = Result("memory")
    for mode, who in ("cycle", "threads"), ("tasks", "tasks"):
        with Cycles() as cycles:
            cycles.add("std_lock", STORE.url, mode)
            cycles.add("joblock_client", STORE.url, mode)
            found = compare(
                cycles.candidates, rounds=bench.turns_about(9), seconds=bench.seconds(0.5)
            )
            title = f"memory: acquire + release, {who}"
            result.tables.append(cycle_table(title, found, cycles.contenders))
        if who == "threads":
            goal = "at most 5 us where threading.Lock takes 0.06, 83 times"
            result.goals.append(
                at_most("memory, a cycle", goal, found.ratio(OURS, FLOOR), 83, " times")
            )
    _hand_offs(bench, result)
    return result


def _hand_offs(bench: Bench, result: Result) -> None:
    # Threads work for a moment, or the one that releases would run on until the interpreter
    # switches; tasks do not: they only let the others run.
    crews = {"tasks": Crew(1, 8, "tasks", 0.0), "threads": Crew(1, 8, "threads", 0.0005)}
    rows: list[list[str]] = []
    missing: dict[str, str] = {}
    medians: dict[tuple[str, str], float] = {}
    for mode, crew in crews.items():
        for name, contender in (FLOOR, "std_lock"), (OURS, "joblock_client"):
            try:
                found = hand_off(contender, STORE, crew, bench.seconds(2.0))
            except Failed as failure:
                missing[f"{name}, {mode}"] = str(failure)
                continue
            medians[mode, name] = found.median
            strong = "**" if name == OURS else ""
            rows.append(
                [mode, f"{strong}{name}{strong}", number(found.median * 1000), f"{found.turns:,}"]
            )
    columns = ["eight", "who", "median, us", "turns"]
    result.tables.append(Table("memory: hand-off in one process", columns, rows, None, missing))
    for mode in crews:
        floor, ours = medians.get((mode, FLOOR)), medians.get((mode, OURS))
        what, goal = f"hand-off in one process, {mode}", "twice the standard library's Lock"
        if floor and ours:
            result.goals.append(at_most(what, goal, ours / floor, 2, " times"))
        else:
            result.goals.append(Goal(what, goal, "not measured", None))
