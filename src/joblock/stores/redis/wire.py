"""RESP, the protocol of Redis and Valkey: packing commands, reading replies; no I/O.

Connections of our own speak it directly and always in version 2, so nothing depends on how a
caller's client decodes, pools, retries or times out. It also spares the second copy of each reply
that a client library for everything has to make.
"""

from __future__ import annotations

from typing import Any

_MISSING: Any = object()


class ServerError(Exception):
    """An error reply, as a value among replies; ``code`` is its first word."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text
        self.code = text.partition(" ")[0]


class Disconnected(Exception):
    """The connection ended; what was sent on it may or may not have been done."""


class TimedOut(Exception):
    """No reply in time; what was sent may or may not have been done."""


class ConnectFailed(Exception):
    """No connection could be made; nothing was sent."""


def pack_bulk(data: bytes) -> bytes:
    """One argument of a command."""
    return b"$%d\r\n%b\r\n" % (len(data), data)


def pack(*arguments: bytes | str | int) -> bytes:
    """One command."""
    parts = [b"*%d\r\n" % len(arguments)]
    parts += [
        pack_bulk(argument if isinstance(argument, bytes) else str(argument).encode())
        for argument in arguments
    ]
    return b"".join(parts)


def only_short(data: bytes) -> Any:
    """The reply if ``data`` is exactly one short text or a yes or no, as nearly every reply is."""
    if data[:1] == b"$":
        end = data.find(b"\r\n", 1, 12)
        if end > 0 and len(data) == end + 4 + int(data[1:end]):
            return data[end + 2 : -2]
    return 1 if data == b":1\r\n" else None


class Parser:
    """Makes replies of the bytes as they come; a reply may arrive in any number of pieces."""

    __slots__ = ("_at", "_data", "_open")

    def __init__(self) -> None:
        self._data = b""
        self._at = 0
        self._open: list[tuple[list[Any], int]] = []

    @property
    def idle(self) -> bool:
        """Whether no reply has begun to arrive."""
        return not self._data and not self._open

    def feed(self, data: bytes) -> list[Any]:
        """The replies that are complete now: bytes, int, list, None or a `ServerError`."""
        self._data = self._data[self._at :] + data if self._data else data
        self._at = 0
        replies: list[Any] = []
        while (value := self._value()) is not _MISSING:
            replies.append(value)
        if self._at == len(self._data):
            self._data, self._at = b"", 0
        return replies

    def _value(self) -> Any:
        while True:
            value = self._atom()
            if value is _MISSING:
                return _MISSING
            if isinstance(value, tuple):
                self._open.append(value)  # pyright: ignore[reportUnknownArgumentType]
                continue
            while self._open:
                items, size = self._open[-1]
                items.append(value)
                if len(items) < size:
                    break
                self._open.pop()
                value = items
            else:
                return value

    def _atom(self) -> Any:
        """The next piece; for a list that has items, the list to fill and its size."""
        data, at = self._data, self._at
        end = data.find(b"\r\n", at)
        if end < 0:
            return _MISSING
        kind, line = data[at : at + 1], data[at + 1 : end]
        if kind == b"$":
            return self._bulk(end + 2, int(line))
        self._at = end + 2
        if kind == b":":
            return int(line)
        if kind == b"*":
            size = int(line)
            return ([], size) if size > 0 else None if size < 0 else []
        if kind == b"-":
            return ServerError(line.decode(errors="replace"))
        if kind == b"+":
            return line
        raise Disconnected(f"this is not the protocol of Redis: {data[at : at + 40]!r}")

    def _bulk(self, begin: int, size: int) -> Any:
        if size < 0:
            self._at = begin
            return None
        if len(self._data) < begin + size + 2:
            return _MISSING
        self._at = begin + size + 2
        return self._data[begin : begin + size]
