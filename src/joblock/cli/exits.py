"""The exit codes of `joblock`, those of sysexits.h where it has one."""

from __future__ import annotations

OTHERWISE = 1
"""`peek`: the key is free; `release`: there was nothing to release, or the answer was no; `doctor`:
a promise does not hold."""

USAGE = 64
UNAVAILABLE = 69
INTERNAL = 70
UNWRITABLE = 73
"""What was to be shown could not be written; not 74, which in sysexits.h would be nearer, since
that says that a lease was lost."""

LOST = 74
NOT_ACQUIRED = 75
CANNOT_EXECUTE = 126
NOT_FOUND = 127


def by_signal(number: int) -> int:
    """How a shell tells of a process that a signal ended."""
    return 128 + number
