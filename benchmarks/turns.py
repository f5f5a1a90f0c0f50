"""Turns on one key, noted by whoever has the key, in a file that all processes share.

Since a turn is noted by the holder, before it releases, the file needs no lock of its own; a
contender that lets two in at once is found by turns that overlap.
"""

from __future__ import annotations

import mmap
import struct
import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

CAPACITY = 300_000

_TURN = struct.Struct("<qqqqq")
_COUNT = struct.Struct("<q")


class Turn(NamedTuple):
    """When somebody asked, entered, and called release, by the machine's monotonic clock in ns.

    ``arrival`` is the place in the queue that the contender was given, if it tells that.
    """

    asked: int
    entered: int
    released: int
    who: int
    arrival: int = 0


class Turns:
    """The shared file; made empty by whoever counts in it."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)

    @classmethod
    def create(cls, path: Path) -> Turns:
        with path.open("wb") as file:
            file.truncate(_COUNT.size + CAPACITY * _TURN.size)
        return cls(path)

    def note(self, asked: int, entered: int, who: int, arrival: int = 0) -> None:
        """The last thing a holder does."""
        (count,) = _COUNT.unpack_from(self._memory, 0)
        if count < CAPACITY:
            place = _COUNT.size + count * _TURN.size
            _COUNT.pack_into(self._memory, 0, count + 1)
            turn = asked, entered, time.monotonic_ns(), who, arrival
            _TURN.pack_into(self._memory, place, *turn)

    def read(self) -> list[Turn]:
        (count,) = _COUNT.unpack_from(self._memory, 0)
        return [
            Turn(*_TURN.unpack_from(self._memory, _COUNT.size + number * _TURN.size))
            for number in range(count)
        ]
