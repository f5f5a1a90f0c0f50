"""The PostgreSQL store for the contract suites: on the server's own clock, or on a turned one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import asyncpg
import psycopg

from joblock.store.contract import Deliver
from joblock.stores.postgres import PostgresStore, ddl
from joblock.stores.postgres.statements import Statement
from joblock.testing import ManualHarness, StoreHarness

if TYPE_CHECKING:
    from postgres_servers import Server

TURNED = "turned by hand"


class PostgresHarness(StoreHarness):
    """Time passes by sleeping."""

    longest = 3.0

    def __init__(self, make: Callable[[], PostgresStore]) -> None:
        self._make = make

    def make_store(self) -> PostgresStore:
        return self._make()


class AsyncpgHarness(PostgresHarness):
    """In the database of an asyncpg pool, which is never opened: only its settings are used."""

    def __init__(self, url: str, listen_url: str | None = None) -> None:
        super().__init__(lambda: PostgresStore.from_asyncpg(self._pool, listen_url=listen_url))
        self._loop = asyncio.new_event_loop()
        self._pool = asyncpg.create_pool(url, loop=self._loop)

    def close(self) -> None:
        self._loop.close()


class TurnedHarness(ManualHarness):
    """The real SQL on a real server, but for the clock, which is a row that the test sets.

    Steps of the wall clock are a worker's here: those of the server's own would move expiry.
    """

    many = 1_000

    def __init__(self, server: Server) -> None:
        super().__init__()
        self._url = server.url
        self._connection = psycopg.connect(server.url, autocommit=True)
        self._told = 0
        self._base = round((self.manual.wall() - self.manual.monotonic()) * 1_000_000)
        make_turned_schema(self._connection)

    def make_store(self) -> Any:
        return TurnedStore(turned(PostgresStore.from_url(self._url, schema=TURNED)), self.tell)

    def tell(self) -> None:
        """Set the server's clock to what the clock turned by hand says."""
        now = self._base + round(self.manual.monotonic() * 1_000_000)
        if now != self._told:
            self._told = now
            self._connection.execute(
                """update "turned by hand".clock
                set now = timestamptz 'epoch' + %s * interval '1 microsecond'""",
                (now,),
            )

    def close(self) -> None:
        self._connection.close()


def make_turned_schema(connection: psycopg.Connection[Any]) -> None:
    """joblock's tables and functions with another clock, made once per server."""
    connection.execute("select pg_advisory_lock(1)")
    if connection.execute("select from pg_namespace where nspname = %s", (TURNED,)).rowcount == 0:
        connection.execute('create schema "turned by hand"')
        connection.execute('create table "turned by hand".clock (now timestamptz)')
        connection.execute("insert into \"turned by hand\".clock values ('epoch')")
        connection.execute(
            'create function "turned by hand".clock() returns timestamptz language sql volatile as '
            '$$ select c.now from "turned by hand".clock c $$'
        )
        connection.execute(with_turned_clock(ddl(TURNED)).encode())
    connection.execute("select pg_advisory_unlock(1)")


def with_turned_clock(sql: str) -> str:
    assert "clock_timestamp()" in sql
    return sql.replace("clock_timestamp()", '"turned by hand".clock()')


def turned(store: PostgresStore) -> PostgresStore:
    """Let the store's statements read the turned clock."""
    statements = store.statements
    for name, value in vars(statements).items():
        if isinstance(value, Statement) and "clock_timestamp()" in value.text:
            setattr(statements, name, Statement(with_turned_clock(value.text)))
    return store


class TurnedStore:
    """A store that tells its server the time before each operation."""

    def __init__(self, inner: PostgresStore, tell: Callable[[], None]) -> None:
        self._inner = inner
        self._tell = tell
        self.url = inner.url
        self.abilities = inner.abilities
        self.after_fork = inner.after_fork
        self.close = inner.close

    def subscribe(self, client: str, deliver: Deliver, connected: Callable[[], None]) -> Any:
        """Connect first: that takes real time, in which the turned clock may jump by hours."""
        listening = threading.Event()

        def begin() -> None:
            listening.set()
            connected()

        ear = self._inner.subscribe(client, deliver, begin)
        assert listening.wait(20)
        return ear

    def driver(self) -> Any:
        return TurnedDriver(self._inner.driver(), self._tell)

    def async_driver(self) -> Any:
        return TurnedAsyncDriver(self._inner.async_driver(), self._tell)


class TurnedDriver:
    def __init__(self, inner: Any, tell: Callable[[], None]) -> None:
        self._inner = inner
        self._tell = tell

    def call(self, op: Any) -> Any:
        self._tell()
        return self._inner.call(op)


class TurnedAsyncDriver:
    def __init__(self, inner: Any, tell: Callable[[], None]) -> None:
        self._inner = inner
        self._tell = tell
        self.settled = inner.settled
        self.aclose = inner.aclose

    async def call(self, op: Any) -> Any:
        self._tell()
        return await self._inner.call(op)
