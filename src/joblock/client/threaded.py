"""Running a plain function in a worker thread for a task that may be cancelled meanwhile.

A thread cannot be cancelled. If the task is, the lease stays kept until the function has really
returned, and is released then: the task goes on at once, the exclusion does not end early.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from joblock.client.hub import Hub
    from joblock.protocol.hold import Hold


async def call_in_thread(hub: Hub, hold: Hold, function: Callable[[], Any]) -> Any:
    """What ``function`` returns."""
    run = _Run(hub, hold, function)
    context = contextvars.copy_context()
    future = asyncio.get_running_loop().run_in_executor(None, context.run, run)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        if run.outlives_its_task():
            # Nobody is left to take the result, which asyncio would otherwise complain about.
            future.add_done_callback(lambda done: done.cancelled() or done.exception())
        raise


class _Run:
    """The function on its way; either its end or its abandoning comes first."""

    def __init__(self, hub: Hub, hold: Hold, function: Callable[[], Any]) -> None:
        self._hub = hub
        self._hold = hold
        self._function = function
        self._lock = threading.Lock()
        self._ended = False

    def __call__(self) -> Any:
        try:
            return self._function()
        finally:
            with self._lock:
                self._ended = True
                abandoned = self._hold.detached
            if abandoned:
                self._hub.collected(self._hold)

    def outlives_its_task(self) -> bool:
        with self._lock:
            self._hold.detached = not self._ended
            return self._hold.detached
