"""A connection of asyncpg for tasks, and one that listens."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from joblock.stores.postgres.aio import Line
from joblock.stores.postgres.asyncpg_place import errors
from joblock.stores.postgres.faults import PATIENCE, PREPARED, Manner, Trouble
from joblock.stores.postgres.listen import HERE, Ear

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from joblock.stores.postgres.statements import Statement, Value

QUIET = 10.0
"""Seconds of silence after which the server is asked whether it is still there."""


class AsyncpgLine(Line):
    """See `joblock.stores.postgres.aio.Line`; each request is a task of its own."""

    __slots__ = ("_asked", "_connection", "_prepared", "_task")

    def __init__(
        self,
        connection: Any,
        loop: asyncio.AbstractEventLoop,
        back: Callable[[Line], None],
        *,
        prepared: bool,
    ) -> None:
        super().__init__(loop, back)
        self._connection = connection
        self._prepared = prepared
        self._asked = 0
        self._task: asyncio.Task[None] | None = None

    @property
    def alive(self) -> bool:
        """Whether it can take another request."""
        return not self._connection.is_closed()

    def ask(
        self, statement: Statement, values: Sequence[Value], manner: Manner
    ) -> asyncio.Future[str]:
        """Send a request; the future gets its reply, or the Trouble instead."""
        return self._start(lambda: self._fetch(statement, values, manner), PATIENCE)

    def script(self, script: str, patience: float) -> asyncio.Future[str]:
        """Run several statements."""
        return self._start(lambda: self._execute(script), patience)

    def finish(self) -> None:
        """Close the connection."""
        if not self._loop.is_closed():
            self._connection.terminate()

    def _start(self, work: Callable[[], Awaitable[str]], patience: float) -> asyncio.Future[str]:
        reply = self._begin()
        self._asked += 1
        # Kept, since a loop keeps its tasks only weakly.
        self._task = self._loop.create_task(self._run(work, patience))
        self._task.add_done_callback(self._stopped)
        return reply

    async def _run(self, work: Callable[[], Awaitable[str]], patience: float) -> None:
        outcome: str | Trouble
        try:
            async with asyncio.timeout(patience):
                outcome = await work()
        except TimeoutError:
            # By now asyncpg has asked the server to drop it: it might have been done later.
            self.finish()
            outcome = Trouble(f"no answer within {patience:g} s", "57014", gone=True, fresh=True)
        except asyncio.CancelledError:
            # The loop is going. By now asyncpg has asked the server to drop the request, which
            # until the server has answered might still be done.
            with suppress(*errors(), OSError, TimeoutError):
                await self._connection.close(timeout=patience)
            self.finish()
            outcome = _loop_ended()
        except (*errors(), OSError) as error:
            outcome = self._trouble(error)
        if self._reply is not None:  # unless it was hung up
            self._end(outcome)

    def _stopped(self, task: asyncio.Task[None]) -> None:
        """A loop that goes cancels also what it has not begun, and may do it again."""
        if self._reply is not None and self._task is task:
            self.finish()
            self._end(_loop_ended())

    async def _fetch(self, statement: Statement, values: Sequence[Value], manner: Manner) -> str:
        connection = self._connection
        if manner.prepared and not manner.stated:
            text = await connection.fetchval(statement.text, *values)
        else:
            # A statement is prepared and run in two messages: a pooler might give them to two
            # servers, unless they are in one transaction.
            async with connection.transaction(isolation="read_committed"):
                text = await connection.fetchval(statement.text, *values)
        text = text or ""
        return text if statement.opened is None else statement.opened(text)

    async def _execute(self, script: str) -> str:
        return await self._connection.execute(script)

    def _trouble(self, error: Exception) -> Trouble:
        code = getattr(error, "sqlstate", None) or ""
        if self._connection.is_closed():
            return Trouble(str(error), code, gone=True, fresh=self._asked == 1)
        if self._prepared and code in PREPARED:
            # From now on such connections are made that prepare nothing.
            self.finish()
            return Trouble(str(error), code, gone=True)
        if not code:
            # In a state that only a new connection mends.
            self.finish()
            return Trouble(str(error), gone=True, fresh=self._asked == 1)
        if self._connection.is_in_transaction():
            self.finish()
        return Trouble(str(error), code)


def _loop_ended() -> Trouble:
    return Trouble("the event loop ended", gone=True, fresh=True)


class AsyncpgEar(Ear):
    """See `joblock.stores.postgres.listen.Ear`; its thread runs an event loop."""

    def _listen(self) -> bool:
        return asyncio.run(self._hear_in_loop())

    async def _hear_in_loop(self) -> bool:
        loop, over = asyncio.get_running_loop(), asyncio.Event()
        connection = await self._connect()
        try:
            pid, where = await connection.fetchrow(HERE, timeout=PATIENCE)
            if await asyncio.to_thread(self._is_deaf, pid, connection.get_server_pid(), where):
                return False

            def ended(_connection: Any) -> None:
                over.set()

            connection.add_termination_listener(ended)
            loop.add_reader(self._wake_read, over.set)

            def tell(_connection: Any, _pid: int, _channel: str, payload: str) -> None:
                self._hearing.tell(payload)

            await connection.add_listener(self._channel, tell)
            self.listening = True
            self._hearing.connected()
            while not over.is_set() and not self._closing:
                try:
                    async with asyncio.timeout(QUIET):
                        await over.wait()
                except TimeoutError:
                    await connection.fetchval("select 1", timeout=PATIENCE)
        finally:
            self.listening = self.listening and not self._closing
            loop.remove_reader(self._wake_read)
            connection.terminate()
        return True
