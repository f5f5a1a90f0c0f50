"""The two drivers of the lease file: for threads, and for the tasks of an event loop.

An attempt never waits: the fast statement, and where that decides nothing, the transaction. If the
file is busy, threads pause for a moment and try again. SQLite's own busy handler sleeps too
coarsely for that: a transaction takes less than a tenth of a millisecond.

A task makes its attempt in the event loop, which is cheaper than the way to a thread and back, and
takes that way only when the file is busy or the work is long.
"""

from __future__ import annotations

import sqlite3
import time
from typing import TYPE_CHECKING, Any, cast

from joblock.store.ops import Check, Checked, Count, Page, Purge, Refresh, Refreshed
from joblock.stores.sqlite import operations
from joblock.stores.sqlite.fast import attempt
from joblock.stores.sqlite.file import FIRST_PAUSE, PATIENCE, Missing, Occupied, uses_turn
from joblock.stores.sqlite.trouble import is_busy, locked, without_frames
from joblock.values.errors import StoreError
from joblock.values.log import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from concurrent.futures import Future

    from joblock.store.ops import Strike
    from joblock.stores.sqlite.operations import Letter
    from joblock.stores.sqlite.store import SqliteStore

LONGEST_PAUSE = 2e-3

RENEWALS, CHECKS = 1_000, 200
"""How many leases are renewed, or keys checked, in one transaction; others wait for its end."""

INLINE = 50
"""Up to how many of them are done in an event loop."""


class SqliteDriver:
    """Does an operation in the calling thread; see `joblock.store.contract.Driver`."""

    __slots__ = ("_file", "_store")

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self._file = store.file

    def call(self, op: Any) -> Any:
        """Do ``op``."""
        try:
            reply = attempt(self._file, op)
            if reply is not None:
                return reply
            if _size(op) > 1:
                return self._in_parts(op)
            reply, letters = self.decide(op)
        except sqlite3.Error as error:
            reply, letters = self._insist(op, error)
        if letters:
            self.pass_over(self._store.post(letters))
        return reply

    @uses_turn
    def decide(self, op: Any, *, first: bool = False) -> tuple[Any, Sequence[Letter]]:
        """Do ``op`` in a transaction. Raises sqlite3.Error, having done nothing."""
        file = self._file
        if file.wanted and not first:
            raise Occupied(f"other threads wait for {file.path}")
        turn = file.take()
        try:
            return operations.run(file.ready(), file.now, op)
        except sqlite3.Error as error:
            # While the turn is still ours: who has it next may be about to close the connection.
            raise without_frames(error) from None
        finally:
            file.turns.append(turn)

    def pass_over(self, strikes: Iterable[Strike]) -> None:
        """Hand on what was handed to the dead; where that fails, their claims lapse in time."""
        waiting = list(strikes)
        while waiting:
            strike = waiting.pop()
            try:
                try:
                    _, letters = self.decide(strike)
                except sqlite3.Error as error:
                    _, letters = self._insist(strike, error)
            except StoreError as error:
                logger("store").info("a dead waiter of %r keeps its claim: %s", strike.key, error)
            else:
                waiting += self._store.post(letters)

    def _insist(self, op: Any, error: sqlite3.Error) -> tuple[Any, Sequence[Letter]]:
        """Do ``op`` once others are out of the way."""
        closings = self._file.closings
        try:
            return self._outlast(op, error)
        finally:
            if self._file.closings != closings:
                # The store was closed meanwhile, and this has opened the file once more.
                self._file.hang_up()

    def _outlast(self, op: Any, error: sqlite3.Error) -> tuple[Any, Sequence[Letter]]:
        file = self._file
        give_up, pause, missing = time.monotonic() + PATIENCE, FIRST_PAUSE, Missing()
        # One thread of a process at a time competes with the other processes, the rest sleep.
        with file.queue, file.first():
            while is_busy(error):
                if time.monotonic() >= give_up:
                    raise locked(file.path, PATIENCE) from error
                # The last digits of the clock scatter those who met.
                time.sleep(pause * (0.5 + time.perf_counter_ns() % 1024 / 1024))
                pause = min(pause * 2, LONGEST_PAUSE)
                if isinstance(error, Occupied):
                    file.mend(missing)
                try:
                    return self.decide(op, first=True)
                except sqlite3.Error as another:
                    error = another
        raise file.failed(error) from error

    def _in_parts(self, op: Any) -> Any:
        """Each part is a transaction of its own. Keys have nothing to do with each other."""
        if isinstance(op, Refresh):
            refreshed: list[Refreshed] = [
                self.call(Refresh(op.renewals[first : first + RENEWALS], op.extend_only))
                for first in range(0, len(op.renewals), RENEWALS)
            ]
            return Refreshed(
                tuple(flag for reply in refreshed for flag in reply.renewed),
                tuple(flag for reply in refreshed for flag in reply.waiting),
            )
        checked: list[Checked] = [
            self.call(op._replace(keys=op.keys[first : first + CHECKS]))
            for first in range(0, len(op.keys), CHECKS)
        ]
        return Checked(tuple(state for reply in checked for state in reply.states))


class AsyncSqliteDriver:
    """Does an operation for a task; see `joblock.store.contract.AsyncDriver`."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self._file = store.file
        self._threads = SqliteDriver(store)
        self._leaving: dict[Future[Any], str] = {}

    async def call(self, op: Any) -> Any:
        """Do ``op``."""
        file = self._file
        try:
            reply = attempt(file, op)
            if reply is not None:
                return reply
            here = file.is_open and not _is_long(op)
            reply, letters = self._threads.decide(op) if here else (None, ())
        except sqlite3.Error as error:
            if not is_busy(error):
                raise file.failed(error) from error
            here, reply, letters = False, None, ()
        if not here:
            return await self._hop(op)
        strikes = self._store.post(letters) if letters else ()
        if strikes:
            self._store.executor().submit(self._threads.pass_over, strikes)
        return reply

    def settled(self, holder: str, then: Callable[[], None]) -> None:
        """Call ``then``, in any thread, once none is at a cancelled request for ``holder``."""
        for future, whose in list(self._leaving.items()):
            if whose == holder and not future.done():
                future.add_done_callback(lambda _: self.settled(holder, then))
                return
        then()

    async def aclose(self) -> None:
        """Nothing belongs to the event loop: the threads are the store's."""

    async def _hop(self, op: Any) -> Any:
        """Do ``op`` in a thread."""
        import asyncio

        future = self._store.executor().submit(self._threads.call, op)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if not future.cancel():
                self._leaving[future] = getattr(op, "holder", "")
                future.add_done_callback(lambda done: self._leaving.pop(done, None))
            raise


def _size(op: Any) -> int:
    """In how many transactions an operation is done."""
    kind = cast("Any", type(op))
    if kind is Refresh:
        return -(-len(op.renewals) // RENEWALS)
    return -(-len(op.keys) // CHECKS) if kind is Check else 1


def _is_long(op: Any) -> bool:
    """Whether an event loop would notice."""
    kind = cast("Any", type(op))
    if kind is Refresh:
        return len(op.renewals) > INLINE
    if kind is Check:
        return len(op.keys) > INLINE
    return kind in (Purge, Page, Count)
