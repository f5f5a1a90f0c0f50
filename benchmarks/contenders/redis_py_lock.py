"""Peer: the Lock that redis-py brings with it, sync and asyncio; waits by asking every 0.1 s.

It runs in the project's own environment, since redis is what joblock's extra installs too.
"""

from __future__ import annotations

from functools import cache

from benchmarks.contenders.shape import MANY, TTL

NAME = "redis-py Lock"
KIND = "peer"
STORE = "redis"
GIVES = "lease"
BLOCKING = True
DISTRIBUTIONS = ("redis",)


@cache
def _client(url: str):
    import redis

    return redis.Redis.from_url(url, max_connections=MANY)


@cache
def _async_client(url: str):
    import redis.asyncio

    return redis.asyncio.Redis.from_url(url, max_connections=MANY)


def make(url, key):
    client = _client(url)
    return lambda: client.lock(key, timeout=TTL)


def make_async(url, key):
    client = _async_client(url)
    return lambda: client.lock(key, timeout=TTL)
