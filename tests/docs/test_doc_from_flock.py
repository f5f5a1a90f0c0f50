"""Each line of the table "coming from flock" holds: both commands do the same, free and held."""

from __future__ import annotations

import fcntl
import shlex
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from doc_pages import ROOT, Page
from doc_sessions import PATIENCE, environment

from joblock import JobLocks

ROWS = Page(ROOT / "docs" / "from-flock.md").table("flock")
REFUSED = {"refuses at once", "waits, then refuses"}


def _command(cell):
    """What a cell of the table shows, with a file, a key and a command filled in."""
    filled = cell.strip("`").replace("LOCK", "job.lock").replace("KEY", "nightly-prune")
    return shlex.split(filled.replace("CMD", "touch ran"))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "job.lock").touch()
    return tmp_path


@pytest.fixture
def start(folder):
    started = []

    def start(command):
        child = subprocess.Popen(
            command, cwd=folder, env=environment(folder), stderr=subprocess.PIPE, text=True
        )
        started.append(child)
        return child

    yield start
    for child in started:
        child.kill()
        child.communicate()


@contextmanager
def _both_held(folder):
    with (
        (folder / "job.lock").open() as file,
        JobLocks(environment(folder)["JOBLOCK_URL"]) as locks,
        locks.lock("nightly-prune"),
    ):
        fcntl.flock(file, fcntl.LOCK_EX)
        yield locks


@pytest.mark.parametrize("column", [0, 1], ids=["flock", "joblock"])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].strip("`"))
def test_it_runs_when_nobody_has_the_lock(row, column, folder, start):
    child = start(_command(row[column]))
    assert child.wait(PATIENCE) == 0
    assert (folder / "ran").exists()


@pytest.mark.parametrize("column", [0, 1], ids=["flock", "joblock"])
@pytest.mark.parametrize("row", [row for row in ROWS if row[2] in REFUSED], ids=lambda row: row[0])
def test_it_refuses_when_another_has_the_lock(row, column, folder, start):
    command = _command(row[column])
    with _both_held(folder):
        child = start(command)
        code = child.wait(PATIENCE)
    told = command[command.index("-E") + 1] if "-E" in command else ("1", "75")[column]
    assert code == int(told)
    assert not (folder / "ran").exists()
    if "-q" in command:
        assert child.stderr.read() == ""


@pytest.mark.parametrize("column", [0, 1], ids=["flock", "joblock"])
@pytest.mark.parametrize(
    "row", [row for row in ROWS if row[2] not in REFUSED], ids=lambda row: row[0]
)
def test_it_waits_while_another_has_the_lock(row, column, folder, start):
    assert row[2] == "waits"
    with _both_held(folder) as locks:
        child = start(_command(row[column]))
        deadline = time.monotonic() + PATIENCE
        while not (locks.model.waiters("nightly-prune") or _waits_for_file(folder / "job.lock")):
            assert child.poll() is None, child.stderr.read()
            assert time.monotonic() < deadline, "it does not wait"
            time.sleep(0.01)
        assert not (folder / "ran").exists()
    assert child.wait(PATIENCE) == 0
    assert (folder / "ran").exists()


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("flock -n LOCK sh -c 'exit 3'", 3),
        ("joblock run KEY -- sh -c 'exit 3'", 3),
        ("flock", 64),
        ("joblock run", 64),
        ("flock -n LOCK no-such", 69),
        ("joblock run KEY -- no-such", 127),
        ("flock -n LOCK ./job.lock", 69),
        ("joblock run KEY -- ./job.lock", 126),
    ],
)
def test_the_exit_codes_are_those_of_the_page(command, code, start):
    assert start(_command(command)).wait(PATIENCE) == code


def test_every_kind_of_line_is_in_the_table():
    assert {row[2] for row in ROWS} == {*REFUSED, "waits"}


def _waits_for_file(path):
    """Whether the kernel lists somebody who waits for a lock on that file."""
    inode = f":{path.stat().st_ino} "
    locks = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    return any("->" in line and inode in line for line in locks)
