"""A TCP proxy that holds back what goes to the server, or cuts a connection, in its own thread."""

from __future__ import annotations

import asyncio
import threading
import time


class SlowProxy:
    """Passes everything on to ``port``, towards the server ``delay`` seconds late.

    ``cut`` ends the next connection on which a ``"request"`` comes, instead of passing that on, or
    on which a ``"reply"`` does; ``cuts`` counts them.
    """

    def __init__(self, port: int, delay: float = 0.0) -> None:
        self._port = port
        self.delay = delay
        self.cut = ""
        self.cuts = 0
        self.port = 0
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="slow-proxy")
        self._thread.start()
        assert self._ready.wait(10)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(10)
        self._loop.close()

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        self._over = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._over.wait()
        server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        late: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        for pumping in (
            self._collect(reader, late),
            self._send(late, back),
            self._pump(there, writer),
        ):
            self._tasks.add(asyncio.ensure_future(pumping))

    async def _collect(
        self, source: asyncio.StreamReader, late: asyncio.Queue[tuple[float, bytes]]
    ) -> None:
        data = b"first"
        while data:
            try:
                data = await source.read(65_536)
            except ConnectionError:
                data = b""
            late.put_nowait((time.monotonic() + self.delay, data))

    async def _send(
        self, late: asyncio.Queue[tuple[float, bytes]], sink: asyncio.StreamWriter
    ) -> None:
        try:
            while True:
                when, data = await late.get()
                await asyncio.sleep(max(0.0, when - time.monotonic()))
                if not data or self._is_cut("request"):
                    return
                sink.write(data)
        finally:
            sink.close()

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65_536):
                if self._is_cut("reply"):
                    return
                sink.write(data)
        except ConnectionError:
            pass
        finally:
            sink.close()

    def _is_cut(self, what: str) -> bool:
        if self.cut != what:
            return False
        self.cut = ""
        self.cuts += 1
        return True
