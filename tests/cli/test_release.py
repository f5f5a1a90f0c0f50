"""`joblock release`: breaking a lease, never by accident."""

from __future__ import annotations

import os
import pwd
import sqlite3

import pexpect
import pytest
from cli_process import JOBLOCK, PATIENCE


def test_without_force_it_refuses_and_tells_why(cli, locks):
    with locks.lock("k") as lease:
        for arguments in (["k"], ["--yes", "k"]):
            ended = cli("release", *arguments)
            assert (ended.returncode, ended.stdout) == (64, "")
            assert "two may run at a time" in ended.stderr
            assert "--force" in ended.stderr
        assert locks.model.peek("k").token == lease.token


def test_without_yes_it_refuses_where_nobody_can_be_asked(cli, locks):
    with locks.lock("k") as lease:
        ended = cli("release", "--force", "k", input="y\n")
        assert (ended.returncode, ended.stdout) == (64, "")
        assert "--yes" in ended.stderr
        assert locks.model.peek("k").token == lease.token


def test_it_shows_what_was_broken_and_keeps_who_did_it_and_why(cli, locks):
    holder = cli.hold("k", "--ttl", "1h")
    lease = locks.model.peek("k")
    ended = cli("release", "--force", "--yes", "--reason", "its host\x1b is gone", "k")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("broke k (held), held since ")
    assert f"host {os.uname().nodename}, pid {holder.pid} (sh)" in ended.stdout
    assert ended.stdout.endswith(f"holder {lease.holder}, token {lease.token}\n")
    assert locks.model.peek("k") is None
    row = sqlite3.connect(cli.url.removeprefix("sqlite:///"))
    by, why = row.execute("SELECT forced_by, forced_why FROM job_locks WHERE key = 'k'").fetchone()
    row.close()
    assert by == f"{pwd.getpwuid(os.getuid()).pw_name}@{os.uname().nodename}"
    assert why == "its host\x1b is gone"


def test_whoever_waits_has_the_key_at_once(cli, queued):
    cli.hold("k", "--ttl", "1h")
    waiting = cli.start("run", "--wait", "forever", "k", "--", "echo", "ran")
    queued("k", 1)
    assert cli("release", "--force", "--yes", "k").returncode == 0
    waiting.expect("ran")
    assert waiting.end() == 0


def test_a_key_that_nobody_holds_gives_1(cli):
    ended = cli("release", "--force", "--yes", "k")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == "joblock: k was not held by anybody\n"


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("n", 1), ("", 1)])
def test_it_asks_at_a_terminal(cli, locks, answer, code):
    with locks.lock("k", ttl="1h", on_lost="warn"):
        asked = pexpect.spawn(
            JOBLOCK[0],
            [*JOBLOCK[1:], "release", "--force", "k"],
            env=cli.environment,
            encoding="utf-8",
            timeout=PATIENCE,
        )
        asked.expect_exact("two may run at a time")
        asked.expect_exact("Break it? [y/N]:")
        asked.sendline(answer)
        asked.expect(pexpect.EOF)
        asked.close()
        assert asked.exitstatus == code
        assert (locks.model.peek("k") is None) == (code == 0)
