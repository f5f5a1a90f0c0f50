"""Each operation from beginning to end, as steps for either driver: where to, again after what.

Every operation but `Force` may be sent twice without harm, so one whose connection ended is sent
once more. What a cluster says about where a key is, and a server that forgot a script, is dealt
with here as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from joblock.store.ops import (
    Acquire,
    AcquireReply,
    Busy,
    Check,
    Checked,
    Count,
    Force,
    Granted,
    KeyState,
    Leave,
    Page,
    Purge,
    Refresh,
    Refreshed,
    Release,
    Released,
)
from joblock.stores.redis import commands
from joblock.stores.redis.commands import Command
from joblock.stores.redis.login import refusal
from joblock.stores.redis.route import Drop, Flow, Route, Send, Sleep, Then, slot_of
from joblock.stores.redis.scripts import SPACE, key_behind
from joblock.stores.redis.target import Place, Target
from joblock.stores.redis.wire import (
    ConnectFailed,
    Disconnected,
    ServerError,
    TimedOut,
    pack,
)
from joblock.values.errors import StoreUnavailable

if TYPE_CHECKING:
    from joblock.values.records import JobLock

T = TypeVar("T")

TRIES = 8
"""How often a cluster may send us elsewhere before that counts as an outage."""

LONGEST_SLEEP = 0.4
"""Seconds between two of these tries."""

REPLICAS_MS = 1_000
"""How long replicas have to acknowledge a grant, with ``min_replicas``."""

BATCH = 2_000
"""Leases renewed by one script: some milliseconds during which the server does nothing else."""

READ_AT_ONCE = 100
ASKING = pack("ASKING")


def perform(op: Any, route: Route, target: Target, *, resent: bool = False) -> Flow[Any]:
    """Do an operation; ``resent`` if a first try was cut off."""
    kind: Any = cast("Any", type(op))
    if kind is Acquire:
        return (yield from _acquire(op, route, target, resent=resent))
    if kind is Refresh:
        return (yield from _refresh(op, route, target))
    if kind is Check:
        return (yield from _check(op, route, target))
    if kind is Page:
        return (yield from _page(op, route, target))
    if kind is Count:
        return (yield from _count(op, route, target))
    if kind is Purge:
        return 0  # rows end by themselves here
    ask, read = commands.SIMPLE[kind]
    replies, resent = yield from _exchange(
        [ask(op)],
        route,
        target,
        holder=getattr(op, "holder", ""),
        resent=resent or kind is Force,
    )
    reply = read(op, replies[0])
    if resent and kind in (Release, Leave) and not reply.freed:
        # Most likely the first try has done it.
        return Released(freed=True)
    return reply


def _acquire(op: Acquire, route: Route, target: Target, *, resent: bool) -> Flow[AcquireReply]:
    command = commands.acquire(op, clustered=route.clustered)
    then = partial(_await_replicas, target.min_replicas) if target.min_replicas else None
    replies, _ = yield from _exchange(
        [command], route, target, holder=op.holder, resent=resent, then=then
    )
    reply = commands.read_acquire(op, replies[0])
    if type(reply) is Busy and reply.arrival and op.queue is not None:
        route.waits(op.queue.client, (op.key,))
    elif type(reply) is Granted and target.min_replicas:
        yield from _replicated(op, reply, replies[1], route, target)
    return reply


def _await_replicas(wanted: int, replies: list[Any]) -> bytes | None:
    """What waits for a grant to be replicated: for what its own connection has written last."""
    granted = isinstance(replies[-1], bytes) and replies[-1][:1] == b"G"
    return pack("WAIT", wanted, REPLICAS_MS) if granted else None


def _replicated(
    op: Acquire, granted: Granted, reply: Any, route: Route, target: Target
) -> Flow[None]:
    """Take a grant back unless enough replicas have it."""
    wanted = target.min_replicas
    if isinstance(reply, int) and reply >= wanted:
        return
    if not granted.reentered:
        yield from perform(Leave(op.key, op.holder), route, target)
    had = f"{reply} did" if isinstance(reply, int) else str(reply)
    raise StoreUnavailable(
        f"{target.shown}: min_replicas={wanted} replicas should have acknowledged the grant of "
        f"{op.key!r} within {REPLICAS_MS / 1000:g} s: {had}; it was taken back"
    )


# Batches: one script for all, or one for each slot of a cluster.


def _refresh(op: Refresh, route: Route, target: Target) -> Flow[Refreshed]:
    renewals, extend_only = op.renewals, op.extend_only
    groups = _groups(range(len(renewals)), lambda at: renewals[at].key, route, BATCH)
    replies, _ = yield from _exchange(
        [commands.refresh((renewals[at] for at in group), extend_only) for group in groups],
        route,
        target,
    )
    count = len(renewals)
    # Nearly always there is nothing to say of any.
    if b"".join(replies) == b"1" * count:
        return Refreshed((True,) * count, (False,) * count)
    letters = dict(_pairs(groups, replies))
    renewed = [letters[at] == ord("1") for at in range(len(renewals))]
    waiting = [False] * len(renewals)
    crowded = [at for at in range(len(renewals)) if letters[at] == ord("C")]
    if crowded:
        groups = _groups(crowded, lambda at: renewals[at].key, route, BATCH // 4)
        replies, _ = yield from _exchange(
            [
                commands.refresh_crowded((renewals[at] for at in group), extend_only)
                for group in groups
            ],
            route,
            target,
        )
        for group, reply in zip(groups, replies, strict=True):
            part = commands.read_refreshed(reply)
            for at, was_renewed, waits in zip(group, part.renewed, part.waiting, strict=True):
                renewed[at], waiting[at] = was_renewed, waits
    return Refreshed(tuple(renewed), tuple(waiting))


def _check(op: Check, route: Route, target: Target) -> Flow[Checked]:
    keys = op.keys
    route.waits(op.client, keys)
    groups = _groups(range(len(keys)), lambda at: keys[at], route, BATCH // 4)
    replies, _ = yield from _exchange(
        [
            commands.check(op, (keys[at] for at in group), clustered=route.clustered)
            for group in groups
        ],
        route,
        target,
    )
    states: dict[int, KeyState] = {}
    for group, reply in zip(groups, replies, strict=True):
        states.update(zip(group, commands.read_checked(reply).states, strict=True))
    return Checked(tuple(states[at] for at in range(len(keys))))


def _groups(
    items: Iterable[int], key: Callable[[int], str], route: Route, size: int
) -> list[list[int]]:
    """Split items so that each group may go into one script."""
    by_slot: dict[int, list[int]] = {}
    if route.clustered:
        for item in items:
            by_slot.setdefault(slot_of(key(item)), []).append(item)
    else:
        by_slot[0] = list(items)
    return [
        group[begin : begin + size]
        for group in by_slot.values()
        for begin in range(0, len(group), size)
    ]


def _pairs(groups: list[list[int]], replies: list[Any]) -> Iterable[tuple[int, Any]]:
    for group, reply in zip(groups, replies, strict=True):
        yield from zip(group, reply, strict=True)


# Listings: an operator's business. They look at every key the servers have, and sort here, so that
# no lock has to be entered in an index that all locks share.


def _page(op: Page, route: Route, target: Target) -> Flow[tuple[JobLock, ...]]:
    keys = sorted(key for key in (yield from _scan(op.prefix, route, target)) if key > op.after)
    found: list[JobLock] = []
    for begin in range(0, len(keys), READ_AT_ONCE):
        for leases in (yield from _read(keys[begin : begin + READ_AT_ONCE], route, target)):
            if len(found) >= op.size:
                return tuple(found)
            found += leases
    return tuple(found)


def _count(op: Count, route: Route, target: Target) -> Flow[int]:
    keys = list((yield from _scan(op.prefix, route, target)))
    count = 0
    for begin in range(0, len(keys), READ_AT_ONCE):
        leases = yield from _read(keys[begin : begin + READ_AT_ONCE], route, target)
        count += sum(map(len, leases))
    return count


def _scan(prefix: str, route: Route, target: Target) -> Flow[set[str]]:
    pattern = SPACE + "{." + "".join(f"\\{c}" if c in "\\*?[]^" else c for c in prefix) + "*"
    found: set[str] = set()
    for place in (yield from route.every()):
        cursor = b"0"
        while True:
            command = pack("SCAN", cursor, "MATCH", pattern, "COUNT", 1000)
            reply = yield from _ask_once(place, command, route, target)
            cursor, names = reply
            keys = [key_behind(name.decode()) for name in names]
            # The brace that closes a name may have matched the end of the prefix.
            found.update(key for key in keys if key.startswith(prefix))
            if cursor == b"0":
                break
    return found


def _read(keys: list[str], route: Route, target: Target) -> Flow[list[tuple[JobLock, ...]]]:
    groups = _groups(range(len(keys)), lambda at: keys[at], route, READ_AT_ONCE)
    replies, _ = yield from _exchange(
        [commands.holders(keys[at] for at in group) for group in groups], route, target
    )
    leases: dict[int, tuple[JobLock, ...]] = {}
    for group, reply in zip(groups, replies, strict=True):
        named = [keys[at] for at in group]
        leases.update(zip(group, commands.read_holders(named, reply), strict=True))
    return [leases[at] for at in range(len(keys))]


def _ask_once(place: Place, command: bytes, route: Route, target: Target) -> Flow[Any]:
    try:
        replies = yield Send(place, route.login, command, 1)
    except Disconnected:
        yield Drop(place)
        replies = yield Send(place, route.login, command, 1)
    except (ConnectFailed, TimedOut) as error:
        route.lost(place)
        raise StoreUnavailable(f"{target.shown}: {place}: {error}") from error
    if isinstance(replies[0], ServerError):
        raise refusal(target.shown, replies[0])
    return replies[0]


# Sending.


def _exchange(
    to_send: list[Command],
    route: Route,
    target: Target,
    *,
    holder: str = "",
    resent: bool = False,
    then: Then | None = None,
) -> Flow[tuple[list[Any], bool]]:
    """Send commands to where they belong; their replies in order, and whether any was sent twice.

    For ``then`` see `Send`: its reply comes last.

    Raises StoreUnavailable or StoreMisconfigured.
    """
    exchange = _Exchange(to_send, route, target, holder, resent, then)
    for attempt in range(TRIES):
        yield from exchange.round()
        if not exchange.todo:
            return exchange.replies, exchange.resent
        if attempt and exchange.pausing:
            yield Sleep(min(LONGEST_SLEEP, 0.025 * 2**attempt))
    assert exchange.objection is not None  # noqa: S101 - what is left was objected to
    raise refusal(target.shown, exchange.objection)


class _Exchange:
    """Commands on their way: what is still to be sent, and where to."""

    def __init__(
        self,
        to_send: list[Command],
        route: Route,
        target: Target,
        holder: str,
        resent: bool,
        then: Then | None,
    ) -> None:
        self.commands = to_send
        self.replies: list[Any] = [None] * len(to_send)
        self.todo = dict.fromkeys(range(len(to_send)))
        self.resent = resent
        self.pausing = False
        self.objection: ServerError | None = None
        self._retried = resent
        self._by_text: set[int] = set()
        self._asked: dict[int, Place] = {}
        self._rows_only: dict[int, Command | None] = {}
        self._route = route
        self._target = target
        self._holder = holder
        self._then = then

    def round(self) -> Flow[None]:
        """Send everything that is left, to each server what it is in charge of."""
        self.pausing = False
        places: dict[Place, list[int]] = {}
        for at in self.todo:
            place = self._asked.get(at)
            if place is None:
                place = yield from self._route.find(self.commands[at].key)
            places.setdefault(place, []).append(at)
        for place, group in places.items():
            yield from self._send(place, group)

    def _send(self, place: Place, group: list[int]) -> Flow[None]:
        data, count = self._pack(group)
        try:
            answers = yield Send(place, self._route.login, data, count, self._holder, self._then)
        except ConnectFailed as error:
            yield from self._lost(place, error)
        except Disconnected as error:
            self.resent = True
            yield from self._lost(place, error, resend=True)
        except TimedOut as error:
            self._route.lost(place)
            raise StoreUnavailable(f"{self._target.shown}: {place}: {error}") from error
        except StoreUnavailable:
            self._route.lost(place)
            raise
        else:
            for at in group:
                if at in self._asked:
                    answers = answers[1:]
                yield from self._take(place, at, answers[0])
                answers = answers[1:]
            self.replies += answers

    def _pack(self, group: list[int]) -> tuple[bytes, int]:
        parts: list[bytes] = []
        for at in group:
            if at in self._asked:
                parts.append(ASKING)
            command = self._rows_only.get(at) or self.commands[at]
            parts.append(command.packed_with_text() if at in self._by_text else command.packed())
        return b"".join(parts), len(parts)

    def _lost(self, place: Place, error: Exception, *, resend: bool = False) -> Flow[None]:
        elsewhere = self._route.lost(place)
        yield Drop(place)
        if self._retried or not (resend or elsewhere):
            raise StoreUnavailable(f"{self._target.shown}: {place}: {error}") from error
        self._retried = True

    def _take(self, place: Place, at: int, answer: Any) -> Flow[None]:
        self._asked.pop(at, None)
        if not isinstance(answer, ServerError):
            self.replies[at] = answer
            del self.todo[at]
            return
        before, self.objection = self.objection, answer
        if answer.code == "NOSCRIPT":
            self._by_text.add(at)
        elif answer.code in ("MOVED", "ASK") and self._route.clustered:
            self._redirect(place, at, answer)
        elif self._rows_only.get(at) is not None:
            # Somebody waits for the key: that has to wait for the slot.
            self._rows_only[at] = None
            self.pausing = True
            self.objection = before
        elif answer.code in ("TRYAGAIN", "CLUSTERDOWN") and self._route.clustered:
            self._await_slot(place, at, answer)
        else:
            if answer.code == "READONLY" or "READONLY " in answer.text:
                self._route.lost(place)
                yield Drop(place)
            raise refusal(
                self._target.shown, answer, self.commands[at].script.command_behind(answer.text)
            )

    def _await_slot(self, place: Place, at: int, answer: ServerError) -> None:
        if answer.code == "TRYAGAIN" and at not in self._rows_only:
            self._rows_only[at] = self.commands[at].for_row()
        self.pausing = self._rows_only.get(at) is None
        self._route.lost(place)

    def _redirect(self, place: Place, at: int, answer: ServerError) -> None:
        slot, _, address = answer.text.split(" ", 1)[1].partition(" ")
        host, _, port = address.rpartition(":")
        there = Place(host or place.host, int(port))
        if answer.code == "ASK":
            self._asked[at] = there
        else:
            self._route.moved(int(slot), there)
            self.pausing = True
