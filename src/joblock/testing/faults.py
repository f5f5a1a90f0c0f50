"""Faults on demand: a real store whose drivers fail, stall or lose replies when a test says so.

`FaultyStore` wraps a store, and `Faults` is what a test turns::

    store = FaultyStore(MemoryStore(clock=clock))
    locks = JobLocks(store, clock=clock)
    store.faults.lose_reply(Acquire)       # done by the store, but nobody is told
    gate = store.faults.delay(Refresh)     # on its way until gate.open()
    store.faults.go_down()                 # nothing reaches it until store.faults.clear()

It decides nothing about leases: each request that is not kept from the store is done by the store
itself, and each reply is the store's own. With no fault set it is as good as not there.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from joblock.store.contract import Abilities, Deliver, Store, Subscription
from joblock.store.ops import Notice
from joblock.values.errors import StoreUnavailable

PATIENCE = 20.0
"""Real seconds after which a request that stands at a gate, or a test waiting for one, gives up."""

Failure = Callable[[], BaseException]


def unavailable() -> BaseException:
    """What a driver raises when the store cannot be reached."""
    return StoreUnavailable("the store cannot be reached (a fault set by the test)")


class Gate:
    """Where requests of some kind stand until it is opened; used from threads and tasks alike."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._lock = threading.Lock()
        self._opened = threading.Event()
        self._arrivals = threading.Semaphore(0)
        self._wakers: list[Callable[[], object]] = []

    def wait_for_arrival(self) -> None:
        """Return once one more request stands here (or came through)."""
        assert self._arrivals.acquire(timeout=self._patience), "nothing arrived at the gate"

    def open(self) -> None:
        """Let all pass, from now on."""
        with self._lock:
            self._opened.set()
            wakers, self._wakers = self._wakers, []
        for wake in wakers:
            wake()

    def pass_through(self) -> None:
        """What a request does here in a thread."""
        self._arrivals.release()
        assert self._opened.wait(self._patience), "nobody opened the gate"

    async def apass_through(self) -> None:
        """The same in a task."""
        loop, event = asyncio.get_running_loop(), asyncio.Event()
        with self._lock:
            if not self._opened.is_set():
                self._wakers.append(lambda: loop.call_soon_threadsafe(event.set))
            else:
                event.set()
        self._arrivals.release()
        async with asyncio.timeout(self._patience):
            await event.wait()


class _Rule:
    """One fault: for which requests, how often, before or after they are done, and what happens."""

    def __init__(
        self,
        kinds: tuple[type, ...],
        times: int | None,
        *,
        after: bool,
        failure: Failure | None = None,
        gate: Gate | None = None,
    ) -> None:
        self.kinds = kinds
        self.times = times
        self.after = after
        self.failure = failure
        self.gate = gate

    def meant_for(self, op: Any, *, after: bool) -> bool:
        return self.after is after and (not self.kinds or isinstance(op, self.kinds))


class Faults:
    """What goes wrong between one client and its store.

    ``requests`` is what the client sent, ``done`` what of it the store has done, ``heard`` the
    notices that it took in.
    """

    def __init__(self, patience: float = PATIENCE) -> None:
        self.requests: list[Any] = []
        self.done: list[Any] = []
        self.heard: list[Notice] = []
        self.deaf = False
        self.passes = 0
        self.connects: list[Callable[[], None]] = []
        self._patience = patience
        self._lock = threading.Lock()
        self._rules: list[_Rule] = []
        self._gates: list[Gate] = []
        self._drops: int | None = 0

    def fail(self, *kinds: type, times: int | None = 1, failure: Failure = unavailable) -> None:
        """Let the next requests of those kinds (all, if none is named) fail unsent."""
        self._add(_Rule(kinds, times, after=False, failure=failure))

    def lose_reply(
        self, *kinds: type, times: int | None = 1, failure: Failure = unavailable
    ) -> None:
        """Let the next requests of those kinds be done, and fail all the same."""
        self._add(_Rule(kinds, times, after=True, failure=failure))

    def delay(self, *kinds: type, times: int | None = 1, done: bool = False) -> Gate:
        """Hold the next requests of those kinds until the gate is opened.

        They are held before they reach the store, or with ``done`` on their way back. Cancelling
        the task that waits for one does not call it back: it is still on its way.
        """
        gate = Gate(self._patience)
        self._gates.append(gate)
        self._add(_Rule(kinds, times, after=done, gate=gate))
        return gate

    def go_down(self) -> None:
        """Let everything fail unsent, until `clear`."""
        self.fail(times=None)

    def drop_notices(self, times: int | None = None) -> None:
        """Let the next notices (all, if no number is given) never arrive."""
        self._drops = times

    def suspend(self, passes: int) -> None:
        """Let each request of a task take so many passes of its event loop, each way."""
        self.passes = passes

    def reconnect(self) -> None:
        """Tell the client that listening has begun again."""
        for connected in tuple(self.connects):
            connected()

    def clear(self) -> None:
        """Let everything work again, and whatever is held pass."""
        with self._lock:
            self._rules.clear()
        for gate in self._gates:
            gate.open()
        self._drops, self.deaf, self.passes = 0, False, 0

    def sent(self, *kinds: type) -> list[Any]:
        """The requests of those kinds that the client sent so far, failed ones included."""
        return [op for op in tuple(self.requests) if isinstance(op, kinds)]

    def takes(self, op: Any) -> tuple[_Rule | None, _Rule | None]:
        """The faults for this request, before it is done and after."""
        self.requests.append(op)
        with self._lock:
            return self._take(op, after=False), self._take(op, after=True)

    def drops(self, notice: Notice) -> bool:
        """Whether that notice gets lost."""
        del notice
        with self._lock:
            if self._drops:
                self._drops -= 1
                return True
            return self._drops is None

    def _add(self, rule: _Rule) -> None:
        with self._lock:
            self._rules.append(rule)

    def _take(self, op: Any, *, after: bool) -> _Rule | None:
        for rule in self._rules:
            if rule.meant_for(op, after=after):
                if rule.times is not None:
                    rule.times -= 1
                    if not rule.times:
                        self._rules.remove(rule)
                return rule
        return None


class FaultyStore:
    """A store behind its `Faults`; see the module."""

    def __init__(self, inner: Store, faults: Faults | None = None) -> None:
        self.inner = inner
        self.faults = Faults() if faults is None else faults

    @property
    def url(self) -> str:
        """That of the store."""
        return self.inner.url

    @property
    def abilities(self) -> Abilities:
        """Those of the store."""
        return self.inner.abilities

    def driver(self) -> FaultyDriver:
        """The store's blocking driver behind the faults."""
        return FaultyDriver(self.inner.driver(), self.faults)

    def async_driver(self) -> FaultyAsyncDriver:
        """The store's driver for the running event loop behind the faults."""
        return FaultyAsyncDriver(self.inner.async_driver(), self.faults)

    def subscribe(
        self, client: str, deliver: Deliver, connected: Callable[[], None]
    ) -> FaultySubscription:
        """Hear the store's notices, less those that get lost."""

        def hear(notice: Notice) -> None:
            if not self.faults.drops(notice):
                deliver(notice)
                self.faults.heard.append(notice)

        subscription = self.inner.subscribe(client, hear, connected)
        return FaultySubscription(subscription, self.faults, connected)

    def after_fork(self) -> None:
        """As the store."""
        self.inner.after_fork()

    def close(self) -> None:
        """As the store."""
        self.inner.close()


class FaultySubscription:
    """A store's subscription, which a test can make deaf."""

    def __init__(self, inner: Subscription, faults: Faults, connected: Callable[[], None]) -> None:
        self._inner = inner
        self._faults = faults
        self._connected = connected
        faults.connects.append(connected)

    @property
    def listening(self) -> bool:
        """Whether a notice would arrive."""
        return self._inner.listening and not self._faults.deaf

    def close(self) -> None:
        """Stop listening."""
        self._faults.connects.remove(self._connected)
        self._inner.close()


class FaultyDriver:
    """A blocking driver behind the faults."""

    def __init__(self, inner: Any, faults: Faults) -> None:
        self._inner = inner
        self._faults = faults

    def call(self, op: Any) -> Any:
        """Do ``op``, or fail as told."""
        before, after = self._faults.takes(op)
        _meet(before)
        reply = self._inner.call(op)
        self._faults.done.append(op)
        _meet(after)
        return reply


class FaultyAsyncDriver:
    """An asyncio driver behind the faults.

    A request that meets a fault is done in a task of its own, as one on a real connection is done
    by the server whether or not anybody still waits for the reply.
    """

    def __init__(self, inner: Any, faults: Faults) -> None:
        self._inner = inner
        self._faults = faults
        self._under_way: dict[asyncio.Task[Any], str] = {}

    async def call(self, op: Any) -> Any:
        """Do ``op``, or fail as told."""
        before, after = self._faults.takes(op)
        if before is None and after is None and not self._faults.passes:
            reply = await self._inner.call(op)
            self._faults.done.append(op)
            return reply
        request = asyncio.ensure_future(self._do(op, before, after))
        self._under_way[request] = getattr(op, "holder", "")
        request.add_done_callback(self._done)
        return await asyncio.shield(request)

    def settled(self, holder: str, then: Callable[[], None]) -> None:
        """Call ``then`` once nothing cancelled is on its way for that holder."""
        for request, concerned in self._under_way.items():
            if concerned == holder:
                request.add_done_callback(lambda _: self.settled(holder, then))
                return
        self._inner.settled(holder, then)

    async def aclose(self) -> None:
        """Wait for what is under way, then as the driver."""
        while self._under_way:
            await asyncio.wait(tuple(self._under_way))
        await self._inner.aclose()

    async def _do(self, op: Any, before: _Rule | None, after: _Rule | None) -> Any:
        passes = self._faults.passes
        await self._pass_loop(passes)
        await _ameet(before)
        reply = await self._inner.call(op)
        self._faults.done.append(op)
        await _ameet(after)
        await self._pass_loop(passes)
        return reply

    async def _pass_loop(self, passes: int) -> None:
        for _ in range(passes):
            await asyncio.sleep(0)

    def _done(self, request: asyncio.Task[Any]) -> None:
        del self._under_way[request]
        if not request.cancelled():
            request.exception()  # taken, whether or not anybody still waits for it


def _meet(rule: _Rule | None) -> None:
    if rule is not None:
        if rule.gate is not None:
            rule.gate.pass_through()
        if rule.failure is not None:
            raise rule.failure()


async def _ameet(rule: _Rule | None) -> None:
    if rule is not None:
        if rule.gate is not None:
            await rule.gate.apass_through()
        if rule.failure is not None:
            raise rule.failure()
