"""Cancelling a task at each of its awaits, however long a store takes to answer.

The awaits are counted, not the turns of the event loop: so the way of a task is gone through in as
many steps on a server as in memory, and each step is cancelled at the moments that differ.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Coroutine, Generator, Iterator
from typing import Any, Literal, cast

Moment = Literal["at once", "a turn later", "with the answer"]

MOMENTS: tuple[Moment, ...] = ("at once", "a turn later", "with the answer")
"""As it begins to wait; while it waits; and when what it waits for has come, but not to it yet."""

MOST = 60
"""Awaits after which a way should have ended."""


class Cancellation:
    """Of some work, at its n-th await (1 is the first), at one of the `MOMENTS` of that."""

    def __init__(self, at: int, moment: Moment) -> None:
        self.reached = False
        self._left = at
        self._moment = moment

    def of(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A task that does the work and is cancelled there; awaiting it raises no cancellation."""
        return asyncio.create_task(self._go(work))

    async def _go(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await self._step_by_step(work)
        except asyncio.CancelledError:
            assert self.reached, "it was cancelled by somebody else"

    @types.coroutine
    def _step_by_step(self, work: Coroutine[Any, Any, None]) -> Generator[Any, Any, None]:
        # Not a plain variable: an exception that goes out through this frame would keep it alive,
        # and with it whatever was acquired.
        thrown: list[BaseException] = []
        while True:
            try:
                awaited = work.throw(thrown.pop()) if thrown else work.send(None)
            except StopIteration:
                return
            self._left -= 1
            if not self._left:
                self.reached = True
                self._cancel(awaited)
            try:
                yield awaited
            except BaseException as error:  # noqa: BLE001 - the work's own to handle
                thrown.append(error)

    def _cancel(self, awaited: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        if self._moment == "at once":
            task.cancel()
        elif self._moment == "with the answer" and isinstance(awaited, asyncio.Future):
            cast("asyncio.Future[Any]", awaited).add_done_callback(lambda _: task.cancel())
        else:
            task.get_loop().call_soon(task.cancel)


def everywhere() -> Iterator[Cancellation]:
    """One for each moment of each await, until a way ends before it is come to."""
    for at in range(1, MOST):
        cancellations = [Cancellation(at, moment) for moment in MOMENTS]
        yield from cancellations
        if not any(cancellation.reached for cancellation in cancellations):
            return
    raise AssertionError("the way should have ended by now")
