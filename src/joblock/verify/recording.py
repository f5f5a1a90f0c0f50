"""A store that writes down what it is asked and what it answers; it changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from joblock.store.contract import Abilities, Deliver, Store, Subscription
from joblock.store.ops import Count, Page, Purge
from joblock.verify.history import Recorder

_UNRECORDED = (Page, Count, Purge)


class RecordingStore:
    """Another store, and the history that its use leaves."""

    def __init__(self, inner: Store, recorder: Recorder) -> None:
        self._inner = inner
        self._recorder = recorder

    @property
    def url(self) -> str:
        """That of the store."""
        return self._inner.url

    @property
    def abilities(self) -> Abilities:
        """Those of the store."""
        return self._inner.abilities

    def driver(self) -> RecordingDriver:
        """The store's blocking driver, recorded."""
        return RecordingDriver(self._inner.driver(), self._recorder)

    def async_driver(self) -> RecordingAsyncDriver:
        """The store's driver for the running event loop, recorded."""
        return RecordingAsyncDriver(self._inner.async_driver(), self._recorder)

    def subscribe(
        self, client: str, deliver: Deliver, connected: Callable[[], None]
    ) -> Subscription:
        """As the store."""
        return self._inner.subscribe(client, deliver, connected)

    def after_fork(self) -> None:
        """As the store."""
        self._inner.after_fork()

    def close(self) -> None:
        """As the store."""
        self._inner.close()


class RecordingDriver:
    """A blocking driver, recorded."""

    def __init__(self, inner: Any, recorder: Recorder) -> None:
        self._inner = inner
        self._recorder = recorder

    def call(self, op: Any) -> Any:
        """Do ``op``."""
        if isinstance(op, _UNRECORDED):
            return self._inner.call(op)
        number = self._recorder.call(op)
        try:
            reply = self._inner.call(op)
        except BaseException as error:
            self._recorder.failed(number, error)
            raise
        self._recorder.reply(number, reply)
        return reply


class RecordingAsyncDriver:
    """An asyncio driver, recorded."""

    def __init__(self, inner: Any, recorder: Recorder) -> None:
        self._inner = inner
        self._recorder = recorder
        self.settled: Callable[[str, Callable[[], None]], None] = inner.settled

    async def call(self, op: Any) -> Any:
        """Do ``op``."""
        if isinstance(op, _UNRECORDED):
            return await self._inner.call(op)
        number = self._recorder.call(op)
        try:
            reply = await self._inner.call(op)
        except BaseException as error:
            self._recorder.failed(number, error)
            raise
        self._recorder.reply(number, reply)
        return reply

    async def aclose(self) -> None:
        """As the driver."""
        await self._inner.aclose()
