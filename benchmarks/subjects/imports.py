"""What importing joblock costs beyond starting Python, in processes of their own."""

from __future__ import annotations

import subprocess
import sys

from benchmarks import contenders
from benchmarks.measure import Candidate, compare
from benchmarks.result import Goal, Result, Table, at_most, number
from benchmarks.subjects import Bench

PEERS = {"fasteners": "fasteners_lock", "filelock": "filelock_lock", "redis": ""}
BARE, OURS = "python", "import joblock"
UNWANTED = ("asyncio", "redis", "psycopg", "asyncpg", "sqlalchemy")


def run(bench: Bench) -> Result:
    """A start of Python each, with one import more."""
    candidates: dict[str, Candidate] = {
        BARE: _start("pass"),
        OURS: _start(OURS),
        "from joblock import JobLocks": _start("from joblock import JobLocks"),
        "import asyncio": _start("import asyncio"),
    }
    for name, peer in PEERS.items():
        python = contenders.python(peer) if peer else sys.executable
        if python is not None:
            candidates[f"import {name}"] = _start(f"import {name}", python)
    found = compare(candidates, turns=1, rounds=bench.turns_about(15))
    base = found.figures[BARE].median
    rows = [
        [
            f"**{figure.name}**" if "joblock" in figure.name else figure.name,
            number(figure.median / 1000),
            f"{number(figure.low / 1000)} to {number(figure.high / 1000)}",
            f"{(figure.median - base) / 1000:.1f}",
        ]
        for figure in found.figures.values()
    ]
    columns = ["what", "median, ms", "rounds, ms", "beyond python, ms"]
    ours = found.figures.get(OURS)
    return Result(
        "imports",
        [Table("start of a process", columns, rows, None, found.failures)],
        [
            at_most(
                "import joblock",
                "at most 30 ms beyond python",
                (ours.median - base) / 1000 if ours else None,
                30,
                " ms",
            ),
            _nothing_more(),
        ],
    )


def _start(code: str, python: str = sys.executable) -> Candidate:
    def run(turns: int) -> None:
        for _ in range(turns):
            subprocess.run([python, "-c", code], check=True, capture_output=True)

    return run


def _nothing_more() -> Goal:
    code = f"import joblock, sys; print(*(n for n in {UNWANTED} if n in sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.strip()
    goal = "neither a driver nor asyncio"
    return Goal("what import joblock loads", goal, loaded or "neither", not loaded)
