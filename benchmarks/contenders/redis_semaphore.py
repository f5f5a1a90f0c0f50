"""Peer: the Mutex of py-redis-semaphore, sync and asyncio; waits at a list. pip: its name."""

from __future__ import annotations

from functools import cache

from benchmarks.contenders.shape import MANY

NAME = "py-redis-semaphore"
KIND = "peer"
STORE = "redis"
REQUIRES = ("py-redis-semaphore==0.2.0", "redis==8.1.0")
GIVES = "lease, renewed; fencing token"
BLOCKING = True


@cache
def _client(url: str):
    import redis

    return redis.Redis.from_url(url, socket_timeout=None, max_connections=MANY)


@cache
def _async_client(url: str):
    import redis.asyncio

    return redis.asyncio.Redis.from_url(url, socket_timeout=None, max_connections=MANY)


def make(url, key):
    from redis_semaphore import Mutex

    client = _client(url)
    return lambda: Mutex(client, key)


def make_async(url, key):
    from redis_semaphore import Mutex

    client = _async_client(url)
    return lambda: Mutex(client, key)
