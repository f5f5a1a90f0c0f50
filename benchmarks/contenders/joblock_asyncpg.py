"""Ours: joblock on an asyncpg pool, as an application hands over its own."""

from __future__ import annotations

from functools import cache, partial

NAME = "joblock, asyncpg pool"
KIND = "ours"
STORE = "postgres"
GIVES = "lease, renewed; fencing token; in order"
BLOCKING = True


@cache
def _locks(url: str):
    import asyncpg

    from joblock import AsyncJobLocks

    return AsyncJobLocks(asyncpg.create_pool(url, min_size=1))


def make_async(url, key):
    return partial(_locks(url).lock, key)
