"""The keeper: one background thread per client that renews, checks, undoes, and tells of losses.

It sleeps until the next moment something is due. Its requests are made by a second thread (the
hand), started with the first of them, so that a store that does not answer never keeps the keeper
from telling a holder in time that its lease is lost. Nothing that fails in one round ends it, and
with nothing left to do for a minute both threads end, to be started again at need.

The event loop of an async client does not take part: a computation that blocks the loop does not
cost the lease of the work that blocks it.
"""

from __future__ import annotations

import threading
from _thread import start_new_thread
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING

from joblock.client.exit import expect_exit
from joblock.protocol.hold import NEVER, Hold
from joblock.protocol.renew import (
    FIRST_PAUSE,
    batch,
    batches,
    confirm,
    due_holds,
    ended_holds,
    next_moment,
    postpone,
    set_aside,
)
from joblock.store.ops import CHECK_MS, Check, Checked, KeyState, Leave, Purge, Release
from joblock.values.errors import StoreError, StoreUnavailable
from joblock.values.log import logger

if TYPE_CHECKING:
    from joblock.client.hub import Hub
    from joblock.client.seat import ClientSeat

IDLE = 60.0
"""Seconds without anything to do after which the threads and the listening connection end."""

LATE = 1.0
"""Seconds by which a round may come late before that is worth a warning."""

LOOK = 1.0
"""Seconds after which it looks for leases to lose while a request is under way."""

UNDO_FOR = 60.0
"""Seconds for which a failed release is tried again; the lease has lapsed long before."""

PURGE_EVERY = 600.0
PURGE_BATCHES = 20
"""How many full batches are deleted one after the other, while others' requests wait."""

HANGS = 0.1
"""Seconds after which nothing else waits for what may wait for a transaction of the caller's."""

MOST_HANGING = 4
"""Threads that wait like that at most."""

SHARED = CHECK_MS / 2000
"""Seconds after which waiters under a given holder ask again, at the next check."""

POLL_FIRST, POLL_LONGEST = 0.005, 0.25
"""Pauses between checks while no notice can arrive."""


class _Errand:
    """Something to send behind the caller's back, until it was taken or is moot."""

    __slots__ = ("at", "gives_up", "op", "pause")

    def __init__(self, op: Leave | Release, now: float) -> None:
        self.op = op
        self.at = now
        self.gives_up = now + UNDO_FOR
        self.pause = FIRST_PAUSE


class Keeper:
    """See the module."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._lock = threading.Lock()
        self._event = threading.Event()
        self._thread: threading.Thread | None = None
        self._hand: _Hand | None = None
        self._hanging: list[threading.Event] = []
        self._moment = NEVER
        self._stopping = False
        self._errands: deque[_Errand] = deque()
        self._checks: dict[str, float] = {}
        self._polls: dict[str, float] = {}
        self._ask_again: dict[str, float] = {}
        self._pause = FIRST_PAUSE
        self._quiet_at = 0.0
        self._purge_at = 0.0
        self._warned_late = -NEVER

    def expect(self, moment: float) -> None:
        """Something is due then; cheap when the keeper is up before that anyway."""
        if moment < self._moment:
            with self._lock:
                # In this order: lowered first, and interrupted before it wakes, the keeper would
                # sleep through whatever is due later.
                self._wake()
                self._moment = min(self._moment, moment)

    def send(self, op: Leave | Release) -> None:
        """Send ``op`` soon, again and again if the store fails."""
        now = self._hub.clock.monotonic()
        self._errands.append(_Errand(op, now))
        self.expect(now)

    def send_from_anywhere(self, op: Leave | Release) -> None:
        """The same from where any lock may be taken already, by this very thread."""
        now = self._hub.clock.monotonic()
        self._errands.append(_Errand(op, now))
        with suppress(RuntimeError):  # at exit, when all that is held is released anyway
            start_new_thread(self.expect, (now,))

    def check_in(self, key: str, delay: float) -> None:
        """Ask how that key stands, ``delay`` seconds from now at the latest."""
        at = self._hub.clock.monotonic() + delay
        with self._lock:
            self._checks[key] = min(at, self._checks.get(key, NEVER))
        self.expect(at)

    def check_all(self) -> None:
        """Ask how all keys stand that somebody waits for: notices may have been missed."""
        for key in self._hub.waiting_for():
            self.check_in(key, 0.0)

    def stop(self, patience: float) -> None:
        """Do the errands that are due, then end the threads."""
        with self._lock:
            thread, self._stopping = self._thread, True
            self._event.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(patience)
        if self._thread is None:
            while self._errands:
                self._run_errand(self._errands.popleft())
        with self._lock:
            self._stopping = False

    def _wake(self) -> None:
        if self._thread is None:
            expect_exit()
            self._event.clear()
            thread = threading.Thread(target=self._run, name="joblock-keeper", daemon=True)
            thread.start()
            self._thread = thread
        else:
            self._event.set()

    def _run(self) -> None:
        with self._lock:
            me = threading.current_thread()
            if self._thread is None:
                self._thread = me  # an interrupt fell between its start and its being noted
            elif self._thread is not me:
                return
        clock = self._hub.clock
        idle_until = clock.monotonic() + IDLE
        while True:
            self._event.clear()
            try:
                busy = self._round()
            except Exception:  # noqa: BLE001 - nothing that fails may end it
                logger("keeper").exception("a round of the keeper failed; it goes on")
                busy, self._moment = True, clock.monotonic() + FIRST_PAUSE
            now = clock.monotonic()
            if busy:
                idle_until = now + IDLE
            if self._end_if_over(now >= idle_until):
                return
            clock.idle(self._event, min(self._moment, idle_until))
            self._tell_if_late(clock.monotonic())

    def _end_if_over(self, idle: bool) -> bool:
        with self._lock:
            if self._stopping:
                # One that came in since this round looked at them is to be done all the same.
                if self._errands:
                    return False
            elif not idle:
                return False
            else:
                # From here on, whoever expects something wakes it; what was entered before that
                # is seen by this look.
                self._moment = NEVER
                self._moment = self._next_moment()
                if self._moment != NEVER:
                    return False
            self._thread = None
            self._moment = NEVER
            hand, self._hand = self._hand, None
        if hand is not None:
            hand.end()
        if not self._stopping:
            self._hub.stop_listening(if_unused=True)
        return True

    def _round(self) -> bool:
        """Do what is due; whether there is anything to look after."""
        # From here on, whoever expects something sooner lowers the moment again, and whatever was
        # entered before is seen by the look below: nothing is missed between the two. A moment
        # that has not come stays, though what it was for may be gone: whoever takes and releases
        # one lease after the other would wake the keeper for each.
        if self._moment <= self._hub.clock.monotonic():
            self._moment = NEVER
        hub = self._hub
        hub.look_who_listens()
        self._lose_ended()
        self._run_errands()
        self._renew()
        self._check()
        self._purge()
        self._stop_listening_if_quiet()
        with self._lock:
            self._moment = min(self._moment, self._next_moment())
        return bool(hub.holds or hub.seats or self._errands)

    def _next_moment(self) -> float:
        moments = [errand.at for errand in self._errands]
        if self._hub.subscribed:
            moments.append(self._quiet_at)
        return min([next_moment(self._hub.kept()), *moments, *self._checks.values()])

    def _request(self, call: Callable[[], None], *, may_hang: bool = False) -> None:
        """Have the hand do it, and tell of losses meanwhile.

        What ``may_hang``, for as long as the caller keeps a transaction open, keeps its thread:
        there is another one for all else.
        """
        if self._hand is None:
            self._hand = _Hand()
        done = self._hand.do(call)
        clock = self._hub.clock
        self._hanging = [one for one in self._hanging if not one.is_set()]
        may_hang = may_hang and len(self._hanging) < MOST_HANGING
        while not done.is_set():
            # Leases are still being taken, maybe shorter ones: look for them now and then.
            again = clock.monotonic() + (HANGS if may_hang else LOOK)
            clock.wait(done, min([again, *(hold.deadline for hold in self._hub.kept())]))
            if not done.is_set():
                self._lose_ended()
                if may_hang and clock.monotonic() >= again:
                    self._hanging.append(done)
                    self._hand.end()
                    self._hand = None
                    return

    def _lose_ended(self) -> None:
        now = self._hub.clock.monotonic()
        for hold in ended_holds(self._hub.kept(), now):
            # Reading it settles the reason.
            if not hold.held:
                self._hub.lose(hold, hold.lost)

    # Errands.

    def _run_errands(self) -> None:
        now = self._hub.clock.monotonic()
        for _ in range(len(self._errands)):
            errand = self._errands.popleft()
            if errand.at > now and not self._stopping:
                self._errands.append(errand)
                continue
            self._request(lambda errand=errand: self._run_errand(errand), may_hang=True)

    def _run_errand(self, errand: _Errand) -> None:
        try:
            self._hub.call_behind(errand.op)
        except Exception as error:  # noqa: BLE001 - whatever it is, the lease is still there
            now = self._hub.clock.monotonic()
            if now < errand.gives_up and not self._stopping:
                errand.at = now + errand.pause
                errand.pause = min(errand.pause * 2, 2.0)
                self._errands.append(errand)
                self.expect(errand.at)
                return
            # Who asked for a lease and was told that the store is away knows as much as this says.
            told = isinstance(errand.op, Leave) and isinstance(error, StoreUnavailable)
            log = logger("lease")
            report = log.info if told else log.warning
            report("could not give back %r: %s", errand.op.key, error)
        self._hub.settled(errand.op)

    # Renewals.

    def _renew(self) -> None:
        hub = self._hub
        now = hub.clock.monotonic()
        for holds in batches(due_holds(hub.kept(), now)):
            guarded = holds[0].guarded
            if guarded:
                set_aside(holds)
            self._request(lambda holds=holds: self._renew_batch(holds), may_hang=guarded)
        for hold in [hold for hold in hub.kept() if hold.held_long(now)]:
            logger("lease").warning(
                "%r has been held by %r for %.0f s and nothing bounds it: pass max_duration= if "
                "that is a hang",
                hold.key,
                hold.holder,
                now - hold.since,
            )
            if hub.events is not None:
                held = now - hold.since
                hub.events.tell("held_long", hold.name, hold.holder, hold.token, held=held)

    def _renew_batch(self, holds: list[Hold]) -> None:
        hub = self._hub
        sent = hub.clock.monotonic()
        try:
            reply = hub.call_behind(batch(holds, sent))
        except Exception as error:  # noqa: BLE001 - an error is not a loss
            now = hub.clock.monotonic()
            self._pause = postpone(holds, now, self._pause)
            report = (
                logger("lease").warning
                if isinstance(error, StoreError)
                else (logger("lease").exception)
            )
            report("could not renew %d lease(s), will try again: %s", len(holds), error)
            if hub.events is not None:
                for hold in holds:
                    hub.events.tell(
                        "store_error", hold.name, hold.holder, hold.token, reason=str(error)
                    )
            self.expect(next_moment(holds))
            return
        self._pause = FIRST_PAUSE
        for hold in confirm(holds, reply, sent):
            # One that was released meanwhile is refused rightly.
            if not hold.over:
                hub.lose(hold, "refused")
        self.expect(next_moment(holds))

    # Checks.

    def _check(self) -> None:
        hub = self._hub
        now = hub.clock.monotonic()
        with self._lock:
            # Looked up under the lock: a check asked for by a waiter that sat down since would be
            # dropped as nobody's. And those due are postponed at once, so that a check asked for
            # while this one is on its way is not lost.
            by_key = hub.waiting_for()
            checks = {key: at for key, at in self._checks.items() if key in by_key}
            due = tuple(sorted(key for key, at in checks.items() if at <= now))
            self._checks = {**checks, **dict.fromkeys(due, now + CHECK_MS / 1000)}
        self._polls = {key: poll for key, poll in self._polls.items() if key in by_key}
        self._ask_again = {key: at for key, at in self._ask_again.items() if key in by_key}
        if due:
            self._request(lambda: self._check_keys(due, by_key))

    def _check_keys(self, keys: tuple[str, ...], by_key: dict[str, list[ClientSeat]]) -> None:
        hub = self._hub
        try:
            reply: Checked = hub.call_behind(Check(hub.client, keys, hub.listening))
        except Exception as error:  # noqa: BLE001 - those who wait ask by themselves
            logger("wait").warning("could not check on %d key(s): %s", len(keys), error)
            for key in keys:
                self.check_in(key, 1.0)
            return
        for key, state in zip(keys, reply.states, strict=True):
            self._tell_seats(state, by_key[key])
            self._tell_shared(key, by_key[key])
            if not hub.listening:
                self.check_in(key, self._next_poll(key))
            elif state.lapses_in:
                self.check_in(key, min(CHECK_MS, state.lapses_in + 1) / 1000)

    def _tell_seats(self, state: KeyState, seats: list[ClientSeat]) -> None:
        for seat in seats:
            if seat.join and state.ok_token >= seat.join:
                seat.joined = state.ok_token
                seat.wake()
            elif (
                (state.grace and seat.skip_grace)
                or seat.holder in state.claimed
                or (seat.epoch and seat.epoch != state.epoch)
            ):
                seat.wake()

    def _tell_shared(self, key: str, seats: list[ClientSeat]) -> None:
        """Let those who wait under a given holder ask again now and then.

        Other clients may wait under it, too. To the store they are one waiter, of the client that
        asked last, and no check tells the others what has become of it.
        """
        now = self._hub.clock.monotonic()
        shared = [seat for seat in seats if seat.shared and seat.holder]
        if shared and now >= self._ask_again.setdefault(key, now + SHARED):
            self._ask_again[key] = now + SHARED
            for seat in shared:
                seat.wake()

    def _next_poll(self, key: str) -> float:
        poll = self._polls.get(key, POLL_FIRST)
        self._polls[key] = min(POLL_LONGEST, poll * 1.5)
        return poll

    # Housekeeping.

    def _stop_listening_if_quiet(self) -> None:
        """The listening connection is closed when nobody has waited for a while."""
        now = self._hub.clock.monotonic()
        if self._hub.seats:
            self._quiet_at = now + IDLE
        elif now >= self._quiet_at:
            self._hub.stop_listening(if_unused=True)

    def _purge(self) -> None:
        now = self._hub.clock.monotonic()
        if not self._purge_at:
            self._purge_at = now + IDLE
        elif now >= self._purge_at:
            self._purge_at = now + PURGE_EVERY
            self._request(self._purge_batch)

    def _purge_batch(self) -> None:
        try:
            for _ in range(PURGE_BATCHES):
                if self._hub.call_behind(Purge()) < Purge().batch:
                    return
        except Exception as error:  # noqa: BLE001 - the next one will do
            logger("store").info("could not purge vacated keys: %s", error)

    def _tell_if_late(self, now: float) -> None:
        late = now - self._moment
        if late > LATE and self._hub.holds and now - self._warned_late > IDLE:
            self._warned_late = now
            logger("keeper").warning(
                "the keeper was up %.1f s late: something in this process (a call that holds the "
                "GIL, a throttled container, a stopped process) keeps threads from running, and "
                "leases may be lost that way",
                late,
            )


class _Hand:
    """A thread that does one thing after the other."""

    def __init__(self) -> None:
        self._work: SimpleQueue[tuple[Callable[[], None], threading.Event] | None] = SimpleQueue()
        threading.Thread(target=self._run, name="joblock-keeper-io", daemon=True).start()

    def do(self, call: Callable[[], None]) -> threading.Event:
        """Do ``call``, which handles its own errors; the event is set when it is done."""
        done = threading.Event()
        self._work.put((call, done))
        return done

    def end(self) -> None:
        """End after what is under way."""
        self._work.put(None)

    def _run(self) -> None:
        # What was done is not kept in a variable: an idle hand would keep the holds in it alive.
        while self._do(self._work.get()):
            pass

    def _do(self, work: tuple[Callable[[], None], threading.Event] | None) -> bool:
        if work is None:
            return False
        call, done = work
        try:
            call()
        except Exception:  # noqa: BLE001 - nothing that fails may end it
            logger("keeper").exception("a request of the keeper failed; it goes on")
        finally:
            done.set()
        return True
