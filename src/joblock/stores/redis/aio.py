"""The asyncio driver: one connection per event loop and server, requests in order.

Concurrent tasks so share round trips for nothing, and what undoes a cancelled request is never
overtaken by it: its reply is still read, and dropped, before `AsyncDriver.settled` says so.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from joblock.store.ops import Acquire, Force, Release
from joblock.stores.redis import commands
from joblock.stores.redis.asked import Asked
from joblock.stores.redis.flows import perform
from joblock.stores.redis.login import check_greeting, greeting, tls_context
from joblock.stores.redis.route import Flow, Route, Send, SingleRoute, Sleep, route_to
from joblock.stores.redis.sync import CONNECT_TIMEOUT, READ_SIZE, REPLY_TIMEOUT
from joblock.stores.redis.target import Login, Place, Target
from joblock.stores.redis.wire import ConnectFailed, Disconnected, Parser, TimedOut, only_short
from joblock.values.errors import StoreUnavailable

if TYPE_CHECKING:
    from joblock.stores.redis.handing import Hand
    from joblock.stores.redis.shards import Ears

TICK = REPLY_TIMEOUT / 4
"""Seconds between looks at whether replies still come."""


class AsyncConnection(asyncio.BufferedProtocol):
    """One socket and the requests that wait for their replies on it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, hand: Hand) -> None:
        self.closed = False
        self._loop = loop
        self._hand = hand
        self._parser = Parser()
        self._room = memoryview(bytearray(READ_SIZE))
        self._asked: deque[Asked] = deque()
        self._arrived: deque[Any] = deque()
        self._replies: list[Any] = []
        self._settling: dict[Asked, list[Callable[[], None]]] = {}
        self._unsent: list[bytes] = []
        self._answering = False
        self._timer: asyncio.TimerHandle | None = None
        self._silence = 0

    def ask(self, data: bytes, count: int, holder: str) -> Asked:
        """Send commands; await their replies, or the one reply if ``count`` is 0."""
        asked = Asked(self._loop, count, holder)
        if self.closed:
            asked.fail(Disconnected("the connection is closed"))
            return asked
        if self._answering:
            # Whoever else is answered now may ask something too: go out together.
            self._unsent.append(data)
        elif not self._asked:
            self._transport.write(data)
        else:
            # Others are waiting already: go out together with whatever else this turn brings.
            if not self._unsent:
                self._loop.call_soon(self._flush)
            self._unsent.append(data)
        self._asked.append(asked)
        if self._timer is None:
            self._silence = 0
            self._timer = self._loop.call_later(TICK, self._tick)
        return asked

    def settled(self, holder: str, then: Callable[[], None]) -> None:
        """Call ``then`` once no cancelled request for that holder is on its way here."""
        for asked in reversed(self._asked):
            if asked.holder == holder and asked.cancelled:
                self._settling.setdefault(asked, []).append(then)
                return
        then()

    async def answered(self) -> None:
        """Return once nothing that was asked so far is on its way, answered or not."""
        if self._asked:
            over = self._loop.create_future()
            self._settling.setdefault(self._asked[-1], []).append(lambda: _settle(over))
            await over

    def close(self, error: Exception | None = None) -> None:
        """Give the connection up, whatever is on its way."""
        if not self.closed:
            self.closed = True
            self._fail(error or Disconnected("the connection was closed"))
            self._transport.abort()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where to put what comes: always the same place, since new memory would cost more."""
        del sizehint
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        """Hand replies to those who asked, in order."""
        self._silence = 0
        data = bytes(self._room[:nbytes])
        reply = only_short(data) if self._parser.idle else None
        if reply is not None:
            self._arrived.append(reply)
        else:
            try:
                self._arrived += self._parser.feed(data)
            except Disconnected as error:
                self.close(error)
                return
        self._answer_all()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell everybody who still waits."""
        self.closed = True
        self._fail(Disconnected(str(exc or "the server closed the connection")))

    def _answer_all(self) -> None:
        arrived, self._answering = self._arrived, True
        try:
            while arrived:
                if not self._asked:
                    self.close()
                    return
                self._take(arrived.popleft())
        finally:
            self._answering = False
            if self._unsent:
                self._flush()
            if arrived:
                # A task was ended by an exception that ends the loop as well (SystemExit): should
                # that go on, the others are answered.
                self._loop.call_soon(self._answer_all)

    def _take(self, reply: Any) -> None:
        count = self._asked[0].count
        if count:
            self._replies.append(reply)
            if len(self._replies) < count:
                return
            reply, self._replies = self._hand.all_opened(self._replies), []
        elif type(reply) is list:
            # Also where the request was cancelled: whom others are to tell does not depend on that.
            reply = self._hand.opened(reply)
        asked = self._asked.popleft()
        try:
            asked.answer(reply)
        finally:
            self._settle(asked)

    def _settle(self, asked: Asked) -> None:
        if self._settling:
            for then in self._settling.pop(asked, ()):
                then()

    def _fail(self, error: Exception) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._arrived.clear()
        while self._asked:
            asked = self._asked.popleft()
            asked.fail(error)
            self._settle(asked)

    def _flush(self) -> None:
        data, self._unsent = self._unsent, []
        if data and not self.closed:
            self._transport.write(b"".join(data))

    def _tick(self) -> None:
        self._timer = None
        if not self._asked:
            return
        self._silence += 1
        if self._silence >= REPLY_TIMEOUT / TICK:
            self.close(TimedOut(f"no answer within {REPLY_TIMEOUT:g} s"))
        else:
            self._timer = self._loop.call_later(TICK, self._tick)


class AsyncDriver:
    """See `joblock.store.contract.AsyncDriver`."""

    def __init__(self, target: Target, ears: Ears, hand: Hand) -> None:
        self._loop = asyncio.get_running_loop()
        self._hand = hand
        self._target = target
        self._route: Route = route_to(target, ears)
        self._open: dict[Place, AsyncConnection] = {}
        self._opening: dict[Place, asyncio.Task[AsyncConnection]] = {}
        self._closed = False
        # One server and nothing to count: most operations are a single exchange with it.
        self._only: Place | None = None
        self._usual: AsyncConnection | None = None
        if isinstance(self._route, SingleRoute) and not target.min_replicas:
            self._only = self._route.place

    async def call(self, op: Any) -> Any:
        """Do ``op``; see `joblock.store.contract.AsyncDriver`."""
        connection, resent = self._usual, False
        if connection is not None and not connection.closed:
            kind: Any = op.__class__
            holder: str = getattr(op, "holder", "")
            if kind is Acquire:
                data, read = commands.packed_acquire(op), commands.read_acquire
            elif kind is Release:
                data, read = commands.packed_release(op), commands.read_released
            elif kind in commands.SIMPLE and kind is not Force:
                ask, read = commands.SIMPLE[kind]
                data = ask(op).packed()
            else:
                return await self._run(perform(op, self._route, self._target))
            try:
                reply = await connection.ask(data, 0, holder)
                # An error comes up again in the flow, which knows what to do about it.
                if not isinstance(reply, Exception):
                    return read(op, reply)
            except Disconnected:
                resent = True
            except TimedOut as error:
                raise StoreUnavailable(f"{self._target.shown}: {error}") from error
        return await self._run(perform(op, self._route, self._target, resent=resent))

    def settled(self, holder: str, then: Callable[[], None]) -> None:
        """Call ``then`` once no cancelled request for ``holder`` is on its way (maybe at once)."""
        connections = list(self._open.values())
        left = len(connections)
        if not left:
            then()
            return

        def one_settled() -> None:
            nonlocal left
            left -= 1
            if not left:
                then()

        for connection in connections:
            connection.settled(holder, one_settled)

    async def aclose(self) -> None:
        """Close the connections of this event loop for good: what comes later keeps none."""
        self._closed = True
        await self._hang_up()

    async def _hang_up(self) -> None:
        if self._opening:
            # Cancelling them would look to their callers as if these had been cancelled.
            await asyncio.wait(list(self._opening.values()))
        self._usual = None
        for place, connection in tuple(self._open.items()):
            # What undoes a cancelled request goes another way, and must not come before it.
            try:
                await connection.answered()
            finally:
                connection.close()
                if self._open.get(place) is connection:
                    del self._open[place]
        # The loop closes their sockets in its next turn.
        await asyncio.sleep(0)

    async def _run(self, flow: Flow[Any]) -> Any:
        """Take the steps that the flow asks for."""
        try:
            return await self._take_steps(flow)
        finally:
            if self._closed:
                # It has connected once more since.
                await self._hang_up()

    async def _take_steps(self, flow: Flow[Any]) -> Any:
        reply: Any = None
        error: Exception | None = None
        while True:
            try:
                step = flow.send(reply) if error is None else flow.throw(error)
            except StopIteration as stop:
                return stop.value
            reply, error = None, None
            try:
                if isinstance(step, Send):
                    connection = await self._connection(step.place, step.login)
                    reply = await connection.ask(step.data, step.replies, step.holder)
                    more = step.then(reply) if step.then is not None else None
                    if more is not None:
                        reply += await connection.ask(more, 1, step.holder)
                elif isinstance(step, Sleep):
                    await asyncio.sleep(step.seconds)
                elif step.place in self._open:
                    self._open.pop(step.place).close()
            except Exception as caught:  # noqa: BLE001 - the flow decides
                error = caught

    async def _connection(self, place: Place, login: Login) -> AsyncConnection:
        connection = self._open.get(place)
        if connection is not None and not connection.closed:
            return connection
        task = self._opening.get(place)
        if task is None:
            # One attempt for all who ask meanwhile, and a caller that is cancelled leaves it be.
            task = self._loop.create_task(self._connect(place, login))
            self._opening[place] = task
            task.add_done_callback(lambda done: self._opened(place, done))
        return await asyncio.shield(task)

    def _opened(self, place: Place, task: asyncio.Task[AsyncConnection]) -> None:
        self._opening.pop(place, None)
        if not task.cancelled() and task.exception() is None:
            self._open[place] = opened = task.result()
            if place == self._only and not self._closed:
                self._usual = opened

    async def _connect(self, place: Place, login: Login) -> AsyncConnection:
        loop, connection = self._loop, AsyncConnection(self._loop, self._hand)
        context = None if login.tls is None else tls_context(login)
        name = place.host if context is not None else None
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                if place.port:
                    await loop.create_connection(
                        lambda: connection, *place, ssl=context, server_hostname=name
                    )
                else:
                    await loop.create_unix_connection(
                        lambda: connection, place.host, ssl=context, server_hostname=name
                    )
                data, count = greeting(login)
                replies = await connection.ask(data, count, "")
            check_greeting(self._target.shown, login, replies)
        except TimeoutError as error:
            _close(connection)
            raise ConnectFailed(f"no answer within {CONNECT_TIMEOUT:g} s of connecting") from error
        except OSError as error:
            raise ConnectFailed(f"cannot connect: {error}") from error
        except Disconnected as error:
            raise ConnectFailed(str(error)) from error
        except BaseException:
            _close(connection)
            raise
        return connection


def _settle(over: asyncio.Future[None]) -> None:
    if not over.done():
        over.set_result(None)


def _close(connection: AsyncConnection) -> None:
    if hasattr(connection, "_transport"):
        connection.close()
