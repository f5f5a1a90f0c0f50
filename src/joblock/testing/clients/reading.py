"""The raw lease operations, `JobLockModel`: no renewal, no nesting, the caller's own holder."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from joblock.testing.clients.stage import PATIENCE, Actor, Client, ClientScenarios, Stage
from joblock.values.errors import StoreUnavailable
from joblock.values.records import JobLock


class Reading(ClientScenarios):
    """See the module."""

    def test_the_model_acquires_for_exactly_its_ttl(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        model = locks.model
        assert a.do(model.acquire, stage.key, stage.ttl, "A") is True
        lease = a.do(model.peek, stage.key)
        assert (lease.key, lease.holder, lease.state) == (stage.key, "A", "held")
        assert (lease.expires_at - lease.acquired_at).total_seconds() == stage.ttl
        assert lease.worker.pid > 0
        assert a.do(model.acquire, stage.key, stage.ttl, "B") is False
        assert a.do(model.acquire, stage.key, stage.ttl, "A") is True

    def test_a_lease_of_the_model_is_not_renewed(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        a.do(locks.model.acquire, stage.key, stage.ttl, "A")
        stage.elapse(1.1 * stage.ttl)
        assert a.do(locks.model.acquire, stage.key, stage.ttl, "B") is True

    def test_the_model_refreshes_its_own_lease_even_if_it_lapsed_unclaimed(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        model = locks.model
        a.do(model.acquire, stage.key, stage.ttl, "A")
        assert a.do(model.refresh, stage.key, stage.ttl, "A") is True
        assert a.do(model.refresh, stage.key, stage.ttl, "B") is False
        stage.elapse(1.1 * stage.ttl)
        if not stage.leases():
            return  # a store that forgets what has lapsed
        assert a.do(model.peek, stage.key).state == "expired"
        assert a.do(model.refresh, stage.key, stage.ttl, "A") is True
        assert a.do(model.peek, stage.key).state == "held"

    def test_the_model_releases_its_own_lease_only(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        model = locks.model
        a.do(model.acquire, stage.key, stage.ttl, "A")
        assert a.do(model.release, stage.key, "B") is None
        assert a.do(model.peek, stage.key).holder == "A"
        assert a.do(model.release, stage.key, "A") is None
        assert a.do(model.peek, stage.key) is None
        assert a.do(model.release, stage.key, "A") is None

    def test_a_release_by_the_model_wakes_those_who_wait(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        a.do(locks.model.acquire, stage.key, stage.ttl, "A")
        waiting = b.start(others.acquire, stage.key, stage.ttl, wait=True)
        stage.until_queued(1)
        a.do(locks.model.release, stage.key, "A")
        b.do(waiting.result(PATIENCE).release)

    def test_the_model_shows_who_holds_and_who_waits(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        c = stage.actor("C")
        one = a.do(locks.acquire, stage.key, stage.ttl, limit=2)
        two = b.do(others.acquire, stage.key, stage.ttl, limit=2)
        waiting = c.start(others.acquire, stage.key, stage.ttl, wait=True, limit=2)
        stage.until_queued(1)
        holders = a.do(locks.model.holders, stage.key)
        assert [lease.holder for lease in holders] == [one.holder, two.holder]
        assert {(lease.weight, lease.limit) for lease in holders} == {(1, 2)}
        assert a.do(locks.model.peek, stage.key).holder == one.holder
        assert a.do(locks.model.get, stage.key).holder == one.holder
        (waiter,) = a.do(locks.model.waiters, stage.key)
        assert (waiter.key, waiter.weight, waiter.limit, waiter.live) == (stage.key, 1, 2, True)
        a.do(one.release)
        b.do(two.release)
        c.do(waiting.result(PATIENCE).release)

    def test_the_model_lists_by_prefix_page_by_page(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        names = [f"{stage.key}:{number:04}" for number in range(230)]
        held = stage.acquire_many(a, locks, [*names, f"{stage.key[:-1]}z"], stage.ttl)
        listed = self._all(stage, a, locks, f"{stage.key}:")
        assert [lease.key for lease in listed] == names
        assert a.do(locks.model.count, f"{stage.key}:") == 230
        assert a.do(locks.model.count, f"{stage.key}:000") == 10
        a.do(locks.close)
        assert not held[0].held
        assert self._all(stage, a, locks, f"{stage.key}:") == []

    def test_the_model_speaks_of_keys_without_the_clients_prefix(
        self, stage: Stage, a: Actor, b: Actor
    ) -> None:
        locks = stage.client(prefix=f"{stage.key}/")
        c = stage.actor("C")
        held = a.do(locks.acquire, "k", stage.ttl)
        waiting = b.start(locks.acquire, "k", stage.ttl, wait=True)
        stage.until_queued(1, f"{stage.key}/k")
        assert c.do(locks.model.peek, "k").key == "k"
        assert c.do(locks.model.waiters, "k")[0].key == "k"
        assert [lease.key for lease in self._all(stage, c, locks, "")] == ["k"]
        assert c.do(locks.model.count) == 1
        (broken,) = c.do(locks.model.delete, "k")
        assert broken.key == "k"
        b.do(waiting.result(PATIENCE).release)
        assert a.do(held.release) is False

    def test_deleting_frees_the_key_whoever_holds_it_and_serves_who_waits(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        held = a.do(locks.acquire, stage.key, stage.ttl)
        waiting = b.start(others.acquire, stage.key, stage.ttl, wait=True)
        stage.until_queued(1)
        (broken,) = stage.actor("somebody else").do(
            others.model.delete, stage.key, by="ops", why="it hangs"
        )
        assert (broken.holder, broken.token) == (held.holder, held.token)
        second = waiting.result(PATIENCE)
        assert second.token > held.token
        assert a.do(held.release) is False
        assert stage.holders() == [second.holder]
        b.do(second.release)
        assert a.do(locks.model.delete, stage.key) == ()

    def test_the_model_raises_if_the_store_is_down(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        stage.faults(locks).go_down()
        model = locks.model
        for call in (
            lambda: model.acquire(stage.key, stage.ttl, "A"),
            lambda: model.refresh(stage.key, stage.ttl, "A"),
            lambda: model.release(stage.key, "A"),
            lambda: model.peek(stage.key),
            model.count,
        ):
            with pytest.raises(StoreUnavailable):
                a.do(call)

    def _all(self, stage: Stage, actor: Actor, locks: Client, prefix: str) -> list[JobLock]:
        if not stage.asynchronous:
            return actor.do(lambda: list(locks.model.all(prefix)))

        async def collect() -> list[Any]:
            leases = cast("AsyncIterator[JobLock]", locks.model.all(prefix))
            return [lease async for lease in leases]

        return actor.do(collect)
