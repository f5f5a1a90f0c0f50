"""Whose turn it is to read from the terminal: joblock's process group or the command's.

Only the process group in the foreground of a terminal may read from it, and gets what is typed as
signals. The command has a process group of its own, so the foreground is lent to it.
"""

from __future__ import annotations

import os
import signal


class Terminal:
    """The terminal that controls this session, if there is one."""

    def __init__(self) -> None:
        self.home = os.getpgrp()
        try:
            self.fd = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
        except OSError:
            self.fd = -1

    @property
    def there(self) -> bool:
        """Whether there is one."""
        return self.fd >= 0

    @property
    def ours(self) -> bool:
        """Whether joblock's own process group is in the foreground."""
        return self._foreground() == self.home

    def give(self, group: int) -> bool:
        """Lend the foreground to ``group``; False if it is not ours to lend."""
        return self.ours and self._put(group)

    def take_back(self, group: int) -> None:
        """Take the foreground back from ``group``, if that still has it."""
        if self._foreground() == group:
            self._put(self.home)

    def _foreground(self) -> int:
        try:
            return os.tcgetpgrp(self.fd)
        except OSError:
            return -1  # there is none, or it was hung up

    def _put(self, group: int) -> bool:
        try:
            os.tcsetpgrp(self.fd, group)
        except OSError:
            return False
        return True


def stop_here(number: int, *, group: bool) -> None:
    """Stop this process as that signal does by default; returns when somebody continues it.

    With its whole process ``group``: a shell's job is stopped once all of it is. Returns at once
    where the kernel does not stop it since there is no shell to continue it.
    """
    handler = signal.signal(number, signal.SIG_DFL)
    os.kill(0 if group else os.getpid(), number)
    signal.signal(number, handler)
