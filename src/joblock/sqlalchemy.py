"""The tables of the PostgreSQL store as SQLAlchemy describes tables, for Alembic.

They are made by `joblock.stores.postgres.ddl`, functions and all; described like this, they are
nothing that ``alembic revision --autogenerate`` would drop or change.
"""

from __future__ import annotations

import re
from importlib.resources import files

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    text,
)

__all__ = ["add_tables"]

# What schema.sql says is the one truth; these are the forms that it has.
_TABLE = re.compile(
    r"create (unlogged )?table if not exists \{schema\}\.(\w+) \((.*?)\n\)", re.DOTALL
)
_COLUMN = re.compile(
    r"^    (\w+) +(text|bigint|integer|boolean)( +collate \"C\")?( +primary key)?( +not null)?"
    r"(?: +default ('[^']*'|\w+))?",
    re.MULTILINE,
)
_KEY = re.compile(r"^    primary key \((.*)\)", re.MULTILINE)
_INDEX = re.compile(
    r"create index if not exists (\w+)\s+on \{schema\}\.(\w+) \((.*?)\) where (.*?);",
    re.DOTALL,
)
_TYPES = {"bigint": BigInteger, "integer": Integer, "boolean": Boolean}


def add_tables(metadata: MetaData, schema: str | None = None) -> tuple[Table, ...]:
    """Describe joblock's tables in ``metadata``, and return them.

    ``schema`` is the one that the store's URL names, if it does.
    """
    sql = files("joblock.stores.postgres").joinpath("schema.sql").read_text(encoding="utf-8")
    sql = re.sub("--.*", "", sql)
    tables = {
        name: Table(name, metadata, *_parts(body), schema=schema, prefixes=unlogged.upper().split())
        for unlogged, name, body in _TABLE.findall(sql)
    }
    for name, table, columns, where in _INDEX.findall(sql):
        described: list[Column[object]] = [tables[table].c[each] for each in columns.split(", ")]
        Index(name, *described, postgresql_where=text(where))
    return tuple(tables.values())


def _parts(body: str) -> list[Column[object] | PrimaryKeyConstraint]:
    parts: list[Column[object] | PrimaryKeyConstraint] = [
        Column(
            name,
            Text(collation="C") if collation else _TYPES.get(kind, Text)(),
            primary_key=bool(primary),
            nullable=not (primary or required),
            server_default=text(default) if default else None,
            autoincrement=False,
        )
        for name, kind, collation, primary, required, default in _COLUMN.findall(body)
    ]
    return parts + [PrimaryKeyConstraint(*key.split(", ")) for key in _KEY.findall(body)]
