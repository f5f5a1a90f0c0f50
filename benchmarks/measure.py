"""How a figure is taken: candidates in shuffled rounds, the median of each, ratios to the first.

Machines are shared and noisy, so an absolute time says little. What is compared is measured turn
about in one run: whatever disturbs one round disturbs all of its candidates alike. A candidate
that fails is left out of the rest, and why is kept.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

ROUNDS = 9

Candidate = Callable[[int], object]
"""Does the thing that many times; returns the seconds that took as a float, or is timed."""


class Figure(NamedTuple):
    """One row: microseconds per turn, and how that compares with the floor in the same run."""

    name: str
    median: float
    low: float
    high: float
    ratio: float


class Compared(NamedTuple):
    """What came of a comparison: the figures by name, and why the others have none."""

    figures: dict[str, Figure]
    failures: dict[str, str]
    times: dict[str, list[float]]

    def ratio(self, name: str, base: str) -> float | None:
        """How one compares with another: the median of the rounds' ratios."""
        if name in self.figures and base in self.figures:
            return _ratio(self.times[name], self.times[base])
        return None


def compare(
    candidates: dict[str, Candidate],
    *,
    rounds: int = ROUNDS,
    turns: int = 0,
    seconds: float = 0.3,
) -> Compared:
    """Measure every candidate in each of the rounds; the first one is the floor.

    Each does ``turns`` turns a round, or as many as fit into ``seconds``.
    """
    failures: dict[str, str] = {}
    many = {
        name: count
        for name, candidate in candidates.items()
        if (count := _warm_up(name, candidate, turns, seconds, failures))
    }
    times: dict[str, list[float]] = {name: [] for name in many}
    for _ in range(rounds):
        for name in random.sample(list(many), len(many)):
            if name in failures:
                continue
            taken = _timed(name, candidates[name], many[name], failures)
            if taken is not None:
                times[name].append(taken / many[name] * 1_000_000)
    kept = {name: taken for name, taken in times.items() if name not in failures and taken}
    base = kept.get(next(iter(candidates))) or next(iter(kept.values()), [])
    figures = {name: _figure(name, taken, base) for name, taken in kept.items()}
    return Compared(figures, failures, kept)


def _figure(name: str, taken: list[float], base: list[float]) -> Figure:
    return Figure(
        name,
        statistics.median(taken),
        min(taken),
        max(taken),
        _ratio(taken, base),
    )


def _ratio(taken: list[float], base: list[float]) -> float:
    return statistics.median(mine / floor for mine, floor in zip(taken, base, strict=True))


def _warm_up(
    name: str, candidate: Candidate, turns: int, seconds: float, failures: dict[str, str]
) -> int:
    """Let it connect and prepare, and find how many turns make a round; 0 if it cannot.

    The first turn imports, connects and makes tables: how long it takes says nothing of the others.
    """
    count = max(1, turns // 10) if turns else 1
    if _timed(name, candidate, count, failures) is None:
        return 0
    if turns:
        return turns
    while True:
        # The shorter of two: something else may have come between.
        first = _timed(name, candidate, count, failures)
        second = _timed(name, candidate, count, failures)
        if first is None or second is None:
            return 0
        taken = min(first, second)
        if taken > seconds / 5 or count >= 100_000:
            return max(1, round(count * seconds / max(taken, 1e-9)))
        count *= 4


def _timed(name: str, candidate: Candidate, turns: int, failures: dict[str, str]) -> float | None:
    try:
        begun = time.perf_counter()
        own = candidate(turns)
        return own if isinstance(own, float) else time.perf_counter() - begun
    except Exception as error:  # noqa: BLE001 - one that fails must not end the others' run
        failures[name] = f"{error}" or type(error).__name__
        return None
