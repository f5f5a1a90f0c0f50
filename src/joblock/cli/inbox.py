"""Everything that can happen to `joblock run` while it waits, as numbers out of one pipe.

Signals are written into it by Python's own handler in C, so none is lost and none interrupts
anything halfway: no exception is ever raised from a handler, and what a signal means is decided
where the numbers are read. Other threads write `POKE`, which only says "look around".
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import FrameType

POKE = 0

FORWARDED = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
"""The signals that are meant for the command."""

NOTED = (*FORWARDED, signal.SIGTSTP, signal.SIGCONT, signal.SIGCHLD)
"""All that are written into the pipe; other threads block them, so that the main thread has them
at once: when it is continued after a stop, it knows."""


class Inbox:
    """Takes the signals of this process from now on until it exits; see the module.

    A signal that was ignored when joblock was started stays ignored, as ``nohup`` wants it, apart
    from SIGCHLD, without which the end of the command could not be told. ``entry`` and ``mask``
    are what the command is to find again.
    """

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        # Python itself ignores these two, and its handler for SIGINT raises.
        self.entry: dict[int, Any] = {
            signal.SIGPIPE: signal.SIG_DFL,
            signal.SIGXFSZ: signal.SIG_DFL,
        }
        self.mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in NOTED:
            if signal.getsignal(number) != signal.SIG_IGN or number == signal.SIGCHLD:
                self._take_over(number, _note)
        # Once the command has the terminal, joblock is in the background: it still has to take the
        # terminal back, and to be able to say something if `stty tostop` is set.
        self._take_over(signal.SIGTTOU, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, NOTED)

    def wait(self, seconds: float | None) -> Sequence[int]:
        """What has come in; waits for something, ``seconds`` at most (``None``: no limit)."""
        select.select([self._read], [], [], seconds)
        try:
            return os.read(self._read, 4096)
        except BlockingIOError:
            return ()

    def poke(self) -> None:
        """Let the reader look around; from any thread."""
        try:
            os.write(self._write, bytes([POKE]))
        except BlockingIOError:
            return  # it is full, so the reader will wake up anyway

    def _take_over(self, number: int, handler: Any) -> None:
        was = signal.signal(number, handler)
        self.entry[number] = signal.SIG_IGN if was == signal.SIG_IGN else signal.SIG_DFL


def _note(number: int, frame: FrameType | None) -> None:
    """Its number is in the pipe already."""
