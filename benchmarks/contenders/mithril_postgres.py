"""Peer: mithril-locks on PostgreSQL, through SQLAlchemy. pip: mithril-locks[postgres]."""

from __future__ import annotations

import uuid
from functools import cache

from benchmarks.contenders.shape import PATIENCE, TTL

NAME = "mithril-locks"
KIND = "peer"
STORE = "postgres"
REQUIRES = ("mithril-locks[postgres]==0.1.0",)
GIVES = "lease; fencing token"
BLOCKING = True


@cache
def _backend(url: str):
    from mithril import Lock
    from mithril.backends import PostgresBackend
    from sqlalchemy import create_engine, text

    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg2://"))
    # It makes its tables at the first use: one after the other, when many begin at once.
    with engine.begin() as connection:
        connection.execute(text("select pg_advisory_xact_lock(1)"))
        backend = PostgresBackend(engine)
        with Lock(uuid.uuid4().hex, backend=backend, ttl=TTL, timeout=PATIENCE):
            pass
    return backend


def make(url, key):
    from mithril import Lock

    backend = _backend(url)
    return lambda: Lock(key, backend=backend, ttl=TTL, timeout=PATIENCE)
