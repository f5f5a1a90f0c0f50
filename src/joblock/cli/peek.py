"""`joblock peek`: who holds a key, since when, where, and who waits for it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from joblock.cli import records
from joblock.cli.describe import share, since, until, where
from joblock.cli.exits import OTHERWISE
from joblock.cli.options import Command, open_locks, url_option
from joblock.cli.text import moment, visible

if TYPE_CHECKING:
    from joblock.values.records import JobLock, Waiting


@click.command(
    cls=Command,
    example="joblock peek nightly-prune",
    short_help="Show who holds a key, since when, and who waits for it.",
    epilog="""\b
Exit codes:
  0   KEY is held, or closed for its grace
  1   KEY is free (a lease that has expired does not close it)
  69  the store cannot be reached
  64  bad usage
""",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object: state, leases, queue.")
@url_option
@click.argument("key")
def command(key: str, as_json: bool, url: str | None) -> int:
    r"""Show who holds KEY: since when, host, pid, program, token, until when; and its queue.

    It only reads. Nothing is told apart by looks alone: control characters and others that cannot
    be seen are written as \x1b, \u202e; --json has them as they are.
    """
    with open_locks(url) as locks:
        try:
            leases, queue = locks.model.holders(key), locks.model.waiters(key)
        except ValueError as error:
            raise click.UsageError(str(error)) from error
    state = _state(leases)
    if as_json:
        found = {
            "key": key,
            "state": state,
            "leases": [records.lease(lease) for lease in leases],
            "queue": [records.waiter(waiter) for waiter in queue],
        }
        click.echo(json.dumps(found, indent=2))
    else:
        click.echo("\n".join([f"{visible(key)}: {state}", *_lines(leases, queue)]))
    return 0 if state in {"held", "grace"} else OTHERWISE


def _state(leases: Sequence[JobLock]) -> str:
    """That of the lease which closes the key most."""
    states = {lease.state for lease in leases}
    return next((state for state in ("held", "grace", "expired") if state in states), "free")


def _lines(leases: Sequence[JobLock], queue: Sequence[Waiting]) -> list[str]:
    lines: list[str] = []
    for number, lease in enumerate(leases, 1):
        if len(leases) > 1:
            lines.append(f"lease {number} of {len(leases)}")
        lines += [f"  {name:<8}{value}" for name, value in _facts(lease) if value]
    if queue:
        lines.append(f"queue: {len(queue)} waiting, the first in line first")
        lines += [f"  {number}. {_about(waiter)}" for number, waiter in enumerate(queue, 1)]
    else:
        lines.append("queue: nobody waits")
    return lines


def _facts(lease: JobLock) -> list[tuple[str, str]]:
    return [
        ("holder", visible(lease.holder)),
        ("since", since(lease.acquired_at)),
        ("where", where(lease.worker)),
        *_end(lease),
        ("token", str(lease.token)),
        ("takes", share(lease)),
    ]


def _end(lease: JobLock) -> list[tuple[str, str]]:
    if lease.state == "expired":
        return [("expired", f"{since(lease.expires_at)}; it is free for whoever is next")]
    if lease.state == "grace" and lease.ended_at is not None:
        return [("ended", moment(lease.ended_at)), ("opens", until(lease.expires_at))]
    return [("until", f"{until(lease.expires_at)} unless renewed")]


def _about(waiter: Waiting) -> str:
    gone = "" if waiter.live else ", not reporting any more"
    takes = f", takes {share(waiter)}" if share(waiter) else ""
    return (
        f"{where(waiter.worker)}, holder {visible(waiter.holder)}, "
        f"since {since(waiter.queued_at)}{takes}{gone}"
    )
