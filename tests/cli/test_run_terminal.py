"""`joblock run` at a terminal: whose turn it is to read, Ctrl-C, Ctrl-Z, fg and bg."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pexpect
import pytest
from cli_process import JOBLOCK, PATIENCE, TTL, wait_until

READ = "read x; echo got:$x"


@pytest.fixture
def terminal(cli):
    """Starts a program on a terminal of its own."""
    started = []

    def start(*command, **options):
        child = pexpect.spawn(
            command[0],
            list(command[1:]),
            env={**cli.environment, "TERM": "xterm"},
            cwd=str(cli.folder),
            encoding="utf-8",
            timeout=PATIENCE,
            echo=False,
            **options,
        )
        started.append(child)
        return child

    yield start
    for child in started:
        if not child.closed:
            child.close(force=True)


@pytest.fixture
def shell(terminal, tmp_path):
    """An interactive shell, which has jobs."""
    script = tmp_path / "joblock"
    script.write_text(f'#!/bin/sh\nexec {shlex.join(JOBLOCK)} "$@"\n')
    script.chmod(0o755)
    shell = terminal("bash", "--norc", "--noprofile", "--noediting", "-i")
    shell.sendline(f"PATH={tmp_path}:$PATH; PS1='ready''$ '")
    shell.expect_exact("ready$ ")
    return shell


def test_the_command_reads_from_the_terminal(terminal):
    run = terminal(*JOBLOCK, "run", "k", "--", "sh", "-c", f"echo started; {READ}")
    run.expect_exact("started")
    run.sendline("hello")
    run.expect_exact("got:hello")
    run.expect(pexpect.EOF)
    assert _code(run) == 0


def test_the_command_is_in_the_foreground_of_the_terminal_from_its_first_moment(terminal):
    ask = "import os; print('foreground', os.tcgetpgrp(0) == os.getpgrp() == os.getpid())"
    run = terminal(*JOBLOCK, "run", "k", "--", "python3", "-c", ask)
    run.expect_exact("foreground True")


def test_the_shell_has_the_terminal_again_after_the_run(shell):
    for command in (READ, "exit 3", "kill -9 $$"):
        shell.sendline(f"joblock run k -- sh -c {shlex.quote(command)}")
        if command == READ:
            shell.sendline("first")
            shell.expect_exact("got:first")
        shell.expect_exact("ready$ ")
        shell.sendline(READ)
        shell.sendline("second")
        shell.expect_exact("got:second")
        shell.expect_exact("ready$ ")


def test_ctrl_c_ends_the_command_and_not_the_shell(shell, locks):
    shell.sendline("joblock run k -- sh -c 'echo started; exec sleep 60'")
    shell.expect_exact("started")
    shell.sendintr()
    shell.expect_exact("ready$ ")
    shell.sendline("echo code:$?")
    shell.expect_exact("code:130")
    assert locks.model.peek("k") is None


def test_a_command_may_make_of_ctrl_c_what_it_likes(terminal):
    script = "trap 'echo not yet' INT; echo started; read x; read x; echo got:$x"
    run = terminal(*JOBLOCK, "run", "k", "--", "sh", "-c", script)
    run.expect_exact("started")
    run.sendintr()
    run.expect_exact("not yet")
    run.sendline("a")
    run.sendline("b")
    run.expect("got:[ab]")
    run.expect(pexpect.EOF)
    assert _code(run) == 0


def test_ctrl_c_ends_a_wait(shell, locks):
    with locks.lock("k"):
        shell.sendline("joblock run --wait forever k -- echo ran")
        shell.expect_exact("joblock: waiting: k is held since")
        shell.sendintr()
        shell.expect_exact("SIGINT ended the wait for k")
        shell.expect_exact("ready$ ")
        assert locks.model.waiters("k") == ()


def test_ctrl_z_stops_the_run_and_fg_goes_on_with_it(shell, locks):
    shell.sendline(f"joblock run k -- sh -c 'echo started; {READ}'")
    shell.expect_exact("started")
    shell.sendcontrol("z")
    shell.expect("Stopped")
    shell.expect_exact("ready$ ")
    shell.sendline("echo still-$((40 + 2))")
    shell.expect_exact("still-42")
    assert locks.model.peek("k").state == "held"
    shell.sendline("fg")
    shell.sendline("hello")
    shell.expect_exact("got:hello")
    shell.expect_exact("ready$ ")
    assert locks.model.peek("k") is None


def test_ctrl_z_stops_a_run_again_and_again(shell, tmp_path):
    (tmp_path / "again.py").write_text(AGAIN)
    shell.sendline("joblock run k -- python3 again.py")
    shell.expect_exact("started")
    for _ in range(3):
        shell.sendcontrol("z")
        shell.expect("Stopped")
        shell.expect_exact("ready$ ")
        shell.sendline("fg")
        shell.expect_exact("continued")
    shell.sendline("hello")
    shell.expect_exact("got:hello")
    shell.expect_exact("ready$ ")


# Tells of each SIGCONT, whatever it is at when that comes.
AGAIN = """
import os, select, signal

read, write = os.pipe()
os.set_blocking(write, False)
signal.signal(signal.SIGCONT, lambda *_: None)
signal.set_wakeup_fd(write)
print("started", flush=True)
while True:
    ready, _, _ = select.select([0, read], [], [])
    if read in ready:
        os.read(read, 100)
        print("continued", flush=True)
    if 0 in ready:
        print("got:" + input())
        break
"""


def test_a_run_that_was_stopped_for_longer_than_its_ttl_does_not_go_on(shell, locks, tmp_path):
    (tmp_path / "beat.py").write_text(BEAT)
    shell.sendline(f"joblock run --ttl {TTL} k -- python3 beat.py")
    shell.expect_exact("started")
    shell.sendcontrol("z")
    shell.expect("Stopped")
    shell.expect_exact("ready$ ")
    wait_until(lambda: locks.model.peek("k").state == "expired", "the end of the lease")
    shell.sendline("fg")
    shell.expect_exact("the lease is lost: ending the command")
    shell.expect_exact("told")
    # It is told before it is continued: at most what it was at is finished.
    assert shell.before.count("beat") <= 1
    shell.expect_exact("ready$ ")
    shell.sendline("echo code:$?")
    shell.expect_exact("code:74")


BEAT = """
import signal, sys, time

def told(number, frame):
    print("told", flush=True)
    sys.exit(0)

signal.signal(signal.SIGTERM, told)
print("started", flush=True)
while True:
    time.sleep(0.05)
    print("beat", flush=True)
"""


def test_a_stopped_run_goes_on_in_the_background_with_bg(shell, tmp_path):
    os.mkfifo(tmp_path / "go")
    shell.sendline("joblock run k -- sh -c 'echo started; read x <go; touch done'")
    shell.expect_exact("started")
    shell.sendcontrol("z")
    shell.expect("Stopped")
    shell.sendline("bg; echo >go; wait; echo waited-for")
    shell.expect_exact("waited-for")
    assert (tmp_path / "done").exists()


def test_a_run_in_the_background_that_reads_is_stopped_until_fg(shell):
    shell.sendline(f"joblock run k -- sh -c 'echo started; {READ}' &")
    shell.expect_exact("started")
    # The shell tells of a stopped job when it is asked for its next line.
    shell.sendline(
        "while ! jobs | grep -q Stopped; do sleep 0.05; done; echo it-$((1 + 1))-stopped; fg"
    )
    shell.expect_exact("it-2-stopped")
    shell.sendline("hello")
    shell.expect_exact("got:hello")
    shell.expect_exact("ready$ ")


def test_a_terminal_that_is_not_the_standard_input_is_lent_when_it_is_asked_for(shell):
    shell.sendline(f"echo nothing | joblock run k -- sh -c 'exec </dev/tty; echo go; {READ}' | cat")
    shell.expect_exact("go")
    shell.sendline("hello")
    shell.expect_exact("got:hello")
    shell.expect_exact("ready$ ")


def test_a_pager_behind_the_run_keeps_the_terminal(shell):
    pager = "cat; read x </dev/tty; echo pager:$x"
    shell.sendline(f"joblock run k -- sh -c 'echo text' | sh -c '{pager}'")
    shell.expect_exact("text")
    shell.sendline("hello")
    shell.expect_exact("pager:hello")
    shell.expect_exact("ready$ ")


def test_ctrl_z_in_a_pipe_stops_all_of_it(shell, tmp_path):
    os.mkfifo(tmp_path / "go")
    shell.sendline(f"joblock run k -- sh -c 'echo started; read x <go; {READ}' | cat")
    shell.expect_exact("started")
    shell.sendcontrol("z")
    shell.expect("Stopped")
    shell.expect_exact("ready$ ")
    shell.sendline("fg")
    (tmp_path / "go").write_text("\n")
    shell.sendline("hello")
    shell.expect_exact("got:hello")
    shell.expect_exact("ready$ ")


def test_ctrl_z_has_no_effect_where_no_shell_could_continue_the_run(terminal):
    run = terminal(*JOBLOCK, "run", "k", "--", "sh", "-c", f"echo started; {READ}")
    run.expect_exact("started")
    run.sendcontrol("z")
    run.sendline("hello")
    run.expect_exact("got:hello")
    run.expect(pexpect.EOF)
    assert _code(run) == 0


def test_ctrl_z_stops_a_wait_and_fg_goes_on_with_it(shell, locks, queued):
    lease = locks.acquire("k")
    shell.sendline("joblock run --wait forever k -- echo ran")
    queued("k", 1)
    shell.sendcontrol("z")
    shell.expect("Stopped")
    shell.expect_exact("ready$ ")
    shell.sendline("fg")
    shell.expect_exact("joblock")
    lease.release()
    shell.expect_exact("ran")
    shell.expect_exact("ready$ ")


def test_a_terminal_that_goes_away_ends_the_command(terminal, locks):
    run = terminal(*JOBLOCK, "run", "k", "--", "sh", "-c", "echo $$; exec sleep 60")
    run.expect(r"(\d+)\r\n")
    os.close(run.fileno())
    run.closed = True
    wait_until(lambda: locks.model.peek("k") is None, "the end of the run")
    wait_until(lambda: not Path(f"/proc/{run.match[1]}").exists(), "the end of the command")


def _code(run):
    run.wait()
    return run.exitstatus if run.signalstatus is None else -run.signalstatus
