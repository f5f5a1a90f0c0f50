"""Measure everything, or what is named: ``python -m benchmarks [--quick] [--write] [NAME...]``.

``--quick`` takes a tenth of the time, to see whether it works: its figures mean nothing.
``--write`` writes what was measured into docs/speed.md and docs/speed/, subject by subject, so
that a run that is cut short has written what it got to.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import time
import traceback

from benchmarks import contenders, page
from benchmarks.result import Result
from benchmarks.subjects import SUBJECTS, Bench, measure


def main() -> int:
    """Print each subject's tables as they come; 1 if a subject could not be measured."""
    read = argparse.ArgumentParser(prog="python -m benchmarks")
    read.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SUBJECTS))
    read.add_argument("--quick", action="store_true", help="a tenth of the time, not to be trusted")
    read.add_argument("--write", action="store_true", help="into docs/speed.md and docs/speed/")
    given = read.parse_args()
    unknown = set(given.names) - set(SUBJECTS)
    if unknown:
        read.error(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(SUBJECTS)}")
    logging.disable(logging.CRITICAL)
    # So that what was started is stopped, as after an interrupt.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    absent = [name for name in contenders.names() if contenders.python(name) is None]
    if absent:
        print(f"left out, not installed: {', '.join(absent)} (python -m benchmarks.peers)\n")
    failed = [name for name in given.names or SUBJECTS if not _measure(name, given)]
    if failed:
        print(f"could not be measured: {', '.join(failed)}")
    return 1 if failed else 0


def _measure(name: str, given: argparse.Namespace) -> bool:
    begun = time.monotonic()
    try:
        result = measure(name, Bench(quick=given.quick))
    except Exception:  # noqa: BLE001 - the others are to be measured all the same
        traceback.print_exc()
        return False
    _show(result)
    print(f"({name} took {time.monotonic() - begun:.0f} s)\n", flush=True)
    if given.write:
        page.keep(result, quick=given.quick)
    return True


def _show(result: Result) -> None:
    for found in result.tables:
        print(f"## {found.title}\n\n{page.table(found)}\n")
    if result.goals:
        print(f"{page.goals_table(result.goals)}\n")


if __name__ == "__main__":
    raise SystemExit(main())
