"""Peer: mithril-locks on Redis, sync and asyncio. pip: mithril-locks."""

from __future__ import annotations

from functools import cache

from benchmarks.contenders.shape import MANY, PATIENCE, TTL

NAME = "mithril-locks"
KIND = "peer"
STORE = "redis"
REQUIRES = ("mithril-locks==0.1.0",)
GIVES = "lease; fencing token"
BLOCKING = True


@cache
def _backend(url: str):
    from mithril.backends import RedisBackend
    from redis import Redis

    return RedisBackend(Redis.from_url(url, max_connections=MANY))


@cache
def _async_backend(url: str):
    from mithril.backends.aio import AsyncRedisBackend
    from redis.asyncio import Redis

    return AsyncRedisBackend(Redis.from_url(url, max_connections=MANY))


def make(url, key):
    from mithril import Lock

    backend = _backend(url)
    return lambda: Lock(key, backend=backend, ttl=TTL, timeout=PATIENCE)


def make_async(url, key):
    from mithril.aio import AsyncLock

    backend = _async_backend(url)
    return lambda: AsyncLock(key, backend=backend, ttl=TTL, timeout=PATIENCE)
