"""`joblock run`: its options and its help; `joblock.cli.runner` does it."""

from __future__ import annotations

from typing import Any

import click

from joblock.cli.exits import NOT_ACQUIRED
from joblock.cli.options import Command, duration, url_option, wait
from joblock.cli.runner import Plan, Runner

_HELP = """Run COMMAND under the lease KEY, so that it runs once at a time.

It tries once: if another holds KEY, COMMAND does not run and the exit code is 75. (flock is the
other way round: it waits unless told not to.) The lease is renewed while COMMAND runs, and released
when it ends.

\b
joblock run nightly-prune -- ./prune.sh
joblock run --wait 10m migrate -- alembic upgrade head
joblock run -q -E 0 report -- ./report.sh   # cron: silent if held elsewhere
joblock run k -- sh -c 'do-a && do-b "$JOBLOCK_TOKEN"'
"""

_EPILOG = """\b
Exit codes:
  COMMAND's own, or 128+n if signal n killed it
  126, 127    COMMAND cannot be executed, is not found
  75 (or -E)  KEY is held elsewhere, in grace, or the wait timed out
  74          the lease was lost, and COMMAND ended for that
  69          the store cannot be reached
  64          bad usage
  128+n       signal n ended the wait; COMMAND was not started

COMMAND finds JOBLOCK_KEY, JOBLOCK_TOKEN (grows with each run: let what it writes to refuse smaller
ones) and JOBLOCK_HOLDER in its environment, but not the store's URL. Signals (TERM, INT, HUP, QUIT,
USR1, USR2) are passed on to it and all that it started. It has a process group of its own and is
lent the terminal.

When the lease is lost (broken with `joblock release`, --max-duration is over, the store was away
for longer than --ttl) others may run: COMMAND and all that it started get SIGTERM, and SIGKILL
after --kill-after. If joblock itself is killed with SIGKILL, so is COMMAND (on Linux, and not if it
is set-user-ID, as sudo is), though not what it had started.

A daemon that COMMAND leaves behind outlives the run and has no lease: its token goes stale.
"""


class _Run(Command):
    """Takes what follows ``--`` as it is, options and all."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        ctx.meta[__name__] = args[end + 1 :]
        return super().parse_args(ctx, args[:end])

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "-- COMMAND..."]


@click.command(
    cls=_Run,
    example="joblock run --wait 10s nightly-prune -- ./prune.sh --all",
    help=_HELP,
    epilog=_EPILOG,
    short_help="Run a command under a lease.",
)
@click.option(
    "--ttl",
    callback=duration,
    metavar="DURATION",
    help="How soon others take over after a crash.  [default: 30s]",
)
@click.option(
    "--wait",
    callback=wait,
    default="0",
    metavar="DURATION|forever",
    help="Wait in line for KEY, first come, first served.  [default: try once]",
)
@click.option(
    "--max-duration",
    callback=duration,
    metavar="DURATION",
    help="End COMMAND after that, as if the lease was lost.",
)
@click.option(
    "-E",
    "otherwise",
    type=click.IntRange(0, 255),
    default=NOT_ACQUIRED,
    metavar="CODE",
    help="Exit code if KEY was not to be had.  [default: 75]",
)
@click.option(
    "--kill-after",
    callback=duration,
    default="10s",
    metavar="DURATION",
    help="From SIGTERM to SIGKILL after a loss.  [default: 10s]",
)
@click.option(
    "-q", "--quiet", is_flag=True, help="Do not say who has KEY when it is not to be had."
)
@url_option
@click.argument("key", metavar="KEY", required=False)
@click.pass_context
def command(ctx: click.Context, key: str | None, url: str | None, **options: Any) -> int:
    """See `_HELP`."""
    words: list[str] = ctx.meta[__name__]
    if key is None and words[1:2] == ["--"]:
        key, words = words[0], words[2:]  # a key that begins with a hyphen
    if not key:
        raise click.UsageError("no KEY: name what is to run once at a time", ctx)
    if not words:
        raise click.UsageError(f"no command: put it behind --, as in: {key} -- COMMAND", ctx)
    return Runner(Plan(key, words, **options), url).run()
