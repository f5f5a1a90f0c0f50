"""The command `joblock` itself: its commands, loaded when called for, and the codes of errors."""

from __future__ import annotations

import errno
import logging
import signal
from importlib import import_module
from typing import Any

import click

from joblock import __version__
from joblock.cli.exits import INTERNAL, UNAVAILABLE, UNWRITABLE, USAGE, by_signal
from joblock.cli.output import (
    Unwritable,
    drop_the_rest,
    guard_standard_output,
    keep_standard_descriptors,
)
from joblock.cli.text import brief, say, write_error
from joblock.values.errors import StoreError

_COMMANDS = {
    "run": "Run a command under a lease.",
    "ls": "List the keys that are held.",
    "peek": "Show who holds a key, since when, and who waits for it.",
    "release": "Break a lease that its holder no longer gives back.",
    "schema": "Print the tables of a store.",
    "doctor": "See whether a store can keep what joblock promises.",
    "verify": "Prove or refute the promises on a store, by faults.",
}


class _Commands(click.Group):
    """Imports a command's module only to run it or to show its help."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in _COMMANDS:
            return None
        return import_module(f"joblock.cli.{cmd_name}").command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            hint = "options go behind the command, as in: joblock run --url URL KEY -- COMMAND"
            raise click.UsageError(f"{error.format_message()} ({hint})", ctx) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


_HELP = """Keep a job to one run at a time, on one machine or across many.

The leases are kept in the store whose URL is in JOBLOCK_URL, or in the file that JOBLOCK_URL_FILE
names; without either, in a file of this user on this machine. JOBLOCK_PREFIX is put before every
key.

\b
joblock run nightly-prune -- ./prune.sh
joblock peek nightly-prune
"""


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    help=_HELP,
    invoke_without_command=True,
    epilog="Exit codes: 64 bad usage, 69 the store cannot be reached, 73 standard output cannot be "
    "written (141 if nobody reads it any more); each command has its own.",
)
@click.version_option(__version__, message="joblock %(version)s")
@click.pass_context
def joblock(ctx: click.Context) -> None:
    """See `_HELP`."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        ctx.exit(USAGE)


def run(arguments: list[str]) -> int:
    """Do what the arguments say; the exit code."""
    keep_standard_descriptors()
    guard_standard_output()
    _write_warnings_to_stderr()
    try:
        return _code(joblock.main(arguments, prog_name="joblock", standalone_mode=False))
    except click.UsageError as error:
        _explain(error)
        return USAGE
    except click.ClickException as error:
        say(error.format_message())
        return error.exit_code
    except click.Abort:
        return by_signal(2)
    except StoreError as error:
        say(str(error))
        return UNAVAILABLE
    except Unwritable as error:
        return _not_written(error)
    except Exception:  # noqa: BLE001 - a fault of ours, and all that is known of it belongs in the report
        import traceback

        say(f"internal error\n{traceback.format_exc().rstrip()}")
        return INTERNAL


def _code(returned: Any) -> int:
    return returned if isinstance(returned, int) else 0


def _not_written(error: Unwritable) -> int:
    drop_the_rest()
    if error.number == errno.EPIPE:
        # Whoever read it has seen enough, as `head` has: other programs end by this very signal.
        return by_signal(signal.SIGPIPE)
    say(f"standard output cannot be written: {error}")
    return UNWRITABLE


def _explain(error: click.UsageError) -> None:
    say(brief(error.format_message(), 600))
    if error.ctx is None:
        return
    usage = error.ctx.get_usage().replace("\n", " ")
    example = getattr(error.ctx.command, "example", "joblock run nightly-prune -- ./prune.sh")
    write_error(f"{usage}\nExample: {example}\n({error.ctx.command_path} --help has more)\n")


class _OneLine(logging.Formatter):
    """A record on one line, as an error message of a command is."""

    def format(self, record: logging.LogRecord) -> str:
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            text += f": {record.exc_info[1]!r}"
        # What the library calls an argument is an option here.
        text = text.replace("max_duration=", "--max-duration")
        return brief(f"joblock: {' '.join(text.split())}")


def _write_warnings_to_stderr() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(_OneLine())
    log = logging.getLogger("joblock")
    log.addHandler(handler)
    log.propagate = False
