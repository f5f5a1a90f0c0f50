"""Floor: the same two commands through redis-py's client, sync and asyncio. Needs redis."""

from __future__ import annotations

from functools import cache

from benchmarks.contenders.shape import DELETE, MANY, AsyncHeld, Held

NAME = "redis-py client"
KIND = "floor"
STORE = "redis"
GIVES = "lease; tries once"
BLOCKING = False


@cache
def _client(url: str):
    import redis

    client = redis.Redis.from_url(url)
    return client, client.script_load(DELETE)


@cache
def _async_client(url: str):
    import redis.asyncio

    return redis.asyncio.Redis.from_url(url, max_connections=MANY)


def make(url, key):
    client, sha = _client(url)

    def take():
        assert client.set(key, "me", nx=True, px=30_000)

    def free():
        assert client.evalsha(sha, 1, key, "me") == 1

    held = Held(take, free)
    return lambda: held


def make_async(url, key):
    _, sha = _client(url)
    client = _async_client(url)

    async def take():
        assert await client.set(key, "me", nx=True, px=30_000)

    async def free():
        assert await client.evalsha(sha, 1, key, "me") == 1

    held = AsyncHeld(take, free)
    return lambda: held
