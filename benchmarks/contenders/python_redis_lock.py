"""Peer: python-redis-lock, which waits at a Redis list. pip: python-redis-lock."""

from __future__ import annotations

from functools import cache

from benchmarks.contenders.shape import MANY, TTL

NAME = "python-redis-lock"
KIND = "peer"
STORE = "redis"
REQUIRES = ("python-redis-lock==4.0.1", "redis==8.1.0")
GIVES = "lease"
BLOCKING = True


@cache
def _client(url: str):
    import redis

    return redis.StrictRedis.from_url(url, socket_timeout=None, max_connections=MANY)


def make(url, key):
    import redis_lock

    client = _client(url)
    return lambda: redis_lock.Lock(client, key, expire=TTL)


def make_kept(url, ttl):
    import redis_lock

    client = _client(url)
    return lambda key: redis_lock.Lock(client, key, expire=ttl, auto_renewal=True)
