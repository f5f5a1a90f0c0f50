"""Fences in a table of the caller's database, checked in the caller's own transaction.

One statement checks the fence and advances it. It also locks the fence's row, so a writer with
another token waits until this transaction ends, and then sees what it has left.
"""

from __future__ import annotations

from typing import Any

from joblock.borrowed import Rows, Statement, arun, run
from joblock.fencing.token import Token, token_of
from joblock.values.errors import StaleToken
from joblock.values.names import checked_resource

DDL = """\
CREATE TABLE IF NOT EXISTS job_fences (
    resource text   NOT NULL PRIMARY KEY,
    token    bigint NOT NULL
)"""
"""The table of fences, for PostgreSQL and SQLite."""

_ADVANCE = """\
INSERT INTO job_fences (resource, token) VALUES (:resource, :token)
ON CONFLICT (resource) DO UPDATE SET token = excluded.token
WHERE job_fences.token <= excluded.token
RETURNING token"""

_NEWEST = "SELECT token FROM job_fences WHERE resource = :resource"


def check(connection: Any, resource: str, token: Token) -> None:
    """Let the transaction go on only if no newer holder has written to ``resource``.

    In a transaction of the connection that does the writes: of sqlite3, psycopg or SQLAlchemy (a
    Connection or a Session). ``token`` is an exclusive lease, or its token. The same token passes
    again and again. Raises StaleToken; let it roll the transaction back.
    """
    advance, newest = _statements(resource, token)
    if not run(connection, advance, "fencing.check"):
        raise _stale(advance, run(connection, newest, "fencing.check"))


async def acheck(connection: Any, resource: str, token: Token) -> None:
    """As `check`, for psycopg's AsyncConnection, asyncpg, SQLAlchemy's AsyncConnection, -Session.

    A connection of sqlite3 will do as well.
    """
    advance, newest = _statements(resource, token)
    if not await arun(connection, advance, "fencing.acheck"):
        raise _stale(advance, await arun(connection, newest, "fencing.acheck"))


def create(connection: Any) -> None:
    """Make the table of fences where it is missing; `DDL` is for those who migrate."""
    run(connection, Statement(DDL, {}, alone=True), "fencing.create")


async def acreate(connection: Any) -> None:
    """As `create`, for the connections of `acheck`."""
    await arun(connection, Statement(DDL, {}, alone=True), "fencing.acreate")


def _statements(resource: str, token: Token) -> tuple[Statement, Statement]:
    where = checked_resource(resource)
    return (
        Statement(_ADVANCE, {"resource": where, "token": token_of(token)}),
        Statement(_NEWEST, {"resource": where}),
    )


def _stale(advance: Statement, newest: Rows) -> StaleToken:
    resource, token = advance.values["resource"], advance.values["token"]
    return StaleToken(str(resource), int(token), newest[0][0] if newest else None)
