"""What is measured, a module each; ``run(bench)`` returns a `benchmarks.result.Result`.

Each is bounded to about two minutes, a tenth of it with ``--quick``.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from importlib import import_module
from typing import NamedTuple

from benchmarks.result import Result

SUBJECTS = (
    "memory",
    "embedded",
    "redis",
    "postgres",
    "handoff_redis",
    "handoff_postgres",
    "handoff_embedded",
    "queue",
    "waiting",
    "crowd",
    "renewal",
    "holding",
    "growth",
    "imports",
)


LIMIT = 240.0
"""Seconds after which a subject begins nothing more, on a machine that is slower than expected."""

OVER = "left out: the subject's time was over"


class Bench(NamedTuple):
    """How long to measure."""

    quick: bool = False
    until: float = math.inf

    @property
    def over(self) -> bool:
        return time.monotonic() > self.until

    def seconds(self, full: float) -> float:
        return full / 10 if self.quick else full

    def many(self, full: int) -> int:
        """So many things, or a tenth of them."""
        return max(1, full // 10) if self.quick else full

    def turns_about(self, full: int) -> int:
        """Rounds of a comparison; five or more where figures are to mean something."""
        return 2 if self.quick else full

    def rounds(self, most: int = 7, least: int = 5, seconds: float = 90.0) -> Iterator[int]:
        """Rounds until the time is over, but never fewer than the least."""
        end = time.monotonic() + self.seconds(seconds)
        for number in range(1 if self.quick else most):
            if number >= least and time.monotonic() > end:
                return
            yield number


def measure(name: str, bench: Bench) -> Result:
    """Run a subject, from now on."""
    bench = bench._replace(until=time.monotonic() + (LIMIT / 3 if bench.quick else LIMIT))
    return import_module(f"benchmarks.subjects.{name}").run(bench)
