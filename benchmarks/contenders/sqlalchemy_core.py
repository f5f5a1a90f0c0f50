"""Floor: SQLAlchemy Core doing the two statements of a lease, with a pooled connection each.

Over psycopg 3 for threads, over asyncpg for tasks. Needs sqlalchemy[asyncio], psycopg, asyncpg.
"""

from __future__ import annotations

from functools import cache

from benchmarks.contenders.shape import (
    POSTGRES_FREE,
    POSTGRES_TABLE,
    POSTGRES_TAKE,
    AsyncHeld,
    Held,
)

NAME = "SQLAlchemy Core"
KIND = "floor"
STORE = "postgres"
GIVES = "lease, token; tries once"
BLOCKING = False


@cache
def _engine(url: str):
    import sqlalchemy

    engine = sqlalchemy.create_engine(
        url.replace("postgresql://", "postgresql+psycopg://"), isolation_level="AUTOCOMMIT"
    )
    with engine.connect() as connection:
        connection.execute(sqlalchemy.text(POSTGRES_TABLE))
    return engine


@cache
def _async_engine(url: str):
    from sqlalchemy.ext.asyncio import create_async_engine

    return create_async_engine(
        url.replace("postgresql://", "postgresql+asyncpg://"), isolation_level="AUTOCOMMIT"
    )


def _statements():
    from sqlalchemy import text

    names = ":key", ":holder"
    return text(POSTGRES_TAKE.format(*names)), text(POSTGRES_FREE.format(*names))


def make(url, key):
    engine = _engine(url)
    values = {"key": key, "holder": "me"}

    def run(statement):
        with engine.connect() as connection:
            assert connection.execute(statement, values).fetchone()

    take, free = _statements()
    held = Held(lambda: run(take), lambda: run(free))
    return lambda: held


def make_async(url, key):
    _engine(url)
    engine = _async_engine(url)
    values = {"key": key, "holder": "me"}

    async def run(statement):
        async with engine.connect() as connection:
            assert (await connection.execute(statement, values)).fetchone()

    take, free = _statements()
    held = AsyncHeld(lambda: run(take), lambda: run(free))
    return lambda: held
