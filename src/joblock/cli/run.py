"""`joblock run`: a command under a lease."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from joblock.cli.background import PATIENCE, Background, StoppableClock, Stopped
from joblock.cli.exits import LOST, NOT_ACQUIRED, by_signal
from joblock.cli.inbox import FORWARDED, Inbox
from joblock.cli.options import Command, duration, open_locks, url_option, wait
from joblock.cli.terminal import Terminal, stop_here
from joblock.cli.text import say, visible
from joblock.values.errors import StoreError

if TYPE_CHECKING:
    from joblock.client.sync import Lease

_TELL_AFTER = 1.0
"""Seconds of waiting after which a person at a terminal is told for whom."""

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


class Plan(NamedTuple):
    """What was asked for on the command line."""

    key: str
    command: list[str]
    ttl: float | None
    wait: float | bool
    max_duration: float | None
    otherwise: int
    kill_after: float
    quiet: bool


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
    return _Runner(Plan(key, words, **options), url).run()


class _Runner:
    """One run, from asking for the lease to giving it back."""

    def __init__(self, plan: Plan, url: str | None) -> None:
        _keep_standard_descriptors()
        self._plan = plan
        self._inbox = Inbox()
        self._clock = StoppableClock()
        self._named = bool(url or os.environ.get("JOBLOCK_URL") or os.environ.get(_URL_FILE))
        self._locks = open_locks(url, label=_label(plan.command), clock=self._clock)

    def run(self) -> int:
        """Try or wait, run the command, give the lease back; the exit code."""
        acquiring = Background(self._inbox, self._acquire)
        stopped_by = self._wait_for(acquiring)
        if not acquiring.finished:
            return _leave(by_signal(stopped_by), "the store does not answer")
        lease = _lease(acquiring)
        stopped_by = stopped_by or _first_stop(self._inbox.wait(0))
        if stopped_by:
            say(f"signal {stopped_by} ended the wait for {visible(self._plan.key)}")
            return self._end(lease, by_signal(stopped_by))
        if lease is None:
            self._say_who_has_it()
            return self._end(None, self._plan.otherwise)
        return self._end(lease, self._run_under(lease))

    # Acquiring.

    def _acquire(self) -> Lease | None:
        self._clock.stop_me()
        plan = self._plan
        try:
            return self._locks.acquire(
                plan.key, plan.ttl, plan.wait, max_duration=plan.max_duration
            )
        except ValueError as error:
            raise click.UsageError(str(error)) from error

    def _wait_for(self, acquiring: Background[Lease | None]) -> int:
        """Until it has ended or a signal has ended it; that signal, or 0."""
        to_tell = bool(self._plan.wait) and not self._plan.quiet and _is_terminal(2)
        while not acquiring.finished:
            came = self._inbox.wait(_TELL_AFTER if to_tell else None)
            stopped_by = _first_stop(came)
            if stopped_by:
                self._clock.stop()
                acquiring.finish(PATIENCE)
                return stopped_by
            if signal.SIGTSTP in came:
                stop_here(signal.SIGTSTP, group=False)
            if not came:
                to_tell = False
                Background(self._inbox, lambda: self._explain("waiting"))
        return 0

    def _say_who_has_it(self) -> None:
        if self._plan.quiet:
            return
        wait = self._plan.wait
        waited = "not run" if wait is False or wait is True else f"not run after {wait:g} s"
        Background(self._inbox, lambda: self._explain(waited)).finish(PATIENCE)

    def _explain(self, what: str) -> None:
        from joblock.cli.describe import in_the_way

        key, model = self._plan.key, self._locks.model
        try:
            leases, queue = model.holders(key), model.waiters(key)
        except StoreError as error:
            say(f"{what}: {visible(key)} is not to be had; by whom it is held: {error}")
            return
        say(f"{what}: {visible(key)} {in_the_way(leases, queue)}")

    # Running.

    def _run_under(self, lease: Lease) -> int:
        from joblock.cli.child import spawn
        from joblock.cli.supervise import Supervisor

        terminal = Terminal()
        # What is piped to or from others of joblock's own process group might keep those from the
        # terminal. Such a command gets it when it asks for it.
        lend = _is_terminal(0) and _is_terminal(1) and terminal.ours
        child = spawn(
            self._plan.command,
            self._environment(lease),
            dispositions=self._inbox.entry,
            mask=self._inbox.mask,
            terminal=terminal.fd if lend else None,
        )
        code = Supervisor(self._inbox, lease, child, terminal, lent=lend).run(self._plan.kill_after)
        failure = child.failure()
        if failure is not None:
            code, message = failure
            say(message)
        return code

    def _environment(self, lease: Lease) -> dict[str, str]:
        environment = {
            name: value
            for name, value in os.environ.items()
            if name not in {"JOBLOCK_URL", _URL_FILE}
        }
        if self._named:
            # Without it, a joblock inside the command would make do with a file of this machine.
            environment.setdefault("JOBLOCK_REQUIRE_SHARED", "1")
        environment["JOBLOCK_KEY"] = lease.key
        environment["JOBLOCK_TOKEN"] = str(lease.token)
        environment["JOBLOCK_HOLDER"] = lease.holder
        return environment

    # The end.

    def _end(self, lease: Lease | None, code: int) -> int:
        """Give back what there is, whatever signals come; the exit code."""

        def give_back() -> bool:
            kept = lease is None or lease.release()
            self._locks.close()
            return kept

        ending = Background(self._inbox, give_back)
        if not ending.finish(PATIENCE):
            return _leave(code, "the store does not answer")
        return code if ending.result() else LOST


_URL_FILE = "JOBLOCK_URL_FILE"


def _lease(acquiring: Background[Lease | None]) -> Lease | None:
    try:
        return acquiring.result()
    except Stopped:
        return None


def _first_stop(numbers: Iterable[int]) -> int:
    return next((number for number in numbers if number in FORWARDED), 0)


def _leave(code: int, why: str) -> int:
    """Exit at once: whoever is still talking to the store does not keep us."""
    say(f"{why}: what was acquired lapses at its ttl")
    os._exit(code)


def _is_terminal(descriptor: int) -> bool:
    return os.isatty(descriptor)


def _label(command: list[str]) -> str:
    """What the lease is labelled with: the program. Its arguments may be secret."""
    name = command[0].rpartition("/")[2][:100]
    return "".join(character if character.isprintable() else "?" for character in name)


def _keep_standard_descriptors() -> None:
    """If one of the first three is closed, keep its number from the store's files.

    The command finds it closed all the same.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:  # noqa: PLR2004 - standard error
        pass
    os.close(descriptor)
