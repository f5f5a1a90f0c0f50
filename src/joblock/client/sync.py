"""The client for threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, cast, overload

from joblock.client import current
from joblock.client.base import BaseClient
from joblock.client.callables import checked_callable, is_async, refuse_coroutine
from joblock.client.lease import BaseLease
from joblock.client.locks import BaseLock, wait_of
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
from joblock.values.shown import shown

if TYPE_CHECKING:
    from types import TracebackType

    from joblock.client.hub import Hub
    from joblock.client.jobs import Job
    from joblock.client.leader import Leader, Leadership
    from joblock.client.seat import ClientSeat
    from joblock.client.several import LockSeveral
    from joblock.protocol.hold import Hold
    from joblock.values.clock import Clock
    from joblock.values.records import JobLock, Waiting

T = TypeVar("T")
P = ParamSpec("P")


class _ThreadWaker:
    """Threads wait on threading.Event."""

    __slots__ = ()

    owner = staticmethod(threading.current_thread)

    def forked(self) -> None:
        """Threads have no drivers of their own."""

    def event(self) -> threading.Event:
        return threading.Event()

    seat_event = event

    def set(self, event: threading.Event) -> None:
        event.set()

    def settled(self, holder: str, then: Callable[[], None]) -> None:
        del holder  # a blocking call leaves nothing on its way
        then()


_WAKER = _ThreadWaker()


def _drive(hub: Hub, flow: Flow[T]) -> T:
    """Do what the flow asks, one step after the other, until it ends."""
    reply: Any = None
    # Not a plain variable: an exception that goes out through this frame would keep it alive, and
    # with it whatever was acquired.
    thrown: list[BaseException] = []
    call = hub.call
    try:
        while True:
            try:
                step: Any = flow.throw(thrown.pop()) if thrown else flow.send(reply)
            except StopIteration as stop:
                return stop.value
            try:
                kind = step.__class__
                if kind is Pause:
                    _pause(hub, step)
                elif kind is Work:
                    reply = _work(hub, step)
                else:
                    reply = call(step)
            except BaseException as caught:  # noqa: BLE001 - the flow decides, and raises it again
                thrown.append(caught)
    except BaseException:
        flow.close()  # an interrupt fell between two of its steps: it gives back what it has
        raise


def _pause(hub: Hub, pause: Pause) -> None:
    event = cast("ClientSeat", pause.seat).before_pause()
    if event is not None:
        _warn_in_event_loop()
        hub.clock.wait(event, pause.until)


def _warn_in_event_loop() -> None:
    import sys

    asyncio = sys.modules.get("asyncio")
    if asyncio is not None and asyncio._get_running_loop() is not None:  # noqa: SLF001
        import warnings

        warnings.warn(
            "JobLocks waits for a lock inside a running event loop and blocks all of its tasks: "
            "use AsyncJobLocks there",
            RuntimeWarning,
            stacklevel=5,
        )


def _work(hub: Hub, work: Work) -> tuple[Any, BaseException | None]:
    lease = Lease(hub, work.hold)
    owner = _WAKER.owner()
    hub.own(owner, work.hold)
    current.enter(lease)
    try:
        return refuse_coroutine(work.function()), None
    except BaseException as error:  # noqa: BLE001 - raised again once the lease is given back
        return None, error
    finally:
        current.leave(lease)
        hub.disown(owner, work.hold)


class Lease(BaseLease):
    """A lease of the sync client; leaving its `with` block releases it."""

    __slots__ = ()

    def refresh(self, ttl: Duration) -> None:
        """Renew it now, and from now on, with that ttl; raises LockLost, StoreError."""
        _drive(self._hub, flows.refresh(self._hub, self.hold, to_ms(ttl, "ttl")))

    def guard(self, connection: Any) -> None:
        """Have the caller's transaction, on the store's database, commit only if this is held.

        From here to its end nobody else gets the key. Call it last, just before the commit (first
        under REPEATABLE READ or stricter). For connections of sqlite3, psycopg and SQLAlchemy.
        Raises LockLost; let it roll the transaction back.
        """
        with importing():
            from joblock.borrowed import run

        self._check_guarded(run(connection, self._guard_statement(), "lease.guard"))

    def release(self) -> bool:
        """Give it back; False if it had been lost. Any thread may; a second time does nothing."""
        return _drive(self._hub, flows.release(self._hub, self.hold))

    def __enter__(self) -> Self:
        self.check()
        current.enter(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        current.leave(self)
        _leave(self._hub, self.hold, error)


def _leave(hub: Hub, hold: Hold, error: BaseException | None) -> None:
    """End a block: release, and raise what was lost unless the block raises already."""
    try:
        _drive(hub, flows.release(hub, hold))
    except BaseException:
        hub.collected(hold)  # interrupted before it was begun
        raise
    lost = flows.loss_after(hold)
    if error is not None:
        annotate(error, lost)
    elif lost is not None:
        raise lost


class Lock(BaseLock[Lease]):
    """A lock in the shape of threading.Lock; each thread that uses it has its own hold."""

    __slots__ = ()

    def acquire(self, blocking: bool = True, timeout: Duration | None = -1) -> bool:
        """Take it; False if that was not possible in time.

        ``timeout`` -1 or None waits without end, 0 tries once; with ``blocking=False`` it is a
        ValueError. Raises StoreUnavailable, and RuntimeError where it would wait for itself.
        """
        return type(self._take(wait_of(blocking, timeout))) is Lease

    def release(self) -> None:
        """Give this thread's hold back.

        Raises RuntimeError if it has none, LockLost if it was lost (unless ``on_lost="warn"``).
        """
        lease = self._pop(_WAKER.owner())
        if lease is not None:
            _leave(self._hub, lease.hold, None)

    def locked(self) -> bool:
        """Whether anybody holds it; asks the store, and may raise StoreError."""
        request = self._request
        return _drive(self._hub, raw.is_locked(request.key))

    def __enter__(self) -> Lease:
        return self.enter(self._request.wait)

    def enter(self, wait: int | None) -> Lease:
        """Enter the block, waiting that many milliseconds; for the library's own use."""
        lease = self._take(wait)
        if type(lease) is Lease:
            return lease
        raise flows.not_acquired(self._request, cast("Busy", lease))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        lease = self._pop(self._leaver())
        if lease is not None:
            _leave(self._hub, lease.hold, error)

    def _take(self, wait: int | None) -> Lease | Busy:
        owner, hub, request = _WAKER.owner(), self._hub, self._request
        nested = self._nest(owner) if self._reentrant else None
        if nested is not None:
            return nested
        if wait != request.wait:
            request = request._replace(wait=wait)
        won = None
        try:
            won = _drive(hub, flows.acquire(hub, request))
            if isinstance(won, Busy):
                return won
            lease = Lease(hub, won)
            self._push(owner, lease)
        except BaseException:
            self._take_back(owner, won)
            raise
        return lease


def _for_threads(on_lost: OnLost) -> OnLost:
    if on_lost == "cancel":
        raise ValueError(
            "on_lost='cancel' is for tasks, since nothing can cancel a thread: use on_lost='raise' "
            "and call lease.check() in the work, or use AsyncJobLocks"
        )
    return on_lost


class JobLockModel:
    """The raw lease operations of the sync client: no renewal, no nesting, a holder of your own."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def acquire(self, key: str, ttl: Duration, holder: str) -> bool:
        """Take the lease if it is free or mine; it then ends exactly ``ttl`` from now."""
        hub = self._hub
        return _drive(hub, raw.acquire(hub.prefix, hub.worker, key, ttl, holder))

    def refresh(self, key: str, ttl: Duration, holder: str) -> bool:
        """Let it end exactly ``ttl`` from now, if it is mine and nobody took it meanwhile."""
        return _drive(self._hub, raw.refresh(self._hub.prefix, key, ttl, holder))

    def release(self, key: str, holder: str) -> None:
        """End it if it is mine; otherwise do nothing."""
        _drive(self._hub, raw.release(self._hub.prefix, key, holder))

    def peek(self, key: str) -> JobLock | None:
        """The lease as it stands, the oldest one if the key has several; None if it is free."""
        return _drive(self._hub, raw.peek(self._hub.prefix, key))

    get = peek

    def holders(self, key: str) -> tuple[JobLock, ...]:
        """All leases of the key, oldest first."""
        return _drive(self._hub, raw.holders(self._hub.prefix, key))

    def waiters(self, key: str) -> tuple[Waiting, ...]:
        """The queue of the key, oldest first."""
        return _drive(self._hub, raw.waiters(self._hub.prefix, key))

    def all(self, prefix: str = "") -> Iterator[JobLock]:
        """Every lease of keys that begin with ``prefix``, by key, read page by page."""
        after = ""
        while page := _drive(self._hub, raw.page(self._hub.prefix, prefix, after)):
            yield from page
            after = page[-1].key

    def count(self, prefix: str = "") -> int:
        """How many leases there are of keys that begin with ``prefix``."""
        return _drive(self._hub, raw.count(self._hub.prefix, prefix))

    def delete(self, key: str, *, by: str = "", why: str = "") -> tuple[JobLock, ...]:
        """Break every lease of the key, whoever holds it; ``by`` and ``why`` are kept.

        The leases that were broken are returned. Their holders learn of it at the next renewal.
        """
        hub = self._hub
        return _drive(hub, raw.delete(hub.events, hub.prefix, hub.worker, key, by, why))


class JobLocks(BaseClient):
    """Locks for threads, kept in ``store``: a URL, a Store, or a function that returns one.

    Without a store it is what ``JOBLOCK_URL`` or ``JOBLOCK_URL_FILE`` says, else a SQLite file of
    this user on this machine. ``prefix`` (or ``JOBLOCK_PREFIX``) is put before every key, ``label``
    is shown to whoever asks who holds a lock. ``notifier`` (a URL or client of Redis, Valkey or
    PostgreSQL) wakes those who wait, instead of the store. Constructing a client does no I/O.
    """

    def __init__(
        self,
        store: Any = None,
        *,
        prefix: str | None = None,
        label: str = "",
        clock: Clock | None = None,
        notifier: Any = None,
    ) -> None:
        super().__init__(store, prefix, label, clock, notifier, _WAKER)
        self.model = JobLockModel(self._hub)

    def run_with_lock(
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
        """Call ``work`` if nobody else holds ``key``; True if it was called and returned.

        False if the key is held, in grace, or others wait for it: ``work`` was not called; so too
        if its ``occurrence`` or a later one was run and ended well, which is remembered for
        ``occurrence_ttl`` (7 days). What ``work`` raises is raised unchanged, once the lease was
        given back. The lease is renewed every third of ``ttl`` while ``work`` runs, for
        ``max_duration`` at most; with ``renew=False`` it lapses at ``ttl``. Raises LockLost (with
        the value of ``work``) if it was lost meanwhile and ``on_lost`` is not ``"warn"``,
        StoreUnavailable if the store is down and ``on_store_error`` is not ``"skip"``.
        """
        if is_async(checked_callable(work)):
            raise TypeError(f"{shown(work)} is a coroutine function: use AsyncJobLocks")
        request = make_request(
            self.prefix,
            key,
            ttl=ttl,
            wait=False,
            holder=holder,
            renew=renew,
            max_duration=max_duration,
            on_lost=_for_threads(("raise" if renew else "warn") if on_lost is None else on_lost),
        )
        one_of(on_store_error, ("raise", "skip"), "on_store_error")
        if occurrence is not None or occurrence_ttl is not None:
            request = with_occurrence(request, occurrence, occurrence_ttl)
        ended: Ended = _drive(self._hub, run_with_lock(self._hub, request, work, on_store_error))
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
        on_lost: OnLost = "raise",
    ) -> Lock: ...

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
        on_lost: OnLost = "raise",
    ) -> LockSeveral: ...

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
        on_lost: OnLost = "raise",
    ) -> Lock | LockSeveral:
        """A lock on ``key`` for `with`, or to acquire and release; nothing is sent yet.

        ``ttl`` (30 s) is how soon others take over after a crash, ``wait`` how long the `with`
        waits. ``limit`` makes it a semaphore, of which this takes ``weight``; ``shared=True`` lets
        it be held together with other shared ones. ``reentrant=True`` lets a thread that holds the
        key in again. With several keys it is for `with` alone, and takes all of them or none.
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
            on_lost=_for_threads(on_lost),
        )
        if not several:
            return Lock(self._hub, request, reentrant)
        with importing():
            from joblock.client.several import LockSeveral, requests_for

        requests = requests_for(self.prefix, request, cast("Keys", key))
        locks = tuple(Lock(self._hub, each, reentrant) for each in requests)
        return LockSeveral(self._hub, locks, request.wait)

    def acquire(
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
        on_lost: OnLost = "raise",
    ) -> Lease | None:
        """An explicit handle, or None if it was not to be had in time (tries once by default).

        Any thread may release it, and nothing else does: keep it, or use it in a `with`.
        """
        request = make_request(
            self.prefix,
            key,
            ttl=ttl,
            wait=wait,
            holder=holder,
            limit=limit,
            weight=weight,
            shared=shared,
            renew=renew,
            max_duration=max_duration,
            on_lost=_for_threads(on_lost),
        )
        won = None
        try:
            won = _drive(self._hub, flows.acquire(self._hub, request))
            return None if isinstance(won, Busy) else Lease(self._hub, won)
        except BaseException:
            give_back(self._hub, won)
            raise

    @overload
    def job(self, function: Callable[P, T], /) -> Job[P, T]: ...

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
        on_lost: OnLost = "raise",
        on_store_error: OnStoreError = "raise",
        occurrence: Occurrence | Callable[..., Occurrence] | None = None,
        occurrence_ttl: Duration | None = None,
    ) -> Callable[[Callable[P, T]], Job[P, T]]: ...

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
        on_lost: OnLost = "raise",
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
            from joblock.client.jobs import Job, check_function, default_name, refuse_async

        def decorate(function: Any) -> Any:
            check_function(function, coroutine=False)
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
                on_lost=_for_threads(on_lost),
                on_store_error=on_store_error,
                occurrence=occurrence,
                occurrence_ttl=occurrence_ttl,
            )
            job: Job[..., Any] = Job(self, terms, function)
            return job

        return decorate if function is None else decorate(function)

    def leader(
        self,
        key: str,
        ttl: Duration | None = None,
        *,
        on_elected: Callable[[Leadership[Lease]], object] | None = None,
        on_lost: Callable[[Leadership[Lease]], object] | None = None,
    ) -> Leader:
        """A candidate for ``key``: of all who stand for it one leads, until it is gone.

        In a `with` block it waits to be elected, gives the lease, and steps down at the end. Or
        `start` and `stop` it: it stands in a thread, ``on_elected`` is called in another with the
        Leadership, and is to return when ``leadership.over`` is set; ``on_lost`` is called when a
        term has ended. What they raise is logged; of ``on_elected`` it ends the term, and the
        candidate stands again a little later.
        """
        with importing():
            from joblock.client.leader import Leader

        request = make_request(self.prefix, key, ttl=ttl, wait=True, on_lost="warn")
        return Leader(self, request, on_elected, on_lost, self._hub)

    def drive(self, flow: Flow[T]) -> T:
        """Do what a flow of `joblock.protocol` asks; for the library's own use."""
        return _drive(self._hub, flow)

    def close(self) -> None:
        """Release what is held, as far as possible in five seconds, and close the store."""
        self._hub.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
