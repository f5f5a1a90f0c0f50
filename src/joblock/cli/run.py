"""`joblock run`: its options and its help; `joblock.cli.runner` does it."""

from __future__ import annotations

import math
import shlex
from typing import Any

import click

from joblock.cli.exits import NOT_ACQUIRED, NOT_FOUND
from joblock.cli.options import Command, duration, url_option, wait
from joblock.cli.runner import Plan, Runner
from joblock.cli.text import brief, say, visible

_HELP = """Run COMMAND under the lease KEY, so that it runs once at a time.

It tries once: if another holds KEY, COMMAND does not run and the exit code is 75. (flock is the
other way round: it waits unless told not to.) The lease is renewed while COMMAND runs, and released
when it ends.

\b
joblock run nightly-prune -- ./prune.sh
joblock run --wait 10m import -- ./import.sh
joblock run --join migrate -- alembic upgrade head   # once per deployment
joblock run --limit 4 gpu -- ./train.sh              # four at a time
joblock run -q -E 0 report -- ./report.sh   # cron: silent if held elsewhere
joblock run k -- sh -c 'do-a && do-b "$JOBLOCK_TOKEN"'
"""

_EPILOG = """\b
Exit codes:
  COMMAND's own, or 128+n if signal n killed it
  0           also if the run that --join waited for ended well
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

A run ends well if its exit code is 0. --join waits for the run in progress: if that ends well,
COMMAND need not run any more; if it fails, or is killed, one of those who joined it runs in its
stead, and the others join that one. Nobody joins a run that is over: without --grace, who comes
later runs again.

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
        try:
            return super().parse_args(ctx, args[:end])
        except click.NoSuchOption as error:
            if end < len(args):
                raise
            hint = "what belongs to the command goes behind --"
            raise click.UsageError(f"{error.format_message()} ({hint})", ctx) from error

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "-- COMMAND..."]


@click.command(
    cls=_Run,
    example="joblock run --wait 10s nightly-prune -- ./prune.sh --all",
    help=_HELP,
    epilog=_EPILOG,
    short_help="Run a command under a lease.",
    context_settings={"allow_extra_args": True},  # to tell where they belong
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
    metavar="DURATION|forever",
    help="Wait in line for KEY, first come, first served.  [default: try once]",
)
@click.option(
    "--join",
    is_flag=True,
    help="Wait for the run in progress, and do not run again if that ends well.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help="Let N run at a time. All who use KEY should say the same.  [default: 1]",
)
@click.option(
    "--weight",
    type=click.IntRange(min=1),
    metavar="W",
    help="Take W of the --limit.  [default: 1]",
)
@click.option("--shared", is_flag=True, help="Run beside others that say --shared, and no others.")
@click.option(
    "--max-duration",
    callback=duration,
    metavar="DURATION",
    help="End COMMAND after that, as if the lease was lost.",
)
@click.option(
    "--grace",
    callback=duration,
    metavar="DURATION",
    help="Keep KEY closed for that long after COMMAND ended well.",
)
@click.option(
    "--at-least",
    callback=duration,
    metavar="DURATION",
    help="Keep KEY closed until that long after the start, however COMMAND ends.",
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
    "-q",
    "--quiet",
    is_flag=True,
    help="Do not say who has KEY when it is not to be had, nor which file is used if no store is "
    "named.",
)
@url_option
@click.argument("key", metavar="KEY", required=False)
@click.pass_context
def command(
    ctx: click.Context,
    key: str | None,
    url: str | None,
    wait: float | bool | None,
    **options: Any,
) -> int:
    """See `_HELP`."""
    words: list[str] = ctx.meta[__name__]
    if key is None and words[1:2] == ["--"]:
        key, words = words[0], words[2:]  # a key that begins with a hyphen
    if not key:
        raise click.UsageError("no KEY: name what is to run once at a time", ctx)
    if ctx.args:
        raise click.UsageError(
            f"the command goes behind --, as in: {_shown(key)} -- {_shown(*ctx.args)}", ctx
        )
    if not words:
        raise click.UsageError(
            f"no command: put it behind --, as in: {_shown(key)} -- COMMAND", ctx
        )
    _refuse_contradictions(ctx, wait, options)
    if not words[0]:
        say("command not found: '' (the command is an empty text: is a variable not set?)")
        return NOT_FOUND
    waits = options["join"] if wait is None else wait
    return Runner(Plan(key, words, wait=waits, **options), url).run()


def _shown(*words: str) -> str:
    return brief(visible(shlex.join(words)), 200)


def _refuse_contradictions(
    ctx: click.Context, wait: float | bool | None, given: dict[str, Any]
) -> None:
    limit, weight = given["limit"] or 1, given["weight"] or 1
    ttl, longest = given["ttl"] or 0.0, given["max_duration"] or math.inf
    contradictions = (
        (
            given["shared"] and given["limit"],
            "--shared goes without --limit: any number of shared runs are let in at a time",
        ),
        (
            given["shared"] and given["weight"],
            "--shared goes without --weight: a shared run takes as little as can be",
        ),
        (
            given["shared"] and given["join"],
            "--shared goes without --join: one runs beside the others, the other waits for them",
        ),
        (
            given["join"] and wait is False,
            "--join goes without --wait 0: it waits for the run in progress",
        ),
        (
            weight > limit,
            f"--weight {weight} is above --limit {limit}, so KEY would never be had",
        ),
        (
            ttl > longest,
            f"--ttl {ttl:g}s is longer than --max-duration {longest:g}s, which ends the run before",
        ),
    )
    for contradicts, complaint in contradictions:
        if contradicts:
            raise click.UsageError(complaint, ctx)
