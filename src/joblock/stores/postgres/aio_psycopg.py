"""A connection of psycopg 3 whose socket the event loop watches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from joblock.stores.postgres.aio import Line
from joblock.stores.postgres.faults import PATIENCE, Manner, Trouble
from joblock.stores.postgres.talk import Talk

if TYPE_CHECKING:
    import asyncio

    from joblock.stores.postgres.statements import Statement, Value


class PsycopgLine(Line):
    """See `joblock.stores.postgres.aio.Line`."""

    __slots__ = ("_timer", "talk")

    def __init__(
        self, connection: Any, loop: asyncio.AbstractEventLoop, back: Callable[[Line], None]
    ) -> None:
        super().__init__(loop, back)
        self.talk = Talk(connection)
        # From here on the libpq connection is this line's alone, and closed with it: psycopg's
        # object would complain when a loop ends without a word, which is no mistake of the user's.
        self.talk.connection = None
        del connection.pgconn
        self._timer: asyncio.TimerHandle | None = None
        loop.add_reader(self.talk.socket, self._readable)

    @property
    def alive(self) -> bool:
        """Whether it can take another request."""
        return self.talk.alive

    def ask(
        self, statement: Statement, values: Sequence[Value], manner: Manner
    ) -> asyncio.Future[str]:
        """Send a request; the future gets its reply, or the Trouble instead."""
        reply = self._begin_within(PATIENCE)
        try:
            self._flushing(self.talk.send(statement, values, manner))
        except Trouble as trouble:
            self._end(trouble)
        return reply

    def script(self, script: str, patience: float) -> asyncio.Future[str]:
        """Run several statements."""
        reply = self._begin_within(patience)
        try:
            self._flushing(self.talk.send_script(script))
        except Trouble as trouble:
            self._end(trouble)
        return reply

    def finish(self) -> None:
        """Close the connection."""
        if not self._loop.is_closed():
            self._loop.remove_reader(self.talk.socket)
            self._loop.remove_writer(self.talk.socket)
        self.talk.pg.finish()

    def _begin_within(self, patience: float) -> asyncio.Future[str]:
        reply = self._begin()
        self._timer = self._loop.call_later(patience, self._too_late, patience)
        return reply

    def _flushing(self, more: bool) -> None:
        if more:
            self._loop.add_writer(self.talk.socket, self._writable)

    def _readable(self) -> None:
        try:
            complete = self.talk.read()
            if self._reply is not None and complete:
                self._end(self.talk.reply())
        except Trouble as trouble:
            self._end(trouble)

    def _writable(self) -> None:
        try:
            if not self.talk.flush():
                self._loop.remove_writer(self.talk.socket)
        except Trouble as trouble:
            self._end(trouble)

    def _too_late(self, patience: float) -> None:
        # The server is asked to drop it as well: it may be waiting for a lock, and get it later.
        self._loop.run_in_executor(None, _cancel, self.talk.pg.get_cancel())
        self.finish()
        self._end(Trouble(f"no answer within {patience:g} s", "57014", gone=True, fresh=True))

    def _end(self, outcome: str | Trouble) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        super()._end(outcome)


def _cancel(handle: Any) -> None:
    try:
        handle.cancel()
    except Exception:  # noqa: BLE001 - a server that cannot be reached does nothing either
        return
