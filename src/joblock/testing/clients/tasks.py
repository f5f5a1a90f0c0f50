"""What only tasks have: cancellation, inherited contexts, worker threads, several event loops."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest

from joblock.client.current import current, require
from joblock.client.sync import JobLocks
from joblock.store.ops import Acquire, Release
from joblock.testing.clients.cancelling import everywhere
from joblock.testing.clients.stage import (
    PATIENCE,
    Client,
    ClientScenarios,
    LoopThread,
    Stage,
    only,
    until,
)
from joblock.testing.faults import FaultyStore
from joblock.values.errors import LockLost, LockNotAcquired

FOREVER = 3600.0
"""Seconds that a body waits for a cancellation that must come."""


class Peculiar(Exception):
    """What a body raises."""


@only("async")
class Tasks(ClientScenarios):
    """See the module."""

    _told: asyncio.Future[None] | None = None

    # A loss cancels the body.

    def test_a_loss_cancels_the_body_and_is_what_the_block_raises(
        self, stage: Stage, locks: Client
    ) -> None:
        async def play() -> None:
            lease: Any = None

            async def body() -> None:
                nonlocal lease
                async with locks.lock(stage.key, stage.ttl) as lease:
                    self._lose(stage)
                    await asyncio.sleep(FOREVER)

            with pytest.raises(LockLost) as caught:
                await body()
            assert caught.value.token == lease.token
            await self._nothing_is_pending()

        stage.play(play())

    def test_a_loss_cancels_the_work_of_a_run(self, stage: Stage, locks: Client) -> None:
        reached: list[str] = []

        async def work() -> None:
            self._lose(stage)
            reached.append("waits")
            await asyncio.sleep(FOREVER)
            reached.append("went on")

        async def play() -> None:
            with pytest.raises(LockLost) as caught:
                await locks.run_with_lock(stage.key, stage.ttl, work)
            assert caught.value.value is None
            assert reached == ["waits"]
            await self._nothing_is_pending()

        stage.play(play())

    def test_a_body_that_swallows_the_cancellation_loses_all_the_same(
        self, stage: Stage, locks: Client
    ) -> None:
        async def play() -> None:
            async def body() -> None:
                async with locks.lock(stage.key, stage.ttl):
                    self._lose(stage)
                    with contextlib.suppress(asyncio.CancelledError):
                        await asyncio.sleep(FOREVER)

            with pytest.raises(LockLost):
                await body()
            await self._nothing_is_pending()

        stage.play(play())

    def test_work_that_swallows_the_cancellation_loses_with_its_value(
        self, stage: Stage, locks: Client
    ) -> None:
        async def work() -> str:
            self._lose(stage)
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(FOREVER)
            return "done"

        async def play() -> None:
            with pytest.raises(LockLost) as caught:
                await locks.run_with_lock(stage.key, stage.ttl, work)
            assert caught.value.value == "done"
            await self._nothing_is_pending()

        stage.play(play())

    def test_what_a_body_raises_when_it_is_cancelled_is_what_the_block_raises(
        self, stage: Stage, locks: Client
    ) -> None:
        async def play() -> None:
            async def body() -> None:
                async with locks.lock(stage.key, stage.ttl):
                    self._lose(stage)
                    try:
                        await asyncio.sleep(FOREVER)
                    finally:
                        raise Peculiar

            with pytest.raises(Peculiar) as caught:
                await body()
            assert "lost by" in caught.value.__notes__[0]
            await self._nothing_is_pending()

        stage.play(play())

    def test_a_loss_told_while_the_body_computes_is_raised_at_its_end_and_cancels_nothing(
        self, stage: Stage, locks: Client
    ) -> None:
        async def play() -> None:
            async def body() -> None:
                async with locks.lock(stage.key, stage.ttl) as lease:
                    stage.break_leases(stage.key)
                    stage.elapse(0.5 * stage.ttl)  # in the loop, which does nothing else meanwhile
                    assert not lease.held

            with pytest.raises(LockLost):
                await body()
            await self._nothing_is_pending()

        stage.play(play())

    def test_a_loss_found_only_at_the_end_of_the_body_is_raised_and_cancels_nothing(
        self, stage: Stage, locks: Client
    ) -> None:
        async def play() -> None:
            async def body() -> None:
                async with locks.lock(stage.key, stage.ttl):
                    stage.break_leases(stage.key)

            with pytest.raises(LockLost):
                await body()
            await self._nothing_is_pending()

        stage.play(play())

    @pytest.mark.parametrize("policy", ["raise", "warn"])
    def test_a_loss_cancels_nobody_who_asked_not_to_be(
        self, stage: Stage, locks: Client, policy: str
    ) -> None:
        async def play() -> None:
            reached = False
            with contextlib.suppress(LockLost):
                async with locks.lock(stage.key, stage.ttl, on_lost=policy) as lease:
                    await self._lose(stage)
                    assert not lease.held
                    reached = True
            assert reached
            await self._nothing_is_pending()

        stage.play(play())

    def test_a_handle_cancels_only_inside_its_block(self, stage: Stage, locks: Client) -> None:
        async def play() -> None:
            lease = await locks.acquire(stage.key, stage.ttl)
            self._lose(stage)
            await self._nothing_is_pending()
            assert not lease.held
            other = await locks.acquire(stage.key, stage.ttl)

            async def body() -> None:
                async with other:
                    self._lose(stage)
                    await asyncio.sleep(FOREVER)

            with pytest.raises(LockLost):
                await body()
            await self._nothing_is_pending()

        stage.play(play())

    def test_losing_two_nested_blocks_at_once_is_a_loss_and_leaves_nothing_pending(
        self, stage: Stage, locks: Client
    ) -> None:
        inner_key = f"{stage.key}:2"

        async def play() -> None:
            outer: Any = None
            inner: Any = None

            async def body() -> None:
                nonlocal outer, inner
                async with (
                    locks.lock(stage.key, stage.ttl) as outer,
                    locks.lock(inner_key, stage.ttl) as inner,
                ):
                    self._lose(stage, stage.key, inner_key)
                    await asyncio.sleep(FOREVER)

            with pytest.raises(LockLost):
                await body()
            assert not outer.held
            assert not inner.held
            await self._nothing_is_pending()

        stage.play(play())

    def test_losing_the_outer_of_two_blocks_cancels_the_inner_body_too(
        self, stage: Stage, locks: Client
    ) -> None:
        async def play() -> None:
            inner: Any = None

            async def body() -> None:
                nonlocal inner
                async with (
                    locks.lock(stage.key, stage.ttl),
                    locks.lock(f"{stage.key}:2", stage.ttl) as inner,
                ):
                    self._lose(stage)
                    await asyncio.sleep(FOREVER)

            with pytest.raises(LockLost) as caught:
                await body()
            assert caught.value.key == stage.key
            assert not inner.lost.is_set()
            assert stage.holders(f"{stage.key}:2") == []
            await self._nothing_is_pending()

        stage.play(play())

    def test_a_task_group_inside_the_block_is_cancelled_with_it(
        self, stage: Stage, locks: Client
    ) -> None:
        ended: list[str] = []

        async def child() -> None:
            try:
                await asyncio.sleep(FOREVER)
            finally:
                ended.append("child")

        async def play() -> None:
            async def body() -> None:
                async with locks.lock(stage.key, stage.ttl), asyncio.TaskGroup() as group:
                    group.create_task(child())
                    self._lose(stage)
                    await asyncio.sleep(FOREVER)

            with pytest.raises(LockLost):
                await body()
            assert ended == ["child"]
            await self._nothing_is_pending()

        stage.play(play())

    # A cancellation from outside stays one.

    def test_a_cancellation_from_outside_stays_one_and_the_key_is_free(
        self, stage: Stage, locks: Client
    ) -> None:
        started = asyncio.Event()

        async def body() -> None:
            async with locks.lock(stage.key, stage.ttl):
                started.set()
                await asyncio.sleep(FOREVER)

        async def play() -> None:
            task = asyncio.create_task(body())
            await started.wait()
            task.cancel("from outside")
            with pytest.raises(asyncio.CancelledError) as caught:
                await task
            assert caught.value.args == ("from outside",)
            assert task.cancelled()
            assert stage.holders() == []

        stage.play(play())

    def test_a_cancellation_from_outside_just_before_a_loss_stays_one_and_notes_the_loss(
        self, stage: Stage, locks: Client
    ) -> None:
        async def body(started: asyncio.Event) -> None:
            async with locks.lock(stage.key, stage.ttl):
                started.set()
                await asyncio.sleep(FOREVER)

        async def play() -> None:
            started = asyncio.Event()
            task = asyncio.create_task(body(started))
            await started.wait()
            task.cancel()
            stage.break_leases(stage.key)
            stage.elapse(0.5 * stage.ttl)
            with pytest.raises(asyncio.CancelledError) as caught:
                await task
            assert task.cancelled()
            assert "lost by" in "".join(getattr(caught.value, "__notes__", ()))

        stage.play(play())

    def test_two_cancellations_that_meet_before_the_body_runs_leave_the_one_from_outside(
        self, stage: Stage, locks: Client
    ) -> None:
        """The body cleans up for a while, so that both requests come before it has ended."""

        async def body(started: asyncio.Event, go: asyncio.Event) -> None:
            async with locks.lock(stage.key, stage.ttl):
                started.set()
                try:
                    await asyncio.sleep(FOREVER)
                finally:
                    with contextlib.suppress(asyncio.CancelledError):
                        await go.wait()
                    await asyncio.sleep(0)

        async def play() -> None:
            started, go = asyncio.Event(), asyncio.Event()
            task = asyncio.create_task(body(started, go))
            await started.wait()
            self._lose(stage)
            await self._until(lambda: task.cancelling() == 1)
            await self._pass()
            task.cancel()
            go.set()
            with pytest.raises(asyncio.CancelledError) as caught:
                await task
            assert task.cancelled()
            assert "lost by" in "".join(getattr(caught.value, "__notes__", ()))

        stage.play(play())

    def test_a_timeout_around_the_block_is_a_timeout(self, stage: Stage, locks: Client) -> None:
        async def play() -> None:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05), locks.lock(stage.key, stage.ttl):
                    await asyncio.sleep(FOREVER)
            # Where the time is over before it is granted, it is given back in the background.
            await asyncio.to_thread(stage.until_free)
            await self._nothing_is_pending()

        stage.play(play())

    def test_a_loss_inside_a_timeout_is_a_loss(self, stage: Stage, locks: Client) -> None:
        async def play() -> None:
            async def inside() -> None:
                async with asyncio.timeout(FOREVER), locks.lock(stage.key, stage.ttl):
                    self._lose(stage)
                    await asyncio.sleep(FOREVER)

            with pytest.raises(LockLost):
                await inside()
            await self._nothing_is_pending()

            async def body() -> None:
                async with locks.lock(stage.key, stage.ttl), asyncio.timeout(FOREVER):
                    self._lose(stage)
                    await asyncio.sleep(FOREVER)

            with pytest.raises(LockLost):
                await body()
            await self._nothing_is_pending()

        stage.play(play())

    def test_a_timeout_inside_the_block_is_the_bodys_own(self, stage: Stage, locks: Client) -> None:
        async def play() -> None:
            with pytest.raises(TimeoutError):
                async with locks.lock(stage.key, stage.ttl), asyncio.timeout(0.05):
                    await asyncio.sleep(FOREVER)
            assert stage.holders() == []
            await self._nothing_is_pending()

        stage.play(play())

    def test_a_block_in_the_clean_up_of_a_cancelled_task_works(
        self, stage: Stage, locks: Client
    ) -> None:
        async def body(lose: bool) -> str:
            try:
                await asyncio.sleep(FOREVER)
            except asyncio.CancelledError:
                try:
                    async with locks.lock(stage.key, stage.ttl):
                        if lose:
                            self._lose(stage)
                            await asyncio.sleep(FOREVER)
                except LockLost:
                    return "lost"
                return "clean"
            return "?"

        async def play() -> None:
            for lose in (False, True):
                task = asyncio.create_task(body(lose))
                await self._pass()
                task.cancel()
                assert await task == ("lost" if lose else "clean")

        stage.play(play())

    # A plain function runs in a worker thread.

    def test_a_plain_function_runs_in_a_thread_under_the_lease(
        self, stage: Stage, locks: Client
    ) -> None:
        seen: list[Any] = []

        def work() -> None:
            seen.append((threading.get_ident(), current(), require(stage.key), stage.holders()))

        async def play() -> None:
            assert await locks.run_with_lock(stage.key, stage.ttl, work) is True
            ((thread, innermost, required, holders),) = seen
            assert thread != threading.get_ident()
            assert innermost is required
            assert holders == [innermost.holder]
            assert stage.holders() == []

        stage.play(play())

    @pytest.mark.parametrize("error", [Peculiar(), KeyError("k"), TimeoutError()])
    def test_what_a_plain_function_raises_is_raised_unchanged(
        self, stage: Stage, locks: Client, error: Exception
    ) -> None:
        def work() -> None:
            raise error

        async def play() -> None:
            with pytest.raises(type(error)) as caught:
                await locks.run_with_lock(stage.key, stage.ttl, work)
            assert caught.value is error
            assert stage.holders() == []

        stage.play(play())

    def test_a_plain_function_that_raises_stop_iteration_does_not_hang(
        self, stage: Stage, locks: Client
    ) -> None:
        """No coroutine can raise one: Python makes it a RuntimeError."""
        error = StopIteration("of the work")

        def work() -> None:
            raise error

        async def play() -> None:
            with pytest.raises(RuntimeError) as caught:
                async with asyncio.timeout(PATIENCE):
                    await locks.run_with_lock(stage.key, stage.ttl, work)
            assert caught.value.__cause__ is error
            assert stage.holders() == []

        stage.play(play())

    def test_the_lease_of_a_thread_whose_task_is_cancelled_is_kept_until_the_thread_is_done(
        self, stage: Stage, locks: Client
    ) -> None:
        begun, go = threading.Event(), threading.Event()

        def work() -> None:
            begun.set()
            assert go.wait(PATIENCE)

        async def play() -> None:
            task = asyncio.create_task(locks.run_with_lock(stage.key, stage.ttl, work))
            await asyncio.to_thread(begun.wait, PATIENCE)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.to_thread(stage.elapse, 2.5 * stage.ttl)
            assert len(stage.holders()) == 1
            assert await locks.run_with_lock(stage.key, stage.ttl, work) is False
            go.set()
            await self._until(lambda: not stage.holders())

        stage.play(play())

    def test_the_loss_of_a_lease_that_a_thread_works_under_is_told_though_the_thread_goes_on(
        self, stage: Stage, locks: Client
    ) -> None:
        begun, go = threading.Event(), threading.Event()

        def work() -> None:
            begun.set()
            assert go.wait(PATIENCE)

        async def play() -> None:
            task = asyncio.create_task(locks.run_with_lock(stage.key, stage.ttl, work))
            await asyncio.to_thread(begun.wait, PATIENCE)
            self._lose(stage)
            with pytest.raises(LockLost):
                await task
            go.set()

        stage.play(play())

    def test_a_plain_function_that_has_not_begun_when_its_task_is_cancelled_never_does(
        self, stage: Stage, locks: Client
    ) -> None:
        ran: list[str] = []
        go = threading.Event()

        async def play() -> None:
            loop = asyncio.get_running_loop()
            busy = [loop.run_in_executor(None, go.wait, PATIENCE) for _ in range(64)]
            task = asyncio.create_task(
                locks.run_with_lock(stage.key, stage.ttl, lambda: ran.append("ran"))
            )
            await self._until(lambda: len(stage.holders()) == 1)
            await self._pass()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await self._until(lambda: not stage.holders())
            go.set()
            await asyncio.gather(*busy)
            await asyncio.to_thread(lambda: None)
            assert ran == []

        stage.play(play())

    # What tasks started inside inherit.

    def test_tasks_and_threads_started_inside_a_block_run_under_its_lease_until_it_ends(
        self, stage: Stage, locks: Client
    ) -> None:
        async def look(looked: asyncio.Event, go: asyncio.Event) -> tuple[Any, Any, Any]:
            before = current()
            in_thread = await asyncio.to_thread(current)
            looked.set()
            await go.wait()
            return before, in_thread, current()

        async def play() -> None:
            for lose in (False, True):
                looked, go = asyncio.Event(), asyncio.Event()
                lease: Any = None
                child: Any = None
                with contextlib.suppress(LockLost):
                    async with locks.lock(stage.key, stage.ttl) as lease:
                        child = asyncio.create_task(look(looked, go))
                        await looked.wait()
                        if lose:
                            self._lose(stage)
                            await asyncio.sleep(FOREVER)
                go.set()
                assert await child == (lease, lease, None)
                assert current() is None

        stage.play(play())

    def test_a_child_task_does_not_nest_in_its_parents_hold(
        self, stage: Stage, locks: Client
    ) -> None:
        """Re-entrance goes by the exact task; the context does not."""
        lock = locks.lock(stage.key, stage.ttl, reentrant=True)

        async def child() -> bool:
            assert require(stage.key)
            return await lock.acquire(timeout=0)

        async def play() -> None:
            async with lock:
                assert await asyncio.create_task(child()) is False

        stage.play(play())

    def test_a_lease_may_be_released_by_another_task_while_its_block_runs(
        self, stage: Stage, locks: Client
    ) -> None:
        async def play() -> None:
            lease = await locks.acquire(stage.key, stage.ttl)
            async with lease:
                await asyncio.create_task(lease.release())
                assert not lease.held
                assert stage.holders() == []
            await self._nothing_is_pending()

        stage.play(play())

    def test_a_lease_handed_to_another_task_cancels_that_one(
        self, stage: Stage, locks: Client
    ) -> None:
        async def take_over(lease: Any) -> None:
            async with lease:
                await asyncio.sleep(FOREVER)

        async def play() -> None:
            lease = await locks.acquire(stage.key, stage.ttl)
            task = asyncio.create_task(take_over(lease))
            await self._pass()
            self._lose(stage)
            with pytest.raises(LockLost):
                await task
            await self._nothing_is_pending()

        stage.play(play())

    # The loop.

    def test_a_loop_blocked_for_three_ttl_keeps_the_lease(
        self, stage: Stage, locks: Client
    ) -> None:
        async def play() -> None:
            async with locks.lock(stage.key, stage.ttl) as lease:
                stage.elapse(3 * stage.ttl)  # in the loop, which does nothing else meanwhile
                assert lease.held
                assert stage.holders() == [lease.holder]
            await self._nothing_is_pending()

        stage.play(play())

    def test_one_client_serves_several_event_loops(self, stage: Stage, locks: Client) -> None:
        lock = locks.lock(stage.key, stage.ttl)

        async def hold(entered: threading.Event, go: threading.Event) -> int:
            async with lock as lease:
                entered.set()
                await asyncio.to_thread(go.wait, PATIENCE)
                assert lease.held
                return lease.token

        other = LoopThread()
        entered, go = (threading.Event(), threading.Event()), threading.Event()
        first = stage.begin(hold(entered[0], go))
        assert entered[0].wait(PATIENCE)
        second = other.begin(hold(entered[1], go))
        stage.until_queued(1)
        go.set()
        assert first.result(PATIENCE) < second.result(PATIENCE)
        assert stage.holders() == []
        other.close()

    def test_a_client_outlives_its_event_loops(self, stage: Stage, locks: Client) -> None:
        async def use() -> int:
            async with locks.lock(stage.key, stage.ttl) as lease:
                return lease.token

        tokens = [asyncio.run(use()) for _ in range(3)]
        assert tokens == sorted(set(tokens))
        assert stage.holders() == []

    def test_a_loop_that_ends_with_a_waiter_leaves_nothing_queued(
        self, stage: Stage, locks: Client, others: Client
    ) -> None:
        async def give_up() -> None:
            waiting = asyncio.create_task(others.acquire(stage.key, stage.ttl, wait=True))
            await self._until(lambda: len(stage.queue()) == 1)
            assert not waiting.done()

        async def hold() -> Any:
            return await locks.acquire(stage.key, stage.ttl)

        lease = stage.play(hold())
        asyncio.run(give_up())
        until(lambda: stage.queue() == (), lambda: "nobody should be queued")
        stage.play(lease.release())

    def test_a_hundred_tasks_take_turns(self, stage: Stage, locks: Client) -> None:
        inside = 0
        order: list[int] = []

        async def turn(number: int, lock: Any) -> None:
            nonlocal inside
            async with lock:
                inside += 1
                assert inside == 1
                order.append(number)
                await asyncio.sleep(0)
                inside -= 1

        async def play() -> None:
            lock = locks.lock(stage.key, stage.ttl)
            async with asyncio.TaskGroup() as group:
                for number in range(100):
                    group.create_task(turn(number, lock))
            assert sorted(order) == list(range(100))
            assert stage.holders() == []

        stage.play(play())

    def test_a_hold_of_a_task_that_ended_goes_with_its_lock(
        self, stage: Stage, locks: Client
    ) -> None:
        async def forget() -> None:
            await locks.lock(stage.key, stage.ttl).acquire()

        def collect() -> None:
            stage.play(forget())
            gc.collect()

        with pytest.warns(ResourceWarning, match="never released"):
            collect()
        stage.until_free()

    def test_the_client_for_threads_warns_when_it_would_block_a_loop(
        self, stage: Stage, locks: Client
    ) -> None:
        blocking = JobLocks(FaultyStore(stage.harness.make_store()), clock=stage.clock)

        def close_when_it_waits() -> None:
            stage.until_queued(1)
            blocking.close()

        closing = threading.Thread(target=close_when_it_waits)

        async def play() -> None:
            async with locks.lock(stage.key, stage.ttl):
                assert blocking.acquire(stage.key, wait=False) is None
                closing.start()
                with (
                    pytest.warns(RuntimeWarning, match="AsyncJobLocks"),
                    pytest.raises(LockNotAcquired),
                ):
                    blocking.acquire(stage.key, wait=True)

        stage.play(play())
        closing.join(PATIENCE)

    # Cancelled at every point of its way.

    @pytest.mark.parametrize("way", ["handle", "block", "run", "job"])
    @pytest.mark.parametrize("passes", [0, 2])
    def test_an_acquisition_cancelled_at_any_await_leaves_nothing(
        self, stage: Stage, locks: Client, others: Client, way: str, passes: int
    ) -> None:
        """With the store's own driver, and with one that is slow in every direction."""
        stage.faults(locks).suspend(passes)

        async def handle() -> None:
            lease = await locks.acquire(stage.key, stage.ttl, wait=True)
            await lease.release()

        async def block() -> None:
            async with locks.lock(stage.key, stage.ttl):
                await asyncio.sleep(0)

        async def run() -> None:
            await locks.run_with_lock(stage.key, stage.ttl, nothing)

        async def job() -> None:
            await locks.job(name=stage.key, ttl=stage.ttl)(nothing)()

        ways = {"handle": handle, "block": block, "run": run, "job": job}

        async def play() -> None:
            for cancellation in everywhere():
                await cancellation.of(ways[way]())
                await self._passed_on(stage, others)
            await self._all_is_free(stage, locks)

        stage.play(play())

    @pytest.mark.parametrize("passes", [0, 2])
    def test_a_wait_cancelled_at_any_await_leaves_nothing_and_passes_the_key_on(
        self, stage: Stage, locks: Client, others: Client, passes: int
    ) -> None:
        stage.faults(others).suspend(passes)
        lock = others.lock(stage.key, stage.ttl)

        async def wait() -> None:
            async with lock:
                await asyncio.sleep(0)

        async def release_once_somebody_waits(held: Any, over: asyncio.Event) -> None:
            await self._until(lambda: over.is_set() or bool(stage.queue()))
            await held.release()

        async def play() -> None:
            for cancellation in everywhere():
                async with asyncio.timeout(PATIENCE):
                    held = await locks.acquire(stage.key, stage.ttl, wait=True)
                over = asyncio.Event()
                releasing = asyncio.create_task(release_once_somebody_waits(held, over))
                await cancellation.of(wait())
                over.set()
                await releasing
            await self._passed_on(stage, locks)
            await self._all_is_free(stage, others)

        stage.play(play())

    @pytest.mark.parametrize("passes", [0, 2])
    def test_a_timed_wait_cancelled_at_any_await_of_its_end_leaves_nothing(
        self, stage: Stage, locks: Client, others: Client, passes: int
    ) -> None:
        clock = stage.manual
        stage.faults(others).suspend(passes)

        async def wait() -> None:
            assert await others.acquire(stage.key, 30, wait=0.5) is None

        async def pass_time() -> None:
            # Again and again: it may be woken, and ask and sleep once more.
            while True:
                await clock.await_sleepers(1)
                clock.advance(0.5)
                await asyncio.sleep(0)

        async def play() -> None:
            lease = await locks.acquire(stage.key, 60)
            for cancellation in everywhere():
                passing = asyncio.create_task(pass_time())
                await cancellation.of(wait())
                passing.cancel()
                await asyncio.wait([passing])
                await self._until(lambda: not stage.queue())
            assert lease.held
            await lease.release()
            await self._all_is_free(stage, others)

        stage.play(play())

    @pytest.mark.parametrize("done", [False, True])
    def test_a_request_cancelled_on_its_way_is_undone_after_it_has_arrived(
        self, stage: Stage, locks: Client, done: bool
    ) -> None:
        faults = stage.faults(locks)

        async def play() -> None:
            gate = faults.delay(Acquire, done=done)
            task = asyncio.create_task(locks.acquire(stage.key, stage.ttl))
            await asyncio.to_thread(gate.wait_for_arrival)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.to_thread(stage.settle)
            gate.open()
            await self._until(lambda: any(isinstance(op, Acquire) for op in faults.done))
            await self._until(lambda: not stage.holders())

        stage.play(play())

    def test_a_release_cancelled_on_its_way_is_done_all_the_same(
        self, stage: Stage, locks: Client
    ) -> None:
        faults = stage.faults(locks)

        async def play() -> None:
            lease = await locks.acquire(stage.key, stage.ttl)
            gate = faults.delay(Release)
            task = asyncio.create_task(lease.release())
            await asyncio.to_thread(gate.wait_for_arrival)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not lease.held
            gate.open()
            await self._until(lambda: not stage.leases())

        stage.play(play())

    def test_a_block_left_while_being_cancelled_gives_its_key_back(
        self, stage: Stage, locks: Client
    ) -> None:
        faults = stage.faults(locks)

        async def body() -> None:
            async with locks.lock(stage.key, stage.ttl):
                pass

        async def play() -> None:
            gate = faults.delay(Release)
            task = asyncio.create_task(body())
            await asyncio.to_thread(gate.wait_for_arrival)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            gate.open()
            await self._until(lambda: not stage.leases())

        stage.play(play())

    # Helpers.

    async def _passed_on(self, stage: Stage, client: Client) -> None:
        """The key is to be had: whatever has or awaits it is on its way out."""
        async with asyncio.timeout(PATIENCE):
            lease = await client.acquire(stage.key, stage.ttl, wait=True)
        await lease.release()

    async def _all_is_free(self, stage: Stage, client: Client) -> None:
        """Nobody has the key or waits for it, and nothing of that client is on its way there."""
        await client.close()
        await self._until(lambda: not stage.holders() and not stage.queue())

    def _lose(self, stage: Stage, *keys: str) -> asyncio.Future[None]:
        """Break the leases of these keys; their holders are told a little later."""
        for key in keys or (stage.key,):
            stage.break_leases(key)
        loop = asyncio.get_running_loop()
        self._told = loop.run_in_executor(None, stage.elapse, 0.5 * stage.ttl)
        return self._told

    async def _pass(self, passes: int = 5) -> None:
        for _ in range(passes):
            await asyncio.sleep(0)

    async def _nothing_is_pending(self) -> None:
        """No cancellation is on its way to this task."""
        if self._told is not None:
            await self._told
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        for _ in range(5):
            await asyncio.sleep(0.001)

    async def _until(self, fact: Callable[[], bool]) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + PATIENCE
        while not fact():
            assert loop.time() < end, "it should have come by now"
            await self._pass()


async def nothing() -> None:
    """Work that does nothing."""
    await asyncio.sleep(0)
