"""Lock objects: the shape of threading.Lock and asyncio.Lock, for many threads or tasks at once."""

from __future__ import annotations

from typing import Any

import pytest

from joblock.testing.clients.stage import PATIENCE, Actor, Client, ClientScenarios, Stage
from joblock.values.errors import LockLost, LockNotAcquired, StoreUnavailable


class Locking(ClientScenarios):
    """See the module."""

    def test_a_lock_is_taken_and_given_back(self, stage: Stage, a: Actor, locks: Client) -> None:
        lock = locks.lock(stage.key, stage.ttl)
        assert a.do(lock.acquire) is True
        assert len(stage.holders()) == 1
        assert a.do(lock.release) is None
        assert stage.holders() == []

    def test_a_block_holds_the_key_and_gives_it_back(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        with a.inside(locks.lock(stage.key, stage.ttl)) as lease:
            assert stage.holders() == [lease.holder]
        assert stage.holders() == []

    def test_a_block_left_by_an_exception_gives_the_key_back_and_lets_it_through(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        error = KeyError("of the body")
        lock = locks.lock(stage.key, stage.ttl)
        a.enter(lock)
        with pytest.raises(KeyError) as caught:
            a.leave(lock, error)
        assert caught.value is error
        assert not hasattr(error, "__notes__")
        assert stage.holders() == []

    def test_a_lock_is_kept_for_longer_than_its_ttl(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        with a.inside(locks.lock(stage.key, stage.ttl)) as lease:
            stage.elapse(3.5 * stage.ttl)
            assert lease.held
            assert stage.holders() == [lease.holder]

    def test_nothing_is_sent_before_a_lock_is_used(self, stage: Stage, locks: Client) -> None:
        locks.lock(stage.key, stage.ttl)
        assert stage.faults(locks).requests == []

    # Not getting it.

    @pytest.mark.parametrize("options", [{"blocking": False}, {"timeout": 0}, {"timeout": 0.0}])
    def test_a_try_on_a_held_key_is_false_at_once_and_leaves_nothing_queued(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, options: dict[str, Any]
    ) -> None:
        with a.inside(locks.lock(stage.key, stage.ttl)):
            assert b.do(locks.lock(stage.key, stage.ttl).acquire, **options) is False
            assert stage.queue() == ()

    @pytest.mark.parametrize(
        "options", [{}, {"timeout": -1}, {"timeout": None}, {"blocking": True}]
    )
    def test_a_wait_without_limit_lasts_until_the_key_is_free(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, options: dict[str, Any]
    ) -> None:
        lock = locks.lock(stage.key, stage.ttl)
        a.do(lock.acquire)
        waiting = b.start(lock.acquire, **options)
        stage.until_queued(1)
        stage.elapse(2 * stage.ttl)
        assert not waiting.done()
        a.do(lock.release)
        assert waiting.result(PATIENCE) is True
        b.do(lock.release)

    def test_a_wait_with_a_limit_is_false_when_that_is_over(
        self, stage: Stage, a: Actor, b: Actor, locks: Client
    ) -> None:
        with a.inside(locks.lock(stage.key, stage.ttl)):
            waiting = b.start(locks.lock(stage.key, stage.ttl).acquire, timeout=stage.ttl / 2)
            stage.until_queued(1)
            stage.elapse(stage.ttl / 2)
            assert waiting.result(PATIENCE) is False
            assert stage.queue() == ()

    def test_a_timeout_without_blocking_is_a_contradiction(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        lock = locks.lock(stage.key, stage.ttl)
        with pytest.raises(ValueError, match="timeout=5"):
            a.do(lock.acquire, blocking=False, timeout=5)

    def test_a_block_that_does_not_get_the_key_is_not_entered_and_says_who_has_it(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        with a.inside(locks.lock(stage.key, stage.ttl, renew=False)) as lease:
            with pytest.raises(LockNotAcquired) as caught:
                b.enter(others.lock(stage.key, stage.ttl, wait=False))
            refusal = caught.value
            assert (refusal.key, refusal.holder) == (stage.key, lease.holder)
            assert refusal.reason == "held"
            assert stage.about(refusal.remaining, stage.ttl)
            assert repr(lease.holder) in str(refusal)
            assert repr(stage.key) in str(refusal)

    def test_a_block_whose_wait_ends_says_who_has_it_and_for_how_long(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        with a.inside(locks.lock(stage.key, stage.ttl, renew=False)) as lease:
            entering = b.start_entering(others.lock(stage.key, wait=stage.ttl / 2))
            stage.until_queued(1)
            stage.elapse(stage.ttl / 2)
            with pytest.raises(LockNotAcquired) as caught:
                entering.result(PATIENCE)
            refusal = caught.value
            assert (refusal.key, refusal.holder) == (stage.key, lease.holder)
            assert refusal.reason == "timeout"
            assert stage.about(refusal.remaining, stage.ttl / 2)
        assert stage.queue() == ()

    # Whose hold it is.

    def test_releasing_what_one_does_not_hold_is_an_error(
        self, stage: Stage, a: Actor, b: Actor, locks: Client
    ) -> None:
        lock = locks.lock(stage.key, stage.ttl)
        a.do(lock.acquire)
        with pytest.raises(RuntimeError, match="hand over the lease"):
            b.do(lock.release)
        assert len(stage.holders()) == 1
        a.do(lock.release)
        with pytest.raises(RuntimeError, match="released already"):
            a.do(lock.release)

    def test_locked_is_true_for_anybody_and_owned_for_the_holder(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        lock, elsewhere = locks.lock(stage.key, stage.ttl), others.lock(stage.key, stage.ttl)
        assert a.do(lock.locked) is False
        a.do(lock.acquire)
        assert a.do(lock.locked) is True
        assert b.do(elsewhere.locked) is True
        assert a.do(lock.owned) is True
        assert b.do(lock.owned) is False
        assert b.do(elsewhere.owned) is False
        a.do(lock.release)
        assert b.do(elsewhere.locked) is False
        assert a.do(lock.owned) is False

    def test_locked_raises_if_the_store_cannot_be_asked(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        stage.faults(locks).go_down()
        with pytest.raises(StoreUnavailable):
            a.do(locks.lock(stage.key, stage.ttl).locked)

    def test_the_lease_of_a_lock_is_the_callers_own(
        self, stage: Stage, a: Actor, b: Actor, locks: Client
    ) -> None:
        lock = locks.lock(stage.key, stage.ttl)
        assert a.do(lambda: lock.lease) is None
        with a.inside(lock) as lease:
            assert a.do(lambda: lock.lease) is lease
            assert b.do(lambda: lock.lease) is None
        assert a.do(lambda: lock.lease) is None

    def test_one_lock_object_serves_many_callers_one_after_the_other(
        self, stage: Stage, locks: Client
    ) -> None:
        lock = locks.lock(stage.key, stage.ttl)
        actors = stage.actors(8)
        inside, most, order = [0], [0], list[int]()

        def body(number: int) -> None:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            order.append(number)
            inside[0] -= 1

        actors[0].do(lock.acquire)
        turns: list[Any] = []
        for number, actor in enumerate(actors[1:], 1):
            turns.append(actor.start(lock.acquire))
            stage.until_queued(number)
        body(0)
        actors[0].do(lock.release)
        for number, (actor, turn) in enumerate(zip(actors[1:], turns, strict=True), 1):
            assert turn.result(PATIENCE) is True
            body(number)
            actor.do(lock.release)
        assert order == list(range(8))
        assert most == [1]
        assert stage.holders() == []

    def test_each_hold_through_one_lock_object_is_its_own_holder(
        self, stage: Stage, a: Actor, b: Actor, locks: Client
    ) -> None:
        lock = locks.lock(stage.key, stage.ttl, limit=2)
        with a.inside(lock) as one, b.inside(lock) as two:
            assert one.holder != two.holder
            assert sorted(stage.holders()) == sorted([one.holder, two.holder])
            assert one.token != two.token

    def test_a_late_release_through_a_shared_lock_object_does_not_free_the_next_holder(
        self, stage: Stage, a: Actor, b: Actor, locks: Client
    ) -> None:
        lock = locks.lock(stage.key, stage.ttl, renew=False)
        lapsed = a.enter(lock)
        stage.lapse(lapsed)
        current = b.enter(lock)
        with pytest.raises(LockLost) as caught:
            a.do(lock.release)
        assert caught.value.token == lapsed.token
        assert stage.holders() == [current.holder]
        assert current.held
        b.leave(lock)

    # Waiting for oneself.

    def test_a_caller_that_would_wait_for_itself_is_told(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        lock = locks.lock(stage.key, stage.ttl)
        with a.inside(lock) as lease:
            for again in (lock, locks.lock(stage.key, stage.ttl)):
                with pytest.raises(RuntimeError, match="would wait for itself"):
                    a.enter(again)
                with pytest.raises(RuntimeError, match="would wait for itself"):
                    a.do(again.acquire, timeout=stage.ttl)
            assert lease.held
            assert stage.holders() == [lease.holder]
        stage.until_free()

    def test_a_caller_that_shares_a_key_and_wants_it_alone_would_wait_for_itself(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        with a.inside(locks.lock(stage.key, stage.ttl, shared=True)) as lease:
            with pytest.raises(RuntimeError, match="would wait for itself"):
                a.enter(locks.lock(stage.key, stage.ttl))
            assert stage.holders() == [lease.holder]
        stage.until_free()

    def test_a_caller_inside_a_run_that_would_wait_for_itself_is_told(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        lock = locks.lock(stage.key, stage.ttl)

        async def wait_in_task() -> None:
            await lock.acquire()

        work = wait_in_task if stage.asynchronous else lock.acquire
        with pytest.raises(RuntimeError, match="would wait for itself"):
            a.do(locks.run_with_lock, stage.key, stage.ttl, work)
        stage.until_free()

    def test_a_caller_that_only_tries_what_it_holds_is_refused_and_not_told_off(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        lock = locks.lock(stage.key, stage.ttl, wait=False)
        with a.inside(lock) as lease:
            assert a.do(lock.acquire, blocking=False) is False
            with pytest.raises(LockNotAcquired) as caught:
                a.enter(lock)
            assert caught.value.holder == lease.holder
            assert a.do(locks.run_with_lock, stage.key, stage.ttl, stage.work()) is False

    def test_another_caller_of_the_same_client_just_waits(
        self, stage: Stage, a: Actor, b: Actor, locks: Client
    ) -> None:
        lock = locks.lock(stage.key, stage.ttl)
        a.do(lock.acquire)
        waiting = b.start(lock.acquire)
        stage.until_queued(1)
        a.do(lock.release)
        assert waiting.result(PATIENCE) is True
        b.do(lock.release)

    def test_waiting_for_a_permit_beside_ones_own_is_not_waiting_for_oneself(
        self, stage: Stage, a: Actor, b: Actor, locks: Client
    ) -> None:
        lock = locks.lock(stage.key, stage.ttl, limit=2)
        with a.inside(lock):
            with b.inside(lock):
                waiting = a.start(lock.acquire, timeout=stage.ttl / 4)
                stage.until_queued(1)
                stage.elapse(stage.ttl / 4)
                assert waiting.result(PATIENCE) is False
            assert a.gets(lock)

    def test_waiting_for_what_an_explicit_handle_holds_is_not_waiting_for_oneself(
        self, stage: Stage, a: Actor, b: Actor, locks: Client
    ) -> None:
        lease = a.do(locks.acquire, stage.key, stage.ttl)
        lock = locks.lock(stage.key, stage.ttl)
        waiting = a.start(lock.acquire)
        stage.until_queued(1)
        assert b.do(lease.release) is True
        assert waiting.result(PATIENCE) is True
        a.do(lock.release)

    def test_a_caller_that_lost_its_hold_does_not_wait_for_itself(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        lock = locks.lock(stage.key, stage.ttl, renew=False, on_lost="warn")
        first = a.enter(lock)
        stage.lapse(first)
        with a.inside(lock) as second:
            assert second.token > first.token
        a.leave(lock)

    # Nesting.

    def test_a_reentrant_lock_nests_and_the_outermost_releases(
        self, stage: Stage, a: Actor, b: Actor, locks: Client
    ) -> None:
        lock = locks.lock(stage.key, stage.ttl, reentrant=True)
        with a.inside(lock) as outer:
            with a.inside(lock) as inner:
                assert inner is outer
                assert a.do(lock.acquire) is True
                assert a.do(lambda: lock.lease) is outer
                a.do(lock.release)
            assert stage.holders() == [outer.holder]
            assert not b.gets(lock)
        assert stage.holders() == []
        with pytest.raises(RuntimeError):
            a.do(lock.release)

    @pytest.mark.parametrize(
        ("outer", "inner"),
        [
            ({"shared": True}, {}),
            ({"limit": 4}, {"limit": 4, "weight": 2}),
            ({"limit": 4, "weight": 3}, {"limit": 3}),
        ],
    )
    def test_a_reentrant_lock_lets_nobody_in_for_more_than_they_hold(
        self,
        stage: Stage,
        a: Actor,
        locks: Client,
        outer: dict[str, Any],
        inner: dict[str, Any],
    ) -> None:
        with a.inside(locks.lock(stage.key, stage.ttl, **outer)):
            for wait in True, False:
                more = locks.lock(stage.key, stage.ttl, wait, reentrant=True, **inner)
                with pytest.raises(RuntimeError, match="less than"):
                    a.enter(more)
        with a.inside(locks.lock(stage.key, stage.ttl, **inner)) as lease:
            less = locks.lock(stage.key, stage.ttl, reentrant=True, **outer)
            if lease.hold.exclusive:
                with a.inside(less) as nested:
                    assert nested is lease
        stage.until_free()

    @pytest.mark.parametrize("more", [{}, {"limit": 4, "weight": 2}])
    def test_a_given_holder_is_let_in_again_for_no_more_than_it_holds(
        self, stage: Stage, a: Actor, locks: Client, more: dict[str, Any]
    ) -> None:
        lease = a.do(locks.acquire, stage.key, stage.ttl, holder="me", limit=4)
        with pytest.raises(RuntimeError, match="less than"):
            a.do(locks.acquire, stage.key, stage.ttl, holder="me", **more)
        a.do(lease.release)
        stage.until_free()

    def test_nesting_sends_nothing(self, stage: Stage, a: Actor, locks: Client) -> None:
        lock = locks.lock(stage.key, stage.ttl, reentrant=True)
        with a.inside(lock):
            before = len(stage.faults(locks).requests)
            with a.inside(lock):
                pass
            assert len(stage.faults(locks).requests) == before

    def test_a_reentrant_lock_nests_in_any_block_of_its_key_by_the_same_caller(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        inner = locks.lock(stage.key, stage.ttl, reentrant=True)
        with a.inside(locks.lock(stage.key, stage.ttl)) as lease:
            with a.inside(inner) as nested:
                assert nested is lease
                assert a.do(lambda: inner.lease) is lease
                assert a.do(inner.owned) is True
            assert lease.held
        assert stage.holders() == []

    def test_a_nested_level_left_after_its_outer_one_holds_nothing(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        outer = locks.lock(stage.key, stage.ttl)
        inner = locks.lock(stage.key, stage.ttl, reentrant=True)
        a.do(outer.acquire)
        a.do(inner.acquire)
        a.do(outer.release)
        assert stage.holders() == []
        assert a.do(lambda: inner.lease) is None
        assert a.do(inner.owned) is False
        a.do(inner.release)

    def test_a_reentrant_lock_does_not_nest_in_another_callers_hold(
        self, stage: Stage, a: Actor, b: Actor, locks: Client
    ) -> None:
        lock = locks.lock(stage.key, stage.ttl, reentrant=True)
        with a.inside(lock):
            assert not b.gets(lock)

    def test_a_reentrant_lock_does_not_nest_in_a_hold_that_was_lost(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        lock = locks.lock(stage.key, stage.ttl, reentrant=True, renew=False, on_lost="warn")
        lost = a.enter(lock)
        stage.lapse(lost)
        with a.inside(lock) as lease:
            assert lease.token > lost.token
            assert lease.held
        assert stage.holders() == []
        a.leave(lock)

    # Permits and shared locks.

    def test_as_many_get_in_as_there_are_permits(self, stage: Stage, locks: Client) -> None:
        lock = locks.lock(stage.key, stage.ttl, limit=3)
        actors = stage.actors(4)
        got = [actor.do(lock.acquire, timeout=0) for actor in actors]
        assert got == [True, True, True, False]
        actors[0].do(lock.release)
        assert actors[3].gets(lock)
        for actor in actors[1:3]:
            actor.do(lock.release)

    def test_a_heavy_permit_takes_its_weight(
        self, stage: Stage, a: Actor, b: Actor, locks: Client
    ) -> None:
        with a.inside(locks.lock(stage.key, stage.ttl, limit=4, weight=3)):
            assert not b.gets(locks.lock(stage.key, stage.ttl, limit=4, weight=2))
            assert b.gets(locks.lock(stage.key, stage.ttl, limit=4, weight=1))

    def test_a_mutex_closes_its_key_to_permits_too(
        self, stage: Stage, a: Actor, b: Actor, locks: Client
    ) -> None:
        with a.inside(locks.lock(stage.key, stage.ttl)):
            assert not b.gets(locks.lock(stage.key, stage.ttl, limit=9))
            assert not b.gets(locks.lock(stage.key, stage.ttl, shared=True))

    def test_many_share_or_one_holds_alone(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        shared = locks.lock(stage.key, stage.ttl, shared=True)
        alone = others.lock(stage.key, stage.ttl)
        c = stage.actor("C")
        with a.inside(shared), b.inside(shared):
            assert not c.gets(alone)
        with c.inside(alone):
            assert not a.gets(shared)

    def test_the_late_release_of_a_lapsed_permit_frees_nobody_elses(
        self, stage: Stage, a: Actor, b: Actor, locks: Client
    ) -> None:
        lock = locks.lock(stage.key, stage.ttl, limit=2, renew=False, on_lost="warn")
        c, d = stage.actors(2)
        lapsed = a.enter(lock)
        stage.lapse(lapsed)
        with b.inside(lock), c.inside(lock):
            a.leave(lock)
            assert not d.gets(lock)
            assert len(stage.holders()) == 2

    def test_a_permit_given_back_twice_is_given_back_once(
        self, stage: Stage, a: Actor, b: Actor, locks: Client
    ) -> None:
        one = a.do(locks.acquire, stage.key, stage.ttl, limit=2)
        with b.inside(locks.lock(stage.key, stage.ttl, limit=2)):
            a.do(one.release)
            a.do(one.release)
            assert len(stage.holders()) == 1
            with stage.actor("C").inside(locks.lock(stage.key, stage.ttl, limit=2)):
                assert a.do(locks.acquire, stage.key, stage.ttl, limit=2) is None

    def test_the_permit_of_a_holder_that_died_returns_at_its_ttl_and_the_others_stay(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        with a.inside(locks.lock(stage.key, stage.ttl, limit=2)) as alive:
            dead = b.do(others.acquire, stage.key, stage.ttl, limit=2, renew=False)
            waiting = stage.actor("C").start(
                locks.acquire, stage.key, stage.ttl, wait=True, limit=2
            )
            stage.until_queued(1)
            stage.elapse(1.1 * stage.ttl)
            lease = waiting.result(PATIENCE)
            assert not dead.held
            assert alive.held
            assert sorted(stage.holders()) == sorted([alive.holder, lease.holder])
            a.do(lease.release)

    # Names.

    def test_a_prefix_is_put_before_the_key_in_the_store_and_is_not_shown(
        self, stage: Stage, a: Actor
    ) -> None:
        locks = stage.client(prefix=f"{stage.key}/")
        lock = locks.lock("k", stage.ttl)
        assert lock.key == "k"
        with a.inside(lock) as lease:
            assert lease.key == "k"
            assert stage.holders(f"{stage.key}/k") == [lease.holder]

    @pytest.mark.parametrize(
        "name", ["'; drop table job_locks; --", "a%_*?[b]", "\U0001f512 שלום", "x" * 400, " ", "{}"]
    )
    def test_a_key_is_whatever_text_it_is(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, name: str
    ) -> None:
        key = f"{stage.key[:32]}{name}"
        with a.inside(locks.lock(key, stage.ttl)) as lease:
            assert stage.holders(key) == [lease.holder]
            assert not b.gets(locks.lock(key, stage.ttl))
            assert b.gets(locks.lock(f"{key} ", stage.ttl))
