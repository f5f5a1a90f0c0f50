"""`joblock release`: breaking a lease that is another's."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from joblock.cli.describe import since, where
from joblock.cli.exits import OTHERWISE
from joblock.cli.options import Command, open_locks, url_option
from joblock.cli.text import say, visible

if TYPE_CHECKING:
    from joblock.values.records import JobLock

_DANGER = (
    "its holder may well be at work, and learns of it only at its next renewal: until then two may "
    "run at a time. A holder that has crashed needs no help: its lease lapses at its ttl "
    "(joblock peek KEY says when)"
)


@click.command(
    cls=Command,
    example='joblock release --force --yes --reason "host is gone" nightly-prune',
    short_help="Break a lease that its holder no longer gives back.",
    epilog="""\b
Exit codes:
  0   broken
  1   nothing was held, or the answer was no
  69  the store cannot be reached
  64  bad usage: without --force, or without --yes where nobody can be asked
""",
)
@click.option("--force", is_flag=True, help="Break it although it is another's; required.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--reason", default="", metavar="TEXT", help="Why; kept with the key and in the log.")
@url_option
@click.argument("key")
def command(key: str, force: bool, yes: bool, reason: str, url: str | None) -> int:
    """Break every lease of KEY, whoever holds it, and let the next in line have it.

    This is dangerous: its holder may well be at work, and learns of it only at its next renewal, so
    that two may run at a time. A holder that has crashed needs no help: its lease lapses at its
    ttl. Who broke it, when and why is kept with the key.
    """
    if not force:
        raise click.UsageError(
            f"releasing a key is its holder's business, and {_DANGER}. "
            "To break it all the same: --force"
        )
    if not yes:
        _ask(key)
    why = reason.encode(errors="replace").decode()  # an argument may be no text at all
    # The warning that the library logs of this says what is printed below.
    logging.getLogger("joblock.lease").setLevel(logging.ERROR)
    with open_locks(url) as locks:
        try:
            broken = locks.model.delete(key, by=_somebody(), why=why)
        except ValueError as error:
            raise click.UsageError(str(error)) from error
    if not broken:
        say(f"{visible(key)} was not held by anybody")
        return OTHERWISE
    click.echo("\n".join(_lines(key, broken)))
    return 0


def _ask(key: str) -> None:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise click.UsageError("nobody is there to be asked: say --yes")
    say(f"breaking the lease of {visible(key)}: {_DANGER}.")
    if not click.confirm("Break it?", err=True):
        raise click.exceptions.Exit(OTHERWISE)


def _lines(key: str, broken: Sequence[JobLock]) -> list[str]:
    return [
        f"broke {visible(key)} ({lease.state}), held since {since(lease.acquired_at)} by "
        f"{where(lease.worker)}, holder {visible(lease.holder)}, token {lease.token}"
        for lease in broken
    ]


def _somebody() -> str:
    """Who does this, as ``user@host``."""
    import pwd

    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        name = str(os.getuid())  # a container's user often has no name
    return f"{name}@{os.uname().nodename}"
