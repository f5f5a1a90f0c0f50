"""What the author of a store gives the suite: stores on the same data, and time that passes."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod

from joblock.store.contract import Store
from joblock.testing.clock import ManualClock
from joblock.values.clock import SYSTEM_CLOCK, Clock


class StoreHarness(ABC):
    """A store whose clock cannot be turned by hand: time passes by sleeping.

    One harness serves one test. ``slack`` is how many milliseconds more than asked may go by
    between two steps of a test on a busy machine; ``longest`` is the longest a test may sleep at
    one go, in seconds (tests that need more are skipped, and say so). ``many`` is how many leases
    are taken where the number is the subject: one by one, which a server makes long.
    """

    clock: Clock = SYSTEM_CLOCK
    slack = 2_000
    longest = 60.0
    many = 10_000

    @abstractmethod
    def make_store(self) -> Store:
        """A new store object, as another process would have it, on one and the same data."""

    def elapse(self, seconds: float) -> None:
        """Return once so much time has passed on the store's clock, and the store acts on it."""
        time.sleep(seconds)

    def close(self) -> None:  # noqa: B027 - most harnesses have nothing to give back
        """Give back what the harness itself opened; the suite has closed its stores before."""


class ManualHarness(StoreHarness):
    """A store that takes its time from a clock given to it: nothing sleeps, all is exact."""

    slack = 0
    longest = float("inf")

    def __init__(self) -> None:
        self.manual = ManualClock()
        self.clock: Clock = self.manual

    def elapse(self, seconds: float) -> None:
        """Turn the clock."""
        self.manual.advance(seconds)
