"""A database that the application reaches through an asyncpg pool, and how joblock connects to it.

The connections are joblock's own, made as that pool makes its connections: a request must not wait
for one that the application's work has taken. asyncpg has no blocking side, so what the keeper's
thread asks goes over connections in an event loop of a thread of its own: a computation that blocks
the application's loop costs no lease.
"""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from joblock.stores.postgres.connect import hiding
from joblock.stores.postgres.faults import PATIENCE, Trouble
from joblock.stores.registry import safe_url
from joblock.values.errors import StoreMisconfigured
from joblock.values.imports import importing

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from joblock.stores.postgres.aio import AsyncDriver
    from joblock.stores.postgres.aio_asyncpg import AsyncpgEar
    from joblock.stores.postgres.beside import BesideDriver
    from joblock.stores.postgres.faults import Manner
    from joblock.stores.postgres.listen import Hearing
    from joblock.stores.postgres.statements import Statements


class AsyncpgPlace:
    """See `joblock.stores.postgres.connect.Place`."""

    tasks_only = True

    def __init__(
        self, url: str, name: str, connect: Callable[[bool], Awaitable[Any]], *, prepared: bool
    ) -> None:
        self._url = url
        self.name = name
        self.prepared = prepared
        self._connect = connect

    def driver(self, statements: Statements, manner: Manner, schema: str) -> BesideDriver:
        """A blocking driver."""
        with importing():
            from joblock.stores.postgres.beside import BesideDriver

        return BesideDriver(lambda: self.async_driver(statements, manner, schema))

    def async_driver(self, statements: Statements, manner: Manner, schema: str) -> AsyncDriver:
        """A driver for the running event loop."""
        with importing():
            from joblock.stores.postgres.aio import AsyncDriver
            from joblock.stores.postgres.aio_asyncpg import AsyncpgLine

        async def open_line(loop: Any, back: Any) -> AsyncpgLine:
            prepared = manner.prepared
            return AsyncpgLine(await self._opened(prepared=prepared), loop, back, prepared=prepared)

        return AsyncDriver(open_line, statements, manner, schema)

    def ear(self, channel: str, hearing: Hearing, where: Callable[[], str] | None) -> AsyncpgEar:
        """An ear for that channel."""
        with importing():
            from joblock.stores.postgres.aio_asyncpg import AsyncpgEar

        return AsyncpgEar(lambda: self._opened(prepared=False), channel, hearing, where)

    def elsewhere(self, url: str) -> AsyncpgPlace:
        """Another way to the same database."""

        async def connect(prepared: bool) -> Any:
            unprepared: dict[str, Any] = {} if prepared else {"statement_cache_size": 0}
            return await _asyncpg().connect(url, **unprepared)

        return AsyncpgPlace(url, safe_url(url), connect, prepared=True)

    async def _opened(self, *, prepared: bool) -> Any:
        with hiding(self._url):
            try:
                async with asyncio.timeout(PATIENCE):
                    return await self._connect(prepared)
            except TimeoutError as error:
                raise _refused(f"no connection within {PATIENCE:g} s") from error
            except (*errors(), OSError, ValueError) as error:
                raise _refused(str(error), getattr(error, "sqlstate", None) or "") from error


def place_of_asyncpg(pool: Any) -> AsyncpgPlace:
    """The database of an asyncpg pool."""
    if not all(hasattr(pool, name) for name in ("_connect_args", "_connect_kwargs", "_init")):
        # asyncpg has no public way to ask for these.
        raise StoreMisconfigured(
            "this version of asyncpg does not tell how its pools connect: give AsyncJobLocks a URL"
        )
    given = cast("dict[str, Any]", pool._connect_kwargs)  # noqa: SLF001
    theirs: dict[str, str] = given.get("server_settings") or {}
    settings: dict[str, Any] = {
        **given,
        "server_settings": {"application_name": "joblock", **theirs},
        "connection_class": pool._connection_class,  # noqa: SLF001
        # What an operation may take is joblock's business: a time-out of the pool's own would be
        # taken for an outage.
        "command_timeout": None,
    }

    async def connect(prepared: bool) -> Any:
        # Looked up at each connection: `pool.set_connect_args` may have changed them.
        make: Any = getattr(pool, "_connect", _asyncpg().connect)
        unprepared: dict[str, Any] = {} if prepared else {"statement_cache_size": 0}
        connection: Any = await make(*pool._connect_args, **{**settings, **unprepared})  # noqa: SLF001
        init = pool._init  # noqa: SLF001
        if init is not None:
            try:
                await init(connection)
            except BaseException:
                connection.terminate()
                raise
        return connection

    prepared = given.get("statement_cache_size") != 0
    dsn = str((pool._connect_args or [""])[0] or "")  # noqa: SLF001
    return AsyncpgPlace(dsn, _shown(dsn, given), connect, prepared=prepared)


def errors() -> tuple[type[Exception], ...]:
    """What asyncpg raises when a request fails."""
    library = _asyncpg()
    return library.PostgresError, library.InterfaceError, library.InternalClientError


def _asyncpg() -> Any:
    return import_module("asyncpg")  # it has no types


def _shown(dsn: str, settings: dict[str, Any]) -> str:
    if dsn:
        return safe_url(dsn)
    host, port = settings.get("host") or "", settings.get("port")
    return f"postgresql://{host}{f':{port}' if port else ''}/{settings.get('database') or ''}"


def _refused(message: str, code: str = "") -> Trouble:
    return Trouble(message, code, gone=True, fresh=True, unsent=True)
