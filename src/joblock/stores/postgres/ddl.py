"""What joblock keeps in PostgreSQL, as SQL text: for the store itself and for migrations."""

from __future__ import annotations

from importlib.resources import files

from joblock.values.imports import importing
from joblock.values.shown import shown

DEFAULT_SCHEMA = "public"
_LONGEST = 63
FORMAT = 1
"""The format of the tables; it is part of the functions' names."""


def quoted(name: str) -> str:
    """An identifier, quoted."""
    if not name or "\0" in name or len(name.encode()) > _LONGEST:
        raise ValueError(f"a schema's name has 1 to 63 bytes and no NUL; got {shown(name)}")
    return '"' + name.replace('"', '""') + '"'


def ddl(schema: str = DEFAULT_SCHEMA) -> str:
    """Everything that has to be created, for a person or a migration to run once.

    Running it again does no harm. The store does the same by itself at its first use, if it may.
    """
    with importing():  # as files does, in some versions
        here = files("joblock.stores.postgres")
        text = "\n".join(
            here.joinpath(name).read_text(encoding="utf-8")
            for name in ("schema.sql", "functions.sql")
        )
    return text.replace("{schema}", quoted(schema))
