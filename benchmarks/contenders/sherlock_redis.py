"""Peer: sherlock on Redis; waits by asking every 0.1 s. pip: sherlock[redis]."""

from __future__ import annotations

from functools import cache

from benchmarks.contenders.shape import MANY, PATIENCE, TTL

NAME = "sherlock"
KIND = "peer"
STORE = "redis"
REQUIRES = ("sherlock==0.4.1", "redis==8.1.0")
GIVES = "lease"
BLOCKING = True


@cache
def _client(url: str):
    import redis

    return redis.StrictRedis.from_url(url, max_connections=MANY)


def make(url, key):
    from sherlock import RedisLock

    client = _client(url)
    return lambda: RedisLock(key, client=client, expire=TTL, timeout=PATIENCE)
