"""Peer: pottery's Redlock on one master, sync and asyncio; waits by asking. pip: pottery."""

from __future__ import annotations

from functools import cache

from benchmarks.contenders.shape import MANY, TTL

NAME = "pottery Redlock"
KIND = "peer"
STORE = "redis"
REQUIRES = ("pottery==3.0.1", "redis==8.1.0")
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
    from pottery import Redlock

    client = _client(url)
    return lambda: Redlock(key=key, masters={client}, auto_release_time=TTL)


def make_async(url, key):
    from pottery import AIORedlock

    client = _async_client(url)
    return lambda: AIORedlock(key=key, masters={client}, auto_release_time=TTL)
