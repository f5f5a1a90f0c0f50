"""What the tests of the suite are written in: one key, and all that can be done to it.

A `Key` has a method for each operation, with the words of a test for arguments. The same methods
run through the blocking driver and through the asyncio one, whose event loop has a thread here.
"""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable, Coroutine, Iterator
from queue import SimpleQueue
from typing import Any, TypedDict, TypeVar, Unpack, cast

import pytest

from joblock.store.contract import AsyncDriver, Driver, Store, digest
from joblock.store.ops import (
    Acquire,
    AcquireReply,
    Busy,
    Check,
    Done,
    Force,
    Granted,
    Holders,
    KeyState,
    Leave,
    Notice,
    Queueing,
    Refresh,
    Release,
    Renewal,
    Strike,
    Waiters,
)
from joblock.testing.contract.harness import StoreHarness
from joblock.values.records import JobLock, Waiting

T = TypeVar("T")

PATIENCE = 20.0
"""Real seconds for what must come (a reply, a notice), after which a test fails."""

SLOW = 5.0
"""Real seconds that are spent through one of the two drivers only."""

LONG = 30_000
"""A ttl, in milliseconds, that does not end while a test runs."""


class Terms(TypedDict, total=False):
    """The fields of an `Acquire` that a test may state."""

    ttl: int
    weight: int
    limit: int
    at_least: int
    extend_only: bool
    worker: str
    occurrence: int | None


class Contract:
    """Where a part of the suite gets its key from; a store's tests override `harness`."""

    @pytest.fixture
    def harness(self) -> StoreHarness:
        """The store under test: a subclass says which."""
        raise NotImplementedError(f"{type(self).__name__} needs a fixture named harness")

    @pytest.fixture(params=["sync", "async"])
    def bench(self, request: pytest.FixtureRequest, harness: StoreHarness) -> Iterator[Bench]:
        """The store through one of its two drivers."""
        bench = Bench(harness, through_loop=request.param == "async")
        yield bench
        bench.close()
        harness.close()

    @pytest.fixture
    def key(self, bench: Bench) -> Key:
        """A key nobody has used."""
        return bench.key()


class Bench:
    """The stores and drivers that a test opens."""

    def __init__(self, harness: StoreHarness, *, through_loop: bool) -> None:
        self.harness = harness
        self.mark = uuid.uuid4().hex
        self.through_loop = through_loop
        self._loop: LoopThread | None = None
        self._closing: list[Callable[[], object]] = []
        self.store = self.open()
        self.driver = self.driver_of(self.store)
        self.abilities = self.store.abilities

    def open(self) -> Store:
        """Another store object on the same data."""
        store = self.harness.make_store()
        self._closing.append(store.close)
        return store

    def driver_of(self, store: Store) -> Driver:
        """A driver of that store, of the kind that this run of the test is about."""
        if not self.through_loop:
            return store.driver()
        driver = AsyncThroughThread(self.loop, store)
        self._closing.append(driver.close)
        return driver

    @property
    def loop(self) -> LoopThread:
        """An event loop in a thread of its own."""
        if self._loop is None:
            self._loop = LoopThread()
        return self._loop

    def key(self, name: str = "") -> Key:
        """A key of that name, or one nobody has used."""
        return Key(self, self.store, self.driver, name or f"{self.mark}:{uuid.uuid4().hex}")

    def elsewhere(self, key: Key) -> Key:
        """The same key seen through another store object."""
        store = self.open()
        return Key(self, store, self.driver_of(store), key.name)

    @property
    def short(self) -> int:
        """The shortest ttl that is convenient to let pass, in milliseconds."""
        steps = -(-250 // self.abilities.min_ttl)
        return steps * self.abilities.min_ttl

    def elapse(self, ms: int) -> None:
        """Let time pass on the store's clock."""
        seconds = ms / 1000
        if seconds > self.harness.longest:
            pytest.skip(f"needs {seconds} s to pass on the store's clock")
        if seconds > SLOW and self.through_loop and self.harness.slack:
            pytest.skip(f"needs {seconds} s of real time, spent through the blocking driver only")
        self.harness.elapse(seconds)

    def close(self) -> None:
        """Close in the reverse order of opening."""
        for close in reversed(self._closing):
            close()
        if self._loop is not None:
            self._loop.close()


class LoopThread:
    """An event loop that runs in its own thread, so that plain functions can use it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="test-loop")
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)

    def close(self) -> None:
        """Stop the loop, then close it."""
        self.run(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()


class AsyncThroughThread:
    """An asyncio driver with the shape of the blocking one; many threads make many tasks."""

    def __init__(self, loop: LoopThread, store: Store) -> None:
        self._loop = loop
        self.inner = loop.run(_async_driver(store))

    def call(self, op: Any) -> Any:
        """Do ``op`` in the loop."""
        return self._loop.run(cast("Coroutine[Any, Any, Any]", self.inner.call(op)))

    def close(self) -> None:
        """Close the driver in its loop."""
        self._loop.run(self.inner.aclose())


async def _async_driver(store: Store) -> AsyncDriver:
    return store.async_driver()


class Key:
    """One key, and what callers do to it."""

    def __init__(self, bench: Bench, store: Store, driver: Driver, name: str) -> None:
        self.bench = bench
        self.store = store
        self.driver = driver
        self.name = name
        self.short = bench.short

    def client(self, name: str) -> str:
        """The name of a client that no other test has."""
        return f"{self.bench.mark}.{name}"

    def acquire(
        self, holder: str, queue: Queueing | None = None, **terms: Unpack[Terms]
    ) -> AcquireReply:
        """Ask for the key; a mutex for `LONG` unless said."""
        terms.setdefault("ttl", LONG)
        return self.driver.call(Acquire(self.name, holder, queue=queue, **terms))

    def grant(self, holder: str, **terms: Unpack[Terms]) -> Granted:
        """Acquire, which must be granted."""
        reply = self.acquire(holder, **terms)
        assert isinstance(reply, Granted)
        return reply

    def refuse(self, holder: str, **terms: Unpack[Terms]) -> Busy:
        """Acquire without queueing, which must be refused."""
        reply = self.acquire(holder, **terms)
        assert isinstance(reply, Busy)
        assert reply.arrival == 0
        return reply

    def ask(
        self,
        holder: str,
        *,
        client: str = "",
        arrival: int = 0,
        listening: bool = False,
        skip_grace: bool = False,
        join: int | None = None,
        **terms: Unpack[Terms],
    ) -> AcquireReply:
        """Acquire, and be queued if refused; by a client of the holder's name unless said."""
        name = self.client(client or holder)
        return self.acquire(holder, Queueing(name, arrival, listening, skip_grace, join), **terms)

    def wait(
        self,
        holder: str,
        *,
        client: str = "",
        arrival: int = 0,
        listening: bool = False,
        join: int | None = None,
        **terms: Unpack[Terms],
    ) -> Busy:
        """`ask`, and it must be refused and queued."""
        reply = self.ask(
            holder, client=client, arrival=arrival, listening=listening, join=join, **terms
        )
        assert isinstance(reply, Busy)
        assert reply.arrival > 0
        return reply

    def confirm(self, holder: str, *, client: str = "", **terms: Unpack[Terms]) -> Granted:
        """`ask`, and it must be granted: what a waiter does that was handed the key."""
        reply = self.ask(holder, client=client, **terms)
        assert isinstance(reply, Granted)
        return reply

    def refresh(
        self, holder: str, *, token: int = 0, ttl: int = LONG, extend_only: bool = False
    ) -> bool:
        """Renew one lease."""
        renewal = Renewal(self.name, holder, token, ttl)
        return self.driver.call(Refresh((renewal,), extend_only)).renewed[0]

    def release(
        self,
        holder: str,
        *,
        token: int = 0,
        grace: int = 0,
        ok: bool = False,
        done: Done | None = None,
    ) -> bool:
        """Release; whether it was the holder's."""
        return self.driver.call(Release(self.name, holder, token, grace, ok, done=done)).freed

    def leave(self, holder: str) -> bool:
        """Leave the queue, and whatever was granted."""
        return self.driver.call(Leave(self.name, holder)).freed

    def strike(self, holder: str) -> bool:
        """Pass over a waiter known to be dead."""
        return self.driver.call(Strike(self.name, holder)).freed

    def check(self, client: str) -> KeyState:
        """How the key stands for a client that waits for it."""
        return self.driver.call(Check(self.client(client), (self.name,))).states[0]

    def force(self) -> tuple[JobLock, ...]:
        """Break every lease."""
        return self.driver.call(Force(self.name, "ops@example.org", "it hangs")).broken

    def leases(self) -> tuple[JobLock, ...]:
        """What a reader sees of the leases."""
        return self.driver.call(Holders(self.name))

    def states(self) -> dict[str, str]:
        """The state of each lease by its holder, the oldest lease first."""
        return {lease.holder: lease.state for lease in self.leases()}

    def waiters(self) -> tuple[Waiting, ...]:
        """What a reader sees of the queue."""
        return self.driver.call(Waiters(self.name))

    def line(self) -> list[str]:
        """The holders in the queue whose clients are alive, in order."""
        return [waiter.holder for waiter in self.waiters() if waiter.live]

    def elapse(self, ms: int) -> None:
        """Let time pass on the store's clock."""
        self.bench.elapse(ms)

    def needs_expired(self) -> None:
        """Skip where an expired lease is gone at once."""
        if not self.bench.abilities.keeps_expired:
            pytest.skip("an expired lease is gone at once in this store (keeps_expired=False)")

    def needs_push(self) -> None:
        """Skip where nobody is notified."""
        if not self.bench.abilities.push:
            pytest.skip("this store notifies nobody (push=False)")

    def ear(self, client: str) -> Ear:
        """Listen as that client."""
        self.needs_push()
        return Ear(self, client)

    def about(self, ms: int, expected: int) -> bool:
        """Whether a remaining time is what it should be, less what the test took so far."""
        return max(0, expected - self.bench.harness.slack) <= ms <= expected


class Ear:
    """What one client hears."""

    def __init__(self, key: Key, client: str) -> None:
        self._key = key
        self._client = client
        self._notices: SimpleQueue[Notice] = SimpleQueue()
        connected = threading.Event()
        self._subscription = key.store.subscribe(
            key.client(client), self._notices.put, connected.set
        )
        assert connected.wait(PATIENCE), "connected() is called whenever listening begins"
        assert self._subscription.listening

    def next(self) -> Notice:
        """The next notice, which must come."""
        return self._notices.get(timeout=PATIENCE)

    def heard(self) -> list[tuple[str, int]]:
        """Holder and ``after`` of each notice about the key so far.

        Notices arrive in order: so one is provoked on another key, and what comes before it is all
        there was.
        """
        mark = self._key.bench.key()
        mark.grant("holder")
        mark.wait("mark", client=self._client, listening=True)
        mark.release("holder")
        heard: list[tuple[str, int]] = []
        while not is_about(notice := self.next(), mark):
            assert is_about(notice, self._key)
            heard.append((notice.holder, notice.after))
        mark.leave("mark")
        return heard

    def close(self) -> None:
        """Stop listening."""
        self._subscription.close()


def is_about(notice: Notice, key: Key) -> bool:
    """Whether a notice is about that key, named or by its digest."""
    return notice.key in (key.name, digest(key.name))
