"""Peer: PALs, PostgreSQL's advisory locks through SQLAlchemy. pip: PALs."""

from __future__ import annotations

from functools import cache

from benchmarks.contenders.shape import PATIENCE

NAME = "PALs"
KIND = "peer"
STORE = "postgres"
REQUIRES = ("PALs==0.4.0", "sqlalchemy==2.1.9", "psycopg[binary]==3.3.9")
GIVES = "no lease: a connection each"
BLOCKING = True


@cache
def _locker(url: str):
    import pals

    return pals.Locker(
        "bench",
        url.replace("postgresql://", "postgresql+psycopg://"),
        acquire_timeout_default=PATIENCE * 1000,
    )


def make(url, key):
    locker = _locker(url)
    return lambda: locker.lock(key)
