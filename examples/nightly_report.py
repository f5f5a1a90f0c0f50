"""A report that is due every night at three, on every machine, and is made once a night.

    0 3 * * *  python nightly_report.py reports/     # the crontab of each machine

The clocks of the machines disagree by minutes: the last to wake finds the key free, and a lock
alone would let it make the report again. `occurrence` says which night a run is for. The store
remembers the newest one that ended well: who comes for that one, or an older one, is told "done".
"""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from pathlib import Path

from joblock import JobLocks
from joblock.occurrence import tick


def night(reports: Path, now: datetime) -> datetime:
    """The night that it is by this machine's clock."""
    del reports
    return tick("0 3 * * *", "Europe/Berlin", now=now)


def report(reports: Path, now: datetime) -> Path:
    """Make the report of the night."""
    file = reports / f"{night(reports, now):%Y-%m-%d}.txt"
    with file.open("a", encoding="utf-8") as out:
        out.write("all is well\n")
    return file


def main() -> None:
    """Make the report, unless it was made."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("reports", type=Path)
    parser.add_argument("--now", type=datetime.fromisoformat, help="another clock than this one's")
    parser.add_argument("--url", help="where the leases are kept; an SQLite file by default")
    options = parser.parse_args()
    options.reports.mkdir(parents=True, exist_ok=True)

    with JobLocks(options.url) as locks:
        job = locks.job(name="nightly-report", occurrence=night)(report)
        outcome = job(options.reports, options.now or datetime.now(UTC))
    print(outcome.reason)


if __name__ == "__main__":
    main()
