"""Floor: flock(2), blocking, on a file that stays open. Needs nothing."""

from __future__ import annotations

import fcntl
import os

from benchmarks.contenders.shape import Held

NAME = "flock, blocking"
KIND = "floor"
STORE = "files"
GIVES = "no lease, no token; one machine"
BLOCKING = True


def make(url, key):
    file = os.open(f"{url.removeprefix('sqlite:///')}-{key}.flock", os.O_CREAT | os.O_RDWR)
    held = Held(lambda: fcntl.flock(file, fcntl.LOCK_EX), lambda: fcntl.flock(file, fcntl.LOCK_UN))
    return lambda: held
