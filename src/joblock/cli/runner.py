"""One `joblock run`: getting the lease or not, running the command under it, giving it back."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import click

from joblock.cli.background import Background, StoppableClock, Stopped
from joblock.cli.exits import CANNOT_EXECUTE, LOST, by_signal
from joblock.cli.inbox import FORWARDED, Inbox
from joblock.cli.options import open_locks
from joblock.cli.terminal import Terminal, stop_here
from joblock.cli.text import say, visible
from joblock.values.errors import StoreError

if TYPE_CHECKING:
    from joblock.client.sync import Lease

_PATIENCE = 10.0
"""Seconds that the store is given to take the lease back, after an end in peace."""

_HASTE = 3.0
"""The same once a signal has told joblock to end: its sender may follow with SIGKILL soon."""

_TELL_AFTER = 1.0
"""Seconds of waiting after which a person at a terminal is told for whom."""


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


class Runner:
    """See the module; its parts are in the order of a run."""

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
        lease = _outcome(acquiring, stopped_by)
        stopped_by = stopped_by or _first_stop(self._inbox.wait(0))
        if stopped_by:
            name = signal.Signals(stopped_by).name
            say(f"{name} ended the wait for {visible(self._plan.key)}")
            return self._end(lease, by_signal(stopped_by), _HASTE)
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
        to_tell = bool(self._plan.wait) and not self._plan.quiet and os.isatty(2)
        while not acquiring.finished:
            came = self._inbox.wait(_TELL_AFTER if to_tell else None)
            stopped_by = _first_stop(came)
            if stopped_by:
                self._clock.stop()
                acquiring.finish(_HASTE)
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
        Background(self._inbox, lambda: self._explain(waited)).finish(_PATIENCE)

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
        lend = os.isatty(0) and os.isatty(1) and terminal.ours
        try:
            child = spawn(
                self._plan.command,
                self._environment(lease),
                dispositions=self._inbox.entry,
                mask=self._inbox.mask,
                terminal=terminal.fd if lend else None,
            )
        except OSError as error:
            say(f"cannot start {visible(self._plan.command[0])}: {error.strerror}")
            return CANNOT_EXECUTE
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

    def _end(self, lease: Lease | None, code: int, patience: float = _PATIENCE) -> int:
        """Give back what there is, whatever signals come; the exit code."""

        def give_back() -> bool:
            kept = lease is None or lease.release()
            self._locks.close()
            return kept

        ending = Background(self._inbox, give_back)
        if not ending.finish(patience):
            return _leave(code, "the store does not answer")
        return code if ending.result() else LOST


_URL_FILE = "JOBLOCK_URL_FILE"


def _outcome(acquiring: Background[Lease | None], stopped_by: int) -> Lease | None:
    try:
        return acquiring.result()
    except (Stopped, StoreError):
        if stopped_by:
            return None  # whatever became of it is of no interest any more
        raise


def _first_stop(numbers: Iterable[int]) -> int:
    return next((number for number in numbers if number in FORWARDED), 0)


def _leave(code: int, why: str) -> int:
    """Exit at once: whoever is still talking to the store does not keep us."""
    say(f"{why}: what was acquired lapses at its ttl")
    os._exit(code)


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
