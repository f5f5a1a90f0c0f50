"""One `joblock run`: getting the lease or not, running the command under it, giving it back."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple, cast

import click

from joblock.cli.background import Background, StoppableClock, Stopped
from joblock.cli.exits import CANNOT_EXECUTE, LOST, by_signal
from joblock.cli.inbox import FORWARDED, Inbox
from joblock.cli.options import open_locks
from joblock.cli.terminal import Terminal, stop_here
from joblock.cli.text import say, visible
from joblock.client.current import current
from joblock.protocol.request import SHARED_LIMIT
from joblock.values.errors import LockLost, StoreError

if TYPE_CHECKING:
    from joblock.client.jobs import Job
    from joblock.client.sync import Lease
    from joblock.protocol.job import Outcome

_PATIENCE = 10.0
"""Seconds that the store is given to take the lease back, after an end in peace."""

_HASTE = 3.0
"""The same once a signal has told joblock to end: its sender may follow with SIGKILL soon."""

_TELL_AFTER = 1.0
"""Seconds of waiting after which a person at a terminal is told for whom."""


class Plan(NamedTuple):
    """What was asked for on the command line; durations in seconds."""

    key: str
    command: list[str]
    ttl: float | None
    wait: float | bool
    join: bool
    limit: int | None
    weight: int | None
    shared: bool
    max_duration: float | None
    grace: float | None
    at_least: float | None
    otherwise: int
    kill_after: float
    quiet: bool


class Failed(Exception):
    """The command did not end well, so that its run counts for nobody who joined it."""


class Runner:
    """See the module; its parts are in the order of a run.

    To the library a run is a job, called in a thread of its own. Its work is to hand the lease to
    the main thread, and to wait until that says how the command ended.
    """

    def __init__(self, plan: Plan, url: str | None) -> None:
        self._plan = plan
        self._inbox = Inbox()
        self._clock = StoppableClock()
        self._named = bool(url or os.environ.get("JOBLOCK_URL") or os.environ.get(_URL_FILE))
        if plan.quiet:
            # Who wants no word knows that no store is named. A loss is told all the same.
            logging.getLogger("joblock.store").setLevel(logging.ERROR)
        self._locks = open_locks(url, label=_label(plan.command), clock=self._clock)
        self._job = self._make_job()
        self._lease: Lease | None = None
        self._ended = threading.Event()
        self._code = 0

    def run(self) -> int:
        """Try or wait, run the command, give the lease back; the exit code."""
        running = Background(self._inbox, self._call)
        stopped_by = self._wait_for_lease(running)
        stopped_by = stopped_by or _first_stop(self._inbox.wait(0))
        if stopped_by:
            code = self._end(running, by_signal(stopped_by), _HASTE)
            name = signal.Signals(stopped_by).name
            say(f"{name} ended the wait for {visible(self._plan.key)}")
            return code
        if self._lease is not None:
            return self._end(running, self._run_under(self._lease))
        return self._not_run(running.result())

    # In the thread of the job.

    def _make_job(self) -> Job[[], None]:
        plan = self._plan
        try:
            return self._locks.job(
                name=plan.key,
                wait=plan.wait,
                join=plan.join,
                in_grace="wait" if plan.wait and not plan.join else "skip",
                ttl=plan.ttl,
                max_duration=plan.max_duration,
                grace_period=plan.grace,
                at_least=plan.at_least,
                limit=SHARED_LIMIT if plan.shared else plan.limit,
                weight=plan.weight,
            )(self._work)
        except ValueError as error:
            raise click.UsageError(str(error)) from error

    def _call(self) -> Outcome:
        self._clock.stop_me()
        return self._job.run()

    def _work(self) -> None:
        self._lease = cast("Lease", current())
        self._inbox.poke()
        self._ended.wait()
        if self._code:
            raise Failed

    # Acquiring.

    def _wait_for_lease(self, running: Background[Outcome]) -> int:
        """Until it is had or is not to be had, or a signal ends that; the signal, or 0."""
        to_tell = bool(self._plan.wait) and not self._plan.quiet and os.isatty(2)
        while self._lease is None and not running.finished:
            came = self._inbox.wait(_TELL_AFTER if to_tell else None)
            stopped_by = _first_stop(came)
            if stopped_by:
                self._clock.stop()
                return stopped_by
            if signal.SIGTSTP in came:
                stop_here(signal.SIGTSTP, group=False)
            if not came:
                to_tell = False
                Background(self._inbox, lambda: self._explain("waiting"))
        return 0

    def _not_run(self, outcome: Outcome) -> int:
        joined = outcome.reason == "joined"
        if joined and not self._plan.quiet:
            say(
                f"not run: the run of {visible(self._plan.key)} that was in progress ended well, "
                "and counts for this one"
            )
        elif not self._plan.quiet:
            wait = self._plan.wait
            waited = "not run" if isinstance(wait, bool) else f"not run after {wait:g} s"
            Background(self._inbox, lambda: self._explain(waited)).finish(_PATIENCE)
        return self._close(0 if joined else self._plan.otherwise, _PATIENCE)

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

    def _end(self, running: Background[Outcome], code: int, patience: float = _PATIENCE) -> int:
        """Have the lease given back, or the wait for it, whatever signals come; the exit code."""
        self._code = code
        self._ended.set()
        if not running.finish(patience):
            return _leave(code, "the store does not answer")
        try:
            running.result()
        except LockLost:
            code = LOST
        except Failed:
            # A loss that only shows now is told by the code as well, whatever the command's was.
            code = LOST if self._lease is not None and self._lease.hold.lost else code
        except (Stopped, StoreError):
            if self._lease is not None:
                raise
        return self._close(code, patience)

    def _close(self, code: int, patience: float) -> int:
        if not Background(self._inbox, self._locks.close).finish(patience):
            return _leave(code, "the store does not answer")
        return code


_URL_FILE = "JOBLOCK_URL_FILE"


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
