"""Ours: joblock's clients on any URL, as they come."""

from __future__ import annotations

from functools import cache, partial

NAME = "joblock"
KIND = "ours"
STORE = "any"
GIVES = "lease, renewed; fencing token; in order"
BLOCKING = True


def _url(url: str) -> str:
    return f"redis+{url}" if url.startswith("unix://") else url


@cache
def _locks(url: str):
    from joblock import JobLocks

    return JobLocks(_url(url))


@cache
def _async_locks(url: str):
    from joblock import AsyncJobLocks

    return AsyncJobLocks(_url(url))


def make(url, key):
    return partial(_locks(url).lock, key)


def make_async(url, key):
    return partial(_async_locks(url).lock, key)


def make_kept(url, ttl):
    locks = _locks(url)
    return lambda key: locks.lock(key, ttl=ttl)
