"""Peer: fasteners' InterProcessLock; waits by asking. pip: fasteners."""

from __future__ import annotations

NAME = "fasteners"
KIND = "peer"
STORE = "files"
REQUIRES = ("fasteners==0.20",)
GIVES = "no lease, no token; one machine"
BLOCKING = True


def make(url, key):
    from fasteners import InterProcessLock

    lock = InterProcessLock(f"{url.removeprefix('sqlite:///')}-{key}.fasteners")
    return lambda: lock
