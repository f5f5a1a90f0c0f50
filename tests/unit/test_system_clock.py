"""The machine's own clocks, and waiting on them."""

from __future__ import annotations

import asyncio
import threading
import time

from joblock.values.clock import SYSTEM_CLOCK


def test_the_monotonic_clock_does_not_go_back():
    readings = [SYSTEM_CLOCK.monotonic() for _ in range(1_000)]
    assert readings == sorted(readings)


def test_the_wall_clock_is_the_machines():
    before = time.time()
    assert before <= SYSTEM_CLOCK.wall() <= time.time()


def test_a_wait_ends_at_its_moment_and_not_before():
    until = SYSTEM_CLOCK.monotonic() + 0.02
    event = threading.Event()
    SYSTEM_CLOCK.wait(event, until)
    assert SYSTEM_CLOCK.monotonic() >= until
    assert not event.is_set()


def test_a_wait_for_what_has_come_ends_at_once():
    SYSTEM_CLOCK.wait(threading.Event(), SYSTEM_CLOCK.monotonic() - 1)
    event = threading.Event()
    event.set()
    SYSTEM_CLOCK.wait(event, None)
    SYSTEM_CLOCK.idle(event, SYSTEM_CLOCK.monotonic() + 3_600)


def test_a_wait_of_a_century_is_no_overflow():
    event = threading.Event()
    event.set()
    SYSTEM_CLOCK.wait(event, SYSTEM_CLOCK.monotonic() + 100 * 365 * 24 * 3600)


def test_an_event_ends_a_wait_without_limit():
    event = threading.Event()
    thread = threading.Thread(target=SYSTEM_CLOCK.wait, args=(event, None))
    thread.start()
    event.set()
    thread.join(10)
    assert not thread.is_alive()


async def test_a_task_waits_until_its_moment_and_not_before():
    until = SYSTEM_CLOCK.monotonic() + 0.02
    await SYSTEM_CLOCK.await_(asyncio.Event(), until)
    # The loop's timer is on a clock of its own, with a resolution of its own.
    assert SYSTEM_CLOCK.monotonic() >= until - 0.002


async def test_a_task_does_not_wait_for_what_has_come():
    await SYSTEM_CLOCK.await_(asyncio.Event(), SYSTEM_CLOCK.monotonic() - 1)
    event = asyncio.Event()
    event.set()
    await SYSTEM_CLOCK.await_(event, None)


async def test_an_event_ends_a_tasks_wait_and_leaves_no_timer_behind():
    event = asyncio.Event()
    task = asyncio.create_task(SYSTEM_CLOCK.await_(event, SYSTEM_CLOCK.monotonic() + 3_600))
    await asyncio.sleep(0)
    event.set()
    await asyncio.wait_for(task, 10)
