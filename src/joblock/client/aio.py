"""The client for tasks of an event loop.

It takes the same steps as the sync client and only waits differently. Leases are renewed by the
same keeper thread, so a computation that blocks the loop does not cost the lease it runs under.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Self, TypeVar, cast, overload

from joblock.client import current
from joblock.client.base import BaseClient
from joblock.client.callables import checked_callable, is_async
from joblock.client.cancel import Canceller
from joblock.client.lease import BaseLease
from joblock.client.locks import BaseLock, wait_of
from joblock.client.threaded import call_in_thread
from joblock.protocol import acquire as flows
from joblock.protocol import model as raw
from joblock.protocol.job import Grace, GraceOn, InGrace, make_terms
from joblock.protocol.occurrences import Occurrence, with_occurrence
from joblock.protocol.request import OnLost, OnStoreError, make_request, one_of
from joblock.protocol.run import Ended, annotate, give_back, run_with_lock
from joblock.protocol.steps import Flow, Pause, Work
from joblock.store.ops import Busy
from joblock.values.durations import Duration, Wait, to_ms
from joblock.values.imports import importing
from joblock.values.names import Keys, Several

if TYPE_CHECKING:
    from types import TracebackType

    from joblock.client.hub import Hub
    from joblock.client.jobs import AsyncJob
    from joblock.client.leader import AsyncLeader, Leadership
    from joblock.client.several import AsyncLockSeveral
    from joblock.protocol.hold import Hold
    from joblock.store.contract import AsyncDriver
    from joblock.values.clock import Clock
    from joblock.values.records import JobLock, Waiting

T = TypeVar("T")
P = ParamSpec("P")


class _LoopEvent(asyncio.Event):
    """An asyncio.Event that knows its loop, so that other threads can set it."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = _running_loop()


class _SeatEvent(asyncio.Event):
    """The same for the one task that waits at a seat.

    It keeps no list of those who wait, which is most of what an asyncio.Event weighs.
    """

    __repr__ = object.__repr__

    def __init__(self) -> None:
        self.loop = _running_loop()
        self._set = False
        self._waiter: asyncio.Future[Literal[True]] | None = None

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(True)

    def clear(self) -> None:
        self._set = False

    async def wait(self) -> Literal[True]:
        if not self._set:
            self._waiter = self.loop.create_future()
            await self._waiter
        return True


class _TaskWaker:
    """Tasks wait on asyncio.Event; each event loop has its own driver."""

    def __init__(self) -> None:
        self.lines: dict[asyncio.AbstractEventLoop, _Line] = {}
        self.leaving: dict[asyncio.AbstractEventLoop, _Line] = {}

    owner = staticmethod(asyncio.current_task)

    def driver(self, hub: Hub) -> AsyncDriver:
        """That of the running event loop, made at its first use there."""
        loop = asyncio._get_running_loop()  # noqa: SLF001 - the public one raises
        line = self.lines.get(loop) if loop is not None else None
        return self._first_line(hub).driver if line is None else line.driver

    def _first_line(self, hub: Hub) -> _Line:
        loop = _running_loop()
        for other in tuple(self.lines):
            if other.is_closed():  # without a word: see _Line
                self.lines.pop(other, None)
        line = self.lines[loop] = _Line(hub.store.async_driver(), self.lines, loop)
        return line

    async def hang_up(self, before: Awaitable[None]) -> None:
        """Let nothing new begin on the running loop's line, and close it after something else."""
        loop = _running_loop()
        line = self.lines.pop(loop, None)
        if line is None:
            await before
            return
        self.leaving[loop] = line
        try:
            await before
            await line.close()
        finally:
            self.leaving.pop(loop, None)

    def forked(self) -> Any:
        lines, self.lines = self.lines, {}
        return lines

    def event(self) -> _LoopEvent:
        return _LoopEvent()

    def seat_event(self) -> _SeatEvent:
        return _SeatEvent()

    def set(self, event: _LoopEvent | _SeatEvent) -> None:
        if asyncio._get_running_loop() is event.loop:  # noqa: SLF001 - the public one raises
            event.set()
            return
        try:
            event.loop.call_soon_threadsafe(event.set)
        except RuntimeError:
            # The loop is closed: nobody waits there any more.
            return

    def settled(self, holder: str, then: Callable[[], None]) -> None:
        loop = asyncio._get_running_loop()  # noqa: SLF001 - the public one raises
        if loop is not None:
            for line in (self.lines.get(loop), self.leaving.get(loop)):
                if line is not None:
                    then = partial(line.driver.settled, holder, then)
        then()


class _Line:
    """The driver of one event loop, closed with it.

    A loop that ends (`asyncio.run`) closes the asynchronous generators begun in it, and waits for
    them: the one way to have something done then. So what is still on its way for tasks that were
    cancelled arrives, and can be undone, and no connection is left open.
    """

    def __init__(
        self,
        driver: AsyncDriver,
        lines: dict[asyncio.AbstractEventLoop, _Line],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.driver = driver
        self._ending = _until_closed(driver, lines, loop)
        with suppress(StopIteration):
            self._ending.__anext__().send(None)

    async def close(self) -> None:
        """Give back what belongs to the loop."""
        await self._ending.aclose()


async def _until_closed(
    driver: AsyncDriver,
    lines: dict[asyncio.AbstractEventLoop, _Line],
    loop: asyncio.AbstractEventLoop,
) -> AsyncGenerator[None]:
    process = os.getpid()
    try:
        yield
    finally:
        # A forked child that ends its parent's loop shares what that loop watches: hands off.
        if os.getpid() == process:
            line = lines.get(loop)
            if line is not None and line.driver is driver:
                del lines[loop]
            await driver.aclose()


def _running_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio._get_running_loop()  # noqa: SLF001 - the public one raises
    if loop is None:
        raise RuntimeError(
            "AsyncJobLocks needs a running asyncio event loop: call it from a coroutine, or use "
            "JobLocks in plain code"
        )
    return loop


async def _drive(hub: Hub, flow: Flow[T]) -> T:
    """Do what the flow asks, one step after the other, until it ends."""
    reply: Any = None
    # Not a plain variable: an exception that goes out through this frame would keep it alive, and
    # with it whatever was acquired.
    thrown: list[BaseException] = []
    waker: Any = hub.waker
    call: Callable[[Any], Awaitable[Any]] = waker.driver(hub).call
    try:
        while True:
            try:
                step: Any = flow.throw(thrown.pop()) if thrown else flow.send(reply)
            except StopIteration as stop:
                return stop.value
            try:
                kind = step.__class__
                if kind is Pause:
                    event = step.seat.before_pause()
                    if event is not None:
                        await hub.clock.await_(event, step.until)
                elif kind is Work:
                    reply = await _work(hub, step)
                else:
                    reply = await call(step)
            except BaseException as caught:  # noqa: BLE001 - the flow decides, and raises it again
                thrown.append(caught)
    except BaseException:
        flow.close()  # an interrupt fell between two of its steps: it gives back what it has
        raise


async def _work(hub: Hub, work: Work) -> tuple[Any, BaseException | None]:
    lease, owner = AsyncLease(hub, work.hold), _task()
    hub.own(owner, work.hold)
    current.enter(lease)
    canceller = _canceller(work.hold, owner)
    value, error = None, None
    try:
        value = await _call(hub, work)
    except BaseException as caught:  # noqa: BLE001 - raised again once the lease is given back
        error = caught
    finally:
        current.leave(lease)
        hub.disown(owner, work.hold)
    return value, error if canceller is None else await canceller.end(error)


async def _call(hub: Hub, work: Work) -> Any:
    if is_async(work.function):
        return await work.function()
    value, error = await call_in_thread(hub, work.hold, work.function)
    if error is not None:
        raise error
    # A lambda around a coroutine function is a plain function.
    return await value if asyncio.iscoroutine(value) else value


def _task() -> asyncio.Task[Any]:
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    if task is None:
        _running_loop()
        raise RuntimeError("AsyncJobLocks is for tasks: call it from a coroutine, not a callback")
    return task


def _canceller(hold: Hold, task: asyncio.Task[Any]) -> Canceller | None:
    return Canceller(hold, task) if hold.on_lost == "cancel" else None


class AsyncLease(BaseLease):
    """A lease of the asyncio client; leaving its `async with` block releases it."""

    __slots__ = ("_canceller",)

    def __init__(self, hub: Hub, hold: Hold) -> None:
        super().__init__(hub, hold)
        self._canceller: Canceller | None = None

    async def refresh(self, ttl: Duration) -> None:
        """Renew it now, and from now on, with that ttl; raises LockLost, StoreError."""
        await _drive(self._hub, flows.refresh(self._hub, self.hold, to_ms(ttl, "ttl")))

    async def guard(self, connection: Any) -> None:
        """As `joblock.Lease.guard`, for connections of psycopg, asyncpg and SQLAlchemy's asyncio.

        A connection of sqlite3 will do as well.
        """
        with importing():
            from joblock.borrowed import arun

        self._check_guarded(await arun(connection, self._guard_statement(), "lease.guard"))

    async def release(self) -> bool:
        """Give it back; False if it had been lost. Any task may; a second time does nothing."""
        return await _drive(self._hub, flows.release(self._hub, self.hold))

    async def __aenter__(self) -> Self:
        self.check()
        current.enter(self)
        self.enter_block(_task())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        current.leave(self)
        await self.leave_block(error)

    def enter_block(self, task: asyncio.Task[Any]) -> None:
        """From now on a loss cancels the task, if that is the policy."""
        self._canceller = _canceller(self.hold, task)

    async def leave_block(self, error: BaseException | None) -> None:
        """End a block: release, and raise what was lost unless the block raises already."""
        canceller, self._canceller = self._canceller, None
        try:
            own = error if canceller is None else await canceller.end(error)
            await _drive(self._hub, flows.release(self._hub, self.hold))
        except BaseException:
            self._hub.collected(self.hold)  # cancelled or interrupted before it was begun
            raise
        lost = flows.loss_after(self.hold)
        if own is not None:
            annotate(own, lost)
        elif lost is not None:
            raise lost from error


class AsyncLock(BaseLock[AsyncLease]):
    """A lock in the shape of asyncio.Lock; each task that uses it has its own hold."""

    __slots__ = ()

    async def acquire(self, blocking: bool = True, timeout: Duration | None = -1) -> bool:
        """Take it; False if that was not possible in time.

        ``timeout`` -1 or None waits without end, 0 tries once; with ``blocking=False`` it is a
        ValueError. Raises StoreUnavailable, and RuntimeError where it would wait for itself.
        """
        return type(await self._take(_task(), wait_of(blocking, timeout))) is AsyncLease

    async def release(self) -> None:
        """Give this task's hold back.

        Raises RuntimeError if it has none, LockLost if it was lost (unless ``on_lost="warn"``).
        """
        lease = self._pop(_task())
        if lease is not None:
            await lease.leave_block(None)

    async def locked(self) -> bool:
        """Whether anybody holds it; asks the store, and may raise StoreError."""
        return await _drive(self._hub, raw.is_locked(self._request.key))

    def __aenter__(self) -> Coroutine[Any, Any, AsyncLease]:
        return self.enter(self._request.wait)

    def enter(self, wait: int | None) -> Coroutine[Any, Any, AsyncLease]:
        """Enter the block, waiting that many milliseconds; for the library's own use."""
        entering = self._take(_task(), wait, block=True)
        return cast("Coroutine[Any, Any, AsyncLease]", entering)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        lease = self._pop(self._leaver())
        if lease is not None:
            await lease.leave_block(error)

    async def _take(
        self, owner: asyncio.Task[Any], wait: int | None, *, block: bool = False
    ) -> AsyncLease | Busy:
        """Win a lease, or say who is in the way; to enter a ``block`` without one is an error."""
        hub, request = self._hub, self._request
        nested = self._nest(owner) if self._reentrant else None
        if nested is not None:
            return nested
        if wait != request.wait:
            request = request._replace(wait=wait)
        won = None
        try:
            won = await _drive(hub, flows.acquire(hub, request))
            if not isinstance(won, Busy):
                lease = AsyncLease(hub, won)
                self._push(owner, lease)
                if block:
                    lease.enter_block(owner)
                return lease
        except BaseException:
            self._take_back(owner, won)
            raise
        if block:
            raise flows.not_acquired(self._request, won)
        return won


class AsyncJobLockModel:
    """The raw lease operations of the asyncio client: no renewal, no nesting, your own holder."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    async def acquire(self, key: str, ttl: Duration, holder: str) -> bool:
        """Take the lease if it is free or mine; it then ends exactly ``ttl`` from now."""
        hub = self._hub
        return await _drive(hub, raw.acquire(hub.prefix, hub.worker, key, ttl, holder))

    async def refresh(self, key: str, ttl: Duration, holder: str) -> bool:
        """Let it end exactly ``ttl`` from now, if it is mine and nobody took it meanwhile."""
        return await _drive(self._hub, raw.refresh(self._hub.prefix, key, ttl, holder))

    async def release(self, key: str, holder: str) -> None:
        """End it if it is mine; otherwise do nothing."""
        await _drive(self._hub, raw.release(self._hub.prefix, key, holder))

    async def peek(self, key: str) -> JobLock | None:
        """The lease as it stands, the oldest one if the key has several; None if it is free."""
        return await _drive(self._hub, raw.peek(self._hub.prefix, key))

    get = peek

    async def holders(self, key: str) -> tuple[JobLock, ...]:
        """All leases of the key, oldest first."""
        return await _drive(self._hub, raw.holders(self._hub.prefix, key))

    async def waiters(self, key: str) -> tuple[Waiting, ...]:
        """The queue of the key, oldest first."""
        return await _drive(self._hub, raw.waiters(self._hub.prefix, key))

    async def all(self, prefix: str = "") -> AsyncIterator[JobLock]:
        """Every lease of keys that begin with ``prefix``, by key, read page by page."""
        after = ""
        while page := await _drive(self._hub, raw.page(self._hub.prefix, prefix, after)):
            for lease in page:
                yield lease
            after = page[-1].key

    async def count(self, prefix: str = "") -> int:
        """How many leases there are of keys that begin with ``prefix``."""
        return await _drive(self._hub, raw.count(self._hub.prefix, prefix))

    async def delete(self, key: str, *, by: str = "", why: str = "") -> tuple[JobLock, ...]:
        """Break every lease of the key, whoever holds it; ``by`` and ``why`` are kept.

        The leases that were broken are returned. Their holders learn of it at the next renewal.
        """
        hub = self._hub
        return await _drive(hub, raw.delete(hub.events, hub.prefix, hub.worker, key, by, why))


class AsyncJobLocks(BaseClient):
    """Locks for tasks, kept in ``store``: see `joblock.JobLocks`, whose arguments these are.

    One client may be used from several event loops, each after or beside the other.
    """

    _for_tasks = True

    def __init__(
        self,
        store: Any = None,
        *,
        prefix: str | None = None,
        label: str = "",
        clock: Clock | None = None,
        notifier: Any = None,
    ) -> None:
        super().__init__(store, prefix, label, clock, notifier, _TaskWaker())
        self.model = AsyncJobLockModel(self._hub)

    async def run_with_lock(
        self,
        key: str,
        ttl: Duration,
        work: Callable[[], object],
        *,
        holder: str | None = None,
        renew: bool = True,
        max_duration: Duration | None = None,
        on_lost: OnLost | None = None,
        on_store_error: OnStoreError = "raise",
        occurrence: Occurrence | None = None,
        occurrence_ttl: Duration | None = None,
    ) -> bool:
        """Await ``work`` if nobody else holds ``key``; True if it ran and returned.

        ``work`` is a coroutine function; a plain function is run in a worker thread. Otherwise as
        `joblock.JobLocks.run_with_lock`, but that a loss cancels the work (``on_lost="cancel"``).
        A thread cannot be cancelled: the lease is then kept until the function has returned.
        """
        request = make_request(
            self.prefix,
            key,
            ttl=ttl,
            wait=False,
            holder=holder,
            renew=renew,
            max_duration=max_duration,
            on_lost=("cancel" if renew else "warn") if on_lost is None else on_lost,
        )
        one_of(on_store_error, ("raise", "skip"), "on_store_error")
        if occurrence is not None or occurrence_ttl is not None:
            request = with_occurrence(request, occurrence, occurrence_ttl)
        flow = run_with_lock(self._hub, request, checked_callable(work), on_store_error)
        ended: Ended = await _drive(self._hub, flow)
        if ended.error is not None:
            raise ended.error
        return ended.ran

    @overload
    def lock(
        self,
        key: str,
        ttl: Duration | None = None,
        wait: Wait = True,
        *,
        limit: int | None = None,
        weight: int | None = None,
        shared: bool = False,
        reentrant: bool = False,
        renew: bool = True,
        max_duration: Duration | None = None,
        on_lost: OnLost = "cancel",
    ) -> AsyncLock: ...

    @overload
    def lock(
        self,
        key: Keys,
        ttl: Duration | None = None,
        wait: Wait = True,
        *,
        limit: int | None = None,
        weight: int | None = None,
        shared: bool = False,
        reentrant: bool = False,
        renew: bool = True,
        max_duration: Duration | None = None,
        on_lost: OnLost = "cancel",
    ) -> AsyncLockSeveral: ...

    def lock(
        self,
        key: str | Keys,
        ttl: Duration | None = None,
        wait: Wait = True,
        *,
        limit: int | None = None,
        weight: int | None = None,
        shared: bool = False,
        reentrant: bool = False,
        renew: bool = True,
        max_duration: Duration | None = None,
        on_lost: OnLost = "cancel",
    ) -> AsyncLock | AsyncLockSeveral:
        """A lock on ``key`` for `async with`; the options are those of `joblock.JobLocks.lock`.

        ``on_lost="cancel"`` cancels the task inside the block, which then raises LockLost.
        """
        several = key.__class__ is not str and isinstance(key, Several)
        request = make_request(
            self._hub.prefix,
            "-" if several else key,  # pyright: ignore[reportArgumentType]
            ttl=ttl,
            wait=wait,
            limit=limit,
            weight=weight,
            shared=shared,
            renew=renew,
            max_duration=max_duration,
            on_lost=on_lost,
        )
        if not several:
            return AsyncLock(self._hub, request, reentrant)
        with importing():
            from joblock.client.several import AsyncLockSeveral, requests_for

        requests = requests_for(self.prefix, request, cast("Keys", key))
        locks = tuple(AsyncLock(self._hub, each, reentrant) for each in requests)
        return AsyncLockSeveral(self._hub, locks, request.wait)

    async def acquire(
        self,
        key: str,
        ttl: Duration | None = None,
        wait: Wait = False,
        *,
        holder: str | None = None,
        limit: int | None = None,
        weight: int | None = None,
        shared: bool = False,
        renew: bool = True,
        max_duration: Duration | None = None,
        on_lost: OnLost = "cancel",
    ) -> AsyncLease | None:
        """An explicit handle, or None if it was not to be had in time (tries once by default).

        Any task may release it, and nothing else does: keep it, or use it in an `async with`.
        """
        request = make_request(
            self._hub.prefix,
            key,
            ttl=ttl,
            wait=wait,
            holder=holder,
            limit=limit,
            weight=weight,
            shared=shared,
            renew=renew,
            max_duration=max_duration,
            on_lost=on_lost,
        )
        won = None
        try:
            won = await _drive(self._hub, flows.acquire(self._hub, request))
            return None if isinstance(won, Busy) else AsyncLease(self._hub, won)
        except BaseException:
            give_back(self._hub, won)
            raise

    @overload
    def job(self, function: Callable[P, Awaitable[T]], /) -> AsyncJob[P, T]: ...

    @overload
    def job(
        self,
        function: None = None,
        /,
        *,
        name: str | Callable[..., str] | None = None,
        wait: Wait | None = None,
        join: bool = False,
        in_grace: InGrace = "skip",
        ttl: Duration | None = None,
        max_duration: Duration | None = None,
        grace_period: Grace = None,
        grace_on: GraceOn = "success",
        at_least: Duration | None = None,
        limit: int | None = None,
        weight: int | None = None,
        renew: bool = True,
        on_lost: OnLost = "cancel",
        on_store_error: OnStoreError = "raise",
        occurrence: Occurrence | Callable[..., Occurrence] | None = None,
        occurrence_ttl: Duration | None = None,
    ) -> Callable[[Callable[P, Awaitable[T]]], AsyncJob[P, T]]: ...

    def job(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | Callable[..., str] | None = None,
        wait: Wait | None = None,
        join: bool = False,
        in_grace: InGrace = "skip",
        ttl: Duration | None = None,
        max_duration: Duration | None = None,
        grace_period: Grace = None,
        grace_on: GraceOn = "success",
        at_least: Duration | None = None,
        limit: int | None = None,
        weight: int | None = None,
        renew: bool = True,
        on_lost: OnLost = "cancel",
        on_store_error: OnStoreError = "raise",
        occurrence: Occurrence | Callable[..., Occurrence] | None = None,
        occurrence_ttl: Duration | None = None,
    ) -> Any:
        """Make calls of a function exclude each other: across threads, processes and machines.

        A call gives an Outcome; ``.call(...)`` gives the bare value, or raises LockNotAcquired.
        ``name`` is the key, text or a function of the call's arguments (default: module and
        qualified name). If another run is in progress a call skips; with ``wait`` it queues and
        runs in turn; with ``join`` it waits for that run and runs itself only if that one failed.
        ``grace_period`` keeps the key closed after a run that ended well (any run with
        ``grace_on="always"``), and ``in_grace`` says whether a call then skips or waits.
        ``at_least`` keeps it closed until that long after the run began, however it ended.
        ``max_duration`` bounds a hang. ``limit`` and ``weight`` let several runs in at a time.
        Options that contradict each other are refused here, with ValueError or TypeError.
        """
        with importing():
            from joblock.client.jobs import AsyncJob, check_function, default_name, refuse_async

        def decorate(function: Any) -> Any:
            check_function(function, coroutine=True)
            refuse_async(name=name, grace_period=grace_period, occurrence=occurrence)
            terms = make_terms(
                self.prefix,
                name=default_name(function) if name is None else name,
                wait=wait,
                join=join,
                in_grace=in_grace,
                ttl=ttl,
                max_duration=max_duration,
                grace_period=grace_period,
                grace_on=grace_on,
                at_least=at_least,
                limit=limit,
                weight=weight,
                renew=renew,
                on_lost=on_lost,
                on_store_error=on_store_error,
                occurrence=occurrence,
                occurrence_ttl=occurrence_ttl,
            )
            job: AsyncJob[..., Any] = AsyncJob(self, terms, function)
            return job

        return decorate if function is None else decorate(function)

    def leader(
        self,
        key: str,
        ttl: Duration | None = None,
        *,
        on_elected: Callable[[Leadership[AsyncLease]], Coroutine[Any, Any, object]] | None = None,
        on_lost: Callable[[Leadership[AsyncLease]], Coroutine[Any, Any, object]] | None = None,
    ) -> AsyncLeader:
        """A candidate for ``key``: of all who stand for it one leads, until it is gone.

        As `joblock.JobLocks.leader`, with coroutine functions: at the end of a term ``on_elected``
        is cancelled.
        """
        with importing():
            from joblock.client.leader import AsyncLeader

        request = make_request(self.prefix, key, ttl=ttl, wait=True, on_lost="warn")
        return AsyncLeader(self, request, on_elected, on_lost, self._hub)

    async def drive(self, flow: Flow[T]) -> T:
        """Do what a flow of `joblock.protocol` asks; for the library's own use."""
        return await _drive(self._hub, flow)

    async def close(self) -> None:
        """Release what is held, as far as possible in five seconds, and close the store."""
        waker = cast("_TaskWaker", self._hub.waker)
        await waker.hang_up(asyncio.to_thread(self._hub.close))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()
