"""Peer: tooz on Redis, a coordinator with a heartbeat. pip: tooz[redis]."""

from __future__ import annotations

import uuid
from functools import cache

NAME = "tooz"
KIND = "peer"
STORE = "redis"
REQUIRES = ("tooz[redis]==9.1.0",)
GIVES = "lease, renewed"
BLOCKING = True


@cache
def coordinator(url: str):
    from tooz import coordination

    found = coordination.get_coordinator(url, uuid.uuid4().hex.encode())
    found.start(start_heart=True)
    return found


def make(url, key):
    known = coordinator(url)
    return lambda: known.get_lock(key.encode())
