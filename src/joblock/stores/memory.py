"""The memory store: leases of one process, gone with it.

Every client that names the same ``memory://NAME`` shares one state, sync and async alike; without
a name a client has a private one. A forked child begins with an empty one: it is another process.
"""

from __future__ import annotations

import threading
import weakref
from bisect import insort
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, ClassVar, cast

from joblock.store import machine
from joblock.store.contract import ELSEWHERE, Abilities, Deliver, digest
from joblock.store.machine import Lease, Now, Waiter
from joblock.store.ops import (
    Acquire,
    AcquireReply,
    Check,
    Checked,
    Count,
    Force,
    Forced,
    Granted,
    Holders,
    Leave,
    Notice,
    Operation,
    Page,
    Purge,
    Refresh,
    Refreshed,
    Release,
    Released,
    Strike,
    Waiters,
)
from joblock.values.clock import SYSTEM_CLOCK, Clock
from joblock.values.identity import on_fork
from joblock.values.records import JobLock, Waiting


def _place(waiter: Waiter) -> tuple[int, str]:
    return waiter.arrival, waiter.holder


class _Presence:
    __slots__ = ("epoch", "until")

    def __init__(self, epoch: int, until: int) -> None:
        self.epoch = epoch
        self.until = until


class _Key:
    """One key's rows; the queue is kept sorted, parked waiters are only in `waiters`."""

    __slots__ = (
        "arrivals",
        "done",
        "done_until",
        "held",
        "key",
        "line",
        "notices",
        "ok_token",
        "parked",
        "room",
        "token",
        "vacated_at",
        "waiters",
    )

    def __init__(self, key: str, room: _Room, token: int) -> None:
        self.key = key
        self.room = room
        self.token = token
        self.ok_token = 0
        self.done = self.done_until = 0
        self.vacated_at = 0
        self.arrivals = 0
        self.held: list[Lease] = []
        self.line: list[Waiter] = []
        self.waiters: dict[str, Waiter] = {}
        self.parked: dict[str, int] = {}
        self.notices: list[Notice] = []

    def leases(self) -> list[Lease]:
        return self.held[:]

    def put(self, lease: Lease) -> None:
        if lease not in self.held:
            self.held.append(lease)

    def drop(self, lease: Lease) -> None:
        self.held.remove(lease)
        if not self.held:
            self.vacated_at = self.room.now().ms

    def waiter(self, holder: str) -> Waiter | None:
        return self.waiters.get(holder)

    def queue(self) -> Iterator[Waiter]:
        at = 0
        while at < len(self.line):
            waiter = self.line[at]
            yield waiter
            # It may have been parked or dropped meanwhile, and then the next one stands here.
            if at < len(self.line) and self.line[at] is waiter:
                at += 1

    def joiners(self, token: int) -> list[Waiter]:
        waiters = self.waiters.values()
        return [waiter for waiter in waiters if waiter.join and waiter.join <= token]

    def clients(self) -> list[str]:
        return list(dict.fromkeys(waiter.client for waiter in self.line))

    def enqueue(self, waiter: Waiter) -> None:
        self.dequeue(waiter)
        self.waiters[waiter.holder] = waiter
        if waiter.parked:
            self.parked[waiter.holder] = self.room.now().ms
        else:
            insort(self.line, waiter, key=_place)

    def dequeue(self, waiter: Waiter) -> None:
        self.waiters.pop(waiter.holder, None)
        self.parked.pop(waiter.holder, None)
        if waiter in self.line:
            self.line.remove(waiter)

    def next_arrival(self) -> int:
        self.arrivals = max(self.arrivals, self.line[-1].arrival if self.line else 0) + 1
        return self.arrivals

    def present(self, client: str, now: int) -> bool:
        presence = self.room.clients.get(client)
        return presence is not None and presence.until > now

    def report(self, client: str, now: int, until: int, listening: bool) -> int:
        del listening  # a notice is a call in this process, it always arrives
        presence = self.room.clients.get(client)
        if presence is None or presence.until <= now:
            self.room.epochs += 1
            presence = self.room.clients[client] = _Presence(self.room.epochs, until)
        presence.until = until
        return presence.epoch

    def strike(self, client: str) -> None:
        self.room.clients.pop(client, None)

    def waited_until(self, waiter: Waiter) -> int:
        """When it was last known to wait: parked then, or its client no longer present."""
        if waiter.parked:
            return self.parked[waiter.holder]
        presence = self.room.clients.get(waiter.client)
        return max(waiter.queued_at, presence.until if presence is not None else 0)


class _Room:
    """The state behind one name: its keys, its waiting clients, and who listens.

    A key that is nothing but held, the common case by far, is in `plain` as the request that was
    granted, its token and its moment; whatever else happens to it turns that into a `_Key` first.
    """

    named: ClassVar[weakref.WeakValueDictionary[str, _Room]] = weakref.WeakValueDictionary()
    every: ClassVar[weakref.WeakSet[_Room]] = weakref.WeakSet()

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.base = clock.wall() - clock.monotonic()
        self.listeners: dict[str, Deliver] = {}
        self.elsewhere: Callable[[Sequence[Notice]], None] | None = None
        self.floor = 0
        self.clear()
        _Room.every.add(self)

    def clear(self) -> None:
        self.lock = threading.Lock()
        self.plain: dict[str, tuple[Acquire, int, int]] = {}
        self.keys: dict[str, _Key] = {}
        self.clients: dict[str, _Presence] = {}
        self.epochs = 0

    def now(self) -> Now:
        clock = self.clock
        return Now(int((clock.monotonic() + self.base) * 1000), int(clock.wall() * 1_000_000))

    def key(self, name: str) -> _Key | None:
        """The key's rows, or None if nothing is known of it."""
        key = self.keys.get(name)
        if key is None and name in self.plain:
            op, token, now = self.plain.pop(name)
            key = self.keys[name] = _Key(name, self, token)
            opens_at = now + op.at_least if op.at_least else 0
            key.held.append(
                Lease(
                    op.holder,
                    token,
                    op.weight,
                    op.limit,
                    now,
                    now + op.ttl,
                    opens_at,
                    worker=op.worker,
                )
            )
        return key

    def spread(self) -> None:
        """Turn every plain key into rows, for a reader of them all."""
        for name in list(self.plain):
            self.key(name)

    def deliver(self, notices: list[Notice]) -> None:
        for notice in notices:
            listener = self.listeners.get(notice.client)
            if listener is not None:
                listener(notice)
            elif self.elsewhere is not None and notice.client.startswith(ELSEWHERE):
                self.elsewhere((notice._replace(key=digest(notice.key)),))


def _fork() -> None:
    for room in tuple(_Room.every):
        room.listeners = {}
        room.clear()


on_fork(_fork)


_FREED = Released(freed=True)
_NOT_YOURS = Released(freed=False)


class MemoryStore:
    """Leases in this process; see the module."""

    abilities = Abilities(shared=False)

    def __init__(self, name: str = "", *, clock: Clock = SYSTEM_CLOCK) -> None:
        self.url = f"memory://{name}"
        room = _Room.named.get(name) if name else None
        if room is None:
            room = _Room(clock)
            if name:
                _Room.named[name] = room
        elif room.clock is not clock:
            raise ValueError(f"memory://{name} is in use with another clock; choose another name")
        self._room = room

    def driver(self) -> MemoryDriver:
        """The blocking driver."""
        return MemoryDriver(self._room)

    def async_driver(self) -> AsyncMemoryDriver:
        """The driver for tasks; it never waits."""
        return AsyncMemoryDriver(self._room)

    def subscribe(
        self, client: str, deliver: Deliver, connected: Callable[[], None]
    ) -> MemorySubscription:
        """Hear a client's notices, in the thread that causes them."""
        subscription = MemorySubscription(self._room, client, deliver)
        connected()
        return subscription

    def hand_notices_to(self, post: Callable[[Sequence[Notice]], None]) -> None:
        """See `joblock.store.contract.Handing`."""
        self._room.elsewhere = post

    def after_fork(self) -> None:
        """Nothing to abandon: the room was emptied when the process forked."""

    def close(self) -> None:
        """Nothing to give back: the leases stay for the room's other clients."""


class MemorySubscription:
    """A client's place among the listeners."""

    listening = True

    def __init__(self, room: _Room, client: str, deliver: Deliver) -> None:
        self._room = room
        self._client = client
        room.listeners[client] = deliver

    def close(self) -> None:
        """Stop listening."""
        self._room.listeners.pop(self._client, None)


class MemoryDriver:
    """Does an operation on the room, under its lock."""

    __slots__ = ("_room",)

    def __init__(self, room: _Room) -> None:
        self._room = room

    def call(self, op: Any) -> Any:
        """Do ``op``; see `joblock.store.contract.Driver`."""
        room = self._room
        notices: list[Notice] = []
        with room.lock:
            kind = cast("Any", type(op))
            if kind is Acquire:
                reply = _acquire(room, op, notices)
            elif kind is Release:
                reply = _release(room, op, notices)
            else:
                reply = _OTHERS[kind](room, op, notices)
        if notices:
            room.deliver(notices)
        return reply


class AsyncMemoryDriver(MemoryDriver):
    """The same for tasks: nothing here waits, so nothing can be cut off halfway."""

    __slots__ = ()

    async def call(self, op: Any) -> Any:
        """Do ``op``; see `joblock.store.contract.AsyncDriver`."""
        return MemoryDriver.call(self, op)

    def settled(self, holder: str, then: Callable[[], None]) -> None:
        """Nothing is ever on its way."""
        del holder
        then()

    async def aclose(self) -> None:
        """Nothing belongs to the loop."""


def _acquire(room: _Room, op: Acquire, notices: list[Notice]) -> AcquireReply:
    name = op.key
    if name not in room.keys and name not in room.plain:
        return _first_grant(room, op)
    key = _open(room, name, notices)
    return machine.acquire(key, room.now(), op)


def _first_grant(room: _Room, op: Acquire) -> Granted:
    """Nothing is known of the key, so it is free and nobody waits."""
    clock = room.clock
    now = int((clock.monotonic() + room.base) * 1000)
    token = int(clock.wall() * 1_000_000)
    if token <= room.floor:
        token = room.floor + 1
    room.plain[op.key] = op, token, now
    return Granted(token, now, now + op.ttl)


def _release(room: _Room, op: Release, notices: list[Notice]) -> Released:
    plain = room.plain.get(op.key)
    if plain is not None and not op.grace and op.done is None and not plain[0].at_least:
        held, token, _ = plain
        if op.holder != held.holder or (op.token and op.token != token):
            return _NOT_YOURS
        del room.plain[op.key]
        room.floor = max(room.floor, token)
        return _FREED
    key = room.key(op.key)
    if key is None:
        return _NOT_YOURS
    key.notices = notices
    freed = machine.release(key, room.now(), op)
    _forget_if_free(room, key)
    return Released(freed)


def _forget_if_free(room: _Room, key: _Key) -> None:
    # A joiner that was dismissed has yet to ask how the run ended; a purge comes later.
    if not key.held and not key.waiters and not key.ok_token and not key.done_until:
        _forget(room, key)


def _forget(room: _Room, key: _Key) -> None:
    room.floor = max(room.floor, key.token)
    del room.keys[key.key]


def _open(room: _Room, name: str, notices: list[Notice]) -> _Key:
    key = room.key(name)
    if key is None:
        key = room.keys[name] = _Key(name, room, room.floor)
    key.notices = notices
    return key


def _refresh(room: _Room, op: Refresh, notices: list[Notice]) -> Refreshed:
    renewed: list[bool] = []
    waiting: list[bool] = []
    now = room.now()
    for renewal in op.renewals:
        key = room.key(renewal.key)
        if key is not None:
            key.notices = notices
        renewed.append(key is not None and machine.refresh(key, now.ms, renewal, op.extend_only))
        waiting.append(key is not None and bool(key.line))
    return Refreshed(tuple(renewed), tuple(waiting))


def _leave(room: _Room, op: Leave, notices: list[Notice]) -> Released:
    key = _open(room, op.key, notices)
    left = machine.leave(key, room.now(), op)
    _forget_if_free(room, key)
    return Released(left)


def _strike(room: _Room, op: Strike, notices: list[Notice]) -> Released:
    return Released(machine.strike(_open(room, op.key, notices), room.now(), op))


def _check(room: _Room, op: Check, notices: list[Notice]) -> Checked:
    now = room.now()
    return Checked(
        tuple(
            machine.check(_open(room, name, notices), now, op.client, op.listening)
            for name in op.keys
        )
    )


def _describe(room: _Room, key: _Key) -> tuple[JobLock, ...]:
    now = room.now().ms
    return tuple(
        machine.describe(key.key, lease, now)
        for lease in machine.visible(key.held, now)
        if not lease.claim or lease.running(now)
    )


def _holders(room: _Room, op: Holders, notices: list[Notice]) -> tuple[JobLock, ...]:
    del notices
    key = room.key(op.key)
    return _describe(room, key) if key is not None else ()


def _waiters(room: _Room, op: Waiters, notices: list[Notice]) -> tuple[Waiting, ...]:
    del notices
    key = room.key(op.key)
    if key is None:
        return ()
    now = room.now().ms
    line = sorted(key.waiters.values(), key=_place)
    return tuple(
        machine.describe_waiter(op.key, waiter, key.present(waiter.client, now)) for waiter in line
    )


def _page(room: _Room, op: Page, notices: list[Notice]) -> tuple[JobLock, ...]:
    del notices
    room.spread()
    found: list[JobLock] = []
    for name in sorted(name for name in room.keys if name.startswith(op.prefix)):
        if name > op.after and len(found) < op.size:
            found.extend(_describe(room, room.keys[name]))
    return tuple(found)


def _count(room: _Room, op: Count, notices: list[Notice]) -> int:
    room.spread()
    size = sum(len(key.held) for key in room.keys.values())
    return len(_page(room, Page(op.prefix, size=size), notices))


def _force(room: _Room, op: Force, notices: list[Notice]) -> Forced:
    key = _open(room, op.key, notices)
    broken = machine.force(key, room.now())
    _forget_if_free(room, key)
    return Forced(broken)


def _purge(room: _Room, op: Purge, notices: list[Notice]) -> int:
    del notices
    room.spread()
    now = room.now().ms
    _purge_waiters(room, now - op.idle, op.batch)
    stale = [
        key
        for key in room.keys.values()
        if not key.line
        and max(key.vacated_at, key.done_until) + op.idle <= now
        and all(lease.until() + op.idle <= now for lease in key.held)
    ][: op.batch]
    for key in stale:
        _forget(room, key)
    for client in [name for name, seen in room.clients.items() if seen.until + op.idle <= now]:
        del room.clients[client]
    return len(stale)


def _purge_waiters(room: _Room, over: int, batch: int) -> None:
    """A key that is never vacant is never forgotten, and with it those who once waited for it."""
    gone = (
        (key, waiter)
        for key in room.keys.values()
        for waiter in key.waiters.values()
        if key.waited_until(waiter) <= over
    )
    for key, waiter in list(islice(gone, batch)):
        key.dequeue(waiter)


_OTHERS = cast(
    "dict[type[Operation], Callable[[_Room, Any, list[Notice]], Any]]",
    {
        Refresh: _refresh,
        Leave: _leave,
        Strike: _strike,
        Check: _check,
        Holders: _holders,
        Waiters: _waiters,
        Page: _page,
        Count: _count,
        Force: _force,
        Purge: _purge,
    },
)
