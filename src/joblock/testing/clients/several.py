"""Several keys at once: all of them or none, in whatever order they are named."""

from __future__ import annotations

import threading

import pytest

from joblock.client.current import require
from joblock.testing.clients.stage import PATIENCE, Actor, Client, ClientScenarios, Stage
from joblock.values.errors import LockLost, LockNotAcquired


class Several(ClientScenarios):
    """See the module."""

    @pytest.fixture
    def keys(self, stage: Stage) -> list[str]:
        """Three keys, not in order."""
        return [f"{stage.key}:{name}" for name in ("b", "c", "a")]

    def test_all_keys_are_held_inside_and_none_after(
        self, stage: Stage, a: Actor, locks: Client, keys: list[str]
    ) -> None:
        with a.inside(locks.lock(keys, stage.ttl)) as leases:
            assert leases.held
            assert leases.keys == tuple(sorted(keys))
            assert leases.tokens == {key: stage.leases(key)[0].token for key in keys}
            assert a.do(lambda: [require(key).key for key in keys]) == keys
            leases.check()
        assert not any(stage.leases(key) for key in keys)

    def test_none_is_held_where_one_is_not_to_be_had(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client, keys: list[str]
    ) -> None:
        with a.inside(locks.lock(keys[1], stage.ttl)):
            with pytest.raises(LockNotAcquired) as refused:
                b.enter(others.lock(keys, stage.ttl, wait=False))
            assert refused.value.key == keys[1]
            assert not stage.holders(keys[0])
            assert not stage.holders(keys[2])

    def test_the_keys_share_one_wait(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client, keys: list[str]
    ) -> None:
        with a.inside(locks.lock(keys[1], stage.ttl)):
            waiting = b.start_entering(others.lock(keys, stage.ttl, wait=0.5))
            stage.until_queued(1, keys[1])
            assert stage.holders(keys[0])
            stage.elapse(0.5)
            with pytest.raises(LockNotAcquired) as refused:
                waiting.result(PATIENCE)
        assert refused.value.reason == "timeout"
        assert not any(stage.leases(key) or stage.queue(key) for key in keys)

    def test_two_calls_in_opposite_orders_never_wait_for_each_other(
        self, stage: Stage, locks: Client, others: Client, keys: list[str]
    ) -> None:
        rounds, done = 10, [0, 0]

        def begin(number: int, client: Client, order: list[str]) -> None:
            actor, block = stage.actor(), client.lock(order, stage.ttl)
            for _ in range(rounds):
                actor.enter(block)
                done[number] += 1
                actor.leave(block)

        threads = [
            threading.Thread(target=begin, args=(0, locks, keys)),
            threading.Thread(target=begin, args=(1, others, keys[::-1])),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(2 * PATIENCE)
        assert done == [rounds, rounds]
        assert not any(stage.leases(key) or stage.queue(key) for key in keys)

    def test_the_whole_is_lost_with_any_of_its_keys(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client, keys: list[str]
    ) -> None:
        block = locks.lock(keys, stage.ttl, on_lost="raise")
        leases = a.enter(block)
        b.do(others.model.delete, keys[0])
        stage.elapse(stage.ttl / 2)
        assert not leases.held
        with pytest.raises(LockLost) as lost:
            a.leave(block)
        assert lost.value.key == keys[0]
        assert not any(stage.leases(key) for key in keys)

    @pytest.mark.parametrize("bad", [[], ["a", "a"], ["a", ""], ["a", 1], {"a": 1}, 5])
    def test_what_is_no_set_of_keys_is_refused_and_shown(self, locks: Client, bad: object) -> None:
        with pytest.raises((TypeError, ValueError), match="key"):
            locks.lock(bad)
