"""Peer: postgres-mutex, a row and a heartbeat; waits by asking every 0.5 s. pip: postgres-mutex."""

from __future__ import annotations

NAME = "postgres-mutex"
KIND = "peer"
STORE = "postgres"
REQUIRES = ("postgres-mutex==0.1.0", "psycopg[binary]==3.3.9")
GIVES = "lease, renewed"
BLOCKING = True


def make(url, key):
    import psycopg
    from postgres_mutex import Mutex

    mutex = Mutex(dsn=url, lock_name=key)
    with psycopg.connect(url) as connection:  # one after the other, when many begin at once
        connection.execute("select pg_advisory_xact_lock(1)")
        mutex.create_schema()
    return lambda: mutex.acquire(blocking=True)
