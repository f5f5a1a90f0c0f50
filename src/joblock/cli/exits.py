"""The exit codes of `joblock`, those of sysexits.h where it has one."""

from __future__ import annotations

OTHERWISE = 1
"""`peek`: the key is free; `release`: there was nothing to release, or the answer was no."""

USAGE = 64
UNAVAILABLE = 69
INTERNAL = 70
LOST = 74
NOT_ACQUIRED = 75
CANNOT_EXECUTE = 126
NOT_FOUND = 127


def by_signal(number: int) -> int:
    """How a shell tells of a process that a signal ended."""
    return 128 + number
