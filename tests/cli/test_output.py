"""What all commands do where their output cannot be written, or an argument is monstrous."""

from __future__ import annotations

import json
import os
import signal
import subprocess

import pytest
from cli_process import JOBLOCK, wait_until

WRITING = [
    ["ls"],
    ["ls", "--json"],
    ["peek", "k"],
    ["peek", "--json", "k"],
    ["schema"],
    ["doctor"],
    ["--version"],
    ["--help"],
    ["run", "--help"],
]


def _with_output(cli, arguments, stdout):
    return subprocess.run(
        [*JOBLOCK, *arguments],
        env=cli.environment,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("arguments", WRITING, ids=" ".join)
def test_a_full_output_gives_73_and_one_line(cli, arguments):
    with open("/dev/full", "w") as full:  # noqa: PTH123 - as a shell would
        ended = _with_output(cli, arguments, full)
    assert ended.returncode == 73
    assert ended.stderr == ("joblock: standard output cannot be written: No space left on device\n")


@pytest.mark.parametrize("arguments", WRITING, ids=" ".join)
def test_a_pipe_that_nobody_reads_any_more_gives_141_and_no_word(cli, arguments):
    read, write = os.pipe()
    os.close(read)
    try:
        ended = _with_output(cli, arguments, write)
    finally:
        os.close(write)
    assert (ended.returncode, ended.stderr) == (128 + signal.SIGPIPE, "")


@pytest.mark.parametrize("arguments", WRITING, ids=" ".join)
def test_a_closed_output_gives_73_and_one_line(cli, arguments):
    ended = cli.plain(["sh", "-c", 'exec "$@" >&-', "sh", *JOBLOCK, *arguments])
    assert ended.returncode == 73
    assert ended.stderr == "joblock: standard output cannot be written: it is closed\n"


def test_with_output_and_errors_closed_the_code_tells(cli):
    ended = cli.plain(["sh", "-c", 'exec "$@" >&- 2>&-', "sh", *JOBLOCK, "ls"])
    assert ended.returncode == 73


def test_a_lease_that_was_broken_is_broken_although_it_could_not_be_shown(cli, locks):
    with locks.lock("k", ttl="1h", on_lost="warn"):
        with open("/dev/full", "w") as full:  # noqa: PTH123
            ended = _with_output(cli, ["release", "--force", "--yes", "k"], full)
        assert ended.returncode == 73
        assert locks.model.peek("k") is None


def test_a_full_output_of_the_command_is_the_commands_own_affair(cli):
    with open("/dev/full", "w") as full:  # noqa: PTH123
        ended = _with_output(cli, ["run", "k", "--", "sh", "-c", "echo hello; exit 5"], full)
    assert ended.returncode == 5


def test_an_encoding_that_lacks_a_character_gets_it_written_out(cli, locks):
    with locks.lock("\U0001f512"):
        ended = cli("peek", "\U0001f512", env={"PYTHONIOENCODING": "latin-1:strict"})
    assert ended.stdout.startswith(r"\U0001f512: held")


def test_in_a_pipe_there_are_no_colours(cli, locks):
    with locks.lock("k"):
        for arguments in (["ls"], ["peek", "k"], ["doctor"]):
            assert "\x1b" not in cli(*arguments, env={"TERM": "xterm-256color"}).stdout


LONG = "x" * 100_000


@pytest.mark.parametrize(
    "arguments",
    [
        [LONG],
        ["ls", LONG],
        ["ls", f"--{LONG}"],
        ["run", LONG, "--", "true"],
        ["run", "k", LONG],
        ["run", "--ttl", LONG, "k", "--", "true"],
        ["run", "--wait", LONG, "k", "--", "true"],
        ["run", "--limit", LONG, "k", "--", "true"],
        ["run", "-E", LONG, "k", "--", "true"],
        ["run", "--url", LONG, "k", "--", "true"],
        ["run", "--url", f"sqlite:////{LONG}", "k", "--", "true"],
        ["run", "--url", f"redis://{LONG}:x/", "k", "--", "true"],
        ["run", "k", "--", LONG],
        ["peek", LONG],
        ["peek", "k", LONG],
        ["schema", LONG],
        ["doctor", LONG],
        ["doctor", "memory://", "--url", LONG],
    ],
    ids=lambda arguments: " ".join(each[:20] for each in arguments),
)
def test_a_monstrous_argument_is_not_repeated_whole(cli, arguments):
    ended = cli(*arguments)
    assert ended.returncode in {64, 69, 126, 127}
    assert len(ended.stdout + ended.stderr) < 5_000
    assert "Traceback" not in ended.stderr


def test_an_interrupt_during_the_start_ends_it_without_a_word(cli, tmp_path):
    shim = tmp_path / "shim"
    shim.mkdir()
    (shim / "click.py").write_text("import sys; print('importing', flush=True); sys.stdin.read()")
    for arguments in (["ls"], ["run", "k", "--", "true"]):
        running = cli.start(*arguments, env={"PYTHONPATH": str(shim)})
        running.expect("importing")
        running.signal(signal.SIGINT)
        assert running.end() == -signal.SIGINT
        assert running.errors() == ""


def test_an_interrupt_that_was_ignored_stays_ignored_during_the_start(cli, tmp_path):
    (tmp_path / "click.py").write_text("import sys; print('importing', flush=True); input()")
    running = cli.start(
        "ls",
        env={"PYTHONPATH": str(tmp_path)},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    running.expect("importing")
    running.signal(signal.SIGINT)
    running.tell("go on")
    assert running.end() != -signal.SIGINT


def test_a_quiet_run_says_nothing_of_a_store_that_nobody_named(cli):
    ended = cli("run", "-q", "k", "--", "echo", "ran", env={"JOBLOCK_URL": None})
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "ran\n", "")


def test_a_relative_path_is_warned_of_with_the_whole_one(cli):
    for options, count in ((["-q"], 0), ([], 1)):
        env = {"JOBLOCK_URL": "sqlite:///locks.db"}
        ended = cli("run", *options, "k", "--", "true", env=env)
        assert ended.returncode == 0
        assert ended.stderr.count("\n") == count
    assert f"sqlite:///{cli.folder}/locks.db" in ended.stderr


# doctor


def test_doctor_tells_what_it_found_and_whether_the_promises_hold(cli, locks):
    with locks.lock("k"):
        ended = cli("doctor")
    assert (ended.returncode, ended.stderr) == (0, "")
    first, *_, last = ended.stdout.splitlines()
    assert (first, last[:17]) == (cli.url, "The promises hold")
    assert "\ngood       leases: a lease was granted, renewed and given back\n" in ended.stdout


def test_doctor_warns_of_nothing_beside_its_findings(cli):
    env = {"JOBLOCK_URL": None}
    cli("run", "-q", "k", "--", "true", env=env)
    ended = cli("doctor", env=env)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "risk       reach: no store is named" in ended.stdout


def test_a_doctor_that_is_interrupted_leaves_nothing_behind(cli):
    running = cli.start("doctor")

    def is_at_it():
        return running.process.poll() is not None or list(cli.folder.glob(".joblock-doctor-*"))

    wait_until(is_at_it, "the file that is tried")
    if running.process.poll() is None:
        running.signal(signal.SIGINT)
    assert running.end() in {0, 130}  # it may have been done by then
    assert list(cli.folder.glob(".joblock-doctor-*")) == []
    assert "Traceback" not in running.errors()


def test_doctor_as_json_has_every_field(cli):
    found = cli.json("doctor", "memory://x")
    assert set(found) == {"store", "holds", "findings"}
    assert (found["store"], found["holds"]) == ("memory://x", False)
    for finding in found["findings"]:
        assert set(finding) == {"severity", "check", "found", "risk", "change"}
    assert found["findings"][0]["severity"] == "broken"


def test_doctor_exits_with_1_if_a_promise_cannot_hold(cli, tmp_path):
    (tmp_path / "file.db").write_text("no database at all")
    for arguments in (["doctor", f"sqlite:///{tmp_path}/file.db"], ["doctor", "--json"]):
        ended = cli(*arguments, env={"JOBLOCK_URL": f"sqlite:///{tmp_path}/file.db"})
        assert ended.returncode == 1
    assert json.loads(ended.stdout)["holds"] is False


def test_doctor_exits_with_69_if_the_store_is_away_and_64_if_it_is_none(cli):
    for url, code in (("redis://:hunter2@127.0.0.1:1", 69), ("nonsense://:hunter2@h", 64)):
        ended = cli("doctor", url)
        assert (ended.returncode, ended.stdout) == (code, "")
        assert "hunter2" not in ended.stderr
    ended = cli("doctor", "memory://", "--url", "memory://")
    assert (ended.returncode, "goes without --url" in ended.stderr) == (64, True)
