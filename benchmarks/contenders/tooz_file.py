"""Peer: tooz on files. pip: tooz."""

from __future__ import annotations

from benchmarks.contenders import tooz_redis

NAME = "tooz, files"
KIND = "peer"
STORE = "files"
REQUIRES = ("tooz==9.1.0",)
GIVES = "no lease, no token; one machine"
BLOCKING = True


def make(url, key):
    return tooz_redis.make(f"file://{url.removeprefix('sqlite:///')}-tooz", key)
