"""`joblock verify`: torment a store with processes, and tell which promises it kept."""

from __future__ import annotations

import json
import os
import secrets
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from joblock.cli.exits import OTHERWISE, by_signal
from joblock.cli.options import Command, duration, url_option

if TYPE_CHECKING:
    from joblock.verify import Plan, Report
    from joblock.verify.run import Progress, Tell

DEFAULT_SECONDS = 30.0
MOST_WORKERS = 64
BAR = 30


def _faults(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, ...]:
    """Read ``pause,kill``, ``none``, or nothing for all of them; the callback of the option."""
    del ctx, param
    from joblock.verify.nemesis import FAULTS

    if value is None:
        return tuple(FAULTS)
    names = [name.strip() for name in value.split(",") if name.strip()]
    unknown = sorted({*names} - {*FAULTS, "none"})
    if unknown:
        raise click.BadParameter(
            f"there is no fault {', '.join(unknown)}; there are: {', '.join(FAULTS)}, or none"
        )
    return tuple(name for name in names if name != "none")


@click.command(
    cls=Command,
    example="joblock verify redis://localhost/0 --seconds 60",
    short_help="Prove or refute the promises on a store, by faults.",
    epilog="""\b
Exit codes:
  0   no promise was seen broken
  1   one was: the piece of history that shows it is printed
  69  the store cannot be reached
  64  bad usage
""",
)
@click.option(
    "--seconds",
    callback=duration,
    metavar="DURATION",
    help="How long the workers go on, such as 10m (30s if not said). The check comes after that.",
)
@click.option(
    "--workers",
    type=click.IntRange(1, MOST_WORKERS),
    default=4,
    show_default=True,
    help="How many processes. Each does four things at a time.",
)
@click.option(
    "--seed",
    type=int,
    help="What they do and suffer is drawn from it: the one that a report names draws the same.",
)
@click.option(
    "--faults",
    callback=_faults,
    metavar="LIST",
    help="Which of pause, kill, clock, cut, reply, delay, hole; or none. All if not said.",
)
@click.option(
    "--history",
    type=click.Path(dir_okay=False, writable=True),
    help="Keep the history there, one JSON object a line. The file must not be there yet.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="One JSON object: operations, violations, ..."
)
@url_option
@click.argument("store", metavar="[URL]", required=False)
def command(
    store: str | None,
    url: str | None,
    seconds: float | None,
    workers: int,
    seed: int | None,
    faults: tuple[str, ...],
    history: str | None,
    as_json: bool,
) -> int:
    """Run processes on the store at URL, torment them, and check all they saw against the promises.

    They lock, wait, share, join and give back, under keys of their own (a random prefix), while
    they are paused, killed, cut off and replaced. No fault needs control over the server. Then
    their history is searched for every definite breach: two holders at once, a token that did not
    grow, a waiter overtaken or forgotten, and so on. In the end the keys and rows are removed, and
    no process is left, however it ends.
    """
    from joblock.verify import Plan, run

    if history is not None and Path(history).exists():
        raise click.UsageError(f"--history {history}: there is such a file; name a new one")
    plan = Plan(
        _url(store, url),
        seconds=DEFAULT_SECONDS if seconds is None else seconds,
        workers=workers,
        seed=secrets.randbelow(1_000_000) if seed is None else seed,
        faults=faults,
        history=history,
    )
    with _ended_in_order():
        report = _run(plan, run)
    click.echo(json.dumps(report.to_json(), indent=2) if as_json else report.to_text())
    return 0 if report.kept else OTHERWISE


def _run(plan: Plan, run: Any) -> Report:
    tell = _progress()
    try:
        return run(plan, tell)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    finally:
        if sys.stderr.isatty():
            click.echo("\r\x1b[K", nl=False, err=True)


def _url(store: str | None, url: str | None) -> str:
    """The URL that is said, or the environment's, or that of this user's own file."""
    if store is not None and url is not None:
        raise click.UsageError("the store is named twice: as URL and by --url")
    named = store or url or os.environ.get("JOBLOCK_URL", "").strip()
    file = os.environ.get("JOBLOCK_URL_FILE", "").strip()
    if not named and file and Path(file).is_file():
        named = Path(file).read_text(encoding="utf-8").strip()
    if named:
        return named
    from joblock.stores.registry import open_store

    return open_store().url


def _progress() -> Tell:
    """A line on a terminal, redrawn; nothing elsewhere."""
    shown = ""

    def tell(progress: Progress) -> None:
        nonlocal shown
        if not sys.stderr.isatty():
            return
        full = round(BAR * min(1.0, progress.done / progress.seconds))
        line = (
            f"[{'#' * full}{'.' * (BAR - full)}] {progress.phase}, "
            f"{progress.done:.0f} of {progress.seconds:.0f} s, {progress.faults} faults"
        )
        if line != shown:
            shown = line
            click.echo(f"\r\x1b[K{line}", nl=False, err=True)

    return tell


@contextmanager
def _ended_in_order() -> Generator[None]:
    """A signal that would end this process at once unwinds it, so that its workers end first.

    Only the first one: what is being cleaned up after that is not to be cut off by an impatient
    second, or by the same Ctrl-C that came by way of a wrapper as well.
    """

    def end(number: int, frame: Any) -> NoReturn:
        del frame
        for each in ending:
            signal.signal(each, signal.SIG_IGN)
        raise SystemExit(by_signal(number))

    ending = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, end) for number in ending}
    try:
        yield
    except SystemExit:
        raise  # and ignores further ones to its end
    except BaseException:
        _restore(before)
        raise
    else:
        _restore(before)


def _restore(handlers: dict[signal.Signals, Any]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)
