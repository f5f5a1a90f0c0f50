"""Starting the command: between fork and exec, and what is known of it afterwards.

The fork is done by the main thread while others run, so the child does as little as possible
before its exec: nothing is imported, no lock is taken, and all it needs was prepared before. The
main thread matters for another reason: the kernel ends the child when the *thread* that forked it
ends, and the main thread ends last.

That the child is ended with joblock, even by SIGKILL, is Linux's parent-death signal. It reaches
the command itself and not what that has started, and a command that changes its credentials when
it is executed (set-user-ID, file capabilities: sudo, ping) is exempt from it.
"""

from __future__ import annotations

import ctypes
import errno
import gc
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from joblock.cli.exits import CANNOT_EXECUTE, NOT_FOUND
from joblock.cli.text import visible

_PR_SET_PDEATHSIG = 1
_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR})


class Child:
    """The running command and its process group, whose number is its own."""

    def __init__(self, pid: int, command: str, places: list[str], report: int) -> None:
        self.pid = pid
        self.command = command
        self._places = places
        self._report = report

    def signal(self, number: int) -> bool:
        """Send it to the whole process group; False if that is gone."""
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True  # there, but all of it runs as somebody else
        return True

    def failure(self) -> tuple[int, str] | None:
        """After its end: why it could not be executed, as exit code and message, if so."""
        code = os.read(self._report, 16)
        os.close(self._report)
        if not code:
            return None
        number, command = int(code), visible(self.command)
        there = any(map(os.path.exists, self._places))
        if number in _ABSENT and there:
            return CANNOT_EXECUTE, f"cannot execute {command}: its interpreter is missing"
        # A folder of the PATH that one may not even look into is no reason to say more.
        if number in _ABSENT or (number == errno.EACCES and not there and len(self._places) > 1):
            return NOT_FOUND, f"command not found: {command}"
        return CANNOT_EXECUTE, f"cannot execute {command}: {os.strerror(number)}"


def spawn(
    command: list[str],
    environment: Mapping[str, str],
    *,
    dispositions: Mapping[int, Any],
    mask: Iterable[int],
    terminal: int | None,
) -> Child:
    """Start ``command`` in a process group of its own.

    It finds the signal ``dispositions`` and ``mask`` given, and with the descriptor of a
    ``terminal`` is in its foreground before it runs.
    """
    places = _places(command[0], environment)
    die_with = _parent_death_signal()
    read, write = os.pipe()

    def become() -> None:
        os.setpgid(0, 0)
        if terminal is not None:
            with suppress(OSError):  # it may have been hung up this moment
                os.tcsetpgrp(terminal, os.getpid())
        die_with()
        # Every signal is blocked still. One that came since the fork finds what it will find in
        # the command: the handlers of joblock must not see it.
        for number, disposition in dispositions.items():
            signal.signal(number, disposition)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.write(write, str(_execute(places, command, environment)).encode())

    pid = _fork(become)
    os.close(write)
    # The child does so too: whichever is first, neither of them goes on before it is done.
    with suppress(ProcessLookupError, PermissionError):
        os.setpgid(pid, pid)
    return Child(pid, command[0], places, read)


def _fork(become: Callable[[], None]) -> int:
    """Fork with every signal blocked, and end the child should ``become`` ever return."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    gc.disable()  # nothing of joblock's is to be collected, and so ended, in the child
    try:
        with warnings.catch_warnings():
            # Python 3.12 and later warn of what the module's first lines take care of.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            try:
                become()
            finally:
                os._exit(NOT_FOUND)  # no exit handler of joblock's may run here
        return pid
    finally:
        gc.enable()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _parent_death_signal() -> Callable[[], None]:
    """What to call in the child so that it ends with its parent; looked up before the fork."""
    if sys.platform != "linux":
        return lambda: None
    prctl = ctypes.CDLL(None).prctl
    prctl.argtypes = (ctypes.c_int, *[ctypes.c_ulong] * 4)
    parent = os.getpid()

    def die_with_parent() -> None:
        prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != parent:
            os._exit(NOT_FOUND)  # it was killed before the kernel knew

    return die_with_parent


def _places(command: str, environment: Mapping[str, str]) -> list[str]:
    """Where a shell would look for it."""
    if "/" in command:
        return [command]
    folders = environment.get("PATH", os.defpath).split(":")
    return [f"{folder or '.'}/{command}" for folder in folders]


def _execute(places: list[str], command: list[str], environment: Mapping[str, str]) -> int:
    """Become the command; the error number if that is impossible."""
    found = errno.ENOENT
    for place in places:
        try:
            os.execve(place, command, environment)  # noqa: S606 - what it is for
        except OSError as error:
            number = error.errno or errno.ENOENT
        if number == errno.ENOEXEC:
            # A script without a first line that names its interpreter: a shell runs it itself.
            os.execve("/bin/sh", ["sh", place, *command[1:]], environment)  # noqa: S606 - as above
        if number == errno.EACCES:
            found = number
        elif number not in _ABSENT:
            return number
    return found
