"""A connection that is the caller's: one statement of ours inside the caller's own transaction.

What kind of connection it is is told by the names of its classes, so that no driver is imported
before one of its connections is here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

Rows: TypeAlias = "list[tuple[Any, ...]]"
Values: TypeAlias = "dict[str, str | int]"


class Statement(NamedTuple):
    """SQL with parameters as ``:name``, and their values.

    ``dialects`` are the databases that it is for. ``place`` is a quoted name, of a schema say, that
    ``{place}`` in the SQL stands for. ``file``: an SQLite file that has to be among the databases
    of the connection; then the place is its name there. ``alone``: it means something outside a
    transaction too.
    """

    sql: str
    values: Values
    dialects: tuple[str, ...] = ("postgresql", "sqlite")
    place: str = ""
    file: str = ""
    alone: bool = False

    def written(self, parameter: Callable[[re.Match[str]], str], colon: str, percent: str) -> str:
        """The SQL for a library that wants parameters like that, and these in names like that."""
        place = self.place.replace(":", colon).replace("%", percent)
        return _PARAMETER.sub(parameter, self.sql).replace("{place}", place)


_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)")
_DATABASES = "PRAGMA database_list"


class _Kind(NamedTuple):
    dialect: str
    run: Callable[[Any, Statement], Any]
    waits: bool = False  # its methods are awaited


def run(connection: Any, statement: Statement, what: str) -> Rows:
    """Run it there, for ``what`` as messages name it. Raises TypeError, or what the driver does."""
    kind = _kind_of(connection, what)
    if kind.waits:
        raise TypeError(f"{what} is for connections that are not awaited; got {_name(connection)}")
    return _run(kind, connection, statement, what)


async def arun(connection: Any, statement: Statement, what: str) -> Rows:
    """The same for a connection that is awaited, and for one of sqlite3."""
    kind = _kind_of(connection, what)
    if kind is _SQLITE:
        return _run(kind, connection, statement, what)
    if not kind.waits:
        raise TypeError(f"{what} is for connections that are awaited; got {_name(connection)}")
    if kind is _ASYNC_ALCHEMY:

        def run_inside(inner: Any) -> Rows:
            return _run(_ALCHEMY, inner, statement, what)

        return await connection.run_sync(run_inside)
    _check_dialect(kind.dialect, connection, statement, what)
    rows = await kind.run(connection, statement)
    _check_transaction(connection, statement, what)
    return rows


def _run(kind: _Kind, connection: Any, statement: Statement, what: str) -> Rows:
    _check_dialect(kind.dialect or _dialect(connection), connection, statement, what)
    if statement.file:
        listed = kind.run(connection, Statement(_DATABASES, {}))
        statement = statement._replace(place=_database(listed, statement.file, what))
    rows = kind.run(connection, statement)
    raw = _raw(connection) if kind is _ALCHEMY else connection
    _check_transaction(raw, statement, what)
    return rows


def _check_transaction(raw: Any, statement: Statement, what: str) -> None:
    """Afterwards, since some drivers begin a transaction with the first statement that writes."""
    if not statement.alone and not _in_transaction(raw):
        raise RuntimeError(
            f"{what} says nothing outside a transaction, and this connection commits each "
            "statement by itself: begin one, write in it, and commit"
        )


def _check_dialect(dialect: str, connection: Any, statement: Statement, what: str) -> None:
    if dialect not in statement.dialects:
        raise TypeError(
            f"{what} needs a connection to {' or '.join(statement.dialects)} here; got "
            f"{_name(connection)} to {dialect}"
        )


def _database(listed: Rows, file: str, what: str) -> str:
    for _, name, path in listed:
        with suppress(OSError):  # one of them may have been deleted
            if path and Path(path).samefile(file):
                return '"' + name.replace('"', '""') + '"'
    raise TypeError(
        f"{what} needs a connection to the lease file: open {file}, or ATTACH it to the "
        "connection before the transaction begins"
    )


# What each kind of connection wants.


def _run_sqlite(connection: Any, statement: Statement) -> Rows:
    cursor = connection.cursor()
    cursor.row_factory = None
    try:
        sql = statement.written(lambda match: match[0], ":", "%")
        return cursor.execute(sql, statement.values).fetchall()
    finally:
        cursor.close()


def _run_psycopg(connection: Any, statement: Statement) -> Rows:
    from psycopg import Cursor
    from psycopg.rows import tuple_row

    # The connection's own cursors may take other placeholders and give other rows.
    with Cursor(connection, row_factory=tuple_row) as cursor:
        cursor.execute(_percent(statement), statement.values)
        return cursor.fetchall() if cursor.description else []


async def _run_psycopg_async(connection: Any, statement: Statement) -> Rows:
    from psycopg import AsyncCursor
    from psycopg.rows import tuple_row

    async with AsyncCursor(connection, row_factory=tuple_row) as cursor:
        await cursor.execute(_percent(statement), statement.values)
        return await cursor.fetchall() if cursor.description else []


async def _run_asyncpg(connection: Any, statement: Statement) -> Rows:
    names: list[str] = []

    def number(match: re.Match[str]) -> str:
        if match[1] not in names:
            names.append(match[1])
        return f"${names.index(match[1]) + 1}"

    sql = statement.written(number, ":", "%")
    rows = await connection.fetch(sql, *(statement.values[name] for name in names))
    return [tuple(row) for row in rows]


def _run_alchemy(connection: Any, statement: Statement) -> Rows:
    from sqlalchemy import text

    sql = text(statement.written(lambda match: match[0], r"\:", "%"))
    result = connection.execute(sql, statement.values)
    return [tuple(row) for row in result] if result.returns_rows else []


def _percent(statement: Statement) -> bytes:
    return statement.written(lambda match: f"%({match[1]})s", ":", "%%").encode()


_SQLITE = _Kind("sqlite", _run_sqlite)
_PSYCOPG = _Kind("postgresql", _run_psycopg)
_ALCHEMY = _Kind("", _run_alchemy)
_ASYNC_PSYCOPG = _Kind("postgresql", _run_psycopg_async, waits=True)
_ASYNCPG = _Kind("postgresql", _run_asyncpg, waits=True)
_ASYNC_ALCHEMY = _Kind("", _run_alchemy, waits=True)

_KINDS = {
    ("sqlite3", "Connection"): _SQLITE,
    ("psycopg", "Connection"): _PSYCOPG,
    ("psycopg", "AsyncConnection"): _ASYNC_PSYCOPG,
    ("asyncpg", "Connection"): _ASYNCPG,
    ("asyncpg", "PoolConnectionProxy"): _ASYNCPG,
    ("sqlalchemy", "Connection"): _ALCHEMY,
    ("sqlalchemy", "Session"): _ALCHEMY,
    ("sqlalchemy", "scoped_session"): _ALCHEMY,
    ("sqlalchemy", "AsyncConnection"): _ASYNC_ALCHEMY,
    ("sqlalchemy", "AsyncSession"): _ASYNC_ALCHEMY,
}


def _kind_of(connection: Any, what: str) -> _Kind:
    for one in type(connection).__mro__:
        kind = _KINDS.get((one.__module__.partition(".")[0], one.__name__))
        if kind is not None:
            return kind
    raise TypeError(
        f"{what} takes an open connection of sqlite3, psycopg, asyncpg or SQLAlchemy (a Connection "
        f"or a Session); got {_name(connection)}"
    )


def _name(connection: object) -> str:
    kind = type(connection)
    return f"{kind.__module__}.{kind.__qualname__}"


def _dialect(connection: Any) -> str:
    return _alchemy_connection(connection).dialect.name


def _alchemy_connection(connection: Any) -> Any:
    return connection if hasattr(connection, "dialect") else connection.connection()


def _raw(connection: Any) -> Any:
    """The driver's own connection below one of SQLAlchemy's."""
    return _alchemy_connection(connection).connection.driver_connection


def _in_transaction(raw: Any) -> bool:
    if hasattr(raw, "is_in_transaction"):
        return raw.is_in_transaction()
    if hasattr(raw, "in_transaction"):
        return raw.in_transaction
    info = getattr(raw, "info", None)
    return info is None or int(info.transaction_status) != 0
