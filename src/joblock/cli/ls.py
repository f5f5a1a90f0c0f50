"""`joblock ls`: the leases of a store."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from joblock.cli import records
from joblock.cli.options import Command, open_locks, url_option
from joblock.cli.text import now, span, visible

if TYPE_CHECKING:
    from joblock.values.records import JobLock

_COLUMNS = ("key", "state", "holder", "since", "lapses in", "host", "pid", "token")


@click.command(
    cls=Command,
    example="joblock ls --prefix nightly-",
    short_help="List the keys that are held.",
    epilog="""\b
Exit codes:
  0   listed, even if there is nothing
  69  the store cannot be reached
  64  bad usage
""",
)
@click.option("--prefix", default="", metavar="P", help="Only keys that begin with P.")
@click.option("--json", "as_json", is_flag=True, help="A JSON array, one object for each lease.")
@url_option
def command(prefix: str, as_json: bool, url: str | None) -> int:
    r"""List the leases, by key: held, in grace, or expired and not yet taken by another.

    A table on a terminal; in a pipe a line for each lease, its columns separated by tabs, below a
    line with their names. Control characters and others that cannot be seen are written as \x1b,
    \u202e; --json has keys as they are.
    """
    with open_locks(url) as locks:
        try:
            leases = locks.model.all(prefix)
            if as_json:
                click.echo(json.dumps([records.lease(lease) for lease in leases], indent=2))
            elif sys.stdout.isatty():
                _print_table(list(leases))
            else:
                _print_lines(leases)
        except ValueError as error:
            raise click.UsageError(str(error)) from error
    return 0


def _print_lines(leases: Iterable[JobLock]) -> None:
    click.echo("\t".join(name.replace(" ", "_") for name in _COLUMNS))
    for lease in leases:
        data = records.lease(lease)
        fields = (
            visible(lease.key),
            lease.state,
            visible(lease.holder),
            data["acquired_at"],
            f"{data['lapses_in']:.3f}",
            visible(lease.worker.host) or "-",
            str(lease.worker.pid or "-"),
            str(lease.token),
        )
        click.echo("\t".join(fields))


def _print_table(leases: list[JobLock]) -> None:
    """With rich, which is loaded for this only."""
    if not leases:
        click.echo("No key is held.")
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    # On a narrow terminal a key goes on in the next line, and never loses any of it; of a holder
    # the beginning tells enough.
    table.add_column("key", overflow="fold", min_width=min(24, console.width // 3), ratio=None)
    table.add_column("state", no_wrap=True)
    table.add_column("holder", overflow="ellipsis", no_wrap=True)
    table.add_column("since", no_wrap=True)
    table.add_column("lapses in", overflow="fold")
    table.add_column("host", overflow="fold")
    table.add_column("pid", no_wrap=True, justify="right")
    table.add_column("token", no_wrap=True)
    for lease in leases:
        table.add_row(
            Text(visible(lease.key), style="bold"),
            Text(lease.state, style=_STYLES[lease.state]),
            Text(visible(lease.holder)),
            Text(f"{span(now() - lease.acquired_at)} ago"),
            Text(span(lease.expires_at - now())),
            Text(visible(lease.worker.host)),
            Text(str(lease.worker.pid or "-")),
            Text(str(lease.token)),
        )
    console.print(table)


_STYLES = {"held": "green", "grace": "yellow", "expired": "red"}
