"""A blocking driver made of one for tasks, in an event loop of a thread of its own.

It is for what asks beside the application's event loop: the keeper.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any

from joblock.stores.postgres.faults import PATIENCE
from joblock.values.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

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
        self._closed = False

    def call(self, op: Any) -> Any:
        """Do ``op``."""
        with self._lock:
            if self._side is None and not self._closed:
                self._side = _Side(self._make)
            # Under the lock: once its end has begun, it takes nothing more.
            asked = None if self._side is None else self._side.ask(op)
        return self._call_once(op) if asked is None else asked.answer()

    def after_fork(self) -> None:
        """Abandon what was inherited: the thread is the parent's."""
        _inherited.append(self._side)
        self._begin()

    def close(self) -> None:
        """Hang up and end the thread for good: what comes later keeps none."""
        with self._lock:
            self._closed = True
            side, self._side = self._side, None
        if side is not None:
            side.end()

    def _call_once(self, op: Any) -> Any:
        side = _Side(self._make)
        try:
            return side.ask(op).answer()
        finally:
            side.end()


class _Asked:
    """A request on its way in that loop."""

    def __init__(self, future: Future[Any], over: threading.Event) -> None:
        self._future = future
        self._over = over

    def answer(self) -> Any:
        try:
            return self._future.result()
        except CancelledError as error:
            raise StoreUnavailable("the store was closed before it answered") from error
        except BaseException:
            # An interrupt: what was sent must be over before the caller can undo it.
            if not self._future.done():
                self._future.cancel()
                self._over.wait(PATIENCE)
            raise


class _Side:
    """An event loop in a thread, with a driver."""

    def __init__(self, make: Callable[[], AsyncDriver]) -> None:
        self._make = make
        self._loop = asyncio.new_event_loop()
        self._driver: AsyncDriver | None = None
        self._thread = threading.Thread(target=self._run, name="joblock-asyncpg", daemon=True)
        self._thread.start()

    def ask(self, op: Any) -> _Asked:
        over = threading.Event()
        return _Asked(asyncio.run_coroutine_threadsafe(self._call(op, over), self._loop), over)

    def end(self) -> None:
        asyncio.run_coroutine_threadsafe(self._hang_up(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)

    def _run(self) -> None:
        try:
            self._loop.run_forever()
            # Whoever still waits for an answer gets none.
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            if left:
                self._loop.run_until_complete(asyncio.wait(left))
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
