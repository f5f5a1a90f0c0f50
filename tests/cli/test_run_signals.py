"""`joblock run` and signals: passed on to the command, ending a wait, and never leaving a mess."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest
from cli_process import TTL, wait_until

from joblock.values.durations import to_ms

TTL_OF_A_RUN = timedelta(milliseconds=to_ms(TTL))

FORWARDED = ["TERM", "INT", "HUP", "QUIT", "USR1", "USR2"]


def number(name: str) -> int:
    return getattr(signal, f"SIG{name}")


@pytest.mark.parametrize("name", FORWARDED)
def test_a_signal_reaches_the_command_and_all_that_it_started(cli, name):
    # A shell runs what is in the background with INT and QUIT ignored, hence Python.
    inner = (
        f"import signal; signals = [signal.SIG{name}]; "
        "signal.pthread_sigmask(signal.SIG_BLOCK, signals); print('ready', flush=True); "
        "signal.sigwait(signals); print('inner', flush=True)"
    )
    outer = f"trap 'wait; echo outer; exit 6' {name}; {sys.executable} -c \"{inner}\" & wait"
    run = cli.start("run", "k", "--", "sh", "-c", outer)
    run.expect("ready")
    run.signal(number(name))
    run.expect("inner")
    run.expect("outer")
    assert run.end() == 6
    assert run.errors() == ""


@pytest.mark.parametrize("name", FORWARDED)
def test_a_signal_that_kills_the_command_gives_128_and_its_number(cli, locks, name):
    run = cli.start("run", "k", "--", "sh", "-c", "ulimit -c 0; echo started; exec sleep 60")
    run.expect("started")
    run.signal(number(name))
    assert run.end() == 128 + number(name)
    assert locks.model.peek("k") is None


@pytest.mark.parametrize("name", FORWARDED)
def test_a_signal_ends_a_wait_and_leaves_no_queue_entry(cli, locks, queued, name):
    with locks.lock("k"):
        run = cli.start("run", "--wait", "forever", "k", "--", "echo", "ran")
        queued("k", 1)
        run.signal(number(name))
        assert run.end() == 128 + number(name)
        assert locks.model.waiters("k") == ()
        assert run.output() == ""
        assert run.errors() == f"joblock: SIG{name} ended the wait for k\n"
    assert locks.model.peek("k") is None


def test_a_waiter_that_a_signal_ended_is_not_waited_for_by_those_behind_it(cli, queued):
    holder = cli.hold("k")
    first = cli.start("run", "--wait", "forever", "k", "--", "echo", "first")
    queued("k", 1)
    second = cli.start("run", "--wait", "forever", "k", "--", "echo", "second")
    queued("k", 2)
    first.signal(signal.SIGTERM)
    assert first.end() == 143
    holder.tell()
    second.expect("second")
    assert second.end() == 0


def test_a_store_that_does_not_answer_keeps_no_signal_waiting(cli, locks):
    assert locks.model.peek("k") is None  # so that there is a file
    blocker = sqlite3.connect(cli.url.removeprefix("sqlite:///"), isolation_level=None)
    try:
        blocker.execute("BEGIN EXCLUSIVE")
        run = cli.start("run", "--wait", "forever", "k", "--", "echo", "ran")
        wait_until(lambda: _opened(run.pid, "leases.db"), "the opening of the store")
        run.signal(signal.SIGTERM)
        assert run.end() == 143
    finally:
        blocker.close()
    assert run.output() == ""
    assert "Traceback" not in run.errors()


def test_the_lease_is_kept_while_the_command_takes_its_time_to_obey(cli, locks):
    script = "trap 'echo told; read _; exit 4' TERM; echo started; while :; do sleep 0.05; done"
    run = cli.start("run", "--ttl", TTL, "k", "--", "sh", "-c", script)
    run.expect("started")
    run.signal(signal.SIGTERM)
    run.expect("told")
    _wait_for_renewals(locks)
    run.tell()
    assert run.end() == 4
    assert locks.model.peek("k") is None


def test_a_signal_that_was_ignored_stays_ignored(cli):
    run = cli.start(
        "run",
        "k",
        "--",
        "sh",
        "-c",
        "echo started; read _; echo done",
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    run.expect("started")
    run.signal(signal.SIGHUP)
    run.tell()
    run.expect("done")
    assert run.end() == 0


def test_an_ignored_signal_does_not_end_a_wait(cli, queued):
    holder = cli.hold("k")
    run = cli.start(
        "run",
        "--wait",
        "forever",
        "k",
        "--",
        "echo",
        "ran",
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    queued("k", 1)
    run.signal(signal.SIGHUP)
    holder.tell()
    run.expect("ran")
    assert run.end() == 0


def test_a_signal_that_was_blocked_ends_a_wait_all_the_same(cli, locks, queued):
    # Some supervisors start their children so, by mistake, and could not end joblock otherwise.
    with locks.lock("k"):
        run = cli.start(
            "run",
            "--wait",
            "forever",
            "k",
            "--",
            "echo",
            "ran",
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM]),
        )
        queued("k", 1)
        run.signal(signal.SIGTERM)
        assert run.end() == 143


def test_a_stopped_command_keeps_its_lease(cli, locks):
    run = cli.start("run", "--ttl", TTL, "k", "--", "sh", "-c", "echo $$; read _; echo on")
    command = int(run.line())
    subprocess.run(["kill", "-STOP", str(command)], check=True)
    _wait_for_renewals(locks)
    subprocess.run(["kill", "-CONT", str(command)], check=True)
    run.tell()
    run.expect("on")
    assert run.end() == 0


@pytest.mark.parametrize("share", [0.1, 0.25, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0])
def test_a_signal_at_any_moment_leaves_the_key_free_and_no_traceback(cli, locks, share):
    # How long a run takes here and now, so that the signals fall into every part of one.
    begin = time.monotonic()
    assert cli("run", "k", "--", "true").returncode == 0
    takes = time.monotonic() - begin
    run = cli.start("run", "k", "--", "true")
    timer = threading.Timer(takes * share, run.process.send_signal, [signal.SIGTERM])
    timer.start()
    code = run.end()
    timer.join()
    assert code in {0, 143, -signal.SIGTERM}
    assert "Traceback" not in run.errors()
    assert locks.model.peek("k") is None
    assert locks.model.waiters("k") == ()


def _wait_for_renewals(locks):
    """Until the lease has lived for longer than its ttl."""
    first = locks.model.peek("k")
    far = first.acquired_at + 2.1 * TTL_OF_A_RUN
    wait_until(lambda: locks.model.peek("k").expires_at > far, "a renewal")
    assert locks.model.peek("k").token == first.token


def _opened(pid, name):
    try:
        return any(link.readlink().name == name for link in Path(f"/proc/{pid}/fd").iterdir())
    except FileNotFoundError:
        return False  # one was closed just now
