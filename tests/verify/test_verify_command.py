"""`joblock verify` as its users meet it: its report, its exit codes, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pexpect
import pytest

import joblock
from joblock import JobLocks
from joblock.verify.history import History
from joblock.verify.operations import KEYS
from joblock.verify.report import Report, Updates
from joblock.verify.sweep import sweep

PATIENCE = 90.0
SOURCE = str(Path(joblock.__file__).parents[1])

WRONG_STORE = """
from joblock.store.ops import Acquire, Force
from joblock.stores.sqlite import SqliteStore


class Driver:
    def __init__(self, inner):
        self.inner = inner
        self.count = 0

    def call(self, op):
        self.count += 1
        if isinstance(op, Acquire) and self.count % 3 == 0:
            self.inner.call(Force(op.key, "a bug", "whoever has it"))
        return self.inner.call(op)


class WrongStore(SqliteStore):
    def driver(self):
        return Driver(super().driver())


def open_wrong(url):
    return WrongStore.from_url(url.replace("wrong", "sqlite", 1))
"""


class Command:
    """Runs the command in a folder of its own."""

    def __init__(self, folder) -> None:
        self.folder = folder
        self.url = f"sqlite:///{folder}/leases.db"
        kept = {name: each for name, each in os.environ.items() if not name.startswith("JOBLOCK_")}
        # Temporary files of a run are below it, which tells its processes from others'.
        self.environment = {**kept, "TMPDIR": str(folder), "PYTHONPATH": f"{folder}:{SOURCE}"}

    def start(self, *arguments, **options):
        return subprocess.Popen(
            [sys.executable, "-m", "joblock.cli", "verify", *arguments],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )

    def __call__(self, *arguments):
        """Exit code, output, errors."""
        with self.start(*arguments) as process:
            output, errors = process.communicate(timeout=PATIENCE)
            return process.returncode, output, errors

    def workers(self):
        """The process ids of the workers that there are."""
        mark = f"TMPDIR={self.folder}".encode()
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                command = (folder / "cmdline").read_bytes()
                environment = (folder / "environ").read_bytes()
            except OSError:
                continue
            if b"joblock.verify.worker" in command and mark in environment.split(b"\0"):
                found.append(int(folder.name))
        return found

    def rows(self):
        with closing(sqlite3.connect(self.folder / "leases.db")) as data:
            (count,) = data.execute("SELECT count(*) FROM job_locks").fetchone()
            return count


@pytest.fixture
def command(tmp_path):
    return Command(tmp_path)


def wait_until(reached, what):
    end = time.monotonic() + PATIENCE
    while not reached():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def test_a_sound_store_is_reported_as_such_with_exit_code_0(command):
    code, output, errors = command(command.url, "--seconds", "4", "--workers", "2", "--seed", "7")
    assert (code, errors) == (0, ""), output
    assert "seed 7" in output
    assert "no violation of" in output
    assert "first come, first served" in output
    assert command.workers() == []
    assert command.rows() == 0
    assert [path.name for path in command.folder.glob("joblock-verify-*")] == []


def test_what_a_run_did_not_come_to_is_not_said_to_hold():
    report = Report("memory://", 7, 5.0, History(), [], {"fenced": Updates(0, 0)}, {"cut": "why"})
    kept, untried = report.to_text().split("not exercised")
    for promise in ("no update of fenced data is lost", "first come, first served"):
        assert promise not in kept
        assert promise in untried
    assert "no pause, no kill" in untried
    assert "cut" not in untried  # it is told above why there can be none
    assert report.to_json()["unexercised"]["fence"] == "no update was made"


def test_json_has_operations_faults_and_violations(command):
    code, output, _ = command(
        command.url, "--seconds", "4", "--workers", "2", "--faults", "pause,kill", "--json"
    )
    report = json.loads(output)
    assert code == 0
    assert report["operations"] > 0
    assert report["violations"] == []
    assert set(report["faults"]) <= {"pause", "kill", "late"}
    assert report["updates"]["fenced"]["lost"] == 0


def test_a_store_that_breaks_a_promise_is_exit_code_1_and_the_history_that_shows_it(command):
    (command.folder / "wrong_store.py").write_text(WRONG_STORE)
    info = command.folder / "wrong_store-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: wrong-store\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[joblock.stores]\nwrong = wrong_store:open_wrong\n")
    code, output, _ = command(
        command.url.replace("sqlite", "wrong", 1), "--seconds", "6", "--faults", "none"
    )
    assert code == 1, output
    assert "VIOLATIONS" in output
    assert "exclusion: " in output or "ownership: " in output
    assert "-> granted token" in output


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_ends_its_workers_and_cleans_up(command, number):
    process = command.start(command.url, "--seconds", "300", "--workers", "3")
    try:
        wait_until(lambda: len(command.workers()) == 3, "there should be three workers")
        for _ in range(3):  # as a wrapper passes it on that got it too
            process.send_signal(number)
            time.sleep(0.02)
        process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert process.returncode == 128 + number
    assert command.workers() == []
    assert command.rows() == 0
    assert [path.name for path in command.folder.glob("joblock-verify-*")] == []


def test_a_killed_run_takes_its_workers_along_even_stopped_ones(command):
    process = command.start(command.url, "--seconds", "300", "--workers", "2", "--faults", "none")
    try:
        wait_until(lambda: len(command.workers()) == 2, "there should be two workers")
        time.sleep(0.5)  # they ask for the kernel's help as soon as they begin
        os.kill(command.workers()[0], signal.SIGSTOP)
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE)
    wait_until(lambda: command.workers() == [], "none should be left")


def test_a_store_that_cannot_be_reached_is_69(command):
    code, output, errors = command("redis://127.0.0.1:1/0")
    assert (code, output) == (69, "")
    assert "cannot connect" in errors


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("memory://",), "one process alone"),
        (("sqlite:///x.db", "--faults", "flood"), "there is no fault flood"),
        (("sqlite:///x.db", "--url", "sqlite:///y.db"), "named twice"),
        (("nonsense://",), "no store for the URL scheme"),
    ],
)
def test_what_makes_no_sense_is_bad_usage(command, arguments, word):
    code, output, errors = command(*arguments)
    assert (code, output) == (64, "")
    assert word in errors


def test_the_environment_names_the_store_and_the_history_is_kept_where_it_is_wanted(command):
    command.environment["JOBLOCK_URL"] = command.url
    kept = command.folder / "history.jsonl"
    arguments = ("--seconds", "3", "--workers", "2", "--history", str(kept))
    code, _, _ = command(*arguments)
    assert code == 0
    assert '"op":"Acquire"' in kept.read_text()
    code, _, errors = command(*arguments)
    assert code == 64
    assert "there is such a file" in errors


def test_a_terminal_sees_how_far_it_is(command):
    environment = {**command.environment, "JOBLOCK_URL": command.url}
    arguments = ["-m", "joblock.cli", "verify", "--seconds", "3", "--workers", "2"]
    terminal = pexpect.spawn(
        sys.executable, arguments, env=environment, encoding="utf-8", timeout=PATIENCE
    )
    terminal.expect(r"\[#*\.+\] running, \d+ of 3 s, \d+ faults")
    terminal.expect("checking the history")
    terminal.expect("no violation of")
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 0


def test_what_the_workers_left_is_swept_without_a_word(tmp_path, caplog):
    url = f"sqlite:///{tmp_path}/leases.db"
    with JobLocks(url, prefix="p:") as locks:
        assert locks.model.acquire(KEYS[0], 60, "a worker that was killed")
        sweep(url, "p:", [])
        assert locks.model.peek(KEYS[0]) is None
    with closing(sqlite3.connect(tmp_path / "leases.db")) as data:
        assert data.execute("SELECT count(*) FROM job_locks").fetchone() == (0,)
    assert caplog.records == []
