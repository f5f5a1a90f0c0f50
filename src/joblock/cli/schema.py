"""`joblock schema`: the tables of a store, for those who create them by other means."""

from __future__ import annotations

from importlib.resources import files

import click

from joblock.cli.options import Command

_WITHOUT_TABLES = ("memory",)


@click.command(
    cls=Command,
    example="joblock schema sqlite",
    short_help="Print the tables of a store.",
    epilog="""\b
Exit codes:
  0   printed
  64  bad usage
""",
)
@click.argument("store", default="sqlite")
def command(store: str) -> int:
    """Print the DDL of STORE, the scheme of its URL (sqlite if none is given).

    joblock makes these tables by itself where it may. No store is opened for this. A store that
    has no tables says so, in a comment.
    """
    click.echo(_ddl(store).rstrip())
    return 0


def _ddl(store: str) -> str:
    known = _with_tables()
    if store in known:
        return (files("joblock.stores") / store / "schema.sql").read_text(encoding="utf-8")
    if store in _WITHOUT_TABLES:
        return f"-- The {store} store has no tables."
    raise click.UsageError(
        f"no store {store!r}; there are: {', '.join([*known, *_WITHOUT_TABLES])}"
    )


def _with_tables() -> list[str]:
    stores = files("joblock.stores").iterdir()
    return sorted(store.name for store in stores if (store / "schema.sql").is_file())
