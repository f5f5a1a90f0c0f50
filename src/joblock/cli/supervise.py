"""Looking after the running command: signals for it, its stops, the loss of its lease, its end.

All of it is done by the main thread, one thing after the other, as it comes out of the inbox.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from joblock.cli.exits import LOST, by_signal
from joblock.cli.inbox import FORWARDED, Inbox
from joblock.cli.terminal import Terminal, stop_here
from joblock.cli.text import say

if TYPE_CHECKING:
    from joblock.cli.child import Child
    from joblock.client.sync import Lease

_STOPS = (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)
"""Stops that come from the terminal; SIGSTOP is somebody's own wish, and none of our business."""

_LOOK_AGAIN = 0.05
"""Seconds between looks at a process group whose leader has ended: nothing tells of its end."""


class Supervisor:
    """See the module. ``lent``: whether the command was given the terminal as it was started."""

    def __init__(
        self, inbox: Inbox, lease: Lease, child: Child, terminal: Terminal, *, lent: bool
    ) -> None:
        self._inbox = inbox
        self._lease = lease
        self._child = child
        self._terminal = terminal
        self._wants_terminal = lent
        self._status: int | None = None
        self._lost = False
        self._kill_at: float | None = None

    def run(self, kill_after: float) -> int:
        """Wait for the end of the command; its exit code, or that of a lost lease."""
        self._lease.hold.when_lost(self._inbox.poke)
        self._look_at_the_lease(kill_after)
        while self._goes_on():
            for number in self._inbox.wait(self._patience()):
                self._take(number)
            self._reap()
            self._look_at_the_lease(kill_after)
        self._terminal.take_back(self._child.pid)
        if self._lost:
            return LOST
        return self._exit_code()

    def _goes_on(self) -> bool:
        """Until the command has ended, and after a loss all of its process group."""
        if self._status is None:
            return True
        return self._kill_at is not None and self._child.signal(0)

    def _patience(self) -> float | None:
        if self._kill_at is None:
            return None
        left = max(0.0, self._kill_at - time.monotonic())
        return left if self._status is None else min(left, _LOOK_AGAIN)

    def _take(self, number: int) -> None:
        if number in FORWARDED or number == signal.SIGTSTP:
            self._child.signal(number)
        elif number == signal.SIGCONT:
            self._go_on()

    def _reap(self) -> None:
        # Whoever has ended: as the first process of a container joblock inherits strangers.
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
                if pid == 0:
                    return
                if pid != self._child.pid:
                    continue
                if os.WIFSTOPPED(status):
                    self._stopped(os.WSTOPSIG(status))
                else:
                    self._status = status

    def _exit_code(self) -> int:
        code = os.waitstatus_to_exitcode(self._status or 0)
        return by_signal(-code) if code < 0 else code

    # The lease.

    def _look_at_the_lease(self, kill_after: float) -> None:
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            self._kill_at = None
            self._child.signal(signal.SIGKILL)
        if self._lost or self._lease.held:
            return
        self._lost = True
        self._kill_at = time.monotonic() + kill_after
        say(f"the lease is lost: ending the command (SIGTERM, after {kill_after:g} s SIGKILL)")
        self._child.signal(signal.SIGTERM)
        self._child.signal(signal.SIGCONT)

    # The terminal.

    def _stopped(self, number: int) -> None:
        """The command was stopped: by its wish to have the terminal, or from there (Ctrl-Z)."""
        if number not in _STOPS or not self._terminal.there:
            return
        if number != signal.SIGTSTP:
            self._wants_terminal = True
            if self._terminal.give(self._child.pid):
                self._child.signal(signal.SIGCONT)
                return
        self._stop_too(number)

    def _stop_too(self, number: int) -> None:
        """Stop as the command was, so that the shell has its job stopped and goes on itself."""
        self._terminal.take_back(self._child.pid)
        stop_here(number, group=True)
        came = self._inbox.wait(0)
        for each in came:
            self._take(each)
        if signal.SIGCONT in came:
            return
        # It was not: no shell is there that could continue it.
        if number == signal.SIGTSTP:
            self._go_on()
        else:
            say("the command is stopped: it wants a terminal that joblock does not have")

    def _go_on(self) -> None:
        """Continue the command, unless its lease was lost meanwhile: that is seen to first."""
        if not self._lease.held:
            return
        if self._wants_terminal:
            self._terminal.give(self._child.pid)
        self._child.signal(signal.SIGCONT)
