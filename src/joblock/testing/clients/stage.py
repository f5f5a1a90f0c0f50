"""What the scenarios are written in: one vocabulary over both clients, played by actors.

A scenario is a plain function that tells actors what to do, step by step. An `Actor` is a thread or
a task, as the client wants it, and keeps its identity and its context from one step to the next::

    with a.inside(lock) as lease:        # `with` or `async with`, in the actor
        assert not b.do(other.acquire, timeout=0)
    c = b.start(lock.acquire)            # b now waits; c.result() is how that ends

Each client of a `Stage` has a store object of its own, behind `Faults`, as another process would.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
import uuid
from collections.abc import Callable, Coroutine, Generator, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import pytest

from joblock.client.aio import AsyncJobLocks
from joblock.client.sync import JobLocks
from joblock.store.ops import Force, Holders, Waiters
from joblock.testing.faults import Faults, FaultyStore, Gate

if TYPE_CHECKING:
    from joblock.testing.clock import ManualClock
    from joblock.testing.contract.harness import StoreHarness
    from joblock.values.clock import Clock
    from joblock.values.records import JobLock, Waiting

T = TypeVar("T")
C = TypeVar("C", bound="ClientScenarios")

Client: TypeAlias = Any
"""A JobLocks or an AsyncJobLocks: the actor that is told to call it knows which."""

PATIENCE = 10.0
"""Real seconds for what must come (an actor's answer, a row), after which a test fails."""

TTL = 30.0
SHORT_TTL = 1.5
"""What leases are taken for where time passes by a turn of the hand, and where it must be slept."""


class ClientScenarios:
    """Where the parts of the suite get their stage from; a store's tests override `harness`."""

    @pytest.fixture
    def harness(self) -> StoreHarness:
        """The store under test: a subclass says which."""
        raise NotImplementedError(f"{type(self).__name__} needs a fixture named harness")

    @pytest.fixture(params=["sync", "async"])
    def stage(self, request: pytest.FixtureRequest, harness: StoreHarness) -> Iterator[Stage]:
        """A stage for one of the two clients."""
        stage = Stage(harness, request.param)
        yield stage
        stage.close()
        harness.close()

    @pytest.fixture
    def a(self, stage: Stage) -> Actor:
        """A caller."""
        return stage.actor("A")

    @pytest.fixture
    def b(self, stage: Stage) -> Actor:
        """Another caller."""
        return stage.actor("B")

    @pytest.fixture
    def locks(self, stage: Stage) -> Client:
        """A client."""
        return stage.client()

    @pytest.fixture
    def others(self, stage: Stage) -> Client:
        """A client of another process."""
        return stage.client()


def only(kind: str) -> Callable[[type[C]], type[C]]:
    """The tests of that class are about one of the clients: "sync" or "async"."""

    def mark(tests: type[C]) -> type[C]:
        for name, test in list(vars(tests).items()):
            if name.startswith("test_"):
                marked = pytest.mark.parametrize("stage", [kind], indirect=True)(test)
                setattr(tests, name, marked)
        return tests

    return mark


class Stage:
    """The clients, actors and time of one test."""

    def __init__(self, harness: StoreHarness, kind: str) -> None:
        self.harness = harness
        self.clock: Clock = harness.clock
        self.asynchronous = kind == "async"
        self.key = f"{uuid.uuid4().hex}:key"
        self.ttl = SHORT_TTL if self._manual is None else TTL
        self._loop = LoopThread() if self.asynchronous else None
        self._clients: list[Client] = []
        self._actors: list[Actor] = []
        self._kept: list[Any] = []
        self._strangers = keepers()
        self._spectator = harness.make_store()

    # Who plays.

    def client(self, store: Any = None, **options: Any) -> Client:
        """Another client, on a store object of its own behind its own faults."""
        store = FaultyStore(self.harness.make_store()) if store is None else store
        make = AsyncJobLocks if self.asynchronous else JobLocks
        client = make(store, clock=self.clock, **options)
        self._clients.append(client)
        return client

    def faults(self, client: Client) -> Faults:
        """What can go wrong between that client and its store."""
        return cast("FaultyStore", client.store).faults

    def actor(self, name: str = "someone") -> Actor:
        """Another thread or task."""
        actor = Actor(name) if self._loop is None else TaskActor(name, self._loop)
        self._actors.append(actor)
        return actor

    def actors(self, count: int) -> list[Actor]:
        """Many of them."""
        return [self.actor(str(number)) for number in range(count)]

    def keep(self, thing: Any) -> None:
        """Let something live as long as the stage."""
        self._kept.append(thing)

    def acquire_many(self, actor: Actor, client: Client, keys: list[str], ttl: Any) -> list[Any]:
        """An explicit lease of each key, in one step of an actor."""
        if not self.asynchronous:
            return actor.do(lambda: [client.acquire(key, ttl) for key in keys])

        async def acquire() -> list[Any]:
            return [await client.acquire(key, ttl) for key in keys]

        return actor.do(acquire)

    def work(self, function: Callable[[], Any] = lambda: None, *, paused: bool = False) -> Work:
        """A piece of work for the client at hand, which does ``function``."""
        return (TaskWork if self.asynchronous else Work)(function, paused=paused)

    # What the store shows to somebody who only looks.

    def leases(self, key: str = "") -> tuple[JobLock, ...]:
        """The leases of a key (the test's own, unless said)."""
        return self._spectator.driver().call(Holders(key or self.key))

    def holders(self, key: str = "") -> list[str]:
        """Who holds it now."""
        return [lease.holder for lease in self.leases(key) if lease.state == "held"]

    def queue(self, key: str = "") -> tuple[Waiting, ...]:
        """Who waits for it, in order."""
        return self._spectator.driver().call(Waiters(key or self.key))

    def break_leases(self, key: str) -> None:
        """Free a key whoever holds it, as somebody from operations would."""
        self._spectator.driver().call(Force(key, "ops", "it hangs"))

    def until_queued(self, count: int, key: str = "") -> None:
        """Wait until so many live waiters of the key are in its queue, and asleep."""
        until(
            lambda: sum(waiter.live for waiter in self.queue(key)) == count,
            lambda: f"{count} waiter(s) should be queued by now, there are: {self.queue(key)}",
        )
        self.until_asleep(count)

    def until_listening(self, *clients: Client) -> None:
        """Wait until notices reach these, which wait already: to listen takes real time."""
        for client in clients:
            until(
                lambda client=client: client._hub.listening,  # noqa: SLF001
                lambda client=client: f"{client} should be listening by now",
            )

    def until_asleep(self, count: int) -> None:
        """Wait until so many callers sleep, where time stands still until they do."""
        if self._manual is not None:
            self.settle()
            self._manual.wait_for_sleepers(count)
            self.settle()

    def until_sent(self, client: Client, count: int, *kinds: type) -> None:
        """Wait until a client has sent so many requests of those kinds, and its callers sleep."""
        sent = self.faults(client).sent
        until(
            lambda: len(sent(*kinds)) >= count,
            lambda: f"{count} request(s) should be sent by now, there are: {sent(*kinds)}",
        )
        self.settle()

    def until_free(self, key: str = "") -> None:
        """Wait until nobody holds the key or waits for it."""
        until(
            lambda: not self.holders(key) and not self.queue(key),
            lambda: f"should be free by now: {self.leases(key)}, {self.queue(key)}",
        )

    # A play of one's own, for a stage of tasks.

    def play(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end in the event loop of the stage; its result."""
        return self.begin(work).result(6 * PATIENCE)

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin to."""
        assert self._loop is not None, "a stage for threads has no event loop"
        return self._loop.begin(work)

    # Time.

    @property
    def _manual(self) -> ManualClock | None:
        return getattr(self.harness, "manual", None)

    @property
    def manual(self) -> ManualClock:
        """The clock of the test; skips where time cannot be turned by hand."""
        clock = self._manual
        if clock is None:
            pytest.skip("needs a clock that can be turned by hand")
        return clock

    def keepers(self) -> set[threading.Thread]:
        """The background threads of the stage's clients."""
        return keepers() - self._strangers

    def needs_manual_clock(self) -> None:
        """Skip where time cannot be turned by hand."""
        assert self.manual

    def about(self, seconds: float | None, expected: float) -> bool:
        """Whether a remaining time is what it should be, less what the test took so far."""
        slack, tick = self.harness.slack / 1000, 1e-6
        return seconds is not None and expected - slack - tick <= seconds <= expected + tick

    def elapse(self, seconds: float) -> None:
        """Let time pass as it does: whatever is due on the way is done on the way."""
        if self._manual is not None:
            self._turn(self._manual, seconds)
            return
        if seconds > self.harness.longest:
            pytest.skip(f"needs {seconds} s of the store's time to pass")
        self.harness.elapse(seconds)

    def elapse_until(self, fact: Callable[[], bool]) -> None:
        """Let time pass, a moment at a time, until something has come about."""
        end = time.monotonic() + PATIENCE
        while not fact():
            assert time.monotonic() < end, "it should have come about by now"
            self.elapse(0.05)

    def _turn(self, clock: ManualClock, seconds: float) -> None:
        """Turn the clock in steps so small that whatever is due on the way is done in good time."""
        self.settle()
        step = min(max(seconds / 500, 0.125), 0.5)
        end = clock.monotonic() + seconds
        while (left := end - clock.monotonic()) >= 1e-6:  # the clock counts microseconds
            clock.advance(min(step, left))

    def lapse(self, lease: Any) -> None:
        """Let a lease that is not renewed run out, in the store and by its holder's count."""
        self.elapse(lease.remaining + 0.02 * self.ttl)

    def settle(self) -> None:
        """Wait until what clients do behind their callers' backs is done."""
        if self._manual is not None:
            # A keeper that was just started is not known to the clock yet.
            self._manual.settle(len(self.keepers()))

    def close(self) -> None:
        """Let everything pass that was held up, end the actors, close the clients."""
        for client in self._clients:
            self.faults(client).clear()
        for client in self._clients:
            self._close_client(client)
        for actor in self._actors:
            actor.end()
        self._spectator.close()
        if self._loop is not None:
            self._loop.close()

    def _close_client(self, client: Client) -> None:
        if self._loop is None:
            client.close()
        else:
            self._loop.run(client.close())


class Actor:
    """A thread that does one step after the other."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._steps: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        self._begin()

    def start(self, call: Callable[..., Any], *args: Any, **options: Any) -> Future[Any]:
        """Begin a step: a call of the client, whose result (awaited) the future will have."""
        return self._put(lambda: call(*args, **options))

    def do(self, call: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Do a step to its end."""
        return self.start(call, *args, **options).result(PATIENCE)

    def gets(self, lock: Any) -> bool:
        """Whether it gets that lock at once; if so, it has given it back again."""
        got: bool = self.do(lock.acquire, timeout=0)
        if got:
            self.do(lock.release)
        return got

    def enter(self, block: Any) -> Any:
        """Enter a `with` or `async with`; what it binds."""
        return self.start_entering(block).result(PATIENCE)

    def start_entering(self, block: Any) -> Future[Any]:
        """Begin to."""
        return self.start(block.__enter__)

    def leave(self, block: Any, error: BaseException | None = None) -> None:
        """Leave it, by an exception if one is given, and raise whatever comes out of it."""
        self._leave(block.__exit__, error)

    @contextmanager
    def inside(self, block: Any) -> Generator[Any]:
        """The `with` of the test is one of the actor."""
        entered = self.enter(block)
        try:
            yield entered
        except BaseException as error:
            self.leave(block, error)
            raise
        self.leave(block)

    def end(self) -> None:
        """It does no more steps."""
        self._steps.put(None)
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), f"{self.name} is still busy"

    def _begin(self) -> None:
        self._thread = threading.Thread(target=self._play, name=self.name)
        self._thread.start()

    def _put(self, step: Callable[[], Any]) -> Future[Any]:
        done: Future[Any] = Future()
        self._steps.put((step, done))
        return done

    def _play(self) -> None:
        while (step := self._steps.get()) is not None:
            call, done = step
            try:
                result = call()
            except BaseException as error:  # noqa: BLE001 - whoever told it to is told
                done.set_exception(error)
                del error
            else:
                done.set_result(result)
                del result
            del step, call, done  # an idle actor keeps nothing alive

    def _leave(self, leave: Callable[..., Any], error: BaseException | None) -> None:
        kind = None if error is None else type(error)
        trace = None if error is None else error.__traceback__
        swallowed = self.do(leave, kind, error, trace)
        assert not swallowed, "leaving a block never swallows an exception"
        if error is not None:
            raise error


class TaskActor(Actor):
    """A task that does so. Struck by a cancellation while it idles, it leaves its block by that."""

    def __init__(self, name: str, loop: LoopThread) -> None:
        self._loop = loop
        self._struck: asyncio.CancelledError | None = None
        super().__init__(name)

    def start_entering(self, block: Any) -> Future[Any]:
        """Begin to."""
        return self.start(block.__aenter__)

    def leave(self, block: Any, error: BaseException | None = None) -> None:
        """Leave it, by an exception if one is given or the task was cancelled."""
        if error is None:
            error = self.do(self._take_struck)
        self._leave(block.__aexit__, error)

    def cancel(self) -> None:
        """Cancel the task, as somebody else would."""
        self._loop.loop.call_soon_threadsafe(self._task.cancel)

    def end(self) -> None:
        """It does no more steps."""
        self._loop.run(self._end())

    def _begin(self) -> None:
        self._inbox: asyncio.Queue[Any] = asyncio.Queue()
        self._task = self._loop.run(self._spawn())

    async def _spawn(self) -> asyncio.Task[None]:
        return asyncio.create_task(self._perform(), name=self.name)

    def _put(self, step: Callable[[], Any]) -> Future[Any]:
        done: Future[Any] = Future()
        self._loop.loop.call_soon_threadsafe(self._inbox.put_nowait, (step, done))
        return done

    async def _perform(self) -> None:
        while True:
            try:
                step = await self._inbox.get()
            except asyncio.CancelledError as error:
                self._struck = error
                continue
            if step is None:
                return
            call, done = step
            try:
                result = call()
                if inspect.isawaitable(result):
                    result = await result
            except BaseException as error:  # noqa: BLE001 - whoever told it to is told
                done.set_exception(error)
                del error
            else:
                done.set_result(result)
                del result
            del step, call, done

    async def _end(self) -> None:
        self._inbox.put_nowait(None)
        async with asyncio.timeout(PATIENCE):
            await self._task

    def _take_struck(self) -> asyncio.CancelledError | None:
        struck, self._struck = self._struck, None
        return struck


class Work:
    """Work for `run_with_lock`, which may be made to wait until the test lets it finish."""

    def __init__(self, function: Callable[[], Any], *, paused: bool) -> None:
        self.calls = 0
        self._function = function
        self._gate = Gate(PATIENCE)
        if not paused:
            self._gate.open()

    def wait_until_begun(self) -> None:
        """Return once it runs."""
        self._gate.wait_for_arrival()

    def finish(self) -> None:
        """Let it go on, to its end."""
        self._gate.open()

    def __call__(self) -> Any:
        self.calls += 1
        self._gate.pass_through()
        return self._function()


class TaskWork(Work):
    """The same as a coroutine function."""

    async def __call__(self) -> Any:
        self.calls += 1
        await self._gate.apass_through()
        return self._function()


class LoopThread:
    """An event loop that runs in a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="test-loop")
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end; its result."""
        return self.begin(work).result(PATIENCE)

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin to."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def close(self) -> None:
        """Stop the loop, then close it, as `asyncio.run` does."""
        self.run(self.loop.shutdown_asyncgens())
        self.run(self.loop.shutdown_default_executor())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(PATIENCE)
        self.loop.close()


def keepers() -> set[threading.Thread]:
    """The clients' background threads that are alive."""
    return {thread for thread in threading.enumerate() if thread.name == "joblock-keeper"}


def until(fact: Callable[[], bool], complaint: Callable[[], str]) -> None:
    """Wait for something that must come, by looking again and again."""
    end = time.monotonic() + PATIENCE
    while not fact():
        assert time.monotonic() < end, complaint()
        time.sleep(0.001)
