"""Ours: joblock's clients on any URL, as they come."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

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

    return JobLocks(_store(url))


@cache
def _async_locks(url: str):
    from joblock import AsyncJobLocks

    return AsyncJobLocks(_store(url))


def _store(url: str) -> Any:
    return _Watched(_url(url)) if _watching else _url(url)


def make(url, key):
    return partial(_locks(url).lock, key)


def make_async(url, key):
    return partial(_async_locks(url).lock, key)


def make_kept(url, ttl):
    locks = _locks(url)
    return lambda key: locks.lock(key, ttl=ttl)


# Who hands off is also asked for the order of arrival. A store tells it with its refusal.

_watching: list[bool] = []
_arrivals: dict[str, int] = {}
"""By holder, of those who were queued."""


def watch_arrivals():
    _watching.append(True)


def arrival(entry):
    return _arrivals.pop(entry.holder, 0)


class _Watched:
    """The store of a URL, which is otherwise as it comes."""

    def __init__(self, url: str) -> None:
        from joblock.stores.registry import open_store

        self._inner: Any = open_store(url)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def driver(self) -> Any:
        return _Driver(self._inner.driver())

    def async_driver(self) -> Any:
        return _AsyncDriver(self._inner.async_driver())


class _Driver:
    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._call = inner.call

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def call(self, op: Any) -> Any:
        return _noted(op, self._call(op))


class _AsyncDriver(_Driver):
    async def call(self, op: Any) -> Any:
        return _noted(op, await self._call(op))


def _noted(op: Any, reply: Any) -> Any:
    place = getattr(reply, "arrival", 0)
    if place:
        _arrivals[op.holder] = place
    return reply
