"""Write a run into docs/speed.md: its tables between the page's markers, its plots beside it.

What was measured is kept in docs/speed/results.json, so that a run of one subject replaces that
one and leaves the others as they are.
"""

from __future__ import annotations

import json
import os
import platform
import re
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks import contenders
from benchmarks.plot import svg
from benchmarks.result import Goal, Result, Table

PAGE = contenders.ROOT / "docs" / "speed.md"
FOLDER = contenders.ROOT / "docs" / "speed"
KEPT = FOLDER / "results.json"

_DRIVERS = ("redis", "psycopg", "asyncpg", "SQLAlchemy")


def keep(result: Result, *, quick: bool) -> None:
    """Take a subject's run in, and write the page anew."""
    FOLDER.mkdir(exist_ok=True)
    known = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    known[result.subject] = {"taken": taken(quick=quick), **result.as_data()}
    KEPT.write_text(json.dumps(known, indent=1) + "\n")
    write(known)


def write(known: dict[str, Any]) -> None:
    """The page and its plots, from what was measured."""
    text = PAGE.read_text(encoding="utf-8")
    results = {name: Result.from_data(_without_taken(data)) for name, data in known.items()}
    wanted: set[str] = set()
    for name, result in results.items():
        plots = _plots(result)
        for file, picture in plots.items():
            (FOLDER / file).write_text(picture, encoding="utf-8")
        wanted |= plots.keys()
        text = _between(text, name, _section(result, known[name]["taken"]))
    goals = [goal for name in _subjects(text) if name in results for goal in results[name].goals]
    text = _between(text, "goals", goals_table(goals))
    for old in FOLDER.glob("*.svg"):
        if old.name not in wanted:
            old.unlink()
    PAGE.write_text(text, encoding="utf-8")


def table(found: Table) -> str:
    """As Markdown."""
    sides = ["---" if place == 0 else "---:" for place in range(len(found.columns))]
    for place, column in enumerate(found.columns):
        if column in {"who", "in", "what it gives", "eight", "goal", "met"}:
            sides[place] = "---"
    lines = [found.columns, sides, *found.rows]
    text = "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)
    for why in dict.fromkeys(found.missing.values()):
        names = [name for name, said in found.missing.items() if said == why]
        text += f"\n\nNot measured ({_cell(why)}): {'; '.join(names)}."
    return text


def goals_table(goals: list[Goal]) -> str:
    """Each goal, what the run came to, and whether that meets it."""
    said = {True: "met", False: "**missed**", None: ""}
    rows = [[goal.what, goal.goal, goal.measured, said[goal.met]] for goal in goals]
    return table(Table("", ["what", "goal", "measured", "met"], rows))


def taken(*, quick: bool) -> str:
    """When, on what, and with what."""
    parts = [
        f"{datetime.now(UTC):%Y-%m-%d}",
        f"{_processor()}, {os.cpu_count()} cores",
        f"{platform.system()} {platform.release()}",
        f"Python {platform.python_version()}",
        f"joblock {version('joblock')}",
        *(f"{name} {version(name)}" for name in _DRIVERS),
    ]
    if quick:
        parts.append("a quick run: not to be relied on")
    return "; ".join(parts)


def _processor() -> str:
    facts = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*: (.*)", facts.read_text()) if facts.exists() else None
    return found[1].strip() if found else platform.machine()


def _section(result: Result, when: str) -> str:
    parts: list[str] = []
    for place, found in enumerate(result.tables):
        parts.append(f"**{found.title}**")
        if found.plot is not None:
            parts.append(f"![{found.title}](speed/{_file(result, place)})")
        parts.append(table(found))
    parts.append(f"<small>{when}.</small>")
    return "\n\n".join(parts)


def _plots(result: Result) -> dict[str, str]:
    return {
        _file(result, place): svg(found.plot)
        for place, found in enumerate(result.tables)
        if found.plot is not None and (found.plot.bars or found.plot.lines)
    }


def _file(result: Result, place: int) -> str:
    return f"{result.subject.replace('_', '-')}-{place + 1}.svg"


def _between(text: str, name: str, inside: str) -> str:
    begin, end = f"<!-- measured: {name} -->", f"<!-- end: {name} -->"
    head, found, rest = text.partition(begin)
    _, closed, tail = rest.partition(end)
    if not found or not closed:
        raise SystemExit(f"{PAGE.name} has no place for {name}: {begin} ... {end}")
    return f"{head}{begin}\n\n{inside}\n\n{end}{tail}"


def _subjects(text: str) -> list[str]:
    return re.findall(r"<!-- measured: (\w+) -->", text)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _without_taken(data: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key != "taken"}
