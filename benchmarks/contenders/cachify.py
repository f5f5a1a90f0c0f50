"""Peer: py-cachify's lock on Redis, sync and asyncio; asks every 0.1 s. pip: py-cachify."""

from __future__ import annotations

from functools import cache

from benchmarks.contenders.shape import MANY, PATIENCE, TTL

NAME = "py-cachify"
KIND = "peer"
STORE = "redis"
REQUIRES = ("py-cachify==3.1.0", "redis==8.1.0")
GIVES = "lease; frees whoever holds it"
BLOCKING = True


@cache
def _cachify(url: str):
    import redis
    import redis.asyncio
    from py_cachify import init_cachify

    return init_cachify(
        sync_client=redis.Redis.from_url(url, max_connections=MANY),
        async_client=redis.asyncio.Redis.from_url(url, max_connections=MANY),
    )


def make(url, key):
    cachify = _cachify(url)
    return lambda: cachify.lock(key=key, nowait=False, timeout=PATIENCE, exp=TTL)


make_async = make
