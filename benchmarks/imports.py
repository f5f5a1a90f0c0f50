"""What importing joblock costs beyond starting Python, in processes of their own."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

from benchmarks.measure import Candidate, Figure, compare

_PEERS = ("fasteners", "filelock", "redis")


def figures() -> list[Figure]:
    """Milliseconds stand in the column of microseconds: a turn is a thousandth of a start."""
    candidates: dict[str, Candidate] = {
        "python": _start("pass"),
        "import joblock": _start("import joblock"),
        "from joblock import JobLocks": _start("from joblock import JobLocks"),
        "import asyncio": _start("import asyncio"),
    }
    candidates |= {f"import {peer}": _start(f"import {peer}") for peer in _PEERS if find_spec(peer)}
    return compare(
        "start of a process, in ms",
        candidates,
        turns=1_000,
        rounds=15,
        goals={"import joblock": "at most 30 ms more than python"},
    )


def _start(code: str) -> Candidate:
    def run(turns: int) -> None:
        if turns == 1_000:
            subprocess.run([sys.executable, "-c", code], check=True)

    return run
