"""Measure everything, or what is named: ``python -m benchmarks [memory|embedded|imports|renewal]``.

Pin it to one core for figures that repeat: ``taskset -c 1 python -m benchmarks``.
"""

from __future__ import annotations

import logging
import platform
import sqlite3
import sys

from benchmarks import embedded, imports, memory, renewal
from benchmarks.measure import table

SUBJECTS = {
    "memory": memory.figures,
    "embedded": embedded.figures,
    "imports": imports.figures,
    "renewal": renewal.figures,
}


def main(names: list[str]) -> None:
    """Print one table, and what it was measured with."""
    unknown = set(names) - SUBJECTS.keys()
    if unknown:
        sys.exit(
            f"there is no benchmark {', '.join(sorted(unknown))}; there are {', '.join(SUBJECTS)}"
        )
    logging.disable(logging.WARNING)
    found = [figure for name in names or SUBJECTS for figure in SUBJECTS[name]()]
    print(table(found))
    print(
        f"\nPython {platform.python_version()}, SQLite {sqlite3.sqlite_version}, "
        f"{platform.system()} {platform.release()}, {platform.machine()}"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
