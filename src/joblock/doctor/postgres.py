"""How a PostgreSQL is set up: durability, role, tables, functions, grants, and what is in between.

Nothing is created here: whoever creates the tables owns them, and that should be the application.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from joblock.doctor.report import Finding, Look, broken, good, note, risk, unchecked, untried
from joblock.stores.postgres.ddl import FORMAT, quoted
from joblock.stores.postgres.faults import Trouble, refusal

if TYPE_CHECKING:
    from joblock.stores.postgres.store import PostgresStore

_OLDEST = 12
_SETTINGS = (
    "autovacuum",
    "default_transaction_isolation",
    "default_transaction_read_only",
    "fsync",
    "full_page_writes",
    "server_encoding",
    "synchronous_commit",
    "synchronous_standby_names",
)


def look(store: PostgresStore) -> Look:
    """Ask the server; raises StoreUnavailable, StoreMisconfigured."""
    place: Any = store._place  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    connect = getattr(place, "connect", None)
    if connect is None:
        found = "this pool connects for asyncio only; give a URL to have its server looked at"
        return Look([unchecked("settings", found)], store)
    try:
        connection = connect()
    except Trouble as trouble:
        raise refusal(store.manner, trouble) from trouble
    try:
        return _look(store, _Server(connection, store.schema))
    finally:
        connection.close()


class _Server:
    """A connection, and a question at a time."""

    def __init__(self, connection: Any, schema: str) -> None:
        self._connection = connection
        self.schema = schema
        self.version: int = connection.info.server_version
        # A pooler shows a process id of its own making.
        [(pid,)] = self.rows("select pg_backend_pid()")
        self.pooled = pid != connection.pgconn.backend_pid
        settings = "select name, setting from pg_settings where name = any(%s)"
        self.settings: Mapping[str, str] = dict(self.rows(settings, list(_SETTINGS)))
        [(self.role,)] = self.rows("select current_user")

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        # Not prepared: a pooler may not know what that is.
        return self._connection.execute(sql.encode(), values, prepare=False).fetchall()

    def within(self, name: str) -> str:
        """A name of the schema, quoted."""
        return f"{quoted(self.schema)}.{quoted(name)}"


def _look(store: PostgresStore, server: _Server) -> Look:
    findings = [finding for check in _CHECKS for finding in _careful(check, server)]
    missing = [table for table in _tables() if not _exists(server, table)]
    if len(missing) == len(_tables()):
        findings += [_no_tables(server), untried()]
        return Look(findings, None)
    tables = _columns(server, missing) + _functions(server) + _format(server)
    findings += tables or [good("tables", f"in the schema {server.schema}, of format {FORMAT}")]
    lacking = _grants(server, missing)
    findings += lacking
    short = any(one.severity == "broken" for one in lacking)
    usable = not (tables or short or server.settings["default_transaction_read_only"] == "on")
    standby = any(one.check == "role" and one.severity == "broken" for one in findings)
    if not usable or standby:
        return Look([*findings, untried()], None)
    return Look(findings, store, reached=True)


def _careful(check: Callable[[_Server], list[Finding]], server: _Server) -> list[Finding]:
    from psycopg import Error

    try:
        return check(server)
    except Error as error:
        return [unchecked(check.__name__.strip("_"), f"the server refuses to say: {error}")]


# The server.


def _version(server: _Server) -> list[Finding]:
    major = server.version // 10_000
    if major < _OLDEST:
        return [
            broken(
                "version",
                f"PostgreSQL {major}",
                "joblock's functions do not work there",
                "PostgreSQL 12 or later",
            )
        ]
    return [good("version", f"PostgreSQL {major}.{server.version % 10_000}")]


def _in_recovery(server: _Server) -> list[Finding]:
    [(standby,)] = server.rows("select pg_is_in_recovery()")
    if standby:
        return [
            broken(
                "role",
                "a standby, which is read only",
                "no lease can be had here",
                "name all servers in the URL and add target_session_attrs=read-write",
            )
        ]
    if server.settings["default_transaction_read_only"] == "on":
        return [
            broken(
                "read only",
                f"default_transaction_read_only is on for {server.role}",
                "no lease can be had",
                f"ALTER ROLE {quoted(server.role)} SET default_transaction_read_only = off",
            )
        ]
    return [good("role", "a primary")]


def _durability(server: _Server) -> list[Finding]:
    settings, findings = server.settings, list[Finding]()
    if settings["fsync"] != "on":
        findings.append(
            broken(
                "fsync",
                "fsync is off",
                "a machine that crashes may lose grants, or damage the whole database",
                "fsync = on in postgresql.conf",
            )
        )
    if settings["full_page_writes"] != "on":
        findings.append(
            risk(
                "full_page_writes",
                "full_page_writes is off",
                "a machine that crashes may damage pages, unless the file system prevents that",
                "full_page_writes = on in postgresql.conf",
            )
        )
    if settings["synchronous_commit"] == "off":
        findings.append(
            broken(
                "synchronous_commit",
                f"synchronous_commit is off for {server.role}",
                "a server that crashes forgets the grants of the last moments: two run at a time",
                f"ALTER ROLE {quoted(server.role)} SET synchronous_commit = on "
                "(releases are committed asynchronously by joblock itself)",
            )
        )
    if findings:
        return findings
    how = settings["synchronous_commit"]
    return [good("durability", f"fsync on, full_page_writes on, synchronous_commit {how}")]


def _replication(server: _Server) -> list[Finding]:
    [(standbys,)] = server.rows("select count(*) from pg_stat_replication")
    named, commit = server.settings["synchronous_standby_names"], server.settings
    if not standbys:
        return [good("standbys", "none is connected, so there is no failover that loses grants")]
    if named and commit["synchronous_commit"] not in {"off", "local"}:
        return [good("standbys", f"{standbys} connected; a grant waits for: {named}")]
    return [
        risk(
            "standbys",
            f"{standbys} connected, and no commit waits for them",
            "a failover forgets the grants that the standby had not received: two run at a time "
            "until the first learns of it",
            "synchronous_standby_names, for the database or the role that has the leases; fence "
            "what must not be harmed",
        )
    ]


def _habits(server: _Server) -> list[Finding]:
    settings, findings = server.settings, list[Finding]()
    if settings["default_transaction_isolation"] != "read committed":
        found = f"default_transaction_isolation is {settings['default_transaction_isolation']}"
        findings.append(
            note("isolation", found, "harmless: joblock states its own, at a small cost")
        )
    if settings["server_encoding"] != "UTF8":
        found = f"the database's encoding is {settings['server_encoding']}"
        findings.append(note("encoding", found, "keys with other characters are refused"))
    if settings["autovacuum"] != "on":
        findings.append(
            risk("autovacuum", "autovacuum is off", "the tables grow and slow down", "turn it on")
        )
    return findings


def _pooler(server: _Server) -> list[Finding]:
    if not server.pooled:
        return [good("pooler", "none is in between")]
    return [
        note(
            "pooler",
            "a pooler such as PgBouncer is in between, which cannot carry LISTEN",
            "waiters are not woken but ask, unless the URL has a listen_url= that leads to the "
            "server itself (see: notices)",
        )
    ]


_CHECKS = (_version, _in_recovery, _durability, _replication, _habits, _pooler)


# Tables, functions, grants.


def _no_tables(server: _Server) -> Finding:
    may = "coalesce(has_schema_privilege(to_regnamespace(%s), 'CREATE'), false)"
    database = "has_database_privilege(current_database(), 'CREATE')"
    [(there, create, make)] = server.rows(
        f"select to_regnamespace(%s) is not null, {may}, {database}",
        quoted(server.schema),
        quoted(server.schema),
    )
    if create or (make and not there):
        return note(
            "tables",
            f"not there yet; {server.role} makes them in the schema {server.schema} at its first "
            "lock, and owns them",
            "if the application uses another role, let that one be first",
        )
    return broken(
        "tables",
        f"not there, and {server.role} may not make them in the schema {server.schema}",
        "no lease can be had",
        "let an administrator run what `joblock schema postgresql` prints, and grant their use",
    )


def _exists(server: _Server, table: str) -> bool:
    [(there,)] = server.rows("select to_regclass(%s) is not null", server.within(table))
    return there


def _columns(server: _Server, missing: list[str]) -> list[Finding]:
    wrong = [f"{table} is missing" for table in missing]
    for table, columns in _tables().items():
        if table in missing:
            continue
        rows = server.rows(
            "select attname, format_type(atttypid, null) from pg_attribute "
            "where attrelid = to_regclass(%s) and attnum > 0 and not attisdropped",
            server.within(table),
        )
        has = dict(rows)
        wrong += [
            f"{table}.{name} should be {kind} and is {has.get(name, 'missing')}"
            for name, kind in columns.items()
            if has.get(name) != kind
        ]
    return [_misshapen("tables", wrong)] if wrong else []


def _functions(server: _Server) -> list[Finding]:
    rows = server.rows(
        "select proname from pg_proc where pronamespace = to_regnamespace(%s)",
        quoted(server.schema),
    )
    has = {name for (name,) in rows}
    wrong = [f"{name} is missing" for name in sorted(_function_names() - has)]
    return [_misshapen("functions", wrong)] if wrong else []


def _misshapen(check: str, wrong: list[str]) -> Finding:
    return broken(
        check,
        "; ".join(wrong),
        "operations fail, or do something else than they should",
        "run what `joblock schema postgresql` prints, by the owner of the tables; if that does not "
        "mend it, use another schema (schema= in the URL)",
    )


def _format(server: _Server) -> list[Finding]:
    from psycopg import Error

    try:
        rows = server.rows(f"select format from {server.within('job_lock_meta')}")  # noqa: S608
    except Error:
        return []  # missing, or not granted: reported as such
    if rows == [(FORMAT,)]:
        return []
    has = ", ".join(str(number) for (number,) in rows) or "none"
    return [
        broken(
            "format",
            f"the tables are of format {has}, and this joblock works with {FORMAT}",
            "two versions of joblock do not see each other's leases in the same way",
            "use one version of joblock wherever this schema is used, or give it another schema",
        )
    ]


def _grants(server: _Server, missing: list[str]) -> list[Finding]:
    lacking: list[str] = []
    [(usage,)] = server.rows(
        "select has_schema_privilege(to_regnamespace(%s), 'USAGE')", quoted(server.schema)
    )
    if not usage:
        lacking.append(f"USAGE on the schema {server.schema}")
    for table in _tables():
        if table in missing:
            continue
        lacks = [
            right
            for right in ("SELECT", "INSERT", "UPDATE", "DELETE")
            if not server.rows(
                "select has_table_privilege(to_regclass(%s), %s)", server.within(table), right
            )[0][0]
        ]
        if lacks:
            lacking.append(f"{', '.join(lacks)} on {table}")
    if not lacking:
        return [] if missing else [good("grants", f"{server.role} may use the tables")]
    tables = ", ".join(server.within(table) for table in [*_tables(), "job_lock_leases"])
    return [
        broken(
            "grants",
            f"{server.role} lacks {'; '.join(lacking)}",
            "leases cannot be granted, renewed or freed",
            f"GRANT USAGE ON SCHEMA {quoted(server.schema)} TO {quoted(server.role)}; "
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON {tables} TO {quoted(server.role)}",
        )
    ]


def _tables() -> dict[str, dict[str, str]]:
    """The columns of each table and their types, as the DDL has them."""
    pattern = r"create (?:unlogged )?table if not exists \{schema\}\.(\w+) \(\n(.*?)\n\)"
    return {
        name: {
            column: kind
            for column, kind in re.findall(r"^    (\w+) +(\w+)", body, re.MULTILINE)
            if column != "primary"
        }
        for name, body in re.findall(pattern, _text("schema.sql"), re.DOTALL)
    }


def _function_names() -> set[str]:
    pattern = r"create or replace function \{schema\}\.(\w+)\("
    return set(re.findall(pattern, _text("functions.sql")))


def _text(name: str) -> str:
    return files("joblock.stores.postgres").joinpath(name).read_text(encoding="utf-8")
