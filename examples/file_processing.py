"""Workers that share a folder of files: each file is processed by one of them, once.

    python file_processing.py inbox/ done/       # as many as you like, at any time

The key is computed from the arguments, one for each file, so that workers are in each other's way
only where they want the same one: that is skipped (`wait=False`, the default). A worker may have
listed a file before another was done with it, so it looks again once it has the lease.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from joblock import JobLocks


def process(path: Path, done: Path) -> bool:
    """Process one file and move it away; False if another was faster."""
    if not path.exists():
        return False
    words = len(path.read_text(encoding="utf-8").split())
    with (done / "processed.log").open("a", encoding="utf-8") as log:
        log.write(f"{path.name} {words}\n")
    path.rename(done / path.name)
    return True


def main() -> None:
    """Process what is there."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("inbox", type=Path)
    parser.add_argument("done", type=Path)
    parser.add_argument("--url", help="where the leases are kept; an SQLite file by default")
    options = parser.parse_args()

    with JobLocks(options.url) as locks:
        job = locks.job(name=lambda path, done: f"file:{path.name}", max_duration="30m")(process)
        outcomes = [job(path, options.done) for path in sorted(options.inbox.glob("*.txt"))]
    print(sum(outcome.value is True for outcome in outcomes), "processed")


if __name__ == "__main__":
    main()
