"""Proof by faults: many processes on one store, killed, paused and cut off, and what they saw.

`run` starts workers (`joblock.verify.worker`) on a store, lets a nemesis torment them, and hands
the history that they wrote (`joblock.verify.history`) to a checker (`joblock.verify.checker`),
which finds every definite breach of what joblock promises.
"""

from __future__ import annotations

from joblock.verify.checker import check
from joblock.verify.history import History, read_history
from joblock.verify.lives import Bounds
from joblock.verify.report import Report
from joblock.verify.rules import Violation
from joblock.verify.run import Plan, run

__all__ = [
    "Bounds",
    "History",
    "Plan",
    "Report",
    "Violation",
    "check",
    "read_history",
    "run",
]
