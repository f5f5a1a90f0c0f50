"""The Redis store for the contract suites: on the server's own clock, or on one turned by hand."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Any

from joblock.stores.redis import RedisStore, scripts
from joblock.stores.redis.sync import Connection
from joblock.stores.redis.target import Login, Place
from joblock.stores.redis.wire import pack
from joblock.testing import ManualHarness, StoreHarness

if TYPE_CHECKING:
    import pytest
    from redis_servers import Server

CLOCK = "test:clock"
BEGIN = 1_750_000_000


class RedisHarness(StoreHarness):
    """Real servers, whose time passes by sleeping."""

    longest = 3.0

    def __init__(self, url: str) -> None:
        self._url = url

    def make_store(self) -> RedisStore:
        return RedisStore.from_url(self._url)


class TurnedHarness(ManualHarness):
    """Real servers that run the real scripts, but read the time from a value set by the test."""

    def __init__(self, server: Server, patch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self._url = server.url
        read = scripts.script_text
        turned = f"redis.call('LRANGE', '{CLOCK}', 0, 1)"
        patch.setattr(
            scripts,
            "script_text",
            lambda name: re.sub(r"(redis\.)?call\('TIME'\)", turned, read(name)),
        )
        scripts.script.cache_clear()
        self._setter = Connection("test", Place("127.0.0.1", server.port), Login())
        self._lock = threading.Lock()
        self._told = 0

    def make_store(self) -> Any:
        return TurnedStore(RedisStore.from_url(self._url), self.tell)

    def tell(self) -> None:
        """Set the server's clock to what the clock turned by hand says.

        Like a real one it shows another microsecond each time it is looked at.
        """
        with self._lock:
            us = round((BEGIN + self.manual.monotonic()) * 1_000_000)
            self._told = max(us, self._told + 1)
            seconds, rest = divmod(self._told, 1_000_000)
            self._setter.ask(pack("DEL", CLOCK) + pack("RPUSH", CLOCK, seconds, rest), 2)

    def close(self) -> None:
        self._setter.close()
        scripts.script.cache_clear()


class TurnedStore:
    """A store that tells its server the time before each operation."""

    def __init__(self, inner: RedisStore, tell: Any) -> None:
        self._inner = inner
        self._tell = tell
        self.url = inner.url
        self.abilities = inner.abilities
        self.subscribe = inner.subscribe
        self.after_fork = inner.after_fork
        self.close = inner.close

    def driver(self) -> Any:
        return TurnedDriver(self._inner.driver(), self._tell)

    def async_driver(self) -> Any:
        return TurnedAsyncDriver(self._inner.async_driver(), self._tell)


class TurnedDriver:
    def __init__(self, inner: Any, tell: Any) -> None:
        self._inner = inner
        self._tell = tell

    def call(self, op: Any) -> Any:
        self._tell()
        return self._inner.call(op)


class TurnedAsyncDriver:
    def __init__(self, inner: Any, tell: Any) -> None:
        self._inner = inner
        self._tell = tell
        self.settled = inner.settled
        self.aclose = inner.aclose

    async def call(self, op: Any) -> Any:
        self._tell()
        return await self._inner.call(op)
