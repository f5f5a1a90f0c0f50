"""Doing something at the exit of this process, also if it is a forked child.

What a parent registered with atexit is forgotten or never done in a child of multiprocessing, so it
is registered anew by whatever process has something to do at its exit.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable

_hooks: list[Callable[[], None]] = []
_registered = [0]


def at_exit(hook: Callable[[], None]) -> None:
    """Call ``hook`` at the exit of each process that calls `expect_exit`."""
    _hooks.append(hook)


def expect_exit() -> None:
    """This process has something to do at its exit."""
    if _registered[0] != os.getpid():
        _registered[0] = os.getpid()
        atexit.register(_run)
        util = sys.modules.get("multiprocessing.util")
        if util is not None:
            util.Finalize(None, _run, exitpriority=0)


def _run() -> None:
    for hook in _hooks:
        hook()
