"""What the options of several commands have in common: durations, and which store."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from joblock.values.durations import to_ms

if TYPE_CHECKING:
    from joblock.client.sync import JobLocks
    from joblock.values.clock import Clock

F = TypeVar("F", bound=Callable[..., Any])


class Command(click.Command):
    """A command with an example, which is shown when it is used wrongly."""

    def __init__(self, *args: Any, example: str, **kwargs: Any) -> None:
        kwargs.setdefault("context_settings", {})["help_option_names"] = ["-h", "--help"]
        super().__init__(*args, **kwargs)
        self.example = example


def duration(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Read ``30s``, ``500ms``, ``1h30m``, or a number of seconds; the callback of an option."""
    del ctx, param
    return None if value is None else _seconds(value)


def wait(ctx: click.Context, param: click.Parameter, value: str | None) -> float | bool | None:
    """Read a duration, ``forever`` (True), or 0 (False: not at all)."""
    del ctx, param
    if value is None:
        return None
    if value == "forever":
        return True
    return False if _number(value) == 0 else _seconds(value)


def url_option(function: F) -> F:
    """``--url``, the store."""
    return click.option(
        "--url",
        metavar="URL",
        help="The store, such as sqlite:////var/lib/app/locks.db. Arguments show in ps: "
        "prefer JOBLOCK_URL, or JOBLOCK_URL_FILE for a file that holds it.",
    )(function)


def open_locks(url: str | None, *, label: str = "", clock: Clock | None = None) -> JobLocks:
    """A client of the store that the option or the environment names.

    Raises UsageError for a URL that cannot be read or is of no use here, StoreError for a store
    that cannot be used.
    """
    from joblock.client.sync import JobLocks

    try:
        locks = JobLocks(url, label=label, clock=clock)
        store = locks.store  # opened here, where an unreadable URL is still a matter of usage
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if store.url.startswith("memory:"):
        raise click.UsageError(
            "memory:// is a store of one process alone, so no other command would see what this "
            "one does: name a file (sqlite:////var/lib/app/locks.db) or a shared store"
        )
    return locks


def _seconds(value: str) -> float:
    try:
        return to_ms(_number(value)) / 1000
    except ValueError as error:
        raise click.BadParameter(
            f"{value!r} is not a duration: write 30s, 500ms, 5m, 1h30m, or a number of seconds"
        ) from error


def _number(value: str) -> float | str:
    try:
        return float(value)
    except ValueError:
        return value
