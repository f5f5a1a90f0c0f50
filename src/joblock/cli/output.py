"""Standard output, where it may be closed, full, or a pipe that nobody reads any more.

Whatever writes to it (click, rich, the help) then ends in one exception, from which `app` makes one
line and an exit code.
"""

from __future__ import annotations

import os
import sys
from codecs import lookup
from typing import Any, TextIO


class Unwritable(Exception):
    """Standard output did not take what was written; ``number`` is the error's."""

    def __init__(self, error: OSError) -> None:
        super().__init__(error.strerror or str(error))
        self.number = error.errno


class Output:
    """Standard output, or ``None`` if its descriptor was closed when this process began."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        if stream is not None:
            # What its encoding cannot show is written out. ASCII is mended as click would, which
            # would otherwise write past this.
            encoding = "utf-8" if lookup(stream.encoding).name == "ascii" else None
            stream.reconfigure(encoding=encoding, errors="backslashreplace")  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]

    def write(self, text: str) -> int:
        """Write to it; raises Unwritable."""
        if self._stream is None:
            raise Unwritable(OSError(None, "it is closed"))
        try:
            return self._stream.write(text)
        except OSError as error:
            raise Unwritable(error) from error

    def flush(self) -> None:
        """Let what was written arrive; raises Unwritable."""
        if self._stream is None:
            return
        try:
            self._stream.flush()
        except OSError as error:
            raise Unwritable(error) from error

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return self._stream is not None and self._stream.isatty()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def drop_the_rest() -> None:
    """Send what is still in the buffer nowhere, or Python complains of it when it exits."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)


def keep_standard_descriptors() -> None:
    """If one of the first three is closed, keep its number from the store's files.

    A command that is run finds it closed all the same.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:  # noqa: PLR2004 - standard error
        pass
    os.close(descriptor)


def guard_standard_output() -> None:
    """Have every write to it end well, or in Unwritable."""
    sys.stdout = Output(sys.stdout)  # pyright: ignore[reportAttributeAccessIssue]
