"""Talking to the store in another thread, so that the main thread is there for signals.

The store may take long to answer, and a wait for a lease may last for ever: neither is to keep a
SIGTERM waiting, and no signal is to cut off a request halfway.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from joblock.cli.inbox import NOTED, Inbox
from joblock.values.clock import SystemClock

T = TypeVar("T")


class Stopped(Exception):
    """The wait was stopped; what it had asked of the store is taken back."""


class Background(Generic[T]):
    """One call in a thread of its own, whose end pokes the inbox."""

    def __init__(self, inbox: Inbox, call: Callable[[], T]) -> None:
        self._inbox = inbox
        self._call = call
        self._value: list[T] = []
        self._error: BaseException | None = None
        self.finished = False
        self.thread = threading.Thread(target=self._run, name="joblock-run", daemon=True)
        self.thread.start()

    def result(self) -> T:
        """What the call returned, or raised."""
        if self._error is not None:
            raise self._error
        return self._value[0]

    def finish(self, seconds: float) -> bool:
        """Wait for its end and heed no signal meanwhile; False if that takes longer."""
        end = time.monotonic() + seconds
        while not self.finished and time.monotonic() < end:
            self._inbox.wait(max(0.0, end - time.monotonic()))
        return self.finished

    def _run(self) -> None:
        # The threads that it starts, the keeper's among them, inherit this.
        signal.pthread_sigmask(signal.SIG_BLOCK, NOTED)
        try:
            self._value.append(self._call())
        except BaseException as error:  # noqa: BLE001 - raised again by result()
            self._error = error
        self.finished = True
        self._inbox.poke()


class StoppableClock(SystemClock):
    """The machine's clock, on which one thread's waiting can be stopped by another."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._waiter: threading.Thread | None = None
        self._event: threading.Event | None = None
        self._stopped = False

    def stop_me(self) -> None:
        """From now on `stop` ends the waiting of the calling thread."""
        self._waiter = threading.current_thread()

    def stop(self) -> None:
        """End it, at once and for good."""
        with self._lock:
            self._stopped = True
            if self._event is not None:
                self._event.set()

    def wait(self, event: threading.Event, until: float | None) -> None:
        """See `joblock.values.clock.Clock`; raises Stopped."""
        if threading.current_thread() is not self._waiter:
            super().wait(event, until)
            return
        self._wait_for(event)
        super().wait(event, until)
        self._wait_for(None)

    def _wait_for(self, event: threading.Event | None) -> None:
        with self._lock:
            if self._stopped:
                raise Stopped
            self._event = event
