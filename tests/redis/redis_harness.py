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

# Like a real clock it shows another microsecond whenever it is looked at, within its millisecond.
TURNED = f"""(function()
  local us = tonumber(redis.call('GET', '{CLOCK}'))
  if us % 1000 < 999 then redis.call('INCR', '{CLOCK}') end
  return {{math.floor(us / 1000000), us % 1000000}}
end)()""".replace("\n", " ")


class RedisHarness(StoreHarness):
    """Real servers, whose time passes by sleeping."""

    longest = 3.0

    def __init__(self, url: str) -> None:
        self._url = url

    def make_store(self) -> RedisStore:
        return RedisStore.from_url(self._url)


class TurnedHarness(ManualHarness):
    """Real servers that run the real scripts, but read the time from a value set by the test."""

    many = 1_000

    def __init__(self, server: Server, patch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self._url = server.url
        read = scripts.script_text
        patch.setattr(
            scripts,
            "script_text",
            lambda name: re.sub(r"(redis\.)?call\('TIME'\)", TURNED, read(name)),
        )
        scripts.script.cache_clear()
        self._setter = Connection("test", Place("127.0.0.1", server.port), Login())
        self._lock = threading.Lock()
        self._told = 0
        # The wall clock may be set; this one may not, just as expiry goes by it elsewhere.
        self._base = self.manual.wall() - self.manual.monotonic()

    def make_store(self) -> Any:
        return TurnedStore(RedisStore.from_url(self._url), self.tell)

    def tell(self) -> None:
        """Set the server's clock to what the clock turned by hand says, if that has changed."""
        with self._lock:
            us = round((self._base + self.manual.monotonic()) * 1_000_000)
            if us != self._told:
                self._told = us
                self._setter.ask(pack("SET", CLOCK, us), 1)

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
