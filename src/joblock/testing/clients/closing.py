"""Closing a client: what it held is free, who waited is told, and it can be used again."""

from __future__ import annotations

import logging
import time
from typing import Any

import pytest

from joblock.store.ops import Refresh, Release
from joblock.testing.clients.stage import PATIENCE, Actor, Client, ClientScenarios, Stage, keepers
from joblock.testing.faults import FaultyStore
from joblock.values.errors import LockLost, LockNotAcquired, StoreMisconfigured


class Closing(ClientScenarios):
    """See the module."""

    def test_close_releases_everything_that_is_held(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        keys = [f"{stage.key}:{number}" for number in range(5)]
        leases = stage.acquire_many(a, locks, keys, stage.ttl)
        a.do(locks.close)
        assert [stage.leases(key) for key in keys] == [()] * 5
        assert not any(lease.held for lease in leases)

    def test_a_lease_that_cannot_be_released_at_close_does_not_keep_the_others(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        keys = [f"{stage.key}:{number}" for number in range(5)]
        held = stage.acquire_many(a, locks, keys, stage.ttl)
        stage.faults(locks).fail(Release, times=2)
        a.do(locks.close)
        assert sum(bool(stage.holders(key)) for key in keys) == 2
        assert not any(lease.held for lease in held)

    def test_an_unexpected_error_at_close_does_not_keep_the_others_either(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        keys = [f"{stage.key}:{number}" for number in range(3)]
        held = stage.acquire_many(a, locks, keys, stage.ttl)
        stage.faults(locks).fail(Release, failure=lambda: ValueError("a bug in the driver"))
        a.do(locks.close)
        assert sum(bool(stage.holders(key)) for key in keys) == 1
        assert not any(lease.held for lease in held)

    def test_a_holder_whose_client_is_closed_is_told(
        self, stage: Stage, a: Actor, b: Actor, locks: Client
    ) -> None:
        lock = locks.lock(stage.key, stage.ttl, on_lost="raise")
        lease = a.enter(lock)
        lost = a.do(lambda: lease.lost)
        waiting = a.start(lost.wait)
        b.do(locks.close)
        waiting.result(PATIENCE)
        with pytest.raises(LockLost) as caught:
            lease.check()
        assert caught.value.reason == "closed"
        with pytest.raises(LockLost):
            a.leave(lock)

    def test_a_waiter_whose_client_is_closed_is_told_and_leaves_the_queue(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        c = stage.actor("C")
        with a.inside(locks.lock(stage.key, stage.ttl)) as lease:
            lock = others.lock(stage.key, stage.ttl)
            waiting = b.start(lock.acquire)
            stage.until_queued(1)
            c.do(others.close)
            with pytest.raises(LockNotAcquired) as caught:
                waiting.result(PATIENCE)
            assert (caught.value.key, caught.value.reason) == (stage.key, "closed")
            assert "closed" in str(caught.value)
            assert stage.queue() == ()
            assert lease.held

    def test_a_bounded_wait_ends_by_the_close_too(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        with a.inside(locks.lock(stage.key, stage.ttl)):
            waiting = b.start(others.acquire, stage.key, stage.ttl, wait="1h")
            stage.until_queued(1)
            stage.actor("C").do(others.close)
            with pytest.raises(LockNotAcquired):
                waiting.result(PATIENCE)

    def test_closing_ends_the_clients_thread(self, stage: Stage, a: Actor, locks: Client) -> None:
        before = keepers()
        lease = a.do(locks.acquire, stage.key, stage.ttl)
        assert len(keepers() - before) == 1
        a.do(locks.close)
        assert keepers() <= before
        assert not lease.held

    @pytest.mark.parametrize("opens", [False, True])
    def test_a_client_whose_store_is_set_up_wrongly_has_nothing_to_give_back(
        self, stage: Stage, a: Actor, caplog: pytest.LogCaptureFixture, opens: bool
    ) -> None:
        def open_store() -> Any:
            if not opens:
                raise StoreMisconfigured("no such table")
            store = FaultyStore(stage.harness.make_store())
            store.faults.fail(times=None, failure=lambda: StoreMisconfigured("no such table"))
            return store

        client: Client = type(stage.client())(open_store, clock=stage.clock)
        with caplog.at_level(logging.WARNING, "joblock"):
            for wait in (False, True):
                with pytest.raises(StoreMisconfigured):
                    a.do(client.acquire, stage.key, stage.ttl, wait=wait)
            stage.settle()
            a.do(client.close)
        assert [record.message for record in caplog.records] == []

    def test_closing_twice_or_unused_does_nothing(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        a.do(locks.close)
        a.do(locks.close)
        assert stage.faults(locks).requests == []

    def test_a_closed_client_can_be_used_again(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        first = a.do(locks.acquire, stage.key, stage.ttl)
        a.do(locks.close)
        assert not first.held
        with a.inside(locks.lock(stage.key, stage.ttl)) as lease:
            waiting = b.start(others.acquire, stage.key, stage.ttl, wait=True)
            stage.until_queued(1)
            stage.elapse(2.5 * stage.ttl)
            assert lease.held
        second = waiting.result(PATIENCE)
        again = a.start(locks.acquire, stage.key, stage.ttl, wait=True)
        stage.until_queued(1)
        b.do(second.release)
        a.do(again.result(PATIENCE).release)

    def test_leaving_the_block_of_a_client_closes_it(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        with a.inside(locks) as entered:
            assert entered is locks
            lease = a.do(locks.acquire, stage.key, stage.ttl)
            assert stage.holders() == [lease.holder]
        assert stage.holders() == []

    def test_a_release_that_failed_before_is_tried_once_more_at_close(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        lease = a.do(locks.acquire, stage.key, stage.ttl)
        faults = stage.faults(locks)
        faults.go_down()
        a.do(lease.release)
        stage.elapse(1)
        faults.clear()
        a.do(locks.close)
        assert stage.leases() == ()

    def test_a_store_that_does_not_answer_does_not_keep_close_for_long(
        self, stage: Stage, a: Actor, b: Actor, locks: Client
    ) -> None:
        """Nor from releasing what can be released."""
        clock = stage.manual
        lease = a.do(locks.acquire, stage.key, 300)
        gate = stage.faults(locks).delay(Refresh, times=1)
        stage.settle()
        clock.advance(100, settle=False)
        gate.wait_for_arrival()
        begun = time.monotonic()
        b.do(locks.close)
        assert time.monotonic() - begun < 8
        assert stage.holders() == []
        gate.open()
        assert not lease.held

    def test_leases_taken_while_the_client_is_being_closed_are_kept_or_released(
        self, stage: Stage, b: Actor, locks: Client
    ) -> None:
        """Whichever comes first; but none is left held without a keeper to renew it."""
        actors = stage.actors(4)
        for round_ in range(10):
            taking = [
                actor.start(locks.acquire, f"{stage.key}:{round_}:{number}", stage.ttl)
                for number, actor in enumerate(actors)
            ]
            b.do(locks.close)
            leases: list[Any] = [each.result(PATIENCE) for each in taking]
            stage.settle()
            stage.elapse(1.5 * stage.ttl)
            for number, lease in enumerate(leases):
                assert bool(stage.holders(f"{stage.key}:{round_}:{number}")) is lease.held
                b.do(lease.release)
