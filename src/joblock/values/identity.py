"""Who this process is: one worker id for each run of it, drawn again in a forked child."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from itertools import count
from typing import Any

_fork_hooks: list[Callable[[], None]] = []


class _Identity:
    __slots__ = ("clients", "holders", "label", "worker")

    def __init__(self) -> None:
        self.label = ""
        self.draw()

    def draw(self) -> None:
        self.worker = str(uuid.uuid4())
        self.holders = count(1)
        self.clients = count(1)


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
