"""Eight processes hand one key on: who hands it to the next fastest, in what order, at what cost.

What the three hand-off subjects share. A turn's work takes a millisecond, so that whoever has
released is in the queue again before the next release: the gap is then that of a settled queue.
"""

from __future__ import annotations

import itertools
import random
import statistics

from benchmarks import contenders
from benchmarks.fleet import Crew, Failed, HandOff, hand_off
from benchmarks.result import Bar, Plot, Table, number
from benchmarks.servers import Store
from benchmarks.subjects import Bench

PROCESSES = 8

_keys = itertools.count(1)


class Handing:
    """The runs of some contenders on one store."""

    def __init__(self, bench: Bench, store: Store, names: dict[str, tuple[str, str]]) -> None:
        self.store = store
        self.names = names
        """By what the table shows: the contender, and whether threads or tasks wait."""
        self.runs: dict[str, list[HandOff]] = {name: [] for name in names}
        self.commands: dict[str, float] = {}
        self.failures: dict[str, str] = {}
        for _ in bench.rounds(most=5, least=3, seconds=100.0):
            for name in random.sample(list(names), len(names)):
                if name not in self.failures:
                    self._run(name, max(0.3, bench.seconds(1.0)))
        for name in names:
            if name not in self.failures and not bench.over:
                self._count(name, max(0.3, bench.seconds(1.0)))

    def _run(self, name: str, seconds: float) -> None:
        try:
            self.runs[name].append(self._hand_off(name, seconds))
        except Failed as failure:
            self.failures[name] = str(failure)

    def _count(self, name: str, seconds: float) -> None:
        try:
            commands = self._hand_off(name, seconds, count=True).commands
        except Failed:
            return  # its times are known
        if commands is not None:
            self.commands[name] = commands

    def _hand_off(self, name: str, seconds: float, *, count: bool = False) -> HandOff:
        self.store.empty()
        contender, mode = self.names[name]
        crew, key = Crew(PROCESSES, 1, mode), f"handoff{next(_keys)}"
        return hand_off(contender, self.store, crew, seconds, key=key, count=count)

    def median(self, name: str) -> float | None:
        """Milliseconds; the median of the rounds' medians."""
        runs = self.runs.get(name)
        return statistics.median(run.median for run in runs) if runs else None

    def table(self, title: str) -> Table:
        known = [name for name in self.names if self.runs[name] and name not in self.failures]
        known.sort(key=lambda name: self.median(name) or 0.0)
        rows = [self._row(name) for name in known]
        columns = ["who", "median, ms", "99 of 100, ms"]
        columns += ["commands", "in order", "what it gives"]
        plot = Plot(title, "ms", [self._bar(name) for name in known])
        return Table(title, columns, rows, plot, self.failures)

    def in_order(self, name: str) -> float | None:
        """The lowest share of any round."""
        shares = [run.in_order for run in self.runs.get(name, []) if run.in_order is not None]
        return min(shares, default=None)

    def _row(self, name: str) -> list[str]:
        runs = self.runs[name]
        contender = contenders.load(self.names[name][0])
        overlaps = sum(run.overlaps for run in runs)
        shown = f"**{name}**" if contender.KIND == "ours" else name
        count, share = self.commands.get(name), self.in_order(name)
        return [
            shown,
            number(self.median(name) or 0.0),
            number(statistics.median(run.high for run in runs)),
            "" if count is None else number(count),
            "" if share is None else f"{share * 100:.0f}%",
            contender.GIVES + (f"; **{overlaps} turns overlapped**" if overlaps else ""),
        ]

    def _bar(self, name: str) -> Bar:
        medians = [run.median for run in self.runs[name]]
        kind = contenders.load(self.names[name][0]).KIND
        return Bar(name, kind, statistics.median(medians), min(medians), max(medians))


def everybody(threads: tuple[str, ...], tasks: tuple[str, ...]) -> dict[str, tuple[str, str]]:
    """What the table shows, of contenders; tasks are said to be so."""
    shown = {contenders.load(name).NAME: (name, "threads") for name in threads}
    return shown | {f"{contenders.load(name).NAME}, tasks": (name, "tasks") for name in tasks}
