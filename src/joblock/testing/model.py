"""A store held against the meaning of its operations, with operations drawn at random.

`joblock.store.machine` says in plain Python what each operation means, and the memory store is
that machine with a lock around it. So every operation is done twice, on the store under test and on
a memory store, and the two replies must tell the same. Hypothesis draws the operations and, when
they differ, finds a short history that shows it. A test module runs it like the contract suite::

    class TestMyStoreIsTheMachine(ModelContract):
        @pytest.fixture
        def harness(self, tmp_path): ...

Where the clock can be turned, times are compared exactly. Where it cannot, no time is passed and
leases are long, so that only what does not depend on the exact moment is compared.

What is each store's own affair is not compared: numbers of tokens, arrivals and epochs (their order
is), whether "somebody waits" is said once too often, and whom a lapse replaced if several.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, cast

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from joblock.store.contract import Driver
from joblock.store.ops import (
    CLAIM_MS,
    PRESENCE_MS,
    Acquire,
    AcquireReply,
    Busy,
    Check,
    Count,
    Done,
    Force,
    Granted,
    Holders,
    Joined,
    KeyState,
    Leave,
    Operation,
    Page,
    Purge,
    Queueing,
    Refresh,
    Release,
    Renewal,
    Strike,
    Waiters,
)
from joblock.stores.memory import MemoryStore
from joblock.testing.contract.bench import LONG, Bench, Contract
from joblock.values.records import JobLock

KEYS = st.sampled_from(["x", "y"])
HOLDERS = st.sampled_from(["A", "B", "C", "D", "E"])
SIZES = st.sampled_from([(1, 1), (1, 1), (1, 3), (2, 3), (3, 3), (1, 2)])
TOKENS = st.sampled_from(["any", "own", "own", "old"])
TICKS = st.sampled_from([None, None, None, 1, 2, 3])
JOINS = st.sampled_from(["no", "no", "no", "begin", "again"])
FLAGS = st.booleans()

# Multiples of 1/8 s, which floats express exactly.
SPANS = (250, 500, 1_000, 2_000, LONG)
MANUAL_SPANS = st.sampled_from([*SPANS, LONG])
LONG_SPANS = st.sampled_from([LONG, 2 * LONG])
STEPS = st.sampled_from([125, 250, 500, CLAIM_MS, 2_000, PRESENCE_MS - 125, PRESENCE_MS])


class ModelContract(Contract):
    """Random histories, fewer of them through the asyncio driver; the two numbers bound them."""

    examples = 50
    steps = 50

    def test_every_history_is_answered_as_by_the_machine(self, bench: Bench) -> None:
        bounds = settings(
            max_examples=self.examples // 3 if bench.through_loop else self.examples,
            stateful_step_count=self.steps,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        )
        kind = Timed if not bench.harness.slack else Timeless
        begin = cast("type[RuleBasedStateMachine]", lambda: kind(bench))
        run_state_machine_as_test(begin, settings=bounds)


class _Side:
    """One of the two stores, and the numbers that it gave out."""

    def __init__(self, driver: Driver) -> None:
        self.driver: Any = driver
        self.tokens: dict[tuple[str, str], list[int]] = {}
        self.arrivals: dict[tuple[str, str], int] = {}
        self.joined: dict[tuple[str, str], int] = {}
        self.epochs: dict[tuple[str, str], int] = {}

    def token(self, key: str, holder: str, which: str) -> int:
        tokens = self.tokens.get((key, holder), [])
        if which == "any" or not tokens:
            return 0
        return tokens[-1] if which == "own" else tokens[0]

    def join(self, key: str, holder: str, which: str) -> int | None:
        return None if which == "no" else self.joined.get((key, holder), 0)

    def keep(self, key: str, holder: str, reply: AcquireReply) -> None:
        place = (key, holder)
        if isinstance(reply, Busy) and reply.arrival:
            self.arrivals[place] = reply.arrival
            return
        self.forget(key, holder)
        if isinstance(reply, Granted):
            self.tokens.setdefault(place, []).append(reply.token)

    def forget(self, key: str, holder: str) -> None:
        self.arrivals.pop((key, holder), None)
        self.joined.pop((key, holder), None)

    def same_epoch(self, key: str, client: str, epoch: int) -> bool:
        """Whether the client's presence is the one it was last told."""
        before = self.epochs.get((key, client))
        self.epochs[key, client] = epoch
        return before == epoch


class _History(RuleBasedStateMachine):
    """The operations; a subclass says which durations there are."""

    def __init__(self, bench: Bench) -> None:
        super().__init__()
        self.bench = bench
        self.slack = bench.harness.slack
        self.mark = uuid.uuid4().hex
        self.store = _Side(bench.driver)
        clock = bench.harness.clock
        self.model = _Side(MemoryStore(clock=clock).driver())
        self.pairs: dict[str, dict[int, int]] = {"x": {}, "y": {}}
        self.queued: dict[str, set[str]] = {"x": set(), "y": set()}

    def name(self, key: str) -> str:
        return f"{self.mark}:{key}"

    def client(self, key: str, holder: str) -> str:
        # One client waits for one key: a store may keep presence for each pair of them.
        return f"{self.mark}.{key}.{'left' if holder in 'AB' else 'right'}"

    def both(self, make: Callable[[_Side], Operation]) -> tuple[Any, Any]:
        store, model = self.store, self.model
        return store.driver.call(make(store)), model.driver.call(make(model))

    # The rules that take no durations.

    @rule(key=KEYS, holder=HOLDERS)
    def leave(self, key: str, holder: str) -> None:
        got, expected = self.both(lambda _: Leave(self.name(key), holder))
        agree(got, expected)
        self.store.forget(key, holder)
        self.model.forget(key, holder)

    @rule(key=KEYS, holder=HOLDERS)
    def strike(self, key: str, holder: str) -> None:
        got, expected = self.both(lambda _: Strike(self.name(key), holder))
        agree(got, expected)

    @rule(key=KEYS, holder=HOLDERS)
    def check(self, key: str, holder: str) -> None:
        client = self.client(key, holder)
        got, expected = self.both(lambda _: Check(client, (self.name(key),)))
        self.same_state(key, client, got.states[0], expected.states[0])

    @rule(key=KEYS)
    def force(self, key: str) -> None:
        got, expected = self.both(lambda _: Force(self.name(key), "ops", "a test"))
        self.same_leases(key, got.broken, expected.broken)

    @rule()
    def purge_what_has_long_been_vacant(self) -> None:
        self.store.driver.call(Purge(idle=24 * 3_600_000))

    @rule(size=st.integers(1, 3))
    def page(self, size: int) -> None:
        got, expected = self.both(lambda _: Page(self.mark, self.name("w"), size))
        agree(
            [(lease.key, lease.holder) for lease in got],
            [(lease.key, lease.holder) for lease in expected],
        )
        got, expected = self.both(lambda _: Count(self.mark))
        agree(got, expected)

    # What must hold after each step.

    @invariant()
    def readers_see_the_same(self) -> None:
        for key in ("x", "y"):
            got, expected = self.both(lambda _, key=key: Holders(self.name(key)))
            self.same_leases(key, got, expected)
            granted = {lease.holder for lease in expected}
            self.queued[key] = {
                self.client(key, waiter.holder)
                for waiter in self.model.driver.call(Waiters(self.name(key)))
            }
            lines = [
                [
                    (waiter.holder, waiter.weight, waiter.limit)
                    for waiter in side
                    if waiter.live and waiter.holder not in granted
                ]
                for side in self.both(lambda _, key=key: Waiters(self.name(key)))
            ]
            agree(*lines)

    @invariant()
    def live_leases_fit_beside_one_another(self) -> None:
        for key in ("x", "y"):
            leases = self.store.driver.call(Holders(self.name(key)))
            live = [lease for lease in leases if lease.state != "expired"]
            assert len({lease.holder for lease in leases}) == len(leases)
            if any(lease.weight >= lease.limit for lease in live):
                assert len(live) == 1
            elif live:
                taken = sum(lease.weight for lease in live)
                assert taken <= max(lease.limit for lease in live)

    # What "the same" means.

    def same_reply(
        self,
        key: str,
        client: str,
        got: AcquireReply,
        expected: AcquireReply,
        *,
        joins: bool = False,
    ) -> None:
        agree(type(got), type(expected))
        if not (joins and self.is_next(key, got.token, expected.token)):
            self.same_token(key, got.token, expected.token)
        if isinstance(got, Granted) and isinstance(expected, Granted):
            agree(got.reentered, expected.reentered)
            agree(bool(got.replaced), bool(expected.replaced))
            self.says_who_waits(key, got.waiting)
            self.same_time(
                got.expires_at - got.acquired_at, expected.expires_at - expected.acquired_at
            )
        if isinstance(got, Busy) and isinstance(expected, Busy):
            agree((got.holder, got.why), (expected.holder, expected.why))
            agree(bool(got.arrival), bool(expected.arrival))
            self.same_time(got.remaining, expected.remaining)
            if expected.arrival:
                self.same_presence(key, client, got.epoch, expected.epoch)

    def same_state(self, key: str, client: str, got: KeyState, expected: KeyState) -> None:
        agree(sorted(got.claimed), sorted(expected.claimed))
        agree(got.grace, expected.grace)
        self.same_time(got.lapses_in, expected.lapses_in)
        self.same_presence(key, client, got.epoch, expected.epoch)
        if expected.ok_token:
            # The memory store forgets it once no joiner can ask for it.
            self.same_token(key, got.ok_token, expected.ok_token)

    def same_leases(
        self, key: str, got: tuple[JobLock, ...], expected: tuple[JobLock, ...]
    ) -> None:
        agree([_plain(lease) for lease in got], [_plain(lease) for lease in expected])
        for one, other in zip(got, expected, strict=True):
            self.same_token(key, one.token, other.token)
            self.same_time(_lasts(one), _lasts(other))

    def same_token(self, key: str, got: int, expected: int) -> None:
        """Tokens differ from store to store, but which is which and which is greater does not."""
        agree(got > 0, expected > 0)
        pairs = self.pairs[key]
        if expected and expected not in pairs:
            pairs[expected] = got
            in_order = [pairs[token] for token in sorted(pairs)]
            agree(in_order, sorted(set(in_order)))
        elif expected:
            agree(got, pairs[expected])

    def is_next(self, key: str, got: int, expected: int) -> bool:
        """What a joiner in a grace is told: the token after that run's, drawn or not."""
        before = self.pairs[key].get(expected - 1)
        return before is not None and got == before + 1

    def same_presence(self, key: str, client: str, got: int, expected: int) -> None:
        kept = self.model.same_epoch(key, client, expected)
        # A store may forget a client that has no waiter there, and so begin a new one more often;
        # or take what such a client asks for as its report, which the machine need not do.
        kept = kept or client not in self.queued[key]
        assert not self.store.same_epoch(key, client, got) or kept, f"epoch {got} should be new"

    def says_who_waits(self, key: str, waiting: bool) -> None:
        """Whoever is live in the queue must be known to those who will release."""
        queue = self.model.driver.call(Waiters(self.name(key)))
        assert waiting or not any(waiter.live for waiter in queue), f"{queue} wait"

    def same_time(self, got: int, expected: int) -> None:
        assert abs(got - expected) <= self.slack, f"{got} ms instead of {expected}"

    # The rules that take durations, for the subclasses to hand some.

    def do_acquire(
        self,
        key: str,
        holder: str,
        size: tuple[int, int],
        ttl: int,
        at_least: int,
        extend: bool,
        tick: int | None,
    ) -> None:
        weight, limit = size
        op = Acquire(self.name(key), holder, ttl, weight, limit, at_least, extend, occurrence=tick)
        got, expected = self.both(lambda _: op)
        self.same_reply(key, "", got, expected)
        if isinstance(expected, Granted):
            self.store.keep(key, holder, got)
            self.model.keep(key, holder, expected)

    def do_ask(
        self,
        key: str,
        holder: str,
        size: tuple[int, int],
        ttl: int,
        at_least: int,
        skip_grace: bool,
        join: str,
        tick: int | None,
    ) -> None:
        client = self.client(key, holder)

        def ask(side: _Side) -> Acquire:
            if join == "begin":
                side.joined.pop((key, holder), None)
            queue = Queueing(
                client,
                side.arrivals.get((key, holder), 0),
                skip_grace=skip_grace,
                join=side.join(key, holder, join),
            )
            return Acquire(
                self.name(key),
                holder,
                ttl,
                *size,
                at_least,
                extend_only=True,
                queue=queue,
                occurrence=tick,
            )

        names_none = join != "no" and (join == "begin" or (key, holder) not in self.model.joined)
        got, expected = self.both(ask)
        joins = names_none and isinstance(expected, Busy) and bool(expected.arrival)
        self.same_reply(key, client, got, expected, joins=joins)
        for side, reply in ((self.store, got), (self.model, expected)):
            side.keep(key, holder, reply)
            if join != "no" and isinstance(reply, Busy) and reply.arrival:
                side.joined.setdefault((key, holder), reply.token)
        assert not (join == "begin" and isinstance(expected, Joined))

    def do_refresh(self, key: str, holder: str, ttl: int, which: str, extend: bool) -> None:
        got, expected = self.both(
            lambda side: Refresh(
                (Renewal(self.name(key), holder, side.token(key, holder, which), ttl),), extend
            )
        )
        agree(got.renewed, expected.renewed)
        for waiting in got.waiting:
            self.says_who_waits(key, waiting)

    def do_release(
        self, key: str, holder: str, grace: int, which: str, ok: bool, done: Done | None
    ) -> None:
        got, expected = self.both(
            lambda side: Release(
                self.name(key), holder, side.token(key, holder, which), grace, ok, done=done
            )
        )
        agree(got, expected)


class Timed(_History):
    """On a clock turned by hand."""

    @rule(
        key=KEYS,
        holder=HOLDERS,
        size=SIZES,
        ttl=MANUAL_SPANS,
        closed=FLAGS,
        extend=FLAGS,
        tick=TICKS,
    )
    def acquire(
        self,
        key: str,
        holder: str,
        size: tuple[int, int],
        ttl: int,
        closed: bool,
        extend: bool,
        tick: int | None,
    ) -> None:
        self.do_acquire(key, holder, size, ttl, 1_000 if closed else 0, extend, tick)

    @rule(
        key=KEYS,
        holder=HOLDERS,
        size=SIZES,
        ttl=MANUAL_SPANS,
        closed=FLAGS,
        skip=FLAGS,
        join=JOINS,
        tick=TICKS,
    )
    def ask(
        self,
        key: str,
        holder: str,
        size: tuple[int, int],
        ttl: int,
        closed: bool,
        skip: bool,
        join: str,
        tick: int | None,
    ) -> None:
        self.do_ask(key, holder, size, ttl, 1_000 if closed else 0, skip, join, tick)

    @rule(key=KEYS, holder=HOLDERS, ttl=MANUAL_SPANS, which=TOKENS, extend=FLAGS)
    def refresh(self, key: str, holder: str, ttl: int, which: str, extend: bool) -> None:
        self.do_refresh(key, holder, ttl, which, extend)

    @rule(
        key=KEYS,
        holder=HOLDERS,
        grace=st.sampled_from([0, 0, 500, 2_000]),
        which=TOKENS,
        ok=FLAGS,
        tick=TICKS,
        kept=MANUAL_SPANS,
    )
    def release(
        self, key: str, holder: str, grace: int, which: str, ok: bool, tick: int | None, kept: int
    ) -> None:
        done = None if tick is None else Done(tick, kept)
        self.do_release(key, holder, grace, which, ok, done)

    @rule(ms=STEPS)
    def elapse(self, ms: int) -> None:
        self.bench.elapse(ms)


class Timeless(_History):
    """Where time passes by itself: everything lasts longer than the history takes."""

    @rule(
        key=KEYS,
        holder=HOLDERS,
        size=SIZES,
        ttl=LONG_SPANS,
        closed=FLAGS,
        extend=FLAGS,
        tick=TICKS,
    )
    def acquire(
        self,
        key: str,
        holder: str,
        size: tuple[int, int],
        ttl: int,
        closed: bool,
        extend: bool,
        tick: int | None,
    ) -> None:
        self.do_acquire(key, holder, size, ttl, LONG if closed else 0, extend, tick)

    @rule(
        key=KEYS,
        holder=HOLDERS,
        size=SIZES,
        ttl=LONG_SPANS,
        closed=FLAGS,
        skip=FLAGS,
        join=JOINS,
        tick=TICKS,
    )
    def ask(
        self,
        key: str,
        holder: str,
        size: tuple[int, int],
        ttl: int,
        closed: bool,
        skip: bool,
        join: str,
        tick: int | None,
    ) -> None:
        self.do_ask(key, holder, size, ttl, LONG if closed else 0, skip, join, tick)

    @rule(key=KEYS, holder=HOLDERS, ttl=LONG_SPANS, which=TOKENS, extend=FLAGS)
    def refresh(self, key: str, holder: str, ttl: int, which: str, extend: bool) -> None:
        self.do_refresh(key, holder, ttl, which, extend)

    @rule(key=KEYS, holder=HOLDERS, closed=FLAGS, which=TOKENS, ok=FLAGS, tick=TICKS)
    def release(
        self, key: str, holder: str, closed: bool, which: str, ok: bool, tick: int | None
    ) -> None:
        done = None if tick is None else Done(tick, 2 * LONG)
        self.do_release(key, holder, LONG if closed else 0, which, ok, done)


def agree(got: object, expected: object) -> None:
    """They are the same; what the store says comes first."""
    assert got == expected, f"{got!r} instead of {expected!r}"


def _plain(lease: JobLock) -> tuple[str, int, int, str]:
    return lease.holder, lease.weight, lease.limit, lease.state


def _lasts(lease: JobLock) -> int:
    return round((lease.expires_at - lease.acquired_at).total_seconds() * 1000)
