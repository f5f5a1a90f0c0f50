"""The clock that tests turn by hand: nobody oversleeps, nobody is woken early or missed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from joblock.testing import ManualClock


class Background:
    """A background thread as joblock's keeper is one: works, then idles until the next moment."""

    def __init__(self, clock: ManualClock, every: float, work: Callable[[], None]) -> None:
        self.clock = clock
        self.every = every
        self.work = work
        self.event = threading.Event()
        self.stopping = False
        self.rounds = 0
        self.thread = threading.Thread(target=self.run, name="background", daemon=True)
        self.thread.start()
        clock.settle(threads=1)

    def run(self) -> None:
        due = self.clock.monotonic() + self.every
        while not self.stopping:
            self.event.clear()
            self.rounds += 1
            if self.clock.monotonic() >= due:
                self.work()
                due = self.clock.monotonic() + self.every
            self.clock.idle(self.event, due)

    def stop(self) -> None:
        self.stopping = True
        self.event.set()
        self.thread.join(10)
        assert not self.thread.is_alive()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def waiting_thread(clock: ManualClock, event: threading.Event, until: float | None):
    thread = threading.Thread(target=clock.wait, args=(event, until))
    thread.start()
    return thread


def test_time_stands_still_unless_it_is_advanced(clock: ManualClock) -> None:
    assert (clock.monotonic(), clock.wall()) == (1_000.0, 1_750_000_000.0)
    assert (clock.monotonic(), clock.wall()) == (1_000.0, 1_750_000_000.0)


def test_advance_moves_both_clocks(clock: ManualClock) -> None:
    clock.advance(2.5)
    assert (clock.monotonic(), clock.wall()) == (1_002.5, 1_750_000_002.5)


def test_step_wall_moves_the_wall_clock_only(clock: ManualClock) -> None:
    clock.step_wall(-180)
    assert (clock.monotonic(), clock.wall()) == (1_000.0, 1_749_999_820.0)


def test_time_does_not_go_back(clock: ManualClock) -> None:
    with pytest.raises(ValueError, match="only goes forward"):
        clock.advance(-1)


def test_many_small_steps_are_as_long_as_one_large_one(clock: ManualClock) -> None:
    for _ in range(1_000):
        clock.advance(0.001)
    assert clock.monotonic() == 1_001.0


def test_a_moment_that_has_come_is_not_waited_for(clock: ManualClock) -> None:
    clock.wait(threading.Event(), 1_000.0)
    clock.idle(threading.Event(), 999.0)


def test_an_event_that_is_set_is_not_waited_for(clock: ManualClock) -> None:
    event = threading.Event()
    event.set()
    clock.wait(event, None)
    clock.idle(event, 2_000.0)


def test_a_thread_sleeps_until_its_moment_and_no_longer(clock: ManualClock) -> None:
    event = threading.Event()
    thread = waiting_thread(clock, event, 1_010.0)
    clock.wait_for_sleepers(1)
    clock.advance(9)
    clock.wait_for_sleepers(1)
    clock.advance(1)
    thread.join(10)
    assert not thread.is_alive()


def test_the_passing_of_time_does_not_set_the_event_of_a_thread(clock: ManualClock) -> None:
    event = threading.Event()
    thread = waiting_thread(clock, event, 1_010.0)
    clock.wait_for_sleepers(1)
    clock.advance(10)
    thread.join(10)
    assert not event.is_set()


def test_a_thread_is_woken_by_its_event_before_its_moment(clock: ManualClock) -> None:
    event = threading.Event()
    thread = waiting_thread(clock, event, None)
    clock.wait_for_sleepers(1)
    event.set()
    thread.join(10)
    assert not thread.is_alive()
    assert clock.sleepers() == 0


def test_an_advance_between_the_check_and_the_wait_is_not_missed(clock: ManualClock) -> None:
    """Many threads on their way into the wait while time passes: each must come out of it."""
    start = threading.Barrier(21)

    def sleep_again_and_again() -> None:
        start.wait()
        for moment in range(1, 101):
            clock.wait(threading.Event(), 1_000.0 + moment)

    threads = [threading.Thread(target=sleep_again_and_again) for _ in range(20)]
    for thread in threads:
        thread.start()
    start.wait()
    for _ in range(100):
        clock.advance(1)
    for thread in threads:
        thread.join(10)
    assert not any(thread.is_alive() for thread in threads)


async def test_a_task_sleeps_until_its_moment_and_no_longer(clock: ManualClock) -> None:
    event = asyncio.Event()
    task = asyncio.create_task(clock.await_(event, 1_010.0))
    await clock.await_sleepers(1)
    clock.advance(9)
    await asyncio.sleep(0)
    assert not task.done()
    clock.advance(1)
    await asyncio.wait_for(task, 10)


async def test_a_task_is_woken_by_its_event_before_its_moment(clock: ManualClock) -> None:
    event = asyncio.Event()
    task = asyncio.create_task(clock.await_(event, None))
    await clock.await_sleepers(1)
    event.set()
    await asyncio.wait_for(task, 10)
    assert clock.sleepers() == 0


async def test_a_task_does_not_wait_for_what_has_come(clock: ManualClock) -> None:
    event = asyncio.Event()
    await asyncio.wait_for(clock.await_(event, 1_000.0), 10)
    event.set()
    await asyncio.wait_for(clock.await_(event, None), 10)


async def test_a_cancelled_task_sleeps_no_more(clock: ManualClock) -> None:
    task = asyncio.create_task(clock.await_(asyncio.Event(), None))
    await clock.await_sleepers(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert clock.sleepers() == 0


async def test_another_thread_may_advance_while_tasks_sleep(clock: ManualClock) -> None:
    tasks = [asyncio.create_task(clock.await_(asyncio.Event(), 1_005.0)) for _ in range(50)]
    await clock.await_sleepers(50)
    await asyncio.to_thread(clock.advance, 5)
    await asyncio.wait_for(asyncio.gather(*tasks), 10)


async def test_callers_that_never_come_fail_the_test_instead_of_hanging_it() -> None:
    clock = ManualClock(patience=0.05)
    with pytest.raises(AssertionError, match="2 caller"):
        clock.wait_for_sleepers(2)
    with pytest.raises(AssertionError, match="2 caller"):
        await clock.await_sleepers(2)


def test_advance_returns_when_background_threads_have_done_what_was_due(clock: ManualClock) -> None:
    done: list[float] = []
    background = Background(clock, 10, lambda: done.append(clock.monotonic()))
    clock.advance(9)
    assert done == []
    clock.advance(1)
    assert done == [1_010.0]
    clock.advance(10)
    assert done == [1_010.0, 1_020.0]
    background.stop()


def test_settle_waits_for_a_background_thread_that_was_roused(clock: ManualClock) -> None:
    background = Background(clock, 10, lambda: None)
    for rounds in range(1, 51):
        background.event.set()
        clock.settle()
        assert background.rounds == rounds + 1
    background.stop()


def test_advance_does_not_wait_for_background_threads_that_ended(clock: ManualClock) -> None:
    background = Background(clock, 10, lambda: None)
    background.stop()
    clock.advance(100)


def test_a_background_thread_may_end_instead_of_idling_again(clock: ManualClock) -> None:
    thread = threading.Thread(target=clock.idle, args=(threading.Event(), 1_010.0))
    thread.start()
    clock.settle(threads=1)
    clock.advance(10)
    thread.join(10)
    assert not thread.is_alive()


def test_a_background_thread_that_hangs_fails_the_test_and_is_named() -> None:
    clock = ManualClock(patience=0.05)
    hang = threading.Event()
    background = Background(clock, 10, lambda: bool(hang.wait(10)))
    with pytest.raises(AssertionError, match="background"):
        clock.advance(10)
    hang.set()
    background.stop()


def test_advance_need_not_wait_for_a_background_thread_kept_busy_on_purpose() -> None:
    clock = ManualClock(patience=0.05)
    hang = threading.Event()
    background = Background(clock, 10, lambda: bool(hang.wait(10)))
    clock.advance(10, settle=False)
    hang.set()
    background.stop()


def test_background_threads_do_not_count_as_callers_that_wait(clock: ManualClock) -> None:
    background = Background(clock, 10, lambda: None)
    assert clock.sleepers() == 0
    background.stop()


def test_run_passes_time_from_moment_to_moment(clock: ManualClock) -> None:
    done: list[float] = []
    background = Background(clock, 10, lambda: done.append(clock.monotonic()))
    clock.run(35)
    assert done == [1_010.0, 1_020.0, 1_030.0]
    assert clock.monotonic() == 1_035.0
    background.stop()


def test_run_reaches_a_moment_between_two_microseconds(clock: ManualClock) -> None:
    done: list[float] = []
    background = Background(clock, 1.0000003, lambda: done.append(clock.monotonic()))
    clock.run(2.5)
    assert done == [1_001.000001, 1_002.000002]
    background.stop()
