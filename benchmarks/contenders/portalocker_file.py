"""Peer: portalocker's file lock; waits by asking. pip: portalocker."""

from __future__ import annotations

from benchmarks.contenders.shape import PATIENCE

NAME = "portalocker"
KIND = "peer"
STORE = "files"
REQUIRES = ("portalocker==4.4.2",)
GIVES = "no lease, no token; one machine"
BLOCKING = True


def make(url, key):
    from portalocker import Lock

    path = f"{url.removeprefix('sqlite:///')}-{key}.portalocker"
    return lambda: Lock(path, timeout=PATIENCE)
