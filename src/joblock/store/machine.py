"""The meaning of every operation on one key, in plain Python.

This is the heart of the memory and the SQLite store, and the model that property tests hold the
other stores against. Each function is one operation done to one key's rows (`Rows`), which the
caller has locked; it reads the clock once, as a `Now`. In the order of a wait:

1. `acquire` grants a key that is free, or queues the caller behind the live waiters.
2. Whatever frees capacity ends with `serve`: while the oldest live waiter fits, it gets a claim, a
   short lease, and a notice. So a heavy waiter is never overtaken, and one release can serve two.
3. The waiter confirms with another `acquire`, which makes the claim its full lease.
4. A claim that lapses unconfirmed (`lapse`) parks its waiter and strikes its client from presence;
   `serve` parks every waiter of such a client that it comes upon. A parked waiter that asks again
   is queued again under its old number, or at the back after two unconfirmed claims.

Before all that, an occurrence that is done is refused, to a waiter too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

from joblock.store.ops import (
    CLAIM_MS,
    LINGER_MS,
    PRESENCE_MS,
    Acquire,
    AcquireReply,
    Busy,
    Done,
    Granted,
    Joined,
    KeyState,
    Leave,
    Notice,
    Queueing,
    Release,
    Renewal,
    Strike,
    Why,
)
from joblock.values.records import JobLock, LeaseState, Waiting, Worker, moment

PARKED_LIMIT = 2
"""Unconfirmed claims after which a waiter loses its place."""


class Now(NamedTuple):
    """One reading of the store's clocks: expiry in milliseconds, tokens in microseconds."""

    ms: int
    token: int


class Lease:
    """A lease, a claim (``claim``), or what is left of a lease: in grace or expired.

    It counts as running until ``expires_at`` if ``ended_at`` is 0; an ended one keeps its place
    until ``expires_at`` (its grace). ``opens_at``: kept closed at least until then (`at_least`).
    """

    __slots__ = (
        "acquired_at",
        "claim",
        "client",
        "ended_at",
        "expires_at",
        "holder",
        "limit",
        "opens_at",
        "token",
        "weight",
        "worker",
    )

    def __init__(
        self,
        holder: str,
        token: int,
        weight: int,
        limit: int,
        acquired_at: int,
        expires_at: int,
        opens_at: int = 0,
        ended_at: int = 0,
        worker: str = "",
        claim: bool = False,
        client: str = "",
    ) -> None:
        self.holder = holder
        self.token = token
        self.weight = weight
        self.limit = limit
        self.acquired_at = acquired_at
        self.expires_at = expires_at
        self.opens_at = opens_at
        self.ended_at = ended_at
        self.worker = worker
        self.claim = claim
        self.client = client

    @property
    def exclusive(self) -> bool:
        """Takes its whole limit, so it closes the key to everybody."""
        return self.weight >= self.limit

    def running(self, now: int) -> bool:
        """Held and live."""
        return not self.ended_at and self.expires_at > now

    def until(self) -> int:
        """The moment from which it is in nobody's way."""
        return max(self.expires_at, self.opens_at)


class Waiter:
    """One queued request; ``lost`` counts its unconfirmed claims, ``join`` is as in `Queueing`."""

    __slots__ = (
        "arrival",
        "at_least",
        "client",
        "holder",
        "join",
        "limit",
        "lost",
        "parked",
        "queued_at",
        "ttl",
        "weight",
        "worker",
    )

    def __init__(
        self,
        holder: str,
        client: str,
        arrival: int,
        ttl: int,
        weight: int,
        limit: int,
        at_least: int = 0,
        join: int | None = None,
        queued_at: int = 0,
        worker: str = "",
        lost: int = 0,
        parked: bool = False,
    ) -> None:
        self.holder = holder
        self.client = client
        self.arrival = arrival
        self.ttl = ttl
        self.weight = weight
        self.limit = limit
        self.at_least = at_least
        self.join = join
        self.queued_at = queued_at
        self.worker = worker
        self.lost = lost
        self.parked = parked


class Rows(Protocol):
    """One key's rows while its store has it locked, and the presence of waiting clients.

    ``done`` is the newest occurrence whose run ended well, as long as it is not ``done_until``.
    """

    key: str
    token: int
    ok_token: int
    done: int
    done_until: int
    notices: list[Notice]

    def leases(self) -> list[Lease]:
        """Every lease and claim, oldest first; the list is the caller's."""
        ...

    def put(self, lease: Lease) -> None:
        """Keep a lease, new or changed."""
        ...

    def drop(self, lease: Lease) -> None:
        """Forget a lease."""
        ...

    def waiter(self, holder: str) -> Waiter | None:
        """The waiter of that holder, parked or not."""
        ...

    def queue(self) -> Iterator[Waiter]:
        """Waiters that are not parked, oldest first; they may be dropped or parked on the way."""
        ...

    def joiners(self, token: int) -> list[Waiter]:
        """Those that joined a run up to that one, parked ones included."""
        ...

    def clients(self) -> list[str]:
        """The clients that have a waiter in the queue, each once."""
        ...

    def enqueue(self, waiter: Waiter) -> None:
        """Keep a waiter, new or changed."""
        ...

    def dequeue(self, waiter: Waiter) -> None:
        """Forget a waiter."""
        ...

    def next_arrival(self) -> int:
        """A number above all that the key's queue was ever given."""
        ...

    def present(self, client: str, now: int) -> bool:
        """Whether that client reported lately and was not struck."""
        ...

    def report(self, client: str, now: int, until: int, listening: bool) -> int:
        """Count the client as present until then; the epoch of its uninterrupted presence."""
        ...

    def strike(self, client: str) -> None:
        """Count the client as gone until it reports again."""
        ...


def acquire(rows: Rows, now: Now, op: Acquire) -> AcquireReply:
    """Grant, confirm, re-enter, queue or refuse: the row "acquire" of the contract's table."""
    lapse(rows, now.ms)
    mine = _lease_of(rows, op.holder)
    claimed = mine is not None and mine.claim
    done = op.occurrence is not None and op.occurrence <= rows.done and now.ms < rows.done_until
    if mine is not None and mine.running(now.ms) and not (claimed and done):
        enter = _confirm if claimed else _reenter
        reply = enter(rows, now.ms, mine, op)
        # Served after that, not before: the caller keeps its own, and others what has lapsed.
        serve(rows, now)
        return reply
    waiter, epoch = rows.waiter(op.holder), 0
    joined = op.queue.join if op.queue is not None else None
    if joined and rows.ok_token >= joined and not claimed:
        if waiter is not None:
            rows.dequeue(waiter)
        serve(rows, now)
        return Joined(rows.ok_token)
    if done:
        return _refuse_done(rows, now, mine, waiter)
    if op.queue is not None:
        epoch = _report(rows, now.ms, op.queue, waiter)
    head = serve(rows, now, asking=op.holder)
    mine = _lease_of(rows, op.holder)
    if mine is not None and mine.claim:
        return _confirm(rows, now.ms, mine, op)
    if head is None and _fits(rows.leases(), op.weight, op.limit, now.ms, op.holder):
        return _grant(rows, now, op)
    return _refuse(rows, now, op, waiter, epoch)


def refresh(rows: Rows, now: int, renewal: Renewal, extend_only: bool) -> bool:
    """Renew a lease: "mine" if running, or expired and still fitting beside the live ones."""
    lease = _lease_of(rows, renewal.holder)
    if lease is None or lease.claim or lease.ended_at:
        return False
    if renewal.token and lease.token != renewal.token:
        return False
    if lease.expires_at <= now:
        if lease.opens_at > now:
            return False
        others = [other for other in rows.leases() if other.holder != lease.holder]
        if not _fits(others, lease.weight, lease.limit, now):
            return False
    end = now + renewal.ttl
    lease.expires_at = max(lease.expires_at, end) if extend_only else end
    rows.put(lease)
    return True


def release(rows: Rows, now: Now, op: Release) -> bool:
    """Free what the holder has, or close it for its grace, then serve."""
    lapse(rows, now.ms)
    lease = _lease_of(rows, op.holder)
    if lease is None or not _releasable(lease, now.ms, op.token):
        # Not the holder's (any more), but it may be what finds that a lease has lapsed.
        serve(rows, now)
        return False
    if op.ok:
        rows.ok_token = max(rows.ok_token, lease.token)
        _dismiss_joiners(rows)
    if op.done is not None:
        _remember(rows, now.ms, op.done)
    closed_until = max(now.ms + op.grace if op.grace else 0, lease.opens_at)
    if lease.claim:
        return leave(rows, now, Leave(op.key, op.holder))
    if closed_until > now.ms:
        lease.ended_at, lease.expires_at, lease.opens_at = now.ms, closed_until, 0
        rows.put(lease)
        _tell_everyone(rows)
    else:
        rows.drop(lease)
    serve(rows, now)
    return True


def leave(rows: Rows, now: Now, op: Leave) -> bool:
    """Take a holder out of everything it has or waits for here, then serve."""
    lapse(rows, now.ms)
    waiter, lease = rows.waiter(op.holder), _lease_of(rows, op.holder)
    held = lease is not None and not lease.ended_at
    if waiter is not None:
        rows.dequeue(waiter)
    if lease is not None and held:
        rows.drop(lease)
    serve(rows, now, moved=waiter is not None)
    return waiter is not None or held


def strike(rows: Rows, now: Now, op: Strike) -> bool:
    """Pass over a waiter whose client is known to be dead, as if its claim had lapsed."""
    lease = _lease_of(rows, op.holder)
    struck = lease is not None and lease.claim
    if lease is not None and struck:
        lease.expires_at = now.ms
        rows.put(lease)
    lapse(rows, now.ms)
    serve(rows, now)
    return struck


def check(rows: Rows, now: Now, client: str, listening: bool) -> KeyState:
    """Note that the client is alive, find lapses, and say how the key stands for it."""
    # In this order: a claim of its own that lapses here is told by a new epoch.
    lapse(rows, now.ms)
    epoch = rows.report(client, now.ms, now.ms + PRESENCE_MS, listening)
    serve(rows, now, checking=client)
    leases = rows.leases()
    ends = [lease.until() for lease in leases if lease.until() > now.ms]
    return KeyState(
        epoch,
        min(ends) - now.ms if ends else 0,
        tuple(lease.holder for lease in leases if lease.claim and lease.client == client),
        rows.ok_token,
        any(_state(lease, now.ms) == "grace" for lease in leases),
    )


def force(rows: Rows, now: Now) -> tuple[JobLock, ...]:
    """Break every lease of the key, whoever holds it, then serve."""
    lapse(rows, now.ms)
    broken = tuple(describe(rows.key, lease, now.ms) for lease in rows.leases())
    for lease in rows.leases():
        rows.drop(lease)
    serve(rows, now)
    return broken


def lapse(rows: Rows, now: int) -> None:
    """Find what is over: claims nobody confirmed, graces that have ended, permits long lapsed.

    A key that many share may never be vacant, and then nothing else forgets the permits of those
    who were killed.
    """
    for lease in rows.leases():
        if lease.claim and lease.expires_at <= now:
            rows.drop(lease)
            rows.strike(lease.client)
            waiter = rows.waiter(lease.holder)
            if waiter is not None:
                waiter.lost += 1
                waiter.parked = True
                rows.enqueue(waiter)
        elif lease.expires_at <= now and _is_over(lease, now):
            rows.drop(lease)


def serve(
    rows: Rows, now: Now, asking: str = "", checking: str = "", *, moved: bool = False
) -> Waiter | None:
    """Claim the key for the oldest live waiters, while they fit; the first that does not fit.

    ``asking`` and ``checking`` are the holder and the client that learn of a claim from the reply.
    Whoever has become the next in line (``moved``: somebody left the queue) is told when the claims
    before it lapse, which is when it is worth asking.
    """
    ends: list[int] = []
    for waiter in rows.queue():
        if not rows.present(waiter.client, now.ms):
            waiter.parked = moved = True
            rows.enqueue(waiter)
            continue
        lease = _lease_of(rows, waiter.holder)
        if lease is not None and lease.claim:
            ends.append(lease.expires_at)
            continue
        if not _fits(rows.leases(), waiter.weight, waiter.limit, now.ms, waiter.holder):
            if moved and ends:
                after = min(ends) - now.ms
                rows.notices.append(Notice(waiter.client, rows.key, waiter.holder, after))
            return waiter
        ends.append(_claim(rows, now, waiter))
        moved = True
        if waiter.holder != asking and waiter.client != checking:
            rows.notices.append(Notice(waiter.client, rows.key, waiter.holder))
    return None


def describe(key: str, lease: Lease, now: int) -> JobLock:
    """A lease as a reader sees it."""
    return JobLock(
        key,
        lease.holder,
        lease.token,
        lease.weight,
        lease.limit,
        moment(lease.acquired_at),
        moment(lease.until()),
        moment(lease.ended_at) if lease.ended_at else None,
        _state(lease, now),
        Worker.parse(lease.worker),
    )


def describe_waiter(key: str, waiter: Waiter, live: bool) -> Waiting:
    """A waiter as a reader sees it."""
    return Waiting(
        key,
        waiter.holder,
        waiter.arrival,
        waiter.weight,
        waiter.limit,
        moment(waiter.queued_at),
        live and not waiter.parked,
        Worker.parse(waiter.worker),
    )


def visible(leases: Iterable[Lease], now: int) -> list[Lease]:
    """The leases that a reader is shown: all but graces that are over."""
    return [lease for lease in leases if not lease.ended_at or lease.until() > now]


def _lease_of(rows: Rows, holder: str) -> Lease | None:
    for lease in rows.leases():
        if lease.holder == holder:
            return lease
    return None


def _state(lease: Lease, now: int) -> LeaseState:
    if lease.running(now):
        return "held"
    return "grace" if lease.until() > now else "expired"


def _releasable(lease: Lease, now: int, token: int) -> bool:
    """Neither in grace nor another's: running, or expired and nothing keeps it closed."""
    if lease.ended_at or (token and lease.token != token):
        return False
    return lease.expires_at > now or lease.opens_at <= now


def _is_over(lease: Lease, now: int) -> bool:
    """Its grace has ended; or it is a permit that nobody has come back for."""
    if lease.ended_at:
        return lease.until() <= now
    return not lease.exclusive and lease.until() + LINGER_MS <= now


def _fits(leases: Iterable[Lease], weight: int, limit: int, now: int, holder: str = "") -> bool:
    """Whether there is room beside the live leases; a holder has none beside one of its own."""
    taken = 0
    for lease in leases:
        if lease.until() > now:
            if lease.exclusive or lease.holder == holder:
                return False
            taken += lease.weight
    return taken == 0 if weight >= limit else taken + weight <= limit


def _grant(rows: Rows, now: Now, op: Acquire) -> Granted:
    lease = Lease(
        op.holder,
        _draw_token(rows, now),
        op.weight,
        op.limit,
        now.ms,
        now.ms + op.ttl,
        now.ms + op.at_least if op.at_least else 0,
        worker=op.worker,
    )
    waiter = rows.waiter(op.holder)
    if waiter is not None:
        rows.dequeue(waiter)
    return Granted(
        lease.token,
        lease.acquired_at,
        lease.expires_at,
        waiting=_someone_waits(rows),
        replaced=_settle_in(rows, now, lease),
    )


def _claim(rows: Rows, now: Now, waiter: Waiter) -> int:
    """Hand the key to a waiter for a short while; the moment at which that lapses."""
    lease = Lease(
        waiter.holder,
        _draw_token(rows, now),
        waiter.weight,
        waiter.limit,
        now.ms,
        now.ms + min(CLAIM_MS, waiter.ttl),
        worker=waiter.worker,
        claim=True,
        client=waiter.client,
    )
    _settle_in(rows, now, lease)
    return lease.expires_at


def _settle_in(rows: Rows, now: Now, lease: Lease) -> str:
    """Put a new lease down; the expired ones that no longer fit beside it are gone for good."""
    replaced = ""
    leases = rows.leases()
    for other in leases:
        if other.until() > now.ms:
            continue
        live = [third for third in leases if third is not other and third.until() > now.ms]
        if other.holder == lease.holder or not _fits(
            [*live, lease], other.weight, other.limit, now.ms
        ):
            rows.drop(other)
            replaced = other.holder if other.holder != lease.holder else replaced
    rows.put(lease)
    return replaced


def _draw_token(rows: Rows, now: Now) -> int:
    rows.token = max(rows.token + 1, now.token)
    return rows.token


def _confirm(rows: Rows, now: int, lease: Lease, op: Acquire) -> Granted:
    waiter = rows.waiter(op.holder)
    if waiter is not None:
        rows.dequeue(waiter)
    lease.claim = False
    lease.client = ""
    lease.acquired_at = now
    lease.expires_at = now + op.ttl
    lease.opens_at = now + op.at_least if op.at_least else 0
    lease.worker = op.worker
    rows.put(lease)
    return Granted(lease.token, now, lease.expires_at, waiting=_someone_waits(rows))


def _reenter(rows: Rows, now: int, lease: Lease, op: Acquire) -> Granted:
    end = now + op.ttl
    lease.acquired_at = now
    lease.expires_at = max(lease.expires_at, end) if op.extend_only else end
    rows.put(lease)
    return Granted(lease.token, now, lease.expires_at, reentered=True, waiting=_someone_waits(rows))


def _refuse(rows: Rows, at: Now, op: Acquire, waiter: Waiter | None, epoch: int) -> Busy:
    now = at.ms
    blocking = [lease for lease in rows.leases() if lease.until() > now]
    first = min(blocking, key=Lease.until)
    why: Why = "held"
    if _fits(blocking, op.weight, op.limit, now, op.holder):
        why = "waiting"
    elif all(_state(lease, now) == "grace" for lease in blocking):
        why = "grace"
    queue = op.queue
    if queue is not None and queue.skip_grace and why == "grace":
        if waiter is not None:
            rows.dequeue(waiter)
            serve(rows, at, moved=True)
        queue = None
    remaining = first.until() - now
    if queue is None:
        return Busy(first.holder, remaining, why, first.token)
    # What a grace is left of has ended before: it is the next run that a joiner joins.
    joins = first.token + (_state(first, now) == "grace")
    if waiter is None:
        waiter = _new_waiter(rows, now, op, queue, joins)
    elif queue.join is None:
        waiter.join = None
    rows.enqueue(waiter)
    run = waiter.join or joins if queue.join == 0 else first.token
    return Busy(first.holder, remaining, why, run, waiter.arrival, epoch)


def _report(rows: Rows, now: int, queue: Queueing, waiter: Waiter | None) -> int:
    """The caller's client is alive; the epoch of its presence."""
    epoch = rows.report(queue.client, now, now + PRESENCE_MS, queue.listening)
    if waiter is not None:
        # A holder's name may outlive its process: whoever asks last is the one to be told.
        waiter.client = queue.client
        if waiter.parked:
            _unpark(rows, waiter)
    return epoch


def _refuse_done(rows: Rows, now: Now, lease: Lease | None, waiter: Waiter | None) -> Busy:
    """Nothing is left to do for the caller: what it was handed, or waits for, is the next one's."""
    if lease is not None and lease.claim:
        rows.drop(lease)
    if waiter is not None:
        rows.dequeue(waiter)
    serve(rows, now, moved=waiter is not None)
    return Busy("", 0, "done")


def _remember(rows: Rows, now: int, done: Done) -> None:
    if done.occurrence >= rows.done or rows.done_until <= now:
        rows.done, rows.done_until = done.occurrence, now + done.ttl


def _new_waiter(rows: Rows, now: int, op: Acquire, queue: Queueing, token: int) -> Waiter:
    return Waiter(
        op.holder,
        queue.client,
        queue.arrival or rows.next_arrival(),
        op.ttl,
        op.weight,
        op.limit,
        op.at_least,
        (queue.join or token) if queue.join is not None else None,
        now,
        op.worker,
    )


def _unpark(rows: Rows, waiter: Waiter) -> None:
    waiter.parked = False
    if waiter.lost >= PARKED_LIMIT:
        waiter.lost = 0
        waiter.arrival = rows.next_arrival()
    rows.enqueue(waiter)


def _someone_waits(rows: Rows) -> bool:
    return next(rows.queue(), None) is not None


def _dismiss_joiners(rows: Rows) -> None:
    joiners = rows.joiners(rows.ok_token)
    for waiter in joiners:
        rows.dequeue(waiter)
        lease = _lease_of(rows, waiter.holder)
        if lease is not None and lease.claim:
            rows.drop(lease)
    for client in dict.fromkeys(waiter.client for waiter in joiners):
        rows.notices.append(Notice(client, rows.key))


def _tell_everyone(rows: Rows) -> None:
    rows.notices.extend(Notice(client, rows.key) for client in rows.clients())
