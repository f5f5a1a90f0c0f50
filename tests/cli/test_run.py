"""`joblock run`: what it exits with, and what the command finds."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from pathlib import Path

import pytest
from cli_process import JOBLOCK, TTL, wait_until

from joblock.store.ops import Release

ECHO_ENVIRONMENT = (
    'echo "$JOBLOCK_KEY|$JOBLOCK_TOKEN|$JOBLOCK_HOLDER|$JOBLOCK_URL|$JOBLOCK_URL_FILE"'
)


@pytest.mark.parametrize("code", [0, 1, 3, 64, 75, 255])
def test_the_commands_exit_code_is_that_of_the_run(cli, locks, code):
    ended = cli("run", "k", "--", "sh", "-c", f"exit {code}")
    assert ended.returncode == code
    assert ended.stderr == ""
    assert locks.model.peek("k") is None


@pytest.mark.parametrize("name", ["TERM", "KILL", "SEGV", "INT", "USR1"])
def test_a_command_that_a_signal_killed_gives_128_and_its_number(cli, name):
    ended = cli("run", "k", "--", "sh", "-c", f"ulimit -c 0; kill -{name} $$")
    assert ended.returncode == 128 + getattr(signal, f"SIG{name}")


def test_a_command_that_is_not_found_gives_127_and_frees_the_key(cli, locks):
    for command in ("no-such-command", "./no-such-file", "/etc/passwd/no"):
        ended = cli("run", "k", "--", command)
        assert ended.returncode == 127
        assert ended.stderr == f"joblock: command not found: {command}\n"
    assert locks.model.peek("k") is None


def test_a_command_that_is_an_empty_text_gives_127_and_says_so(cli):
    ended = cli("run", "k", "--", "")
    assert ended.returncode == 127
    assert ended.stderr.startswith("joblock: command not found: ''")
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [("run", "k", "--", "echo"), ("ls",), ("peek", "k"), ("release", "--force", "--yes", "k")],
)
def test_a_store_of_one_process_is_refused_since_it_would_exclude_nobody(cli, arguments):
    ended = cli(*arguments, env={"JOBLOCK_URL": "memory://x"})
    assert (ended.returncode, ended.stdout) == (64, "")
    assert "memory:// is a store of one process alone" in ended.stderr


def test_an_option_before_the_command_is_told_where_it_goes(cli):
    ended = cli("--url", cli.url, "run", "k", "--", "echo")
    assert ended.returncode == 64
    assert "options go behind the command" in ended.stderr.splitlines()[0]


@pytest.mark.parametrize("url", ["redis://127.0.0.1:9", "postgresql://127.0.0.1:9/db"])
def test_a_store_that_nobody_listens_for_is_told_in_one_line(cli, url):
    ended = cli("run", "k", "--", "echo", env={"JOBLOCK_URL": url})
    assert (ended.returncode, ended.stdout) == (69, "")
    assert ended.stderr.count("\n") == 1, ended.stderr


def test_what_is_found_but_cannot_be_executed_gives_126(cli, locks, tmp_path):
    (tmp_path / "plain").write_text("echo hello\n")
    (tmp_path / "lost").write_text("#!/no/such/interpreter\n")
    (tmp_path / "lost").chmod(0o755)
    for command, why in (
        ("./plain", "Permission denied"),
        ("/tmp", "Permission denied"),  # noqa: S108 - a folder that is there
        ("./lost", "its interpreter is missing"),
    ):
        ended = cli("run", "k", "--", command)
        assert ended.returncode == 126
        assert ended.stderr == f"joblock: cannot execute {command}: {why}\n"
    assert locks.model.peek("k") is None


def test_a_command_not_found_is_not_blamed_on_a_folder_that_is_closed(cli, tmp_path):
    (tmp_path / "file").write_text("")
    path = f"{tmp_path / 'file'}:{cli.environment['PATH']}"
    assert cli("run", "k", "--", "no-such-command", env={"PATH": path}).returncode == 127


def test_a_script_without_an_interpreter_line_is_run_as_a_shell_would(cli, tmp_path):
    script = tmp_path / "script"
    script.write_text('echo "$0 got $1"; exit 5\n')
    script.chmod(0o755)
    ended = cli("run", "k", "--", "./script", "an argument")
    assert (ended.returncode, ended.stdout) == (5, "./script got an argument\n")


def test_a_held_key_gives_75_and_says_who_holds_it(cli, locks):
    holder = cli.hold("nightly prune")
    ended = cli("run", "nightly prune", "--", "echo", "ran")
    assert ended.returncode == 75
    assert ended.stdout == ""
    lease = locks.model.peek("nightly prune")
    line = ended.stderr
    assert line.count("\n") == 1
    assert line.startswith("joblock: not run: nightly prune is held since ")
    assert f"{lease.acquired_at:%Y-%m-%d %H:%M:%S} UTC" in line
    assert f"by host {os.uname().nodename}, pid {holder.pid} (sh), holder {lease.holder}" in line
    assert "until " in line
    assert "unless renewed" in line


def test_the_exit_code_of_a_held_key_can_be_chosen(cli):
    cli.hold("k")
    for code in (0, 1, 99):
        ended = cli("run", "-E", str(code), "k", "--", "echo", "ran")
        assert (ended.returncode, ended.stdout) == (code, "")
        assert "k is held since" in ended.stderr


def test_a_quiet_run_says_nothing_of_a_held_key(cli):
    cli.hold("k")
    for wait in ("0", "0.1s"):
        ended = cli("run", "-q", "-E", "0", "--wait", wait, "k", "--", "echo", "ran")
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_a_key_in_grace_gives_75_and_says_when_it_opens(cli, locks):
    lease = locks.acquire("k")
    grace = Release(lease.key, lease.holder, lease.token, grace=3_600_000)
    locks.store.driver().call(grace)
    ended = cli("run", "k", "--", "echo", "ran")
    lease.release()
    assert (ended.returncode, ended.stdout) == (75, "")
    assert "k is in grace: its run by host" in ended.stderr
    assert "it opens at" in ended.stderr


def test_a_wait_that_times_out_gives_75_not_before_its_time(cli, locks):
    cli.hold("k")
    begin = time.monotonic()
    ended = cli("run", "--wait", "700ms", "k", "--", "echo", "ran")
    assert time.monotonic() - begin >= 0.7
    assert (ended.returncode, ended.stdout) == (75, "")
    assert ended.stderr.startswith("joblock: not run after 0.7 s: k is held since ")
    assert locks.model.waiters("k") == ()


@pytest.mark.parametrize("wait", ["forever", "1h", "30"])
def test_a_run_that_waits_begins_when_the_key_is_released(cli, queued, wait):
    holder = cli.hold("k")
    waiting = cli.start("run", "--wait", wait, "k", "--", "echo", "ran")
    queued("k", 1)
    assert waiting.process.poll() is None
    holder.tell()
    assert holder.end() == 0
    waiting.expect("ran")
    assert waiting.end() == 0
    assert waiting.errors() == ""


def test_those_who_wait_run_in_the_order_of_their_arrival(cli, queued, tmp_path):
    holder = cli.hold("k")
    log = tmp_path / "log"
    waiting = []
    for number in range(3):
        command = f"echo {number} >>{log}"
        waiting.append(cli.start("run", "--wait", "forever", "k", "--", "sh", "-c", command))
        queued("k", number + 1)
    holder.tell()
    assert [each.end() for each in waiting] == [0, 0, 0]
    assert log.read_text() == "0\n1\n2\n"


def test_a_killed_holder_is_replaced_once_its_ttl_is_over(cli, locks):
    first = cli.hold("k", "--ttl", TTL)
    first.signal(signal.SIGKILL)
    first.end()
    left = locks.model.peek("k")
    second = cli.hold("k", "--wait", "forever")
    lease = locks.model.peek("k")
    assert lease.worker.pid == second.pid
    assert lease.acquired_at >= left.expires_at
    assert lease.token > left.token


def test_a_store_that_cannot_be_used_gives_69(cli):
    ended = cli("run", "k", "--", "echo", "ran", env={"JOBLOCK_URL": "sqlite:////no/such/l.db"})
    assert (ended.returncode, ended.stdout) == (69, "")
    assert "/no/such" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_store_that_does_not_answer_gives_69_and_the_command_does_not_run(cli, locks):
    assert locks.model.peek("k") is None  # so that there is a file
    blocker = sqlite3.connect(cli.url.removeprefix("sqlite:///"), isolation_level=None)
    try:
        blocker.execute("BEGIN EXCLUSIVE")
        ended = cli("run", "k", "--", "echo", "ran")
    finally:
        blocker.close()
    assert (ended.returncode, ended.stdout) == (69, "")
    assert ended.stderr.startswith("joblock: ")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["run"], "no KEY"),
        (["run", "k"], "no command: put it behind --"),
        (["run", "k", "--"], "no command: put it behind --"),
        (["run", "--", "echo"], "no KEY"),
        (["run", "k", "echo", "hello"], "the command goes behind --, as in: k -- echo hello"),
        (["run", "k", "ls", "-la"], "what belongs to the command goes behind --"),
        (["run", "--nonsense", "k", "--", "echo"], "--nonsense"),
        (["run", "--ttl", "soon", "k", "--", "echo"], "'soon' is not a duration"),
        (["run", "--ttl", "0", "k", "--", "echo"], "'0' is not a duration"),
        (["run", "--ttl", "-5s", "k", "--", "echo"], "'-5s' is not a duration"),
        (["run", "--wait", "nan", "k", "--", "echo"], "'nan' is not a duration"),
        (["run", "--wait", "-1", "k", "--", "echo"], "'-1' is not a duration"),
        (
            ["run", "--ttl", "1h", "--max-duration", "1m", "k", "--", "echo"],
            "--ttl 3600s is longer than --max-duration 60s",
        ),
        (["run", "--join", "--wait", "0", "k", "--", "echo"], "--join goes without --wait 0"),
        (["run", "--join", "--shared", "k", "--", "echo"], "--shared goes without --join"),
        (["run", "--shared", "--limit", "2", "k", "--", "echo"], "--shared goes without --limit"),
        (["run", "--shared", "--weight", "1", "k", "--", "echo"], "--shared goes without --weight"),
        (["run", "--weight", "2", "k", "--", "echo"], "--weight 2 is above --limit 1"),
        (["run", "--limit", "2", "--weight", "3", "k", "--", "echo"], "--weight 3 is above"),
        (["run", "--limit", "0", "k", "--", "echo"], "--limit"),
        (["run", "--grace", "soon", "k", "--", "echo"], "'soon' is not a duration"),
        (["run", "--at-least", "0", "k", "--", "echo"], "'0' is not a duration"),
        (["run", "-E", "256", "k", "--", "echo"], "256"),
        (["run", "-E", "no", "k", "--", "echo"], "no"),
        (["run", "", "--", "echo"], "no KEY"),
        (["run", "k" * 501, "--", "echo"], "at most 500 characters"),
        (["run", "--url", "nonsense", "k", "--", "echo"], "a store URL begins with a scheme"),
        (["run", "--url", "carrier-pigeon://x", "k", "--", "echo"], "carrier-pigeon"),
        (["nonsense"], "nonsense"),
        (["peek"], "KEY"),
        (["ls", "extra"], "extra"),
        (["release", "k"], "--force"),
        (["schema", "nonsense"], "nonsense"),
    ],
)
def test_bad_usage_gives_64_with_what_is_wrong_and_an_example(cli, arguments, complaint):
    ended = cli(*arguments)
    assert (ended.returncode, ended.stdout) == (64, "")
    first, *rest = ended.stderr.splitlines()
    assert first.startswith("joblock: ")
    assert complaint in first
    assert any(line.startswith("Example: joblock ") for line in rest)
    assert "Traceback" not in ended.stderr


def test_without_arguments_the_help_is_shown_as_an_error(cli):
    ended = cli()
    assert (ended.returncode, ended.stdout) == (64, "")
    assert "joblock run nightly-prune -- ./prune.sh" in ended.stderr


def test_the_commands_own_options_and_double_hyphens_are_left_alone(cli):
    ended = cli("run", "k", "-q", "--", "printf", "%s|", "-E", "--wait", "--", "--help", "")
    assert (ended.returncode, ended.stdout) == (0, "-E|--wait|--|--help||")


def test_a_key_may_begin_with_a_hyphen(cli):
    ended = cli("run", "--", "-k", "--", "sh", "-c", "echo $JOBLOCK_KEY")
    assert (ended.returncode, ended.stdout) == (0, "-k\n")


# The loss of the lease.


def test_a_lost_lease_ends_the_command_and_gives_74(cli):
    run = cli.start("run", "--ttl", TTL, "k", "--", "sh", "-c", "echo started; exec sleep 60")
    run.expect("started")
    assert cli("release", "--force", "--yes", "k").returncode == 0
    assert run.end() == 74
    errors = run.errors()
    assert all(line.startswith("joblock: ") for line in errors.splitlines())
    assert "lease on 'k' lost" in errors
    assert "ending the command (SIGTERM, after 10 s SIGKILL)" in errors


def test_a_command_that_ends_well_after_the_loss_still_gives_74(cli):
    script = "trap 'echo told; exit 0' TERM; echo started; while :; do sleep 0.05; done"
    run = cli.start("run", "--ttl", TTL, "k", "--", "sh", "-c", script)
    run.expect("started")
    cli("release", "--force", "--yes", "k")
    run.expect("told")
    assert run.end() == 74


def test_a_loss_that_nobody_had_noticed_when_the_command_ended_well_gives_74(cli):
    run = cli.hold("k", "--ttl", "1h")
    cli("release", "--force", "--yes", "k")
    run.tell()
    assert run.end() == 74
    assert "lease on 'k' lost" in run.errors()


def test_a_command_that_ignores_the_loss_is_killed_with_all_that_it_started(cli):
    script = "trap '' TERM; sleep 60 & echo $!; wait"
    run = cli.start("run", "--ttl", TTL, "--kill-after", "0.4s", "k", "--", "sh", "-c", script)
    grandchild = int(run.line())
    cli("release", "--force", "--yes", "k")
    assert run.end() == 74
    wait_until(lambda: _has_ended(grandchild), "the end of what the command started")


def test_what_outlives_the_command_after_a_loss_is_killed_too(cli):
    # The command itself ends at once; what it left in its process group ignores SIGTERM.
    inner = "trap '' TERM; echo $$; exec sleep 60"
    script = f"sh -c '{inner}' & wait".replace("'' ", '"" ')
    run = cli.start("run", "--ttl", TTL, "--kill-after", "0.4s", "k", "--", "sh", "-c", script)
    grandchild = int(run.line())
    cli("release", "--force", "--yes", "k")
    assert run.end() == 74
    wait_until(lambda: _has_ended(grandchild), "the end of what the command left behind")


def test_a_process_group_that_obeys_the_loss_is_not_waited_for(cli):
    run = cli.start(
        "run",
        "--ttl",
        TTL,
        "--kill-after",
        "1h",
        "k",
        "--",
        "sh",
        "-c",
        "sleep 60 & echo a; wait",
    )
    run.expect("a")
    cli("release", "--force", "--yes", "k")
    assert run.end() == 74


def test_max_duration_ends_the_command_as_a_loss(cli, locks):
    begin = time.monotonic()
    ended = cli("run", "--max-duration", "0.5s", "k", "--", "sleep", "60")
    assert time.monotonic() - begin >= 0.5
    assert ended.returncode == 74
    assert "its max_duration is over" in ended.stderr
    assert locks.model.peek("k") is None


def test_a_command_within_max_duration_is_left_alone(cli):
    ended = cli("run", "--max-duration", "1h", "--ttl", TTL, "k", "--", "sleep", "0.5")
    assert (ended.returncode, ended.stderr) == (0, "")


# What the command finds.


def test_the_command_finds_its_lease_in_the_environment_and_not_the_store(cli, locks):
    run = cli.start("run", "k", "--", "sh", "-c", f"{ECHO_ENVIRONMENT}; read _")
    key, token, holder, url, url_file = run.line().split("|")
    lease = locks.model.peek("k")
    assert (key, token, holder) == ("k", str(lease.token), lease.holder)
    assert (url, url_file) == ("", "")


def test_the_file_with_the_stores_url_is_not_handed_on_either(cli, tmp_path):
    (tmp_path / "url").write_text(cli.url + "\n")
    env = {"JOBLOCK_URL": None, "JOBLOCK_URL_FILE": str(tmp_path / "url")}
    ended = cli("run", "k", "--", "sh", "-c", ECHO_ENVIRONMENT, env=env)
    assert ended.stderr == ""
    assert ended.stdout.startswith("k|")
    assert ended.stdout.endswith("||\n")


def test_a_joblock_inside_the_command_does_not_fall_back_to_a_file_of_this_machine(cli):
    # The store was named, and is not handed on: the inner one must not lock for itself alone.
    inner = f"{' '.join(JOBLOCK)} run inner -- echo ran"
    ended = cli("run", "outer", "--", "sh", "-c", inner)
    assert (ended.returncode, ended.stdout) == (69, "")
    assert "JOBLOCK_REQUIRE_SHARED is set and no store is named" in ended.stderr


def test_input_and_outputs_pass_through(cli):
    ended = cli("run", "k", "--", "sh", "-c", "cat; echo oops >&2", input="one\ntwo\n")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "one\ntwo\n", "oops\n")


def test_other_open_descriptors_pass_through(cli):
    read, write = os.pipe()
    try:
        ended = cli("run", "k", "--", "bash", "-c", f"echo here >&{write}", pass_fds=[write])
        assert ended.returncode == 0
        assert os.read(read, 100) == b"here\n"
    finally:
        os.close(read)
        os.close(write)


def test_the_command_inherits_no_descriptor_of_joblocks(cli):
    show = ["ls", "/proc/self/fd"]
    assert cli("run", "k", "--", *show).stdout == cli.plain(show).stdout


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_descriptors_are_closed_for_the_command_too(cli, tmp_path, closed):
    seen = tmp_path / "seen"
    inner = f"for n in 0 1 2; do [ -e /proc/$$/fd/$n ] && printf $n >>{seen}; done; exit 7"
    line = f'{" ".join(JOBLOCK)} run k -- sh -c "$1" {closed}'
    ended = cli.plain(["sh", "-c", line, "sh", inner])
    assert ended.returncode == 7
    expected = "012"
    for part in closed.split():
        expected = expected.replace({"<": "0", ">": "1", "2": "2"}[part[0]], "")
    assert (seen.read_text() if seen.exists() else "") == expected


def test_the_command_finds_signals_as_joblock_found_them(cli):
    show = ["grep", "-E", "SigBlk|SigIgn|SigCgt", "/proc/self/status"]

    def odd() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2, signal.SIGALRM])

    for before in (None, odd):
        direct = cli.plain(show, preexec_fn=before).stdout
        under = cli("run", "k", "--", *show, preexec_fn=before).stdout
        assert under == direct


def test_the_commands_end_is_told_although_sigchld_was_ignored(cli):
    ended = cli(
        "run",
        "k",
        "--",
        "sh",
        "-c",
        "exit 9",
        preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN),
    )
    assert ended.returncode == 9


def test_a_daemon_outlives_the_run_and_its_environment_shows_the_token_it_lacks(cli, locks):
    script = "setsid sh -c 'echo $JOBLOCK_TOKEN; read _ </proc/self/fd/3' 3<&0 &"
    run = cli.start("run", "k", "--", "sh", "-c", script)
    assert run.end() == 0
    token = int(run.line())
    assert locks.model.peek("k") is None
    with locks.lock("k") as lease:
        assert lease.token > token
    assert "token goes stale" in cli("run", "--help").stdout


def test_a_killed_joblock_takes_its_command_with_it(cli):
    run = cli.start("run", "k", "--", "sh", "-c", "echo $$; exec sleep 60")
    command = int(run.line())
    run.signal(signal.SIGKILL)
    assert run.end() == -signal.SIGKILL
    wait_until(lambda: _has_ended(command), "the end of the command")


def _has_ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True
