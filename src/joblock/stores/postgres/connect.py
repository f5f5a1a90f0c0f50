"""How connections are opened, from what the caller gave: a URL, or a pool whose settings are used.

All of them are joblock's own, bounded in number, and given up when they do not answer in time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

from joblock.stores.postgres.faults import PATIENCE, Trouble
from joblock.stores.registry import masked, safe_url
from joblock.values.errors import StoreMisconfigured
from joblock.values.imports import importing

if TYPE_CHECKING:
    from joblock.stores.postgres.aio import AsyncDriver
    from joblock.stores.postgres.faults import Manner
    from joblock.stores.postgres.listen import Ear, Hearing
    from joblock.stores.postgres.statements import Statements
    from joblock.stores.postgres.sync import SyncDriver

_DEFAULTS = {
    "connect_timeout": str(int(PATIENCE)),
    "fallback_application_name": "joblock",
    # A peer that vanished without a word is noticed within half a minute.
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
}
_OURS = ("schema", "listen_url")


class Place(NamedTuple):
    """A database, and how psycopg connects to it; ``name`` is shown, so it has no password."""

    name: str
    connect: Callable[[], Any]
    connect_async: Callable[[], Awaitable[Any]]
    tasks_only: bool = False
    prepared: bool = True

    def driver(self, statements: Statements, manner: Manner, schema: str) -> SyncDriver:
        """A blocking driver."""
        with importing():
            from joblock.stores.postgres.sync import SyncDriver

        return SyncDriver(self.connect, statements, manner, schema)

    def async_driver(self, statements: Statements, manner: Manner, schema: str) -> AsyncDriver:
        """A driver for the running event loop."""
        with importing():
            from joblock.stores.postgres.aio import AsyncDriver
            from joblock.stores.postgres.aio_psycopg import PsycopgLine

        async def open_line(loop: Any, back: Any) -> PsycopgLine:
            return PsycopgLine(await self.connect_async(), loop, back)

        return AsyncDriver(open_line, statements, manner, schema)

    def ear(self, channel: str, hearing: Hearing, where: Callable[[], str] | None) -> Ear:
        """An ear for that channel."""
        with importing():
            from joblock.stores.postgres.listen import Ear

        return Ear(self.connect, channel, hearing, where)

    def elsewhere(self, url: str) -> Place:
        """Another way to the same database."""
        return place_of_url(url)


class Url(NamedTuple):
    """A store URL taken apart: what libpq gets, and joblock's own parameters."""

    conninfo: str
    schema: str | None
    listen_url: str | None


def read_url(url: str) -> Url:
    """Take joblock's own parameters out of a URL; the rest is libpq's to read."""
    base, _, query = url.partition("?")
    ours: dict[str, str] = {}
    theirs: list[str] = []
    for pair in query.split("&") if query else []:
        name, _, value = pair.partition("=")
        if name in _OURS:
            ours[name] = unquote(value)
        else:
            theirs.append(pair)
    conninfo = base + ("?" + "&".join(theirs) if theirs else "")
    return Url(conninfo, ours.get("schema"), ours.get("listen_url"))


def need_psycopg() -> None:
    """Say at once, without importing it, that the driver is missing."""
    if find_spec("psycopg") is None:
        raise StoreMisconfigured(
            "the PostgreSQL store needs psycopg 3, which is not installed: "
            "pip install 'joblock[postgres]'"
        )


def place_of_url(conninfo: str) -> Place:
    """A database by its URL."""
    need_psycopg()

    def connect() -> Any:
        import psycopg

        with hiding(conninfo):
            return _opened(psycopg.Connection, conninfo, {})

    async def connect_async() -> Any:
        import psycopg

        with hiding(conninfo):
            return await _opened_async(psycopg.AsyncConnection, conninfo, {})

    return Place(safe_url(conninfo), connect, connect_async)


@contextmanager
def hiding(url: str) -> Generator[None]:
    """Say nothing of the password, which may be in what is said about a URL that is wrong."""
    try:
        yield
    except Trouble as trouble:
        said = str(trouble)
        shown = masked(said, url)
        if shown == said:
            raise
        raise trouble.saying(shown) from None


def place_of_pool(pool: Any) -> Place:
    """The database of a psycopg_pool pool, sync or async, by that pool's own settings."""
    import psycopg

    conninfo: Any = pool.conninfo
    settings: Any = pool.kwargs or {}
    if callable(conninfo) or callable(settings):
        raise StoreMisconfigured(
            "this pool computes its connection settings anew each time, which joblock cannot "
            "follow: give joblock a URL"
        )
    theirs: Any = pool.connection_class
    ours: Any = (psycopg.Connection, psycopg.AsyncConnection)
    is_async: bool = issubclass(theirs, ours[1])
    sync_class, async_class = (ours[0], theirs) if is_async else (theirs, ours[1])

    def connect() -> Any:
        return _opened(sync_class, conninfo, settings)

    async def connect_async() -> Any:
        return await _opened_async(async_class, conninfo, settings)

    return Place(_shown(conninfo, settings), connect, connect_async)


def place_of_engine(engine: Any) -> Place:
    """The database of a SQLAlchemy Engine or AsyncEngine.

    With the dialect postgresql+psycopg its pool's own way to connect is used, events and all, by a
    pool like it. With any other, and for asyncio, the URL of the engine.
    """
    need_psycopg()
    dialect, url = engine.dialect, engine.url
    settings = _settings_of(url)

    def connect_alike() -> Any:
        # A pool of its own each time, and the connection taken out of it: nothing is shared with
        # the application's, nor with the parent of a forked process.
        from sqlalchemy.exc import DBAPIError

        try:
            checked_out = engine.pool.recreate().connect()
        except DBAPIError as error:
            raise _refused(error.orig or error) from error
        checked_out.detach()
        connection = checked_out.dbapi_connection
        connection.rollback()
        connection.autocommit = True
        return connection

    def connect() -> Any:
        import psycopg

        return _opened(psycopg.Connection, "", settings)

    async def connect_async() -> Any:
        import psycopg

        return await _opened_async(psycopg.AsyncConnection, "", settings)

    alike = dialect.driver == "psycopg" and not dialect.is_async
    return Place(_shown("", settings), connect_alike if alike else connect, connect_async)


def _settings_of(url: Any) -> dict[str, Any]:
    """What libpq makes of a SQLAlchemy URL; options that are a driver's own are left out."""
    from psycopg import pq

    known = {option.keyword.decode() for option in pq.Conninfo.get_defaults()}
    settings: dict[str, Any] = {
        "host": url.host,
        "port": url.port,
        "user": url.username,
        "password": url.password,
        "dbname": url.database,
        "sslmode": url.query.get("ssl"),  # asyncpg's name for it
        **{name: value for name, value in url.query.items() if name in known},
    }
    return {name: value for name, value in settings.items() if value is not None}


def _opened(kind: Any, conninfo: str, settings: dict[str, Any]) -> Any:
    import psycopg

    try:
        return kind.connect(conninfo, **_arguments(conninfo, settings))
    except psycopg.Error as error:
        raise _refused(error) from error


async def _opened_async(kind: Any, conninfo: str, settings: dict[str, Any]) -> Any:
    import psycopg

    try:
        return await kind.connect(conninfo, **_arguments(conninfo, settings))
    except psycopg.Error as error:
        raise _refused(error) from error


def _arguments(conninfo: str, settings: dict[str, Any]) -> dict[str, Any]:
    from psycopg.conninfo import conninfo_to_dict

    known = {name for name, value in conninfo_to_dict(conninfo).items() if value is not None}
    defaults = {name: value for name, value in _DEFAULTS.items() if name not in known}
    return {**defaults, **settings, "autocommit": True}


def _refused(error: Exception) -> Trouble:
    return Trouble(
        str(error),
        getattr(error, "sqlstate", None) or "",
        gone=True,
        fresh=True,
        unsent=True,
    )


def _shown(conninfo: str, settings: dict[str, Any]) -> str:
    from psycopg.conninfo import conninfo_to_dict

    parts = {**conninfo_to_dict(conninfo), **settings}
    host, port = parts.get("host") or "", parts.get("port")
    return f"postgresql://{host}{f':{port}' if port else ''}/{parts.get('dbname') or ''}"
