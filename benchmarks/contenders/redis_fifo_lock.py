"""Peer: redis-fifo-lock, asyncio only; a queue in Redis and a BLPOP per waiter. pip: its name."""

from __future__ import annotations

from functools import cache

from benchmarks.contenders.shape import MANY

NAME = "redis-fifo-lock"
KIND = "peer"
STORE = "redis"
REQUIRES = ("redis-fifo-lock==0.3.2", "redis[hiredis]==8.1.0")
GIVES = "lease, renewed; fencing token; in order"
BLOCKING = True


@cache
def _client(url: str):
    import redis.asyncio

    return redis.asyncio.Redis.from_url(url, socket_timeout=None, max_connections=MANY)


def make_async(url, key):
    from redis_fifo_lock import FifoLock

    lock = FifoLock(_client(url), key)
    return lock.hold
