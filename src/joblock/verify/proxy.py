"""A TCP proxy with one door for each worker, where connections are cut, delayed or swallowed."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from typing import Any
from urllib.parse import urlsplit, urlunsplit

_PORTS = {"redis": 6379, "valkey": 6379, "postgresql": 5432, "postgres": 5432}
PATIENCE = 10.0


def address_of(url: str) -> tuple[str, int] | None:
    """Where a proxy would pass on to; None if that URL cannot be led through one.

    Only plain connections to one server can: a certificate is for another name than the proxy's,
    and what a cluster or sentinels answer leads around it.
    """
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or "," in parts.netloc or not parts.hostname:
        return None
    options = parts.query.lower()
    if "ssl" in options or "host=" in options or "hostaddr=" in options:
        return None
    try:
        return parts.hostname, parts.port or _PORTS[parts.scheme]
    except ValueError:
        return None


def through(url: str, port: int) -> str:
    """The same URL by way of a door."""
    parts = urlsplit(url)
    user, at, _ = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{user}{at}127.0.0.1:{port}"))


class Door:
    """One listening port, and how it treats what passes."""

    def __init__(self) -> None:
        self.port = 0
        self.delay = 0.0
        self.swallows = False
        self.loses_reply = False
        self.pairs: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = set()

    def cut(self) -> None:
        """Cut all its connections, on the proxy's own thread."""
        for pair in tuple(self.pairs):
            for writer in pair:
                writer.transport.abort()


class Proxy:
    """Doors to one server, in a thread of their own."""

    def __init__(self, host: str, port: int, doors: int) -> None:
        self._there = host, port
        self.doors = [Door() for _ in range(doors)]
        self._loop = asyncio.new_event_loop()
        self._over = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="verify-proxy", daemon=True)
        self._thread.start()
        if not self._ready.wait(PATIENCE):
            raise RuntimeError("the proxy for faults of the network did not start")

    def cut(self, door: Door) -> None:
        """Cut every connection that goes through it now."""
        self._loop.call_soon_threadsafe(door.cut)

    def close(self) -> None:
        """Cut everything and end."""
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(PATIENCE)

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        servers: list[asyncio.Server] = []
        for door in self.doors:
            server = await asyncio.start_server(
                lambda reader, writer, door=door: self._accept(door, reader, writer), "127.0.0.1", 0
            )
            door.port = server.sockets[0].getsockname()[1]
            servers.append(server)
        self._ready.set()
        await self._over.wait()
        for server in servers:
            server.close()
        for door in self.doors:
            door.cut()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(
        self, door: Door, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._keep(self._pass_through(door, reader, writer))

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _pass_through(
        self, door: Door, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            there, back = await asyncio.open_connection(*self._there)
        except OSError:
            writer.transport.abort()
            return
        pair = writer, back
        door.pairs.add(pair)
        try:
            await asyncio.gather(
                self._pump(door, reader, back, replies=False),
                self._pump(door, there, writer, replies=True),
            )
        finally:
            door.pairs.discard(pair)
            for end in pair:
                end.transport.abort()

    async def _pump(
        self,
        door: Door,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        *,
        replies: bool,
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65_536):
                if door.loses_reply and replies:
                    # It was done; nobody will be told.
                    door.loses_reply = False
                    break
                if door.delay:
                    await asyncio.sleep(door.delay)
                while door.swallows:  # noqa: ASYNC110 - other threads open it
                    await asyncio.sleep(0.02)
                sink.write(data)
                await sink.drain()
        sink.transport.abort()
