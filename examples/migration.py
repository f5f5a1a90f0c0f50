"""A migration that every container runs at its start: one does it, the others wait, then all serve.

    python migration.py shop.db                  # in as many terminals as you like
    python migration.py --url redis://... shop.db

`join=True` is what makes the others wait for the run in progress and count it as theirs. If that
run fails or its process dies, one of those who wait runs in its stead. Whoever comes after the end
runs again, so a migration looks first whether there is anything to do, as migration tools do.
"""

from __future__ import annotations

import argparse
import sqlite3
import time
from contextlib import closing

from joblock import JobLocks

VERSION = 1


def migrate(database: str) -> bool:
    """Bring the database to the current version; whether there was anything to do."""
    with closing(sqlite3.connect(database)) as connection, connection:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version >= VERSION:
            return False
        connection.execute("CREATE TABLE product (name TEXT PRIMARY KEY, stock INTEGER)")
        time.sleep(0.2)  # a table of some size
        connection.execute(f"PRAGMA user_version = {VERSION}")
    return True


def main() -> None:
    """Migrate, or wait for whoever does; then serve."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("database")
    parser.add_argument("--url", help="where the leases are kept; an SQLite file by default")
    options = parser.parse_args()

    with JobLocks(options.url) as locks:
        run = locks.job(name="migrate", join=True, max_duration="1h")(migrate)
        outcome = run(options.database)
    print("migrated" if outcome.value else "nothing to migrate", outcome.reason)

    with closing(sqlite3.connect(options.database)) as connection:
        (count,) = connection.execute("SELECT count(*) FROM product").fetchone()
    print("serving", count)


if __name__ == "__main__":
    main()
