"""Peer: portalocker's RedisLock, a subscription held by a thread. pip: portalocker[redis]."""

from __future__ import annotations

from functools import cache

from benchmarks.contenders.shape import MANY, PATIENCE

NAME = "portalocker RedisLock"
KIND = "peer"
STORE = "redis"
REQUIRES = ("portalocker[redis]==4.4.2", "redis==8.1.0")
GIVES = "ends with its connection"
BLOCKING = True


@cache
def _client(url: str):
    import redis

    return redis.Redis.from_url(url, max_connections=MANY, health_check_interval=10)


def make(url, key):
    from portalocker.redis import RedisLock

    client = _client(url)
    return lambda: RedisLock(key, connection=client, timeout=PATIENCE)
