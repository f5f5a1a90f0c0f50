"""Floor: psycopg 3 doing the two statements of a lease, prepared. Needs psycopg."""

from __future__ import annotations

from functools import cache

from benchmarks.contenders.shape import (
    POSTGRES_FREE,
    POSTGRES_TABLE,
    POSTGRES_TAKE,
    AsyncHeld,
    Held,
)

NAME = "psycopg, prepared"
KIND = "floor"
STORE = "postgres"
GIVES = "lease, token; tries once"
BLOCKING = False

_TAKE = POSTGRES_TAKE.format("%s", "%s")
_FREE = POSTGRES_FREE.format("%s", "%s")


@cache
def _connection(url: str):
    import psycopg

    connection = psycopg.connect(url, autocommit=True, prepare_threshold=0)
    connection.execute(POSTGRES_TABLE)
    return connection


def make(url, key):
    connection = _connection(url)

    def take():
        assert connection.execute(_TAKE, (key, "me")).fetchone()

    def free():
        assert connection.execute(_FREE, (key, "me")).fetchone()

    held = Held(take, free)
    return lambda: held


_lines: dict[str, object] = {}


def make_async(url, key):
    import psycopg

    _connection(url)

    async def ask(statement):
        line = _lines.get(url)
        if line is None:
            line = _lines[url] = await psycopg.AsyncConnection.connect(
                url, autocommit=True, prepare_threshold=0
            )
        cursor = await line.execute(statement, (key, "me"))
        assert await cursor.fetchone()

    held = AsyncHeld(lambda: ask(_TAKE), lambda: ask(_FREE))
    return lambda: held
