"""A clock that a test turns by hand, so that an hour costs nothing and nobody sleeps.

`advance` moves both of its clocks, wakes whoever waits for a moment that has come, and returns once
joblock's background threads have done what was due, so that a test sees the effects. Callers that
wait (`wait`, `await_`) are woken too; what they then do is theirs, and the test waits for that.

Time is kept in whole microseconds. Steps that are multiples of 1/8 s have no rounding error as
floats either, which is worth having where a lease is to lapse at an exact moment.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable
from typing import Any, cast

NEVER = float("inf")


class _Sleeper:
    """Somebody who waits: until when, for which event, and how to wake it when the time comes."""

    __slots__ = ("counts", "event", "until", "wake", "woken")

    def __init__(
        self,
        event: threading.Event | asyncio.Event,
        until: float,
        wake: Callable[[], None],
    ) -> None:
        self.event = event
        self.until = until
        self.wake = wake
        self.woken = False
        self.counts = True

    @property
    def asleep(self) -> bool:
        return not self.woken and not self.event.is_set()


class ManualClock:
    """A `joblock.values.clock.Clock` whose time passes only by `advance`; safe for many threads.

    ``patience`` bounds, in real seconds, every wait for other threads: past it a test fails with
    an AssertionError instead of hanging.
    """

    def __init__(
        self, *, wall: float = 1_750_000_000.0, monotonic: float = 1_000.0, patience: float = 10.0
    ) -> None:
        self._wall_us = round(wall * 1_000_000)
        self._monotonic_us = round(monotonic * 1_000_000)
        self._patience = patience
        self._changed = threading.Condition()
        self._callers: set[_Sleeper] = set()
        self._idle: dict[threading.Thread, _Sleeper | None] = {}

    def monotonic(self) -> float:
        """Seconds on the clock that decides expiry."""
        return self._monotonic_us / 1_000_000

    def wall(self) -> float:
        """Seconds since 1970, which `step_wall` can set forward and back."""
        return self._wall_us / 1_000_000

    def advance(self, seconds: float, *, settle: bool = True) -> None:
        """Let ``seconds`` pass at one go, as if the machine had slept meanwhile.

        Returns when every background thread is idle again; ``settle=False`` does not wait for
        that, for a test in which one is kept busy on purpose.
        """
        if seconds < 0:
            raise ValueError(f"time only goes forward (step_wall steps the wall); got {seconds!r}")
        with self._changed:
            step = round(seconds * 1_000_000)
            self._monotonic_us += step
            self._wall_us += step
            due = [sleeper for sleeper in self._everyone() if sleeper.until <= self.monotonic()]
            for sleeper in due:
                sleeper.woken = True
            self._changed.notify_all()
        for sleeper in due:
            sleeper.wake()
        if settle:
            self.settle()

    def run(self, seconds: float) -> None:
        """Let ``seconds`` pass moment by moment: whoever waits for one on the way is up on time."""
        end = self.monotonic() + seconds
        while (moment := self._next_moment()) <= end:
            # Rounded up, or a moment between two microseconds would never be reached.
            us = math.ceil(round((moment - self.monotonic()) * 1_000_000, 3))
            self.advance(max(0, us) / 1_000_000)
        self.advance(max(0.0, end - self.monotonic()))

    def step_wall(self, seconds: float) -> None:
        """Set the wall clock forward, or back if negative; nothing else moves."""
        with self._changed:
            self._wall_us += round(seconds * 1_000_000)

    def settle(self, threads: int = 0) -> None:
        """Wait until all background threads are idle, ``threads`` of them at least."""
        self._wait_for(
            lambda: len(self._idle) >= threads and not self._busy(),
            lambda: (
                f"after {self._patience} s at least {threads} background thread(s) should be idle, "
                f"and no other busy; busy: {self._busy()}"
            ),
            self._patience,
        )

    def at_rest(self) -> bool:
        """Whether all background threads are idle now."""
        with self._changed:
            return not self._busy()

    def sleepers(self) -> int:
        """How many callers (threads and tasks, background threads apart) are waiting now."""
        with self._changed:
            return sum(sleeper.counts and sleeper.asleep for sleeper in self._callers)

    def wait_for_sleepers(self, count: int, timeout: float | None = None) -> None:
        """Wait until at least ``count`` callers are waiting."""
        self._wait_for(
            lambda: self.sleepers() >= count,
            lambda: f"{count} caller(s) should be waiting by now; {self.sleepers()} are",
            self._patience if timeout is None else timeout,
        )

    async def await_sleepers(self, count: int, timeout: float | None = None) -> None:
        """The same for a task, in whose loop the callers may be."""
        end = time.monotonic() + (self._patience if timeout is None else timeout)
        while self.sleepers() < count:
            if time.monotonic() > end:
                raise AssertionError(
                    f"{count} caller(s) should be waiting by now; {self.sleepers()} are"
                )
            await asyncio.sleep(0)

    # What joblock calls.

    def wait(self, event: threading.Event, until: float | None) -> None:
        """Block until ``event`` is set or `monotonic` reaches ``until`` (``None``: no limit)."""
        sleeper = self._thread_sleeper(event, until)
        # A keeper that awaits an answer is no caller that waits for its turn.
        sleeper.counts = not threading.current_thread().name.startswith("joblock-")
        with self._changed:
            self._callers.add(sleeper)
            self._changed.notify_all()
        try:
            self._sleep(sleeper)
        finally:
            with self._changed:
                self._callers.discard(sleeper)

    def idle(self, event: threading.Event, until: float | None) -> None:
        """`wait`, by a background thread that has nothing left to do until then."""
        thread = threading.current_thread()
        sleeper = self._thread_sleeper(event, until)
        with self._changed:
            self._idle[thread] = sleeper
            self._changed.notify_all()
        try:
            self._sleep(sleeper)
        finally:
            with self._changed:
                # It stays known: until it idles again, or ends, it is busy.
                self._idle[thread] = None

    async def await_(self, event: asyncio.Event, until: float | None) -> None:
        """`wait` for a task; the event is set when the time has come."""
        loop = asyncio.get_running_loop()

        def wake() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)

        sleeper = _Sleeper(event, NEVER if until is None else until, wake)
        with self._changed:
            if event.is_set() or self.monotonic() >= sleeper.until:
                return
            self._callers.add(sleeper)
            self._changed.notify_all()
        try:
            await event.wait()
        finally:
            with self._changed:
                self._callers.discard(sleeper)

    def _thread_sleeper(self, event: threading.Event, until: float | None) -> _Sleeper:
        inside = _inside(event)

        def wake() -> None:
            with inside:
                inside.notify_all()

        return _Sleeper(event, NEVER if until is None else until, wake)

    def _sleep(self, sleeper: _Sleeper) -> None:
        # advance() moves the time before it notifies: whichever comes first, this check sees the
        # new time, or the wait is notified.
        inside = _inside(sleeper.event)
        with inside:
            if not sleeper.event.is_set() and self.monotonic() < sleeper.until:
                inside.wait()

    def _everyone(self) -> list[_Sleeper]:
        return [*self._callers, *(sleeper for sleeper in self._idle.values() if sleeper)]

    def _next_moment(self) -> float:
        with self._changed:
            asleep = (sleeper.until for sleeper in self._everyone() if sleeper.asleep)
            return min(asleep, default=NEVER)

    def _busy(self) -> list[str]:
        """The background threads that have something to do; the ended ones are forgotten."""
        for thread in [thread for thread in self._idle if not thread.is_alive()]:
            del self._idle[thread]
        now, me = self.monotonic(), threading.current_thread()
        return [
            thread.name
            for thread, sleeper in self._idle.items()
            if thread is not me and (sleeper is None or not sleeper.asleep or sleeper.until <= now)
        ]

    def _wait_for(
        self, reached: Callable[[], bool], complaint: Callable[[], str], timeout: float
    ) -> None:
        end = time.monotonic() + timeout
        with self._changed:
            while not reached():
                if time.monotonic() > end:
                    raise AssertionError(complaint())
                # A thread that ends, and an event that is set, notify nobody: look again soon.
                self._changed.wait(0.005)


def _inside(event: Any) -> threading.Condition:
    """What a thread sleeps on in `threading.Event.wait`.

    The clock notifies that, and leaves the event alone: to its owner, that it is set may mean more
    than a wake-up ("the answer is there").
    """
    return cast("threading.Condition", event._cond)  # noqa: SLF001
