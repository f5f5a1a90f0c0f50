"""`joblock ls`: the leases of a store."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from itertools import chain, islice
from shutil import get_terminal_size
from typing import TYPE_CHECKING

import click

from joblock.cli import records
from joblock.cli.options import Command, open_locks, url_option
from joblock.cli.text import now, span, visible

if TYPE_CHECKING:
    from rich.console import RenderableType

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

    A table on a terminal (blocks, if it is too narrow for that); in a pipe a line for each lease,
    its columns separated by tabs, below a line with their names. Control characters and others that
    cannot be seen are written as \x1b, \u202e; --json has keys as they are.
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
    # Asked for before anything is written: a store that cannot be reached has no table.
    pages = iter(leases)
    first = list(islice(pages, 1))
    click.echo("\t".join(name.replace(" ", "_") for name in _COLUMNS))
    for lease in chain(first, pages):
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
    """In colour, unless NO_COLOR is set; as blocks where a table would be too wide."""
    if not leases:
        click.echo("No key is held.")
        return
    # Loaded for this only.
    from rich.cells import cell_len
    from rich.console import Console

    # By itself rich would take every dumb terminal to be 80 columns wide.
    width, height = get_terminal_size()
    console = Console(width=width, height=height, highlight=False)
    rows = [_cells(lease) for lease in leases]
    natural = [max(map(cell_len, column)) for column in zip(_COLUMNS, *rows, strict=True)]
    widths = _widths(natural, width)
    console.print(_blocks(rows) if widths is None else _table(rows, widths))


def _cells(lease: JobLock) -> tuple[str, ...]:
    return (
        visible(lease.key),
        lease.state,
        visible(lease.holder),
        f"{span(now() - lease.acquired_at)} ago",
        span(lease.expires_at - now()),
        visible(lease.worker.host) or "-",
        str(lease.worker.pid or "-"),
        str(lease.token),
    )


def _widths(natural: list[int], width: int) -> list[int] | None:
    """The columns' widths, or None if a key would be cut into too small pieces.

    A long key goes on in the next line. Of a long holder the beginning tells enough.
    """
    key, _, holder, *_ = natural
    left = width - sum(natural) - _GAP * (len(natural) - 1) + key + holder
    holder_width = min(holder, max(_SHORT_HOLDER, left - key))
    key_width = min(key, left - holder_width)
    if key_width < min(key, _SHORT_KEY):
        return None
    return [key_width, natural[1], holder_width, *natural[3:]]


def _table(rows: list[tuple[str, ...]], widths: list[int]) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="bold")
    for name, width in zip(_COLUMNS, widths, strict=True):
        table.add_column(name, width=width, overflow="ellipsis" if name == "holder" else "fold")
    for row in rows:
        table.add_row(*map(Text, row), style=_STYLES[row[1]])
    return table


def _blocks(rows: list[tuple[str, ...]]) -> RenderableType:
    from rich.text import Text

    text = Text(overflow="fold", end="")
    for key, state, holder, since, lapses_in, host, pid, token in rows:
        text.append(f"{key}\n", style=f"bold {_STYLES[state]}")
        text.append(f"  {state} since {since}, lapses in {lapses_in}, host {host}, pid {pid}\n")
        text.append(f"  holder {holder}\n  token {token}\n")
    return text


_GAP = 2
_SHORT_KEY = 24
_SHORT_HOLDER = 12
_STYLES = {"held": "green", "grace": "yellow", "expired": "dim"}
