"""Running a plain function in a worker thread for a task that may be cancelled meanwhile.

A thread cannot be cancelled. If the task is, the lease stays kept until the function has really
returned, and is released then: the task goes on at once, the exclusion does not end early. A
function that has not begun by then never does.
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

Outcome = tuple[Any, BaseException | None]


async def call_in_thread(hub: Hub, hold: Hold, function: Callable[[], Any]) -> Outcome:
    """What ``function`` returned, and what it raised or None.

    A future hands on some exceptions as others, and hangs on a StopIteration: so it is given none.
    """
    run = _Run(hub, hold, function)
    context = contextvars.copy_context()
    future = asyncio.get_running_loop().run_in_executor(None, context.run, run)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        run.call_off()
        raise


class _Run:
    """The function on its way; either its end or its calling off comes first."""

    def __init__(self, hub: Hub, hold: Hold, function: Callable[[], Any]) -> None:
        self._hub = hub
        self._hold = hold
        self._function = function
        self._lock = threading.Lock()
        self._begun = False
        self._ended = False
        self._called_off = False

    def __call__(self) -> Outcome:
        with self._lock:
            if self._called_off:
                return None, None
            self._begun = True
        try:
            return self._function(), None
        except BaseException as error:  # noqa: BLE001 - raised again in the task
            return None, error
        finally:
            with self._lock:
                self._ended = True
                abandoned = self._hold.detached
            if abandoned:
                self._hub.collected(self._hold)

    def call_off(self) -> None:
        """The task goes on without it: the lease is the function's own while it runs."""
        with self._lock:
            self._called_off = True
            self._hold.detached = self._begun and not self._ended
