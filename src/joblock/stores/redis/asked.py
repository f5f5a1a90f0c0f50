"""A request on its way, which a task awaits: its task goes on as soon as the reply is there.

A future would have it go on in the loop's next turn, before which the loop looks at all of its
sockets once more: a system call and half a turn for each request. Whoever brings a reply is called
by the loop itself, under no task, and may as well take the task's next step. Everything else, a
cancellation and a failure, goes the way it would with a future, which this otherwise looks like to
the task (see `asyncio.isfuture`).
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, CancelledError
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contextvars import Context


class Asked:
    """One request, awaited by one task; ``count`` replies are a list, 0 stands for the only one."""

    __slots__ = (
        "_asyncio_future_blocking",
        "_context",
        "_error",
        "_loop",
        "_reply",
        "_wake",
        "cancelled",
        "count",
        "holder",
        "over",
    )

    def __init__(self, loop: AbstractEventLoop, count: int, holder: str) -> None:
        self._loop = loop
        self._asyncio_future_blocking = False
        self._wake: Callable[[Asked], object] | None = None
        self._error: BaseException | None = None
        self.count = count
        self.holder = holder
        self.over = False
        self.cancelled = False

    def __await__(self) -> Generator[Asked, None, Any]:
        if self.over:
            return self.result()  # which never was sent
        self._asyncio_future_blocking = True
        yield self
        return self._reply

    def answer(self, reply: Any) -> None:
        """Have the task go on with it; only from where the event loop itself calls."""
        if not self.over:
            self.over, self._reply = True, reply
            if self._wake is not None:
                self._context.run(self._wake, self)

    def fail(self, error: BaseException) -> bool:
        """Have the exception raised in the task; False if that comes too late."""
        if self.over:
            return False
        self.over, self._error = True, error
        # Not kept: one that is cancelled may long wait for its reply, and would keep its task.
        wake, self._wake = self._wake, None
        if wake is not None:
            self._loop.call_soon(wake, self, context=self._context)
        return True

    # What a task wants of a future.

    def get_loop(self) -> AbstractEventLoop:
        """The loop of its task."""
        return self._loop

    def add_done_callback(self, callback: Callable[[Asked], object], *, context: Context) -> None:
        """Take what lets the task go on."""
        self._wake, self._context = callback, context

    def cancel(self, msg: Any | None = None) -> bool:
        """The task is being cancelled."""
        if not self.fail(CancelledError() if msg is None else CancelledError(msg)):
            return False
        self.cancelled = True
        return True

    def result(self) -> Any:
        """What the task looks at before it goes on."""
        error, self._error = self._error, None
        if error is None:
            return self._reply
        try:
            raise error
        finally:
            del error  # which refers to this frame: what is in the caller's would live on with it
