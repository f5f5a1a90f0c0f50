"""What a store offers beside its operations: its name, its drivers, cancelling, closing."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, cast

import pytest

from joblock.store.contract import AsyncDriver, Store
from joblock.store.ops import Acquire, AcquireReply, Leave, Queueing
from joblock.testing.contract.bench import LONG, PATIENCE, Bench, Contract, Key, LoopThread
from joblock.testing.contract.harness import StoreHarness


class Drivers(Contract):
    """Both drivers of a store see the same leases, and leave nothing on its way."""

    def test_a_store_has_a_name_for_messages(self, bench: Bench) -> None:
        assert "://" in bench.store.url

    def test_the_blocking_driver_and_the_asyncio_driver_see_the_same_leases(
        self, harness: StoreHarness
    ) -> None:
        blocking, looping = (Bench(harness, through_loop=through) for through in (False, True))
        one = blocking.key()
        other = looping.key(one.name)
        token = one.grant("A").token
        assert other.refuse("B").holder == "A"
        assert other.release("A", token=token)
        assert one.states() == {}
        blocking.close()
        looping.close()
        harness.close()

    def test_drivers_of_one_store_object_share_its_leases(self, key: Key) -> None:
        other = Key(key.bench, key.store, key.bench.driver_of(key.store), key.name)
        key.grant("A")
        assert other.refuse("B").holder == "A"

    def test_a_store_serves_several_event_loops(self, key: Key) -> None:
        """One after the other too, as with asyncio.run in a test suite."""
        key.grant("A")
        for _ in range(3):
            loop = LoopThread()
            holder = loop.run(_ask_once(key.store, Acquire(key.name, "B", LONG)))
            loop.close()
            assert holder == "A"

    @pytest.mark.parametrize("turns", range(8))
    def test_a_cancelled_acquire_is_undone_once_it_is_settled(self, key: Key, turns: int) -> None:
        """Wherever the cancellation meets it: the undoing request comes after it."""
        loop = LoopThread()
        loop.run(_cancel_and_undo(key.store, Acquire(key.name, "A", LONG), turns))
        loop.close()
        assert key.states() == {}
        key.grant("B")

    @pytest.mark.parametrize("turns", range(8))
    def test_a_cancelled_wait_is_undone_once_it_is_settled(self, key: Key, turns: int) -> None:
        key.grant("A")
        queue = Queueing(key.client("W"))
        loop = LoopThread()
        loop.run(_cancel_and_undo(key.store, Acquire(key.name, "W", LONG, queue=queue), turns))
        loop.close()
        assert key.waiters() == ()
        key.release("A")
        assert key.states() == {}

    @pytest.mark.parametrize("turns", range(8))
    @pytest.mark.parametrize("before", [0, 1], ids=["first", "connected"])
    def test_what_the_end_of_an_event_loop_cancels_is_undone_once_it_is_settled(
        self, key: Key, before: int, turns: int
    ) -> None:
        """It cancels every task in it, also those that the driver began."""
        loop = LoopThread()
        op = Acquire(key.name, "A", LONG)
        loop.run(_cancel_and_undo(key.store, op, turns, before=before, everything=True))
        loop.close()
        assert key.states() == {}
        key.grant("B")

    def test_a_holder_without_cancelled_requests_is_settled_at_once(self, key: Key) -> None:
        loop = LoopThread()
        settled = loop.run(_settled_at_once(key.store))
        loop.close()
        assert settled

    def test_a_hundred_tasks_use_one_driver_at_a_time(self, key: Key) -> None:
        loop = LoopThread()
        names = [key.bench.key().name for _ in range(100)]
        ops = [Acquire(name, "A", LONG) for name in names]
        replies = loop.run(_all_at_once(key.store, ops))
        loop.close()
        assert all(reply.token for reply in replies)
        assert [key.bench.key(name).states() for name in names] == [{"A": "held"}] * 100

    def test_a_closed_store_can_be_used_again(self, key: Key) -> None:
        other = key.bench.open()
        other.driver().call(Acquire(key.name, "A", LONG))
        other.close()
        reply = other.driver().call(Acquire(key.name, "B", LONG))
        assert getattr(reply, "holder", None) == "A"
        other.close()

    def test_a_store_may_be_closed_twice_and_unused(self, key: Key) -> None:
        other = key.bench.open()
        other.close()
        other.close()

    def test_listening_can_begin_and_end_again_and_again(self, key: Key) -> None:
        key.needs_push()
        for _ in range(5):
            connected = threading.Event()
            subscription = key.store.subscribe(key.client("W"), lambda _: None, connected.set)
            assert connected.wait(PATIENCE)
            assert subscription.listening
            subscription.close()


async def _ask_once(store: Store, op: Acquire) -> str:
    driver = store.async_driver()
    reply = await driver.call(op)
    await driver.aclose()
    return getattr(reply, "holder", "")


async def _cancel_and_undo(
    store: Store, op: Acquire, turns: int, *, before: int = 0, everything: bool = False
) -> None:
    driver = store.async_driver()
    for _ in range(before):
        await driver.call(Leave(op.key, op.holder))
    task = asyncio.ensure_future(driver.call(op))
    for _ in range(turns):
        await asyncio.sleep(0)
    tasks = {task}
    if everything:
        tasks |= asyncio.all_tasks() - {cast("asyncio.Task[Any]", asyncio.current_task())}
    for each in tasks:
        each.cancel()
    await asyncio.wait(tasks)
    settled = asyncio.Event()
    loop = asyncio.get_running_loop()
    driver.settled(op.holder, lambda: _set_soon(loop, settled))
    await asyncio.wait_for(settled.wait(), PATIENCE)
    await driver.call(Leave(op.key, op.holder))
    await driver.aclose()


def _set_soon(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    loop.call_soon_threadsafe(event.set)


async def _settled_at_once(store: Store) -> bool:
    driver: AsyncDriver = store.async_driver()
    settled: list[bool] = []
    driver.settled("nobody", lambda: settled.append(True))
    await driver.aclose()
    return settled == [True]


async def _all_at_once(store: Store, ops: list[Acquire]) -> list[AcquireReply]:
    driver = store.async_driver()
    replies = await asyncio.gather(*(driver.call(op) for op in ops))
    await driver.aclose()
    return replies
