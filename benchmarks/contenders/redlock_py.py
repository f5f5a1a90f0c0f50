"""Peer: redlock-py on one master; waits by asking every 0.2 s. pip: redlock-py."""

from __future__ import annotations

from contextlib import contextmanager
from functools import cache

from benchmarks.contenders.shape import TTL

NAME = "redlock-py"
KIND = "peer"
STORE = "redis"
REQUIRES = ("redlock-py==1.0.8", "redis==8.1.0", "setuptools<81")
GIVES = "lease"
BLOCKING = True


@cache
def _manager(url: str):
    import redis
    from redlock import Redlock

    # It gives up after so many tries: as many as a wait without end would take.
    return Redlock([redis.Redis.from_url(url)], retry_count=1_000_000)


def make(url, key):
    manager = _manager(url)

    @contextmanager
    def one():
        lock = manager.lock(key, TTL * 1000)
        assert lock
        yield
        manager.unlock(lock)

    return one
