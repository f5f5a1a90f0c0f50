"""Peer: python-redilock, sync and asyncio; waits by asking every 0.25 s. pip: python-redilock."""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from functools import cache
from urllib.parse import urlsplit

from benchmarks.contenders.shape import TTL

NAME = "python-redilock"
KIND = "peer"
STORE = "redis"
REQUIRES = ("python-redilock==0.6.0", "redis==8.1.0")
GIVES = "lease"
BLOCKING = True


@cache
def _lock(url: str):
    from redilock.sync_redilock import DistributedLock

    parts = urlsplit(url)
    return DistributedLock(redis_host=parts.hostname, redis_port=parts.port, ttl=TTL)


@cache
def _async_lock(url: str):
    from redilock.async_redilock import DistributedLock

    parts = urlsplit(url)
    return DistributedLock(redis_host=parts.hostname, redis_port=parts.port, ttl=TTL)


def make(url, key):
    lock = _lock(url)

    @contextmanager
    def one():
        secret = lock.lock(key)
        yield
        lock.unlock(secret)

    return one


def make_async(url, key):
    lock = _async_lock(url)

    @asynccontextmanager
    async def one():
        secret = await lock.lock(key)
        yield
        await lock.unlock(secret)

    return one
