"""A blocking driver made of one for tasks, in an event loop of a thread of its own.

It is for what asks beside the application's event loop: the keeper.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

from joblock.stores.postgres.faults import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable

    from joblock.stores.postgres.aio import AsyncDriver

_inherited: list[Any] = []


class BesideDriver:
    """See `joblock.store.contract.Driver`."""

    def __init__(self, make: Callable[[], AsyncDriver]) -> None:
        self._make = make
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._side: _Side | None = None

    def call(self, op: Any) -> Any:
        """Do ``op``."""
        with self._lock:
            side = self._side
            if side is None:
                side = self._side = _Side(self._make)
        return side.call(op)

    def after_fork(self) -> None:
        """Abandon what was inherited: the thread is the parent's."""
        _inherited.append(self._side)
        self._begin()

    def close(self) -> None:
        """Hang up and end the thread; a later call starts another."""
        with self._lock:
            side, self._side = self._side, None
        if side is not None:
            side.end()


class _Side:
    """An event loop in a thread, with a driver."""

    def __init__(self, make: Callable[[], AsyncDriver]) -> None:
        self._make = make
        self._loop = asyncio.new_event_loop()
        self._driver: AsyncDriver | None = None
        self._thread = threading.Thread(target=self._run, name="joblock-asyncpg", daemon=True)
        self._thread.start()

    def call(self, op: Any) -> Any:
        over = threading.Event()
        future = asyncio.run_coroutine_threadsafe(self._call(op, over), self._loop)
        try:
            return future.result()
        except BaseException:
            # An interrupt: what was sent must be over before the caller can undo it.
            if not future.done():
                future.cancel()
                over.wait(PATIENCE)
            raise

    def end(self) -> None:
        asyncio.run_coroutine_threadsafe(self._hang_up(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)

    def _run(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    async def _call(self, op: Any, over: threading.Event) -> Any:
        if self._driver is None:
            self._driver = self._make()
        try:
            return await self._driver.call(op)
        finally:
            self._driver.settled(getattr(op, "holder", ""), over.set)

    async def _hang_up(self) -> None:
        if self._driver is not None:
            await self._driver.aclose()
