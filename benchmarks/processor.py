"""The processor that cycles are pinned to, client and server together, ahead of all else there.

What else runs on the machine does not disturb all contenders alike, since they sleep differently.
So where the system lets it (it asks for root, mostly), a process that is pinned goes before others.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress


def processor() -> str:
    """The one that cycles are pinned to, or nothing where that cannot be done."""
    if not hasattr(os, "sched_getaffinity"):
        return ""
    return str(max(os.sched_getaffinity(0)))


def pin(pid: int, number: str) -> None:
    """Pin that process, or this one (0), and what it starts from now on."""
    os.sched_setaffinity(pid, {int(number)})
    with suppress(PermissionError):
        os.sched_setscheduler(pid, os.SCHED_RR, os.sched_param(1))


@contextmanager
def pinned() -> Iterator[None]:
    """This process itself, for what is not measured in one of its own."""
    number = processor()
    if not number:
        yield
        return
    before = os.sched_getaffinity(0), os.sched_getscheduler(0), os.sched_getparam(0)
    pin(0, number)
    try:
        yield
    finally:
        os.sched_setscheduler(0, before[1], before[2])
        os.sched_setaffinity(0, before[0])
