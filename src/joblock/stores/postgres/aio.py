"""The driver for tasks of one event loop, whatever library its connections are of.

A request belongs to its connection, not to the task that awaits it: a cancelled task leaves, the
reply is read all the same, and only then is the connection used again and `settled` told. What
takes more than a request on an idle connection (connecting, recovering) runs in a task of its own.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
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
from joblock.values.errors import StoreUnavailable

LIMIT = 8
"""Connections at most; whoever needs one more waits for the next that is free."""

_inherited: list[Any] = []


class Line(ABC):
    """A connection with at most one request on its way."""

    __slots__ = ("_back", "_loop", "_reply", "_retired", "_then")

    def __init__(self, loop: asyncio.AbstractEventLoop, back: Callable[[Line], None]) -> None:
        self._loop = loop
        self._back = back
        self._retired = False
        self._reply: asyncio.Future[str] | None = None
        self._then: list[Callable[[], None]] = []

    @property
    @abstractmethod
    def alive(self) -> bool:
        """Whether it can take another request."""

    @abstractmethod
    def ask(
        self, statement: Statement, values: Sequence[Value], manner: Manner
    ) -> asyncio.Future[str]:
        """Send a request; the future gets its reply, or the Trouble instead."""

    @abstractmethod
    def script(self, script: str, patience: float) -> asyncio.Future[str]:
        """Run several statements."""

    @abstractmethod
    def finish(self) -> None:
        """Close the connection."""

    def when_over(self, reply: asyncio.Future[str], then: Callable[[], None]) -> None:
        """Call that once the request of that reply is no longer on its way."""
        if self._reply is reply:
            self._then.append(then)
        else:
            then()

    def hang_up(self) -> None:
        """Close the connection; a request on its way is over."""
        self.finish()
        if self._reply is not None:
            self._end(Trouble("the connection was closed", gone=True, fresh=True))

    def retire(self) -> asyncio.Future[None] | None:
        """Hang up once the request on its way is over; what tells that, if there is one."""
        if self._reply is None:
            self.hang_up()
            return None
        self._retired = True
        over: asyncio.Future[None] = self._loop.create_future()
        self._then.append(lambda: _settle(over))
        return over

    def _begin(self) -> asyncio.Future[str]:
        reply = self._reply = self._loop.create_future()
        return reply

    def _end(self, outcome: str | Trouble) -> None:
        """The request is over: the connection is free again, or gone."""
        reply, self._reply = self._reply, None
        then, self._then = self._then, []
        if self._retired or not self.alive:
            self.finish()
        self._back(self)
        for callback in then:
            callback()
        if reply is None or reply.done():
            return
        if isinstance(outcome, Trouble):
            reply.set_exception(outcome)
        else:
            reply.set_result(outcome)


def _settle(over: asyncio.Future[None]) -> None:
    if not over.done():
        over.set_result(None)


OpenLine = Callable[[asyncio.AbstractEventLoop, Callable[[Line], None]], Awaitable[Line]]
"""Makes a connection for that event loop, to be given back like that."""


class AsyncDriver:
    """See `joblock.store.contract.AsyncDriver`."""

    def __init__(
        self,
        open_line: OpenLine,
        statements: Statements,
        manner: Manner,
        schema: str,
    ) -> None:
        self._open_line = open_line
        self._statements = statements
        self._manner = manner
        self._schema = schema
        self._loop = asyncio.get_running_loop()
        self._begin()

    def _begin(self) -> None:
        self._idle: list[Line] = []
        self._lines: set[Line] = set()
        self._opening = 0
        self._queue: deque[asyncio.Future[Line | None]] = deque()
        self._late: dict[str, _Late] = {}
        self._closed = False

    async def call(self, op: Any) -> Any:
        """Do ``op``."""
        request = self._statements.request(op)
        if type(op) is Refresh:
            return await self._apart(self._refresh(op, request), "")
        holder = getattr(op, "holder", "")
        if self._idle:
            try:
                return request.read(await self._send(self._idle.pop(), request, holder))
            except Trouble as trouble:
                text, resent = await self._apart(self._ask(request, holder, trouble), holder)
        else:
            text, resent = await self._apart(self._ask(request, holder), holder)
        if resent and type(op) is Release:
            return Released(freed=True)
        return request.read(text)

    def settled(self, holder: str, then: Callable[[], None]) -> None:
        """Call ``then`` once no cancelled request for ``holder`` is on its way."""
        late = self._late.get(holder)
        if late is None:
            then()
        else:
            late.then.append(then)

    async def aclose(self) -> None:
        """Hang up for good when what is on its way has ended; what comes later keeps nothing."""
        self._closed = True
        idle, self._idle = self._idle, []
        self._lines.difference_update(idle)
        ends = [line.retire() for line in (*idle, *self._lines)]
        for end in ends:
            if end is not None:
                await end

    def after_fork(self) -> None:
        """Abandon what was inherited, unclosed and unused."""
        _inherited.append(tuple(self._lines))
        self._begin()

    def _later(self, holder: str) -> Callable[[], None]:
        """Note a cancelled request; what is returned is to be called when it is over."""
        late = self._late.setdefault(holder, _Late())
        late.requests += 1

        def over() -> None:
            late.requests -= 1
            if not late.requests:
                self._late.pop(holder, None)
                for then in late.then:
                    then()

        return over

    async def _apart(self, work: Coroutine[Any, Any, Any], holder: str) -> Any:
        """Do that in a task that goes on when the caller is cancelled."""
        task = self._loop.create_task(work)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            over = self._later(holder)

            def done(task: asyncio.Future[Any]) -> None:
                _retrieve(task)
                over()

            task.add_done_callback(done)
            raise

    async def _send(self, line: Line, request: Request, holder: str) -> str:
        """The reply of that line; whoever is cancelled meanwhile leaves the request on its way."""
        reply = line.ask(request.statement, request.values, self._manner)
        try:
            return await reply
        except asyncio.CancelledError:
            _retrieve(reply)
            line.when_over(reply, self._later(holder))
            raise

    async def _refresh(self, op: Refresh, request: Request) -> Refreshed:
        reply, locked = read_refreshed((await self._ask(request, ""))[0])
        if locked:
            again = self._statements.refresh_locked(op, locked)
            found = read_refreshed((await self._ask(again, ""))[0])[0]
            reply = merge_refreshed(reply, locked, found)
        return reply

    async def _ask(
        self, request: Request, holder: str, trouble: Trouble | None = None
    ) -> tuple[str, bool]:
        """The reply, and whether an earlier try may have been done without one.

        A loop that ends cancels this task too, and what it has sent is on its way all the same.
        """
        recovery: Recovery | None = None
        while True:
            try:
                if trouble is not None:
                    recovery = recovery or Recovery(self._manner)
                    await self._recover(recovery, trouble)
                reply = await self._send(await self._take(), request, holder)
            except Trouble as caught:
                trouble = caught
            else:
                return reply, recovery is not None and recovery.resent

    async def _recover(self, recovery: Recovery, trouble: Trouble) -> None:
        if trouble.gone:
            # The others that are idle are as old, so as likely to be dead.
            for line in tuple(self._idle):
                line.hang_up()
                self._back(line)
        pause = recovery.after(trouble)
        if recovery.create:
            await self._create()
        if pause:
            await asyncio.sleep(pause)

    async def _create(self) -> None:
        line = await self._take()
        try:
            await line.script(setup_script(self._schema), SETUP_PATIENCE)
        except Trouble as trouble:
            raise refusal(self._manner, trouble) from trouble

    async def _take(self) -> Line:
        while not self._idle:
            if len(self._lines) + self._opening < LIMIT:
                return await self._new_line()
            free: asyncio.Future[Line | None] = self._loop.create_future()
            self._queue.append(free)
            line = await self._wait_for(free)
            if line is not None:
                return line
        return self._idle.pop()

    async def _wait_for(self, free: asyncio.Future[Line | None]) -> Line | None:
        try:
            async with asyncio.timeout(PATIENCE):
                return await self._given(free)
        except TimeoutError as error:
            raise StoreUnavailable(
                f"{self._manner.place}: all {LIMIT} connections were busy for {PATIENCE:g} s; is "
                "somebody locking joblock's tables?"
            ) from error

    async def _given(self, free: asyncio.Future[Line | None]) -> Line | None:
        try:
            return await free
        except asyncio.CancelledError:
            if not free.cancelled():
                # It was given in the very turn in which its task was cancelled: to the next, then.
                line = free.result()
                if line is None:
                    self._wake(None)
                else:
                    self._back(line)
            raise

    async def _new_line(self) -> Line:
        self._opening += 1
        try:
            line = await self._open_line(self._loop, self._back)
            self._lines.add(line)
            return line
        except BaseException:
            self._wake(None)
            raise
        finally:
            self._opening -= 1

    def _back(self, line: Line) -> None:
        """A connection is free again, or gone."""
        if line.alive:
            if self._wake(line):
                return
            if not self._closed:
                self._idle.append(line)
                return
            line.finish()
        self._lines.discard(line)
        if line in self._idle:
            self._idle.remove(line)
        self._wake(None)

    def _wake(self, line: Line | None) -> bool:
        while self._queue:
            free = self._queue.popleft()
            if not free.done():
                free.set_result(line)
                return True
        return False


class _Late:
    """Cancelled requests of one holder that are on their way, and what waits for them."""

    __slots__ = ("requests", "then")

    def __init__(self) -> None:
        self.requests = 0
        self.then: list[Callable[[], None]] = []


def _retrieve(future: asyncio.Future[Any]) -> None:
    """Nobody will look at its exception, and that is fine."""
    if future.done() and not future.cancelled():
        future.exception()
