"""Floor: PostgreSQL's advisory lock of a session, waited for in the server. Needs psycopg.

A connection is pinned to each waiter and to the holder; there is no lease, and none is needed
while the server sees the connection end.
"""

from __future__ import annotations

import zlib

from benchmarks.contenders.shape import Held

NAME = "advisory lock"
KIND = "floor"
STORE = "postgres"
GIVES = "no lease: a connection each"
BLOCKING = True


def make(url, key):
    import psycopg

    connection = psycopg.connect(url, autocommit=True, prepare_threshold=0)
    number = (zlib.crc32(key.encode()),)
    held = Held(
        lambda: connection.execute("select pg_advisory_lock(%s)", number),
        lambda: connection.execute("select pg_advisory_unlock(%s)", number),
    )
    return lambda: held
