"""What all locks of one client share: its store, its holds, its seats, its keeper.

The hub is the desk of the protocol's flows (`joblock.protocol.acquire.Desk`) for both clients. It
is used from many threads. Its containers are changed only by single operations that are atomic in
themselves (a dict's item set, pop), so that the hot path takes no lock; whoever pops a hold is the
one who ends it.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from joblock.client.exit import at_exit, expect_exit
from joblock.client.keeper import POLL_FIRST, Keeper
from joblock.client.seat import ClientSeat, Waker
from joblock.protocol import tell
from joblock.protocol.hold import Hold
from joblock.protocol.request import refuse_more
from joblock.store.contract import digest
from joblock.store.ops import CHECK_MS, Busy, Granted, Leave, Notice, Queueing, Release
from joblock.values.identity import describe_worker, new_client, new_holder, on_fork
from joblock.values.imports import importing
from joblock.values.log import logger
from joblock.values.names import checked_prefix, checked_text

if TYPE_CHECKING:
    from joblock.client.events import Events
    from joblock.protocol.request import Request
    from joblock.store.contract import Store, Subscription
    from joblock.values.clock import Clock

_REFUSED = 10_000
"""How many keys it remembers having been refused."""

_every: weakref.WeakSet[Hub] = weakref.WeakSet()


class Hub:
    """The shared heart of one client."""

    closed = False
    """Whether a store was open before, to which something may have been sent."""

    def __init__(
        self,
        open_store: Callable[[], Store],
        *,
        prefix: str,
        label: str,
        clock: Clock,
        waker: Waker,
    ) -> None:
        self._open_store = open_store
        self.prefix = checked_prefix(prefix)
        self.label = checked_text(label, "label")
        self.clock = clock
        self.waker = waker
        self.events: Events | None = None
        self._begin()
        _every.add(self)

    def _begin(self) -> None:
        self._store: Store | None = None
        self.call: Callable[[Any], Any] = self._open_and_call
        self._subscription: Subscription | None = None
        self.lock = threading.RLock()
        self.worker = describe_worker(self.label)
        self.client = new_client()
        self._unheard = Queueing(self.client)
        self._heard = Queueing(self.client, listening=True)
        # Weakly: what nobody refers to any more is to be released, not renewed for ever.
        self.holds: dict[int, weakref.ref[Hold]] = {}
        self.seats: dict[tuple[str, str], tuple[weakref.ref[ClientSeat], ...]] = {}
        self._dismissed: threading.Event | None = None
        self.owned: dict[tuple[Any, str], weakref.ref[Hold]] = {}
        self.nested: dict[tuple[str, str], int] = {}
        self._refused: set[str] = set()
        self.keeper = Keeper(self)

    @property
    def store(self) -> Store:
        """The store, opened at the first use."""
        store = self._store
        if store is None:
            with self.lock:
                store = self._store
                if store is None:
                    store = self._store = self._open_store()
                    self.look_who_listens()
                    expect_exit()
        return store

    def _open_and_call(self, op: Any) -> Any:
        """The first `call`: from then on it is the blocking driver's own."""
        store = self.store
        call = cast("Callable[[Any], Any]", store.driver().call)
        with self.lock:
            if self._store is store:  # and was not closed meanwhile
                self.call = call
        return call(op)

    def call_behind(self, op: Any) -> Any:
        """`call` for the keeper, which may outlast `close`: what it opens then is closed again."""
        late = self.closed and self._store is None
        store = self.store
        try:
            return self.call(op)
        finally:
            if self._store is not store:
                store.close()
                late = self.closed
            # A closed client may be in use again by now.
            if late and not (self.subscribed or self.holds or self.seats):
                self._close_store()

    def _close_store(self) -> None:
        with self.lock:
            self.closed = self.closed or self._store is not None
            store, self._store, self.call = self._store, None, self._open_and_call
        if store is not None:
            store.close()

    # What a flow needs of its desk.

    def seat(self, request: Request, holder: str) -> ClientSeat:
        """A place to wait at, known before the request is sent: its notice may be faster."""
        seat, place = ClientSeat(self, request.key, holder), (request.key, holder)
        if self._dismissed is not None:
            seat.dismiss()
        if request.holder:
            # Others may wait under the same one: to the store they are one waiter.
            seat.shared = True
            with self.lock:
                self.seats[place] = (*self.seats.get(place, ()), weakref.ref(seat))
        else:
            self.seats[place] = (weakref.ref(seat),)
        return seat

    def unseat(self, seat: ClientSeat) -> None:
        """The waiter waits no longer."""
        place = seat.key, seat.holder
        if seat.shared:
            with self.lock:
                others = self.seats.get(place, ())
                rest = tuple(other for other in others if other() not in {seat, None})
                if rest:
                    self.seats[place] = rest
                    return
                self.seats.pop(place, None)
        else:
            self.seats.pop(place, None)
        dismissed = self._dismissed
        if dismissed is not None and not self.seats:
            dismissed.set()

    @property
    def subscribed(self) -> bool:
        """Whether there is a listening connection, even if it is just being made again."""
        return self._subscription is not None

    @property
    def listening(self) -> bool:
        """Whether notices reach this client."""
        subscription = self._subscription
        return subscription is not None and subscription.listening

    def queueing(self, skip_grace: bool, join: int | None) -> Queueing:
        """How a waiter of this client is queued at first."""
        subscription = self._subscription
        heard = subscription is not None and subscription.listening
        queue = self._heard if heard else self._unheard
        if skip_grace or join is not None:
            return queue._replace(skip_grace=skip_grace, join=join)
        return queue

    def new_holder(self, request: Request) -> str:
        """One of its own for each acquisition; a given one is counted, since it nests."""
        holder = request.holder
        if not holder:
            return new_holder()
        with self.lock:
            count = self.nested.get((request.key, holder), 0)
            if count < 0:
                return ""
            if count and not all(hold.covers(request) for hold in self._of(request.key, holder)):
                refuse_more(request)
            self.nested[request.key, holder] = count + 1
        return holder

    def refused(self, request: Request, holder: str) -> None:
        """Count an acquisition that the store refused as over."""
        if request.holder:
            self._last_one_out(request.key, holder, closing=False)

    def alone(self, request: Request, holder: str) -> bool:
        """Whether nobody shares its holder; then nobody will until that has left (`settled`)."""
        if request.holder:
            with self.lock:
                if self.nested.get((request.key, holder), 0) > 1:
                    return False
                self.nested[request.key, holder] = -1
        return True

    def abandon(self, request: Request, holder: str) -> None:
        """Undo an acquisition that ended nobody knows how, unless others share its holder."""
        if self._store is None and not self.closed:
            # The store could not even be opened, so nothing was sent.
            self.refused(request, holder)
        elif not request.holder:
            self.undo(Leave(request.key, holder))
        else:
            # Counted until its request has arrived: whoever shares its holder and releases before
            # that would be overtaken by it.
            self.waker.settled(holder, lambda: self._leave_if_last(request.key, holder))

    def _leave_if_last(self, key: str, holder: str) -> None:
        if self._last_one_out(key, holder, closing=True):
            self.keeper.send(Leave(key, holder))

    def refused_first(self, key: str) -> bool:
        """Whether a request for a part of that key is refused for the first time."""
        if key in self._refused or len(self._refused) >= _REFUSED:
            return False
        self._refused.add(key)
        return True

    def admit(
        self, request: Request, holder: str, granted: Granted, sent: float, began: float
    ) -> Hold:
        """Begin to keep a lease."""
        hold = Hold(self.clock, request, holder, granted, sent)
        mine = id(hold)
        # A callback, and no __del__ of the hold: that one would run at each release too, and an
        # exception that a signal handler raises in it (Ctrl-C, SIGTERM) is swallowed.
        dropped = partial(self._dropped, mine, request, holder, hold.token)
        self.holds[mine] = weakref.ref(hold, dropped)
        self.keeper.expect(min(hold.deadline, hold.due))
        if request.holder:
            # To the store they were one waiter, which is queued no more: nobody else wakes them.
            self._wake(request.key, holder)
        if granted.replaced:
            logger("lease").warning(
                "%r took over %r, whose lease by %r had lapsed", holder, hold.key, granted.replaced
            )
        if self.events is not None:
            tell.granted(self.events, hold, granted, self.clock.monotonic() - began)
        return hold

    def expect(self, hold: Hold) -> None:
        """Look after a hold in time: it may be due, or end, sooner than before."""
        self.keeper.expect(min(hold.deadline, hold.due))

    def would_wait_for_itself(self, request: Request, busy: Busy) -> bool:
        """Whether the calling thread or task holds some of what it is to wait for, all of it."""
        hold = self.owned_by(self.waker.owner(), request.key)
        return (
            hold is not None
            and request.exclusive
            and (hold.holder == busy.holder or not hold.exclusive)
            and hold.held
        )

    def disown(self, owner: Any, hold: Hold) -> None:
        """That thread or task goes under that hold no longer."""
        place = owner, hold.key
        found = self.owned.get(place)
        if found is not None and found() is hold:
            del self.owned[place]

    def own(self, owner: Any, hold: Hold) -> None:
        """Note which thread or task goes under that hold."""
        self.owned[owner, hold.key] = weakref.ref(hold)

    def owned_by(self, owner: Any, key: str) -> Hold | None:
        """The hold that the thread or task goes under."""
        found = self.owned.get((owner, key))
        return None if found is None else found()

    def kept(self) -> list[Hold]:
        """The holds that are kept."""
        return [hold for found in list(self.holds.values()) if (hold := found()) is not None]

    def _of(self, key: str, holder: str) -> list[Hold]:
        return [hold for hold in self.kept() if hold.key == key and hold.holder == holder]

    def retire(self, hold: Hold) -> bool:
        """Stop keeping a hold; True for the one caller that ends it."""
        # In this order: an interrupt between the two leaves one that is known to be over.
        hold.over = True
        return self.holds.pop(id(hold), None) is not None

    def cut_off(self, hold: Hold, op: Release) -> None:
        """A release was interrupted: unless others share the holder, send it all the same."""
        if hold.over and self.nested.get((op.key, op.holder), -1) < 0:
            self.undo(op)

    def last_out(self, hold: Hold) -> bool:
        """Whether nobody shares its holder any more, so that the lease is to be released."""
        return (hold.key, hold.holder) not in self.nested or self._last_one_out(
            hold.key, hold.holder, closing=True
        )

    def settled(self, op: Leave | Release) -> None:
        """What gave a lease back has arrived, or never will: its holder may be used again."""
        if self.nested:
            with self.lock:
                if self.nested.get((op.key, op.holder), 0) < 0:
                    del self.nested[op.key, op.holder]

    def undo(self, op: Leave | Release) -> None:
        """Let the keeper send that, after everything already sent for its holder."""
        self.waker.settled(op.holder, lambda: self.keeper.send(op))

    def _last_one_out(self, key: str, holder: str, *, closing: bool) -> bool:
        with self.lock:
            count = self.nested.get((key, holder), 0) - 1
            if count > 0:
                self.nested[key, holder] = count
                return False
            if closing:
                # While it is being released, a newcomer under this holder would be let in on the
                # strength of a lease that is about to go.
                self.nested[key, holder] = -1
            else:
                self.nested.pop((key, holder), None)
            return True

    # Waiting: notices, and the checks that make up for lost ones.

    def watch(self, key: str, remaining: int) -> None:
        """A waiter of that key was queued; what is in its way lapses in ``remaining`` ms."""
        self._listen()
        delay = min(remaining + 1, CHECK_MS) / 1000 if remaining else 0.0
        # While no notice can arrive, only checks tell of a release: they begin at once.
        self.keeper.check_in(key, delay if self.listening else min(delay, POLL_FIRST))

    def deliver(self, notice: Notice) -> None:
        """A notice has come, in whatever thread; a hint, so that one too many does no harm."""
        key, holder, after = notice.key, notice.holder, notice.after
        if (key, holder) not in self.seats and key.startswith("#"):
            key = self._key_behind(key)
        if after or not holder:
            self.keeper.check_in(key, (after + 1) / 1000 if after else 0.0)
        else:
            self._wake(key, holder)

    def _wake(self, key: str, holder: str) -> None:
        for found in self.seats.get((key, holder), ()):
            if (seat := found()) is not None:
                seat.wake()

    def waiting_for(self) -> dict[str, list[ClientSeat]]:
        """The seats by key."""
        by_key: dict[str, list[ClientSeat]] = {}
        for seat in self.seated():
            by_key.setdefault(seat.key, []).append(seat)
        return by_key

    def seated(self) -> list[ClientSeat]:
        """Everybody who waits."""
        everybody: list[ClientSeat] = []
        for place, found in list(self.seats.items()):
            seats = [seat for each in found if (seat := each()) is not None]
            everybody += seats
            if not seats and self.seats.get(place) is found:
                # An interrupt cut off a waiter before it could leave.
                self.seats.pop(place, None)
        return everybody

    def stop_listening(self, *, if_unused: bool = False) -> None:
        """Give the listening connection back, unless somebody waits (again) by now."""
        with self.lock:
            # A waiter is seated before it looks for a connection, under this same lock: either it
            # is seen here, or it finds none and opens one.
            if if_unused and self.seats:
                return
            subscription, self._subscription = self._subscription, None
            if subscription is not None:
                # Closed before another can be made: in the store both go by the client's name.
                subscription.close()

    def _listen(self) -> None:
        # Always under the lock: see stop_listening.
        with self.lock:
            if self._subscription is None:
                self._subscription = self.store.subscribe(
                    self.client, self.deliver, self.keeper.check_all
                )

    def _key_behind(self, mark: str) -> str:
        return next((key for key in self.waiting_for() if digest(key) == mark), mark)

    # Losing, closing, forking.

    def lose(self, hold: Hold, reason: str) -> None:
        """A lease is lost: tell whoever wants to know, and give it back as far as possible."""
        hold.lose(reason)
        if self.retire(hold):
            self._release_behind(hold)
            self.tell_loss(hold)

    def tell_loss(self, hold: Hold) -> None:
        """Log a loss and call those who asked to be told."""
        logger("lease").warning("%s", hold.loss())
        hold.tell()
        self._tell_lost(hold)

    def _tell_lost(self, hold: Hold) -> None:
        if self.events is not None:
            held = self.clock.monotonic() - hold.since
            self.events.tell(
                "lost", hold.name, hold.holder, hold.token, held=held, reason=hold.lost
            )

    def look_who_listens(self) -> None:
        """Tell the log, if that wants every event; looked at now and then, since it costs."""
        import sys

        if "logging" in sys.modules:
            from logging import DEBUG

            logged = logger("events").isEnabledFor(DEBUG)
            if logged or self.events is not None:
                self.tell_events().logged = logged

    def tell_events(self) -> Events:
        """What happens is told from now on."""
        with self.lock:
            if self.events is None:
                with importing():
                    from joblock.client.events import Events

                self.events = Events(self.clock)
            return self.events

    def collected(self, hold: Hold) -> None:
        """Release what nobody can release any more."""
        if self.retire(hold):
            self._release_behind(hold)

    def _dropped(self, mine: int, request: Request, holder: str, token: int, found: Any) -> None:
        """Nothing refers to a hold any more that was never released.

        An interrupt can fall anywhere between the grant and the block that would have released it,
        and a handle can be forgotten.
        """
        import warnings

        if self.holds.get(mine) is not found:
            return  # it was ended, while somebody went through the list and had this reference
        del self.holds[mine]
        place = request.key, holder
        if place not in self.nested or self._last_one_out(*place, closing=True):
            self.keeper.send_from_anywhere(Release(*place, token))
        warnings.warn(
            f"a lease on {request.name!r} was never released; it is released now that nothing "
            "refers to it: use a with block, or call release()",
            ResourceWarning,
            stacklevel=2,
        )

    def _release_behind(self, hold: Hold) -> None:
        if self.last_out(hold):
            self.keeper.send(Release(hold.key, hold.holder, hold.token))

    def close(self, patience: float = 5.0) -> None:
        """Tell those who wait, who get a second to leave their queues; then `shut`."""
        self._dismissed = dismissed = threading.Event()
        for seat in self.seated():
            seat.dismiss()
        if self.seats:
            dismissed.wait(1.0)
        self.shut(patience)
        self._dismissed = None

    def shut(self, patience: float) -> None:
        """Give everything back, each on its own, within ``patience`` seconds; close the store."""
        end = self.clock.monotonic() + patience
        self.keeper.stop(patience / 2)
        for hold in self.kept():
            hold.lose("closed")
            if self.retire(hold) and self.last_out(hold) and self.clock.monotonic() < end:
                self._send_quietly(Release(hold.key, hold.holder, hold.token))
            hold.tell()
            self._tell_lost(hold)
        for key, holder in list(self.seats):
            if holder and self.clock.monotonic() < end:
                self._send_quietly(Leave(key, holder))
        self.stop_listening()
        self._close_store()
        if self.events is not None:
            self.events.flush(max(0.0, end - self.clock.monotonic()))

    def forked(self) -> None:
        """In a forked child: nothing of the parent's is held, renewed, released or closed here."""
        _inherited.append((self._store, self.call, self._subscription, self.waker.forked()))
        for hold in self.kept():
            hold.lose("forked")
            hold.over = True
        if self.events is not None:
            self.events.after_fork()
        store = self._store
        self._begin()
        if store is not None:
            store.after_fork()
            self._store = store

    def _send_quietly(self, op: Leave | Release) -> None:
        try:
            self.call(op)
        except Exception as error:  # noqa: BLE001 - one that fails must not keep the others held
            logger("lease").warning("could not give back %r at close: %s", op.key, error)
        self.settled(op)


_inherited: list[Any] = []


def _after_fork() -> None:
    for hub in tuple(_every):
        hub.forked()


def _at_exit() -> None:
    for hub in tuple(_every):
        # The threads that still wait end with the process, without a word.
        hub.shut(patience=5.0)


on_fork(_after_fork)
at_exit(_at_exit)
