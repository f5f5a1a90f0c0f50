"""Floor: the same two commands through redis-py's Connection, below its client. Needs redis."""

from __future__ import annotations

from functools import cache

from benchmarks.contenders.shape import DELETE, AsyncHeld, Held

NAME = "redis-py Connection"
KIND = "floor"
STORE = "redis"
GIVES = "lease; tries once"
BLOCKING = False


@cache
def _connection(url: str):
    import redis

    connection = redis.ConnectionPool.from_url(url).make_connection()
    connection.connect()
    connection.send_command("SCRIPT", "LOAD", DELETE)
    return connection, connection.read_response().decode()


def make(url, key):
    connection, sha = _connection(url)

    def take():
        connection.send_command("SET", key, "me", "NX", "PX", 30_000)
        assert connection.read_response() in {b"OK", "OK"}

    def free():
        connection.send_command("EVALSHA", sha, 1, key, "me")
        assert connection.read_response() == 1

    held = Held(take, free)
    return lambda: held


_lines: dict[str, object] = {}


def make_async(url, key):
    import redis.asyncio

    _, sha = _connection(url)

    async def ask(*command):
        line = _lines.get(url)
        if line is None:
            line = _lines[url] = redis.asyncio.ConnectionPool.from_url(url).make_connection()
            await line.connect()
        await line.send_command(*command)
        return await line.read_response()

    async def take():
        assert await ask("SET", key, "me", "NX", "PX", 30_000) in {b"OK", "OK"}

    async def free():
        assert await ask("EVALSHA", sha, 1, key, "me") == 1

    held = AsyncHeld(take, free)
    return lambda: held
