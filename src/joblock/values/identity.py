"""Who this process is: one worker id for each run of it, drawn again in a forked child."""

from __future__ import annotations

import os
from itertools import count

TYPE_CHECKING = False  # see joblock/__init__.py

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_fork_hooks: list[Callable[[], None]] = []


class _Identity:
    __slots__ = ("clients", "holders", "worker")

    def __init__(self) -> None:
        self.draw()

    def draw(self) -> None:
        self.worker = _random_uuid()
        self.holders = count(1)
        self.clients = count(1)


def _random_uuid() -> str:
    """A UUID of version 4 (RFC 9562); importing the module uuid costs more than all of this."""
    number = int.from_bytes(os.urandom(16), "big")
    number = number & ~(0xF000 << 64) & ~(0xC000 << 48) | 0x4000 << 64 | 0x8000 << 48
    text = f"{number:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


_me = _Identity()


def worker_id() -> str:
    """The UUID that names this run of this process; a forked child has its own."""
    return _me.worker


def new_holder() -> str:
    """A holder no other acquisition anywhere has: the worker id and a running number."""
    return f"{_me.worker}:{next(_me.holders)}"


def new_client() -> str:
    """The name under which one client of this process waits and is notified."""
    return f"{_me.worker}.{next(_me.clients)}"


def describe_worker(label: str = "") -> str:
    """Where this process runs, as the text kept beside a lease: host, pid and label."""
    return f"{os.uname().nodename}\x1f{os.getpid()}\x1f{label}"


def on_fork(hook: Callable[[], None]) -> None:
    """Call ``hook`` in each forked child, after the worker id was drawn anew."""
    _fork_hooks.append(hook)


def _after_fork() -> Any:
    _me.draw()
    for hook in tuple(_fork_hooks):
        hook()


os.register_at_fork(after_in_child=_after_fork)
