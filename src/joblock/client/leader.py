"""Election: of all who stand for a key, one leads, until it stops, fails or loses its lease.

Leadership is an exclusive lease, and candidates are its waiters: so they are elected in the order
in which they came, woken and not polled, and whoever leads goes on leading. In the background:

1. Stand: wait for the lease, however long.
2. Lead: call ``on_elected`` and keep the lease, whether that returns or goes on.
3. The term ends: the lease was lost, `stop` was called, or ``on_elected`` raised. It is told, and
   given time to return. Only then is the lease released: nobody leads while its work still runs.
4. Unless it was stopped, stand again, at the back of the queue.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from joblock.client.callables import is_async
from joblock.client.lease import BaseLease
from joblock.protocol import acquire as flows
from joblock.protocol.steps import Flow, Pause
from joblock.values.durations import Duration, to_ms
from joblock.values.errors import LockNotAcquired
from joblock.values.imports import importing
from joblock.values.log import logger
from joblock.values.shown import shown

if TYPE_CHECKING:
    import asyncio
    from types import TracebackType

    from joblock.client.aio import AsyncJobLocks, AsyncLease
    from joblock.client.hub import Hub
    from joblock.client.seat import ClientSeat
    from joblock.client.sync import JobLocks, Lease
    from joblock.protocol.hold import Hold
    from joblock.protocol.request import Request

L = TypeVar("L", bound=BaseLease)
T = TypeVar("T")

FIRST_REST, LONGEST_REST = 1.0, 30.0
"""Seconds before it stands again after something failed; the rest grows while that goes on."""

ENDING = ("closed", "forked")
"""Losses after which there is no standing again: the client is gone."""


class Leadership(Generic[L]):
    """One term: its lease, and when it is to end.

    ``over`` is an event (of threading, or of asyncio) that is set when the term ends, for whatever
    ``reason``: ``"stopped"``, ``"failed"`` (``on_elected`` raised), or how the lease was lost.
    """

    __slots__ = ("lease", "over", "reason")

    def __init__(self, lease: L, over: Any) -> None:
        self.lease = lease
        self.over = over
        self.reason = ""

    @property
    def token(self) -> int:
        """The fencing token of this term: greater than that of every term before."""
        return self.lease.token

    @property
    def held(self) -> bool:
        """Whether it still leads, by the local clock."""
        return self.lease.held

    def check(self) -> None:
        """Raise LockLost if it leads no more."""
        self.lease.check()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.lease.key!r} token={self.token} {self.reason}>"


class BaseLeader(Generic[L]):
    """What the leaders of both clients share: the candidate, its seat, its term."""

    def __init__(self, hub: Hub, request: Request, on_elected: Any, on_lost: Any) -> None:
        self._hub = hub
        self._request = request
        self._on_elected = on_elected
        self._on_lost = on_lost
        self._term: Leadership[L] | None = None
        self._seat: ClientSeat | None = None
        self._stopping = False
        self._wake: Any = None
        self._rest = 0.0
        for callback in (on_elected, on_lost):
            if callback is not None and not callable(callback):
                raise TypeError(f"it is called with a Leadership, so it is no {shown(callback)}")

    @property
    def key(self) -> str:
        """What it stands for."""
        return self._request.name

    @property
    def is_leader(self) -> bool:
        """Whether this candidate leads, by the local clock; in the background form."""
        term = self._term
        return term is not None and term.held

    @property
    def leadership(self) -> Leadership[L] | None:
        """The term in progress, or None; in the background form."""
        return self._term

    def _ask_to_stop(self) -> None:
        # In this order, and `_standing` in the other: one of the two sees what the other wrote.
        self._stopping = True
        seat = self._seat
        if seat is not None:
            seat.dismiss()
        if self._wake is not None:
            self._hub.waker.set(self._wake)

    def _standing(self, flow: Flow[T]) -> Flow[T]:
        """The same flow, whose waiting ends when it is asked to stop."""
        step = flow.send(None)
        while True:
            if type(step) is Pause:
                self._seat = cast("ClientSeat", step.seat)
                if self._stopping:
                    self._seat.dismiss()
            try:
                reply = yield step
            except GeneratorExit:
                flow.close()
                raise
            except BaseException as error:  # noqa: BLE001 - the flow decides, and raises it again
                step, done, value = _resume(lambda error=error: flow.throw(error))
            else:
                step, done, value = _resume(lambda reply=reply: flow.send(reply))
            if done:
                return value

    def _stands(self) -> Flow[Hold | Any]:
        return self._standing(flows.acquire(self._hub, self._request))

    def _begin(self, lease: L) -> Leadership[L]:
        wake = self._wake
        lease.hold.when_lost(lambda: self._hub.waker.set(wake))
        term = self._term = Leadership(lease, self._hub.waker.event())
        logger("leader").info("%r leads %r (token %d)", lease.holder, lease.key, lease.token)
        return term

    def _over(self, term: Leadership[L]) -> bool:
        """Whether the term has come to its end, and if so why."""
        if not term.reason and not term.held:
            term.reason = term.lease.hold.lost or "released"
        if not term.reason and self._stopping:
            term.reason = "stopped"
        return bool(term.reason)

    def _told(self, term: Leadership[L]) -> None:
        logger("leader").info(
            "%r leads %r no more: %s", term.lease.holder, term.lease.key, term.reason
        )
        self._hub.waker.set(term.over)

    def _goes_on(self, term: Leadership[L]) -> bool:
        """Whether to stand again; the pause until then is `_rest`, 0 for none."""
        lasted = self._hub.clock.monotonic() - term.lease.hold.since
        if term.reason != "failed" or lasted > LONGEST_REST:
            self._rest = 0.0
        if term.reason == "failed":
            self._rest = min(LONGEST_REST, self._rest * 2) or FIRST_REST
        return not self._stopping and term.reason not in ENDING

    def _failed(self, what: str) -> None:
        logger("leader").exception("%s of the candidate for %r failed", what, self._request.key)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.key!r}{' leads' if self.is_leader else ''}>"


def _resume(advance: Callable[[], Any]) -> tuple[Any, bool, Any]:
    try:
        return advance(), False, None
    except StopIteration as stop:
        return None, True, stop.value


class Leader(BaseLeader["Lease"]):
    """A candidate of the sync client: for `with`, or in a thread between `start` and `stop`."""

    def __init__(
        self,
        client: JobLocks,
        request: Request,
        on_elected: Callable[[Leadership[Lease]], object] | None,
        on_lost: Callable[[Leadership[Lease]], object] | None,
        hub: Hub,
    ) -> None:
        super().__init__(hub, request, on_elected, on_lost)
        if is_async(on_elected) or is_async(on_lost):
            raise TypeError("the callbacks of JobLocks.leader are plain functions")
        with importing():
            from joblock.client.sync import Lock

        self._client = client
        self._lock = Lock(hub, request._replace(on_lost="raise"), reentrant=False)
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Stand in the background, in a thread, until `stop`."""
        if self._thread is not None and self._thread.is_alive():
            raise RuntimeError(f"this candidate for {self.key!r} was started already")
        self._stopping, self._wake = False, threading.Event()
        # Named as a caller, which it is, and not as a thread of the client's own.
        self._thread = threading.Thread(target=self._run, name=f"leader {self.key}", daemon=True)
        self._thread.start()

    def stop(self, timeout: Duration | None = None) -> bool:
        """Stand no more, and step down; True once that is done, False if it takes longer.

        ``on_elected`` is told by ``leadership.over`` and keeps the lease until it returns.
        """
        self._ask_to_stop()
        thread = self._thread
        if thread is None:
            return True
        thread.join(None if timeout is None else to_ms(timeout, "timeout") / 1000)
        return not thread.is_alive()

    def _run(self) -> None:
        from joblock.client.sync import Lease

        while not self._stopping:
            self._wake.clear()
            try:
                won = self._client.drive(self._stands())
                if not self._lead(Lease(self._hub, won)):
                    return
            except LockNotAcquired:
                return  # it was asked to stop, or its client was closed
            except Exception:  # noqa: BLE001 - a store that fails must not end the election
                self._failed("standing")
                self._rest = min(LONGEST_REST, self._rest * 2) or FIRST_REST
            if self._rest and not self._stopping:
                self._hub.clock.wait(self._wake, self._hub.clock.monotonic() + self._rest)

    def _lead(self, lease: Lease) -> bool:
        term = self._begin(lease)
        work = threading.Thread(
            target=self._work, args=(term,), name=f"leading {self.key}", daemon=True
        )
        if self._on_elected is not None:
            work.start()
        while not self._over(term):
            self._hub.clock.wait(self._wake, None)
            self._wake.clear()
        self._told(term)
        if not term.held:
            self._call(self._on_lost, term)
        if self._on_elected is not None:
            work.join()
        if term.held:
            self._call(self._on_lost, term)
        self._term = None
        lease.release()
        return self._goes_on(term)

    def _work(self, term: Leadership[Lease]) -> None:
        if not self._call(self._on_elected, term) and not term.reason:
            term.reason = "failed"
            self._wake.set()

    def _call(self, callback: Any, term: Leadership[Lease]) -> bool:
        try:
            if callback is not None:
                callback(term)
        except Exception:  # noqa: BLE001 - logged; of on_elected it ends the term
            self._failed(getattr(callback, "__name__", "a callback"))
            return False
        return True

    def __enter__(self) -> Lease:
        return self._lock.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._lock.__exit__(kind, error, traceback)


class AsyncLeader(BaseLeader["AsyncLease"]):
    """A candidate of the asyncio client: for `async with`, or a task between `start` and `stop`."""

    def __init__(
        self,
        client: AsyncJobLocks,
        request: Request,
        on_elected: Callable[[Leadership[AsyncLease]], Coroutine[Any, Any, object]] | None,
        on_lost: Callable[[Leadership[AsyncLease]], Coroutine[Any, Any, object]] | None,
        hub: Hub,
    ) -> None:
        super().__init__(hub, request, on_elected, on_lost)
        if any(each is not None and not is_async(each) for each in (on_elected, on_lost)):
            raise TypeError("the callbacks of AsyncJobLocks.leader are coroutine functions")
        with importing():
            from joblock.client.aio import AsyncLock

        self._client = client
        self._lock = AsyncLock(hub, request._replace(on_lost="cancel"), reentrant=False)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Stand in the background, in a task of the running loop, until `stop`."""
        import asyncio

        if self._task is not None and not self._task.done():
            raise RuntimeError(f"this candidate for {self.key!r} was started already")
        self._stopping, self._wake = False, self._hub.waker.event()
        self._task = asyncio.create_task(self._run(), name="joblock-leader")

    async def stop(self, timeout: Duration | None = None) -> bool:
        """Stand no more, and step down; True once that is done, False if it takes longer.

        ``on_elected`` is cancelled, and keeps the lease until it has returned.
        """
        import asyncio

        self._ask_to_stop()
        if self._task is None:
            return True
        seconds = None if timeout is None else to_ms(timeout, "timeout") / 1000
        await asyncio.wait([self._task], timeout=seconds)
        return self._task.done()

    async def _run(self) -> None:
        from joblock.client.aio import AsyncLease

        while not self._stopping:
            self._wake.clear()
            try:
                won = await self._client.drive(self._stands())
                if not await self._lead(AsyncLease(self._hub, won)):
                    return
            except LockNotAcquired:
                return  # it was asked to stop, or its client was closed
            except Exception:  # noqa: BLE001 - a store that fails must not end the election
                self._failed("standing")
                self._rest = min(LONGEST_REST, self._rest * 2) or FIRST_REST
            if self._rest and not self._stopping:
                await self._hub.clock.await_(self._wake, self._hub.clock.monotonic() + self._rest)

    async def _lead(self, lease: AsyncLease) -> bool:
        import asyncio

        term = self._begin(lease)
        work = asyncio.create_task(self._work(term), name="joblock-leading")
        try:
            while not self._over(term):
                await self._hub.clock.await_(self._wake, None)
                self._wake.clear()
            self._told(term)
            if not term.held:
                await self._call(self._on_lost, term)
        finally:
            work.cancel()
            await asyncio.wait([work])
            if term.held:
                await self._call(self._on_lost, term)
            self._term = None
            await lease.release()
        return self._goes_on(term)

    async def _work(self, term: Leadership[AsyncLease]) -> None:
        if not await self._call(self._on_elected, term) and not term.reason:
            term.reason = "failed"
            self._wake.set()

    async def _call(self, callback: Any, term: Leadership[AsyncLease]) -> bool:
        try:
            if callback is not None:
                await callback(term)
        except Exception:  # noqa: BLE001 - logged; of on_elected it ends the term
            self._failed(getattr(callback, "__name__", "a callback"))
            return False
        return True

    async def __aenter__(self) -> AsyncLease:
        return await self._lock.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._lock.__aexit__(kind, error, traceback)
