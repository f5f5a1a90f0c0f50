"""Cancelling the task whose lease is lost, and telling that cancellation from one by others.

Our cancellation is requested in the event loop, never from inside the task, so it is delivered at
the task's next step. Whether a CancelledError that leaves the block is ours alone is told by
`Task.cancelling`, which counts requests: it is back where it was on entry once ours is taken back.
"""

from __future__ import annotations

import asyncio
from typing import Any

from joblock.protocol.hold import Hold


class Canceller:
    """One block or run of one task, to be cancelled when its lease is lost."""

    __slots__ = ("_before", "_fired", "_loop", "_over", "_task")

    def __init__(self, hold: Hold, task: asyncio.Task[Any]) -> None:
        self._task = task
        self._loop = task.get_loop()
        self._before = task.cancelling()
        self._fired = False
        self._over = False
        hold.when_lost(self._call_soon)

    async def end(self, error: BaseException | None) -> BaseException | None:
        """The block is over: the exception that is really its own, if any."""
        self._over = True
        if not self._fired:
            return error
        left = self._task.uncancel()
        if not isinstance(error, asyncio.CancelledError):
            await self._absorb()
            return error
        return None if left <= self._before else error

    def _call_soon(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._fire)
        except RuntimeError:
            # The loop is closed, and the task with it.
            self._over = True

    def _fire(self) -> None:
        if not self._over and not self._fired and not self._task.done():
            self._fired = True
            self._task.cancel()

    async def _absorb(self) -> None:
        """Before Python 3.13 a request that was not delivered yet outlives its taking back."""
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            if self._task.cancelling() > self._before:
                raise
