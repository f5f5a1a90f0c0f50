"""Floor: threading.Lock and asyncio.Lock, which know of one process only. Needs nothing."""

from __future__ import annotations

import asyncio
import threading
from functools import cache

NAME = "standard library's Lock"
KIND = "floor"
STORE = "memory"
GIVES = "one process only"
BLOCKING = True


@cache
def _lock(key: str) -> threading.Lock:
    del key
    return threading.Lock()


@cache
def _async_lock(key: str) -> asyncio.Lock:
    del key
    return asyncio.Lock()


def make(url, key):
    del url
    lock = _lock(key)
    return lambda: lock


def make_async(url, key):
    del url
    lock = _async_lock(key)
    return lambda: lock
