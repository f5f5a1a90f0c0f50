"""Leaves the store as it was: the keys of a run, and what the tables remember of them.

Nothing else uses these keys, whose prefix is drawn for the run, so their rows can go at once, and
not only when the store would purge them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing, suppress
from typing import Any

from joblock import JobLocks
from joblock.store.ops import Force
from joblock.values.names import full_key
from joblock.verify.operations import KEYS


def sweep(url: str, prefix: str, clients: Iterable[str]) -> None:
    """Break what is left of the run's leases, then delete its rows."""
    with JobLocks(url, prefix=prefix, label="joblock verify") as locks:
        # Not by `model.delete`, which tells of each: to break what workers left is no news here.
        driver = locks.store.driver()
        for key in KEYS:
            driver.call(Force(full_key(prefix, key), "joblock verify", "its end"))
        scheme = locks.store.url.partition(":")[0]
        if scheme == "sqlite":
            _sweep_sqlite(locks.store, prefix, list(clients))
        elif scheme in {"postgresql", "postgres"}:
            _sweep_postgres(url, prefix)
        elif scheme.partition("+")[0] in {"redis", "rediss", "valkey", "valkeys"}:
            _sweep_redis(locks.store, prefix)


def _sweep_sqlite(store: Any, prefix: str, clients: list[str]) -> None:
    with closing(sqlite3.connect(store.file.path, timeout=10)) as data, data:
        for table in ("job_locks", "permits", "waiters"):
            data.execute(
                f"DELETE FROM {table} WHERE substr(key, 1, ?) = ?",  # noqa: S608 - names of ours
                (len(prefix), prefix),
            )
        data.executemany("DELETE FROM presence WHERE client = ?", [(name,) for name in clients])


def _sweep_postgres(url: str, prefix: str) -> None:
    import psycopg

    from joblock.stores.postgres.connect import read_url
    from joblock.stores.postgres.ddl import DEFAULT_SCHEMA, quoted

    read = read_url(url)
    schema = quoted(read.schema or DEFAULT_SCHEMA)
    with psycopg.connect(read.conninfo) as connection:
        for table in ("permits", "waiters", "presence"):
            _delete(connection, f"{schema}.job_lock_{table}", prefix)
        _delete(connection, f"{schema}.job_locks", prefix)


def _delete(connection: Any, table: str, prefix: str) -> None:
    statement = f"delete from {table} where starts_with(key, %s)"  # noqa: S608 - names of ours
    connection.execute(statement.encode(), (prefix,))


def _sweep_redis(store: Any, prefix: str) -> None:
    """Wherever they are; what cannot be deleted the server lets go by itself in some minutes."""
    from joblock.stores.redis.commands import KEYS as NAMES
    from joblock.stores.redis.route import BROKEN
    from joblock.stores.redis.scripts import packed_keys
    from joblock.stores.redis.sync import Connection

    driver, target = store.driver(), store._target  # noqa: SLF001
    names = [packed_keys(full_key(prefix, key)) for key in KEYS]
    # What belongs to one key is in one slot of a cluster, and other nodes refuse to delete it.
    commands = [b"*%d\r\n$3\r\nDEL\r\n%b" % (1 + NAMES, each) for each in names]
    with suppress(*BROKEN):
        for place in driver.run(driver.route.every()):
            with closing(Connection(target.shown, place, target.login)) as connection:
                connection.ask(b"".join(commands), len(commands))
