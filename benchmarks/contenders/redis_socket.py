"""Floor: SET NX PX and EVALSHA of a compare-and-delete, written into a socket. Needs nothing."""

from __future__ import annotations

import asyncio
import hashlib
import socket
from collections import deque
from functools import cache
from urllib.parse import urlsplit

from benchmarks.contenders.shape import DELETE, AsyncHeld, Held

NAME = "socket"
KIND = "floor"
STORE = "redis"
GIVES = "lease; tries once"
BLOCKING = False

_SHA = hashlib.sha1(DELETE.encode(), usedforsecurity=False).hexdigest()


def _pack(*words: str) -> bytes:
    return f"*{len(words)}\r\n".encode() + b"".join(
        b"$%d\r\n%b\r\n" % (len(word), word) for word in (text.encode() for text in words)
    )


def _commands(key):
    take = _pack("SET", key, "me", "NX", "PX", "30000")
    return take, _pack("EVALSHA", _SHA, "1", key, "me")


@cache
def _socket(url: str) -> socket.socket:
    parts = urlsplit(url)
    if parts.scheme == "unix":
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(parts.path)
    else:
        connection = socket.create_connection((parts.hostname, parts.port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    _expect(connection, _pack("SCRIPT", "LOAD", DELETE), _SHA.encode())
    return connection


def _expect(connection: socket.socket, command: bytes, answer: bytes) -> None:
    connection.sendall(command)
    reply = connection.recv(200)
    while not reply.endswith(b"\r\n") or (reply[:1] == b"$" and reply.count(b"\r\n") < 2):
        reply += connection.recv(200)
    if answer not in reply:
        raise RuntimeError(reply)


def make(url, key):
    connection = _socket(url)
    take, free = _commands(key)
    held = Held(lambda: _expect(connection, take, b"+OK"), lambda: _expect(connection, free, b":1"))
    return lambda: held


class _Protocol(asyncio.Protocol):
    """Replies in the order of the requests, each one line."""

    def __init__(self) -> None:
        self.asked: deque[asyncio.Future[bytes]] = deque()
        self.rest = b""

    def data_received(self, data: bytes) -> None:
        *lines, self.rest = (self.rest + data).split(b"\r\n")
        for line in lines:
            self.asked.popleft().set_result(line)


_lines: dict[str, tuple[asyncio.WriteTransport, _Protocol]] = {}


async def _ask(url: str, command: bytes, answer: bytes) -> None:
    if url not in _lines:
        parts = urlsplit(url)
        loop = asyncio.get_running_loop()
        connected = (
            loop.create_unix_connection(_Protocol, parts.path)
            if parts.scheme == "unix"
            else loop.create_connection(_Protocol, parts.hostname, parts.port)
        )
        _lines[url] = await connected
    transport, protocol = _lines[url]
    reply = asyncio.get_running_loop().create_future()
    protocol.asked.append(reply)
    transport.write(command)
    line = await reply
    if line != answer:
        raise RuntimeError(line)


def make_async(url, key):
    _socket(url)  # which loads the script
    take, free = _commands(key)
    held = AsyncHeld(lambda: _ask(url, take, b"+OK"), lambda: _ask(url, free, b":1"))
    return lambda: held
