"""The blocking driver over psycopg 3: a small stack of connections of its own, any thread's.

They are joblock's own even where the caller passes a pool: a renewal must not wait for a connection
that the application's work has taken, and a lock must not run inside somebody's transaction.
"""

from __future__ import annotations

import select
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from joblock.store.ops import Refresh, Refreshed, Release, Released
from joblock.stores.postgres.faults import PATIENCE, Manner, Recovery, Trouble, refusal
from joblock.stores.postgres.setup import SETUP_PATIENCE, setup_script
from joblock.stores.postgres.statements import (
    Request,
    Statement,
    Statements,
    Value,
    merge_refreshed,
    read_refreshed,
)
from joblock.stores.postgres.talk import Talk
from joblock.values.errors import StoreUnavailable

LIMIT = 8
"""Connections at most; whoever needs one more waits for the next that is given back."""

_READ = select.POLLIN
_READ_WRITE = select.POLLIN | select.POLLOUT

_inherited: list[Any] = []


class Line:
    """A connection that is waited for by blocking."""

    __slots__ = ("__weakref__", "_poll", "generation", "talk")

    def __init__(self, connection: Any, generation: int) -> None:
        self.talk = Talk(connection)
        self.generation = generation
        self._poll = select.poll()
        self._poll.register(self.talk.socket, _READ)

    def ask(self, statement: Statement, values: Sequence[Value], manner: Manner) -> str:
        """Send a request and wait for its reply; raises Trouble."""
        talk = self.talk
        try:
            if talk.send(statement, values, manner):
                self._flush(PATIENCE)
            self._wait(PATIENCE)
        except Trouble:
            raise
        except BaseException:
            # An interrupt: what was sent must be over before the caller can undo it.
            self.give_up()
            raise
        return talk.reply()

    def script(self, script: str, patience: float) -> None:
        """Run several statements."""
        if self.talk.send_script(script):
            self._flush(patience)
        self._wait(patience)
        self.talk.reply()

    def give_up(self) -> None:
        """Wait a little for the reply that is on its way, else cancel the request and hang up."""
        if not self.talk.pending:
            return
        try:
            if not self._over(0.1):
                cancel(self.talk.connection)
                if not self._over(1.0):
                    self.close()
        except Exception:  # noqa: BLE001 - whatever it is, the connection is not used again
            self.close()

    def close(self) -> None:
        """Hang up."""
        self.talk.connection.close()

    def _wait(self, patience: float) -> None:
        poll, read, milliseconds = self._poll.poll, self.talk.read, patience * 1000
        while True:
            if not poll(milliseconds):
                self.give_up()
                raise Trouble(f"no answer within {patience:g} s", "57014", gone=True, fresh=True)
            if read():
                return

    def _over(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if self._poll.poll(left * 1000) and self.talk.read():
                return True
        return False

    def _flush(self, patience: float) -> None:
        talk, poll = self.talk, self._poll
        poll.modify(talk.socket, _READ_WRITE)
        try:
            while talk.flush():
                ready = poll.poll(patience * 1000)
                if not ready:
                    self.close()
                    raise Trouble(f"nothing taken within {patience:g} s", gone=True, fresh=True)
                if ready[0][1] & _READ and talk.read():
                    return
        finally:
            if talk.alive:
                poll.modify(talk.socket, _READ)


def cancel(connection: Any) -> None:
    """Ask the server to drop what it does for that connection."""
    if hasattr(connection, "cancel_safe"):
        connection.cancel_safe(timeout=1.0)
    else:
        connection.cancel()


class SyncDriver:
    """See `joblock.store.contract.Driver`."""

    def __init__(
        self, connect: Callable[[], Any], statements: Statements, manner: Manner, schema: str
    ) -> None:
        self._connect = connect
        self._statements = statements
        self._manner = manner
        self._schema = schema
        self._begin()

    def _begin(self) -> None:
        self._idle: list[Line] = []
        self._lines: weakref.WeakSet[Line] = weakref.WeakSet()
        self._opening = 0
        self._starving = 0
        self._free = threading.Condition()
        self._generation = 0
        self._closed = False

    def call(self, op: Any) -> Any:
        """Do ``op``."""
        request = self._statements.request(op)
        if type(op) is Refresh:
            return self._refresh(op, request)
        reply, resent = self._ask(request)
        if resent and type(op) is Release:
            return Released(freed=True)
        return request.read(reply)

    def after_fork(self) -> None:
        """Abandon what was inherited, unclosed and unused."""
        _inherited.append(tuple(self._lines))
        self._begin()

    def close(self) -> None:
        """Hang up for good; connections in use, or made later, are closed when given back."""
        self._closed = True
        self._hang_up()

    def _hang_up(self) -> None:
        with self._free:
            self._generation += 1
        self._clear()

    def _clear(self) -> None:
        while self._idle:
            try:
                self._drop(self._idle.pop())
            except IndexError:
                return

    def _refresh(self, op: Refresh, request: Request) -> Refreshed:
        reply, locked = read_refreshed(self._ask(request)[0])
        if locked:
            again = self._statements.refresh_locked(op, locked)
            reply = merge_refreshed(reply, locked, read_refreshed(self._ask(again)[0])[0])
        return reply

    def _ask(self, request: Request) -> tuple[str, bool]:
        """The reply, and whether an earlier try may have been done without one."""
        statement, values, _ = request
        recovery: Recovery | None = None
        while True:
            line: Line | None = None
            try:
                try:
                    line = self._idle.pop()
                except IndexError:
                    line = self._take()
                reply = line.ask(statement, values, self._manner)
            except Trouble as trouble:
                recovery = recovery or Recovery(self._manner)
                self._recover(recovery, trouble, line)
            except BaseException:
                if line is not None:
                    self._give(line)
                raise
            else:
                self._give(line)
                return reply, recovery is not None and recovery.resent

    def _recover(self, recovery: Recovery, trouble: Trouble, line: Line | None) -> None:
        if line is not None:
            self._give(line)
        if trouble.gone:
            # The others that were idle are as old, so as likely to be dead.
            self._hang_up()
        pause = recovery.after(trouble)
        if recovery.create:
            self._create()
        if pause:
            time.sleep(pause)

    def _create(self) -> None:
        line = self._take()
        try:
            line.script(setup_script(self._schema), SETUP_PATIENCE)
        except Trouble as trouble:
            raise refusal(self._manner, trouble) from trouble
        finally:
            self._give(line)

    def _take(self) -> Line:
        with self._free:
            if not self._may_open() and not self._idle:
                self._wait_for_one()
            if self._idle:
                return self._idle.pop()
            self._opening += 1
            generation = self._generation
        try:
            line = Line(self._connect(), generation)
            self._lines.add(line)
            return line
        finally:
            with self._free:
                self._opening -= 1
                self._free.notify()

    def _may_open(self) -> bool:
        return len(self._lines) + self._opening < LIMIT

    def _wait_for_one(self) -> None:
        self._starving += 1
        try:
            if not self._free.wait_for(lambda: self._idle or self._may_open(), PATIENCE):
                raise StoreUnavailable(
                    f"{self._manner.place}: all {LIMIT} connections were busy for "
                    f"{PATIENCE:g} s; is somebody locking joblock's tables?"
                )
        finally:
            self._starving -= 1

    def _give(self, line: Line) -> None:
        if line.talk.alive and line.generation == self._generation:
            self._idle.append(line)
            # In this order: whoever closes the driver finds it there, or is found out here.
            if self._closed:
                self._clear()
        else:
            self._drop(line)
        if self._starving:
            with self._free:
                self._free.notify()

    def _drop(self, line: Line) -> None:
        line.close()
        self._lines.discard(line)
