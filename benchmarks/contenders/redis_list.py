"""Floor: a token handed on through a Redis list, BLPOP and LPUSH. Needs redis.

It is the fastest hand-off that Redis has, and loses the token with whoever dies holding it.
"""

from __future__ import annotations

from functools import cache

from benchmarks.contenders.shape import MANY, AsyncHeld, Held

NAME = "token in a list"
KIND = "floor"
STORE = "redis"
GIVES = "no lease: lost with its holder"
BLOCKING = True


@cache
def _client(url: str):
    import redis

    return redis.Redis.from_url(url, socket_timeout=None, max_connections=MANY)


@cache
def _async_client(url: str):
    import redis.asyncio

    return redis.asyncio.Redis.from_url(url, socket_timeout=None, max_connections=MANY)


def _prime(url, key):
    client = _client(url)
    if client.set(f"{key}:made", 1, nx=True):
        client.lpush(key, "token")
    return client


def make(url, key):
    client = _prime(url, key)
    held = Held(lambda: client.blpop(key), lambda: client.lpush(key, "token"))
    return lambda: held


def make_async(url, key):
    _prime(url, key)
    client = _async_client(url)
    held = AsyncHeld(lambda: client.blpop(key), lambda: client.lpush(key, "token"))
    return lambda: held
