"""The machine's own clocks, and waiting on them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time

import pytest

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


STRUCK = """
import signal, sys, threading, time
from joblock.values.clock import SYSTEM_CLOCK

main = threading.main_thread().ident

def strike():
    while sys._current_frames()[main].f_code.co_name != "wait":
        time.sleep(0.001)
    time.sleep(0.1)  # it is about to sleep; should it not yet, the signal is heeded all the sooner
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
    threading.Event().wait()

signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(7))
threading.Thread(target=strike, daemon=True).start()
until = {until}
SYSTEM_CLOCK.wait(threading.Event(), until)
"""


@pytest.mark.parametrize("until", ["None", "SYSTEM_CLOCK.monotonic() + 600"])
def test_the_main_thread_heeds_a_signal_that_another_thread_was_interrupted_by(until):
    command = [sys.executable, "-c", STRUCK.format(until=until)]
    assert subprocess.run(command, check=False, timeout=60).returncode == 7
