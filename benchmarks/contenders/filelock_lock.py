"""Peer: filelock; waits by asking. pip: filelock."""

from __future__ import annotations

NAME = "filelock"
KIND = "peer"
STORE = "files"
REQUIRES = ("filelock==4.3.1",)
GIVES = "no lease, no token; one machine"
BLOCKING = True


def make(url, key):
    from filelock import FileLock

    lock = FileLock(f"{url.removeprefix('sqlite:///')}-{key}.filelock")
    return lambda: lock
