"""Time as joblock uses it: a monotonic clock that also runs while the machine sleeps.

Two clocks are kept apart on purpose. *Expiry* goes by `monotonic`, which nobody can step. *Tokens*
go by `wall`, which grows across reboots and machines. Waiting belongs to the clock as well, so that
a test can put another in its place and pass time without sleeping.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio

HEED = 1.0
"""Seconds after which the main thread heeds a signal at the latest while it waits."""


class Clock(Protocol):
    """What tells the time, and waits for it."""

    @property
    def monotonic(self) -> Callable[[], float]:
        """Seconds on a clock that is never stepped and runs on while the machine sleeps."""
        ...

    @property
    def wall(self) -> Callable[[], float]:
        """Seconds since 1970 by the wall clock."""
        ...

    def wait(self, event: threading.Event, until: float | None) -> None:
        """Block until ``event`` is set or `monotonic` reaches ``until`` (``None``: no limit)."""
        ...

    def await_(self, event: asyncio.Event, until: float | None) -> Awaitable[object]:
        """The same for a task."""
        ...

    def idle(self, event: threading.Event, until: float | None) -> None:
        """`wait`, by a background thread that has nothing left to do until then."""
        ...


# Python's time.monotonic is CLOCK_MONOTONIC, which stops on Linux while the machine sleeps.
_CLOCK_ID: int = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", 0))


class SystemClock:
    """The machine's own clocks."""

    def __init__(self) -> None:
        # Both are read several times in each acquisition: as C functions they cost half as much.
        self.monotonic: Callable[[], float] = partial(time.clock_gettime, _CLOCK_ID)
        self.wall: Callable[[], float] = time.time

    def wait(self, event: threading.Event, until: float | None) -> None:
        if threading.current_thread() is not threading.main_thread():
            self.idle(event, until)
            return
        # The main thread runs the handlers of signals, but is not woken for one that another
        # thread was interrupted by, or that fell just before it began to wait.
        while (left := self._slice(until)) > 0 and not event.wait(left):
            pass

    def _slice(self, until: float | None) -> float:
        return HEED if until is None else min(HEED, until - self.monotonic())

    def idle(self, event: threading.Event, until: float | None) -> None:
        # threading.TIMEOUT_MAX bounds a single wait; a wake-up too early only loops the caller.
        event.wait(None if until is None else min(max(0.0, until - self.monotonic()), 4_000_000.0))

    def await_(self, event: asyncio.Event, until: float | None) -> Awaitable[object]:
        # Without a coroutine of its own for those who wait without end: they may be many.
        return event.wait() if until is None else self._await_until(event, until)

    async def _await_until(self, event: asyncio.Event, until: float) -> None:
        import asyncio

        delay = until - self.monotonic()
        if delay <= 0 or event.is_set():
            return
        # A bare timer instead of asyncio.timeout: that one cancels, and a cancellation that
        # crosses with ours would be hard to tell from one by the caller.
        timer = asyncio.get_running_loop().call_later(delay, event.set)
        try:
            await event.wait()
        finally:
            timer.cancel()


SYSTEM_CLOCK = SystemClock()
