"""What a subject hands back: tables, plots and goals, as data that can be kept and read again."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks import contenders
from benchmarks.measure import Compared, Figure


@dataclass
class Bar:
    """One line of a plot: a value, and between which it lay."""

    name: str
    kind: str
    value: float
    low: float
    high: float


@dataclass
class Plot:
    """Bars, or lines over a growing size."""

    title: str
    unit: str
    bars: list[Bar] = field(default_factory=list)
    lines: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    across: str = ""


@dataclass
class Table:
    """A Markdown table, the plot beside it, and what could not be measured."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    plot: Plot | None = None
    missing: dict[str, str] = field(default_factory=dict)


@dataclass
class Goal:
    """A line of the table of goals: ``measured`` and ``met`` come of the run."""

    what: str
    goal: str
    measured: str
    met: bool | None


@dataclass
class Result:
    """A subject's run."""

    subject: str
    tables: list[Table] = field(default_factory=list)
    goals: list[Goal] = field(default_factory=list)

    def as_data(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> Result:
        return cls(
            data["subject"],
            [Table(**{**table, "plot": _plot(table["plot"])}) for table in data["tables"]],
            [Goal(**goal) for goal in data["goals"]],
        )


def _plot(data: dict[str, Any] | None) -> Plot | None:
    if data is None:
        return None
    return Plot(**{**data, "bars": [Bar(**bar) for bar in data["bars"]]})


def at_most(what: str, goal: str, measured: float | None, limit: float, unit: str = "") -> Goal:
    """A goal that is met by a number not above the limit."""
    if measured is None:
        return Goal(what, goal, "not measured", None)
    return Goal(what, goal, f"{number(measured)}{unit}", measured <= limit)


def number(value: float) -> str:
    """Three figures that mean something."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def bar(name: str, contender: str, figure: Figure, scale: float = 1.0) -> Bar:
    """A line of a plot, of a comparison."""
    kind = contenders.load(contender).KIND
    return Bar(name, kind, figure.median * scale, figure.low * scale, figure.high * scale)


def cycle_table(title: str, compared: Compared, of: dict[str, str]) -> Table:
    """Who took how long for a cycle, in the order of speed; ``of`` is the contender of a name."""
    ordered = sorted(compared.figures.values(), key=lambda figure: figure.median)
    rows = [
        [
            _strong(figure.name, of),
            number(figure.median),
            f"{number(figure.low)} to {number(figure.high)}",
            number(figure.ratio),
            contenders.load(of[figure.name]).GIVES,
        ]
        for figure in ordered
    ]
    bars = [bar(figure.name, of[figure.name], figure) for figure in ordered]
    columns = ["who", "median, us", "rounds, us", "to the floor", "what it gives"]
    return Table(title, columns, rows, Plot(title, "us", bars), compared.failures)


def _strong(name: str, of: dict[str, str]) -> str:
    return f"**{name}**" if contenders.load(of[name]).KIND == "ours" else name
