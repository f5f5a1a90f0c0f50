"""For those who want it: a SIGTERM that ends the process the way an exit does."""

from __future__ import annotations

import signal
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType


def release_on_sigterm() -> None:
    """Let SIGTERM end this process through SystemExit, so that what it holds is released.

    Without it Python dies of SIGTERM at once, and its leases lapse at their ttl. To be called in
    the main thread (RuntimeError elsewhere); a handler that is there already is kept and called
    first.
    """
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("release_on_sigterm() can only be called in the main thread")
    before = signal.getsignal(signal.SIGTERM)

    def handler(number: int, frame: FrameType | None) -> None:
        if callable(before):
            before(number, frame)
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, handler)
