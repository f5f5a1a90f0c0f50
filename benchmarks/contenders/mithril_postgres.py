"""Peer: mithril-locks on PostgreSQL, through SQLAlchemy. pip: mithril-locks[postgres]."""

from __future__ import annotations

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
    from mithril.backends import PostgresBackend
    from sqlalchemy import create_engine

    return PostgresBackend(create_engine(url.replace("postgresql://", "postgresql+psycopg2://")))


def make(url, key):
    from mithril import Lock

    backend = _backend(url)
    return lambda: Lock(key, backend=backend, ttl=TTL, timeout=PATIENCE)
