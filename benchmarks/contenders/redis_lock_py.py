"""Peer: redis-lock-py, which waits for a message; sync and asyncio. pip: redis-lock-py.

It is imported as redis_lock, like python-redis-lock: one reason for environments of their own.
"""

from __future__ import annotations

from functools import cache

from benchmarks.contenders.shape import MANY, PATIENCE, TTL

NAME = "redis-lock-py"
KIND = "peer"
STORE = "redis"
REQUIRES = ("redis-lock-py==1.3.0", "redis==8.1.0")
GIVES = "lease"
BLOCKING = True


@cache
def _client(url: str):
    import redis

    return redis.Redis.from_url(url, max_connections=MANY)


@cache
def _async_client(url: str):
    import redis.asyncio

    return redis.asyncio.Redis.from_url(url, max_connections=MANY)


def make(url, key):
    from redis_lock import RedisLock

    client = _client(url)
    return lambda: RedisLock(client, key, blocking_timeout=PATIENCE, expire_timeout=TTL)


def make_async(url, key):
    from redis_lock.asyncio import RedisLock

    client = _async_client(url)
    return lambda: RedisLock(client, key, blocking_timeout=PATIENCE, expire_timeout=TTL)
