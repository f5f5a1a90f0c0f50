"""Floor: asyncpg doing the two statements of a lease, prepared. Needs asyncpg."""

from __future__ import annotations

from benchmarks.contenders.shape import POSTGRES_FREE, POSTGRES_TABLE, POSTGRES_TAKE, AsyncHeld

NAME = "asyncpg, prepared"
KIND = "floor"
STORE = "postgres"
GIVES = "lease, token; tries once"
BLOCKING = False

_lines: dict[str, tuple] = {}


async def _line(url):
    import asyncpg

    connection = await asyncpg.connect(url)
    await connection.execute(POSTGRES_TABLE)
    return (
        await connection.prepare(POSTGRES_TAKE.format("$1", "$2")),
        await connection.prepare(POSTGRES_FREE.format("$1", "$2")),
    )


def make_async(url, key):
    async def take():
        if url not in _lines:
            _lines[url] = await _line(url)
        assert await _lines[url][0].fetchval(key, "me")

    async def free():
        assert await _lines[url][1].fetchval(key, "me")

    held = AsyncHeld(take, free)
    return lambda: held
