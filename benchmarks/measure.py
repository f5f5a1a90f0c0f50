"""How a figure is taken: candidates in shuffled rounds, the median of each, ratios to the first.

Machines are shared and noisy, so an absolute time says little. What is compared is measured turn
about in one run: whatever disturbs one round disturbs all of its candidates alike.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

ROUNDS = 9

Candidate = Callable[[int], object]
"""Does the thing that many times; what it returns is not looked at."""


class Figure(NamedTuple):
    """One row: microseconds per turn, and how that compares with the floor in the same run."""

    what: str
    name: str
    median: float
    low: float
    high: float
    ratio: float
    goal: str = ""


def compare(
    what: str,
    candidates: dict[str, Candidate],
    *,
    turns: int,
    goals: dict[str, str] | None = None,
    rounds: int = ROUNDS,
    clock: Callable[[], float] = time.perf_counter,
) -> list[Figure]:
    """Measure every candidate in each of the rounds; the first one is the floor."""
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for candidate in candidates.values():
        candidate(max(1, turns // 10))
    for _ in range(rounds):
        for name in random.sample(list(candidates), len(candidates)):
            begun = clock()
            candidates[name](turns)
            times[name].append((clock() - begun) / turns * 1_000_000)
    floor = times[next(iter(candidates))]
    return [
        Figure(
            what,
            name,
            statistics.median(taken),
            min(taken),
            max(taken),
            statistics.median(mine / base for mine, base in zip(taken, floor, strict=True)),
            (goals or {}).get(name, ""),
        )
        for name, taken in times.items()
    ]


def table(figures: list[Figure]) -> str:
    """The figures as a Markdown table."""
    lines = [
        "| what | who | median us | lowest | highest | ratio | goal |",
        "| --- | --- | ---: | ---: | ---: | ---: | --- |",
    ]
    lines += [
        f"| {row.what} | {row.name} | {row.median:.2f} | {row.low:.2f} | {row.high:.2f} "
        f"| {row.ratio:.2f} | {row.goal} |"
        for row in figures
    ]
    return "\n".join(lines)
