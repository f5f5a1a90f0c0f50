"""How a lease is acquired and given back, as flows for both clients and every store.

Acquiring is one operation in a loop. `Acquire` is idempotent for its holder, so it is what tries,
queues, confirms a claim, asks again after a lost reply, and queues again whoever the store forgot:

1. Send it. Granted: done. Refused and not to wait: done.
2. Queued: sleep until woken (a notice, a check that saw something, the end of the wait).
3. Woken: send it again, under the old arrival number.
4. The wait is over: ask a last time, which also learns who holds it or who ran, and leave.

However a flow ends early (an error, a cancellation, an interrupt, the generator dropped), what it
may have got is given back behind the caller's back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, cast

from joblock.protocol import tell
from joblock.protocol.hold import MARGIN, NEVER
from joblock.protocol.request import SHARED_LIMIT
from joblock.protocol.steps import Flow, Pause, Seat
from joblock.store.ops import (
    Acquire,
    AcquireReply,
    Busy,
    Done,
    Granted,
    Holders,
    Joined,
    Leave,
    Queueing,
    Refresh,
    Refreshed,
    Release,
    Released,
)
from joblock.values.errors import (
    LockLost,
    LockNotAcquired,
    StoreError,
    StoreMisconfigured,
    StoreUnavailable,
)

if TYPE_CHECKING:
    from joblock.protocol.hold import Hold, Refreshing
    from joblock.protocol.request import Request
    from joblock.protocol.tell import Teller
    from joblock.values.clock import Clock
    from joblock.values.records import JobLock

OUTAGE_LIMIT = 30.0
"""Seconds of outage after which a wait without end gives up."""

# On the hot path it shows that a named tuple's own __new__ is a function in Python.
_make: Any = tuple.__new__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]

FIRST_RETRY = 0.02
LONGEST_RETRY = 1.0


class Desk(Protocol):
    """What a flow needs of the client: its clock, its seats and the list of its holds."""

    clock: Clock
    worker: str
    client: str

    def seat(self, request: Request, holder: str) -> Seat:
        """A place to wait at."""
        ...

    @property
    def events(self) -> Teller | None:
        """Who is told what happens; once there is somebody, that stays so."""
        ...

    @property
    def listening(self) -> bool:
        """Whether notices reach this client."""
        ...

    def queueing(self, skip_grace: bool, join: int | None) -> Queueing:
        """How a waiter of this client is queued at first."""
        ...

    def new_holder(self, request: Request) -> str:
        """The holder of this acquisition, or the empty text while that holder is just leaving."""
        ...

    def admit(
        self, request: Request, holder: str, granted: Granted, sent: float, began: float
    ) -> Hold:
        """Begin to keep a lease, asked for in the request sent then and at first when it began."""
        ...

    def expect(self, hold: Hold) -> None:
        """Look after a hold in time: it may be due, or end, sooner than before."""
        ...

    def would_wait_for_itself(self, request: Request, busy: Busy) -> bool:
        """Whether the very caller holds what it is about to wait for."""
        ...

    def refused(self, request: Request, holder: str) -> None:
        """Count an acquisition that the store refused as over."""
        ...

    def alone(self, request: Request, holder: str) -> bool:
        """Whether nobody shares its holder; then nobody will until that has left (`settled`)."""
        ...

    def abandon(self, request: Request, holder: str) -> None:
        """Undo an acquisition that ended nobody knows how, behind the caller's back."""
        ...

    def undo(self, op: Leave | Release) -> None:
        """Send that behind the caller's back, after everything already sent for its holder."""
        ...

    def retire(self, hold: Hold) -> bool:
        """Stop keeping a hold; True for the one caller that ends it."""
        ...

    def cut_off(self, hold: Hold, op: Release) -> None:
        """A release was interrupted: unless others share the holder, send it all the same."""
        ...

    def last_out(self, hold: Hold) -> bool:
        """Whether nobody shares its holder any more, so that the lease is to be released."""
        ...

    def collected(self, hold: Hold) -> None:
        """Nobody can release that hold any more: do so behind everybody's back."""
        ...

    def lose(self, hold: Hold, reason: str) -> None:
        """A lease is lost: tell whoever wants to know, and give it back as far as possible."""
        ...

    def tell_loss(self, hold: Hold) -> None:
        """Log a loss and call those who asked to be told."""
        ...

    def settled(self, op: Leave | Release) -> None:
        """What gave a lease or a place back has arrived."""
        ...

    def refused_first(self, key: str) -> bool:
        """Whether a request for a part of that key is refused for the first time."""
        ...


def acquire(desk: Desk, request: Request) -> Flow[Hold | Busy]:
    """Win a lease, or say who is in the way once the wait is over.

    Raises StoreUnavailable if the store is down when it has to answer, RuntimeError if the caller
    would wait for itself.
    """
    # Handed on as it is: one more generator around it would show on the hot path.
    flow = acquire_or_join(desk, request, skip_grace=False, join=None)
    return cast("Flow[Hold | Busy]", flow)  # only a request that joins is answered Joined


def acquire_or_join(
    desk: Desk, request: Request, *, skip_grace: bool, join: int | None
) -> Flow[Hold | Busy | Joined]:
    """As `acquire`, for a caller that may instead be content with the run in progress."""
    holder = desk.new_holder(request)
    if not holder:
        request, holder = yield from _wait_for_holder(desk, request)
        if not holder:
            return Busy(request.holder, 0, "held")
    reply = None
    seat, queue = _sit_down(desk, request, holder, skip_grace=skip_grace, join=join)
    try:
        sent = desk.clock.monotonic()
        try:
            reply = yield _operation(desk, request, holder, queue)
            if type(reply) is Granted and _came_late(desk, request, sent):
                # To import a driver and to connect can take longer than a short lease lasts. Asked
                # for once more, it is renewed, or it is another's by now.
                again = desk.clock.monotonic()
                reply = yield _operation(desk, request, holder, queue)
                sent = again
        except StoreUnavailable as error:
            if seat is None:
                tell.outage(desk, request.name, holder, 0, error)
                raise
            reply = error
        if type(reply) is Granted:
            return desk.admit(request, holder, reply, sent, sent)
        yield from _note_refusal(desk, request, holder, reply)
        if queue is not None and seat is not None:
            wait = _Wait(desk, request, holder, seat, queue, sent)
            return wait.settle((yield from wait.out(reply)))
    except BaseException as error:
        _undo(desk, request, holder, error if reply is None else None)
        raise
    finally:
        if seat is not None:
            seat.leave()
    desk.refused(request, holder)
    tell.given_up(desk, request, holder, reply, sent)
    return cast("Busy | Joined", reply)


def _sit_down(
    desk: Desk, request: Request, holder: str, *, skip_grace: bool, join: int | None
) -> tuple[Seat, Queueing] | tuple[None, None]:
    """Before the request is sent: the notice may be faster than the reply."""
    if request.wait == 0:
        return None, None
    return desk.seat(request, holder), desk.queueing(skip_grace, join)


def _came_late(desk: Desk, request: Request, sent: float) -> bool:
    return desk.clock.monotonic() - sent >= request.ttl * MARGIN / 1000


def _note_refusal(
    desk: Desk, request: Request, holder: str, reply: AcquireReply | StoreUnavailable
) -> Flow[None]:
    """Tell that it was refused at first; and look whether others state another limit."""
    tell.refused_at_first(desk, request, holder, reply)
    if type(reply) is Busy and 1 < request.limit < SHARED_LIMIT and desk.refused_first(request.key):
        try:
            leases: tuple[JobLock, ...] = yield Holders(request.key)
        except StoreError:
            return
        others = sorted({lease.limit for lease in leases} - {request.limit})
        if others:
            _tell_limits(request, others)


def _undo(desk: Desk, request: Request, holder: str, first: BaseException | None) -> None:
    """The acquisition has failed, ``first`` if it is what became of its first request."""
    if isinstance(first, StoreMisconfigured):
        desk.refused(request, holder)  # nothing was had, and there is no way to give it back
    else:
        desk.abandon(request, holder)


def _operation(desk: Desk, request: Request, holder: str, queue: Queueing | None) -> Acquire:
    values = (
        request.key,
        holder,
        request.ttl,
        request.weight,
        request.limit,
        request.at_least,
        True,  # extend_only
        desk.worker,
        queue,
        request.occurrence,
    )
    return _make(Acquire, values)


def _wait_for_holder(desk: Desk, request: Request) -> Flow[tuple[Request, str]]:
    """A given holder is just being released: its name is free again in a moment.

    The request with what is left of its wait, and the holder, or the empty text if nothing is left.
    """
    now = desk.clock.monotonic()
    end = NEVER if request.wait is None else now + request.wait / 1000
    holder = ""
    seat = desk.seat(request, holder)
    try:
        while not holder and now < end:
            yield Pause(seat, min(end, now + FIRST_RETRY))
            _end_if_dismissed(request, seat)
            seat.woken()  # left set, it would spin, and in an event loop keep all else from running
            now = desk.clock.monotonic()
            holder = desk.new_holder(request)
    finally:
        seat.leave()
    if request.wait is not None:
        request = request._replace(wait=max(0, round((end - now) * 1000)))
    return request, holder


def _end_if_dismissed(request: Request, seat: Seat) -> None:
    if seat.dismissed:
        raise LockNotAcquired(request.name, reason="closed", prefix=request.prefix)


class _Wait:
    """One acquisition that was refused at first and waits."""

    __slots__ = (
        "began",
        "desk",
        "end",
        "holder",
        "left",
        "outage",
        "queue",
        "request",
        "seat",
        "sent",
    )

    def __init__(
        self,
        desk: Desk,
        request: Request,
        holder: str,
        seat: Seat,
        queue: Queueing,
        sent: float,
    ) -> None:
        self.desk = desk
        self.request = request
        self.holder = holder
        self.seat = seat
        self.queue = queue
        self.began = self.sent = sent
        self.left = False
        self.end = None if request.wait is None else sent + request.wait / 1000
        self.outage: _Outage | None = None

    def out(self, reply: AcquireReply | StoreUnavailable) -> Flow[AcquireReply]:
        """Wait until granted or joined, until refused for good, or until the wait is over.

        It pauses right here: each generator between a task and its pause is memory of all who wait.
        """
        late = False
        while True:
            if isinstance(reply, StoreUnavailable):
                yield Pause(self.seat, self._retry_at(reply))
                _end_if_dismissed(self.request, self.seat)
                self.seat.woken()  # the request is sent again anyway; left set, it would spin
            elif type(reply) is Granted:
                if late or not _came_late(self.desk, self.request, self.sent):
                    return reply
                late = True
            elif type(reply) is not Busy or not reply.arrival:
                return reply
            else:
                self._sit(reply)
                yield Pause(self.seat, self.end)
                _end_if_dismissed(self.request, self.seat)
                if self.seat.joined:
                    return Joined(self.seat.joined)
                if not self.seat.woken() and self._over():
                    return (yield from self._last_chance())
            reply = yield from self._ask_again()

    def settle(self, reply: AcquireReply) -> Hold | Busy | Joined:
        """Make of the last reply what the caller is told."""
        if type(reply) is Granted:
            return self.desk.admit(self.request, self.holder, reply, self.sent, self.began)
        if not self.left:
            self.desk.refused(self.request, self.holder)
        tell.given_up(self.desk, self.request, self.holder, reply, self.began)
        return cast("Busy | Joined", reply)

    def _sit(self, busy: Busy) -> None:
        self.outage = None
        queue = self.queue
        if not queue.arrival:
            tell.queued(self.desk, self.request, self.holder, busy)
        if queue.arrival != busy.arrival:
            queue = queue._replace(arrival=busy.arrival)
        if queue.join == 0:
            queue = queue._replace(join=busy.token)
        self.queue = queue
        if self.desk.would_wait_for_itself(self.request, busy):
            raise RuntimeError(_self_wait(self.request))
        self.seat.sit(busy.epoch, busy.remaining, queue.join or 0, queue.skip_grace)

    def _retry_at(self, error: StoreUnavailable) -> float:
        now = self.desk.clock.monotonic()
        if self.outage is None:
            self.outage = _Outage(self.end, now)
        return self.outage.retry_at(now, error)

    def _over(self) -> bool:
        return self.end is not None and self.desk.clock.monotonic() >= self.end

    def _ask_again(self) -> Flow[AcquireReply | StoreUnavailable]:
        if self.queue.listening != self.desk.listening:
            self.queue = self.queue._replace(listening=self.desk.listening)
        self.sent = self.desk.clock.monotonic()
        try:
            return (yield _operation(self.desk, self.request, self.holder, self.queue))
        except StoreUnavailable as error:
            tell.outage(self.desk, self.request.name, self.holder, 0, error)
            return error

    def _last_chance(self) -> Flow[AcquireReply]:
        """Ask once more, who holds it or how the run that was joined has ended; then leave."""
        reply = yield from self._ask_again()
        if type(reply) is Granted and _came_late(self.desk, self.request, self.sent):
            reply = yield from self._ask_again()
        if isinstance(reply, StoreUnavailable):
            raise reply
        if type(reply) is Busy:
            yield from self._leave()
        return reply

    def _leave(self) -> Flow[None]:
        """Leave the queue, unless another acquisition of the same holder waits at this place."""
        if not self.desk.alone(self.request, self.holder):
            return
        op = Leave(self.request.key, self.holder)
        try:
            yield op
        except StoreError:
            self.desk.undo(op)  # what the caller is told stays true
        else:
            self.desk.settled(op)
        self.left = True


class _Outage:
    """How long the store has been away, and when to ask again."""

    __slots__ = ("end", "pause")

    def __init__(self, end: float | None, now: float) -> None:
        self.end = now + OUTAGE_LIMIT if end is None else end
        self.pause = FIRST_RETRY

    def retry_at(self, now: float, error: StoreUnavailable) -> float:
        if now >= self.end:
            raise error
        at = min(self.end, now + self.pause)
        self.pause = min(LONGEST_RETRY, self.pause * 2)
        return at


def release(
    desk: Desk, hold: Hold, *, grace: int = 0, ok: bool = False, done: Done | None = None
) -> Flow[bool]:
    """Give a lease back; False if it was lost before. A store that fails is logged, not raised."""
    if hold.detached:
        return True
    op: Release = _make(Release, (hold.key, hold.holder, hold.token, grace, ok, hold.waiting, done))
    try:
        if not desk.retire(hold):
            hold.left = True
            return not hold.lost
        # Looked at only now: another thread may just have said it was over, and not ended it.
        live = hold.live
        if not desk.last_out(hold):
            return live
        if not live:
            hold.left = True
            desk.undo(op._replace(grace=0, ok=False, done=None))
            desk.tell_loss(hold)
            return False
        reply: Released = yield op
    except StoreError as error:
        _tell_unreleased(hold, error)
        tell.outage(desk, hold.name, hold.holder, hold.token, error)
        desk.undo(op)
        return True
    except BaseException:
        desk.cut_off(hold, op)
        raise
    desk.settled(op)
    if not reply.freed:
        hold.left = True
        hold.lose("refused")
        desk.tell_loss(hold)
    elif desk.events is not None:
        tell.released(desk, hold)
    return reply.freed


def loss_after(hold: Hold) -> LockLost | None:
    """The loss to raise once a block or a run was left and its lease released, if it matters."""
    if not hold.lost or hold.on_lost == "warn":
        return None
    # A forked child that leaves its parent's block has nothing to be told.
    return None if hold.lost == "forked" else hold.loss()


def refresh(desk: Desk, hold: Hold, ttl: int) -> Flow[None]:
    """Renew now, and from now on, with that ttl; raises LockLost."""
    if not hold.held:
        raise hold.loss()
    asked: Refreshing | None = hold.refresh(ttl)
    while asked is not None:
        # Before the answer, however long that takes: by a shorter ttl it may be lost sooner.
        desk.expect(hold)
        try:
            reply: Refreshed = yield Refresh((asked.renewal,), extend_only=False)
        except BaseException:
            hold.unanswered(asked)
            desk.expect(hold)
            raise
        if not reply.renewed[0]:
            desk.lose(hold, "refused")
        asked = hold.refreshed(asked)
    desk.expect(hold)
    if not hold.held:
        raise hold.loss()


def not_acquired(request: Request, busy: Busy) -> LockNotAcquired:
    """The error for a caller that cannot go on without the lease."""
    reason = busy.why if request.wait == 0 else "timeout"
    return LockNotAcquired(
        request.name, busy.holder or None, busy.remaining / 1000, reason, request.prefix
    )


def _self_wait(request: Request) -> str:
    return (
        f"this thread or task already holds {request.name!r} and would wait for itself: "
        "pass reentrant=True to nest, or wait=False to be told"
    )


def _tell_limits(request: Request, others: list[int]) -> None:
    from joblock.values.log import logger

    logger("lease").warning(
        "%r is held under limit %s, and this process states limit %d: while both are in use, as "
        "many may hold it as each grant's own limit allows; state one limit everywhere",
        request.key,
        " and ".join(map(str, others)),
        request.limit,
    )


def _tell_unreleased(hold: Hold, error: StoreError) -> None:
    from joblock.values.log import logger

    logger("lease").warning(
        "could not release %r held by %r (token %d): %s; it lapses at its ttl unless a retry "
        "in the background succeeds",
        hold.key,
        hold.holder,
        hold.token,
        error,
    )
