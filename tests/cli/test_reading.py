"""`joblock ls`, `peek`, `schema` and `--version`: what they show, to a person and to a program."""

from __future__ import annotations

import json
import os
import re
import sqlite3
from datetime import datetime, timedelta

import pexpect
import pytest
from cli_process import JOBLOCK, PATIENCE

import joblock
from joblock.store.ops import Release

NASTY = "nasty\x1b[31m\u202eevil\u200b\t\n"
SHOWN = r"nasty\x1b[31m\u202eevil\u200b\x09\x0a"
LEASE_FIELDS = {
    "key": str,
    "state": str,
    "holder": str,
    "token": int,
    "weight": int,
    "limit": int,
    "acquired_at": str,
    "expires_at": str,
    "ended_at": type(None),
    "lapses_in": float,
    "host": str,
    "pid": int,
    "label": str,
}


def close_for_an_hour(locks, key):
    lease = locks.acquire(key)
    locks.store.driver().call(Release(key, lease.holder, lease.token, grace=3_600_000))
    lease.release()


def let_lapse(locks, key):
    assert locks.model.acquire(key, "1ms", "somebody")
    while locks.model.peek(key).state != "expired":
        pass


# ls


def test_ls_in_a_pipe_is_a_line_for_each_lease_with_tabs_between(cli, locks):
    close_for_an_hour(locks, "b")
    let_lapse(locks, "c")
    with locks.lock("a") as lease:
        ended = cli("ls")
    assert ended.returncode == 0
    header, first, second, third = (line.split("\t") for line in ended.stdout.splitlines())
    assert header == ["key", "state", "holder", "since", "lapses_in", "host", "pid", "token"]
    key, state, holder, since, lapses_in, host, pid, token = first
    assert (key, state, holder, token) == ("a", "held", lease.holder, str(lease.token))
    assert (host, pid) == (os.uname().nodename, str(os.getpid()))
    assert datetime.fromisoformat(since) == lease.acquired_at
    assert 0 < float(lapses_in) <= 30
    assert second[:2] == ["b", "grace"]
    assert third[:2] == ["c", "expired"]
    assert third[4] == "0.000"


def test_ls_of_nothing_is_just_the_header_or_an_empty_array(cli):
    assert cli("ls").stdout.count("\n") == 1
    assert cli.json("ls") == []


def test_ls_as_json_has_every_field_with_its_type(cli, locks):
    with locks.lock(NASTY) as lease:
        [found] = cli.json("ls")
    assert {name: type(value) for name, value in found.items()} == LEASE_FIELDS
    assert (found["key"], found["token"]) == (NASTY, lease.token)
    expires_at = datetime.fromisoformat(found["expires_at"])
    assert expires_at.utcoffset() == timedelta(0)
    assert expires_at - datetime.fromisoformat(found["acquired_at"]) == timedelta(seconds=30)


def test_ls_as_json_tells_the_permits_of_one_key_apart(cli, locks):
    with locks.lock("gpu", limit=4, weight=2) as first, locks.lock("gpu", limit=4) as second:
        found = cli.json("ls")
    assert [(each["token"], each["weight"], each["limit"]) for each in found] == [
        (first.token, 2, 4),
        (second.token, 1, 4),
    ]


def test_ls_lists_keys_that_begin_with_the_prefix_exactly(cli, locks):
    keys = ["%", "a%b", "a%c", "a_b", "axb", "A%b"]
    held = [locks.acquire(key) for key in keys]
    assert [each["key"] for each in cli.json("ls", "--prefix", "a%")] == ["a%b", "a%c"]
    for lease in held:
        lease.release()


def test_the_prefix_of_the_environment_goes_before_every_key(cli, locks):
    with locks.lock("shop:a"), locks.lock("other:a"):
        env = {"JOBLOCK_PREFIX": "shop:"}
        found = json.loads(cli("ls", "--json", env=env).stdout)
        assert [each["key"] for each in found] == ["a"]
        assert cli("run", "a", "--", "true", env=env).returncode == 75
        assert cli("run", "a", "--", "true").returncode == 0


def test_a_key_is_shown_with_what_cannot_be_seen_written_out(cli, locks):
    with locks.lock(NASTY):
        listed, peeked = cli("ls").stdout, cli("peek", NASTY).stdout
        refused = cli("run", NASTY, "--", "true").stderr
    assert listed.splitlines()[1].startswith(f"{SHOWN}\theld\t")
    assert peeked.startswith(f"{SHOWN}: held\n")
    assert f"not run: {SHOWN} is held" in refused
    for text in (listed, peeked, refused):
        assert "\x1b" not in text
        assert "\u202e" not in text


def test_a_holder_is_shown_with_what_cannot_be_seen_written_out(cli, locks):
    assert locks.model.acquire("k", "1h", "a\x1bb\u202ec")
    for shown in (cli("ls").stdout, cli("peek", "k").stdout, cli("run", "k", "--", "true").stderr):
        assert r"a\x1bb\u202ec" in shown


@pytest.fixture
def table(cli):
    """What `joblock ls` shows on a terminal so many columns wide."""

    def show(columns, **env):
        child = pexpect.spawn(
            JOBLOCK[0],
            [*JOBLOCK[1:], "ls"],
            env={**cli.environment, "TERM": "xterm-256color", **env},
            dimensions=(50, columns),
            encoding="utf-8",
            timeout=PATIENCE,
        )
        child.expect(pexpect.EOF)
        child.close()
        assert child.exitstatus == 0
        return child.before.replace("\r\n", "\n")

    return show


def test_ls_on_a_terminal_is_a_table_with_colours_unless_they_are_unwanted(table, locks):
    with locks.lock("nightly-prune") as lease:
        coloured, plain = table(160), table(160, NO_COLOR="1")
    assert "\x1b[" in coloured
    assert "\x1b[3" not in plain
    for shown in (coloured, plain):
        assert "nightly-prune" in shown
        assert str(lease.token) in shown
        assert lease.holder in shown
        assert "lapses in" in shown


def test_ls_on_a_terminal_without_anything_held_says_so(table):
    assert table(80) == "No key is held.\n"


@pytest.mark.parametrize("columns", [40, 60, 80, 120, 200])
def test_a_table_keeps_to_the_width_and_cuts_no_key(table, locks, columns):
    key = "invoices:" + "-".join(f"part{number}" for number in range(30))
    with locks.lock(key), locks.lock("[bold]short[/bold] :smile:"):
        shown = table(columns, NO_COLOR="1", TERM="dumb")
    lines = shown.splitlines()
    assert all(len(line) <= columns for line in lines)
    first_column = "".join(line if columns < 120 else line.split(" ")[0] for line in lines)
    assert key in first_column.replace(" ", "")
    assert "[bold]short[/bold]" in shown
    assert "smile" in shown


# peek


def test_peek_shows_who_holds_a_key_and_exits_with_0(cli):
    holder = cli.hold("nightly-prune", "--ttl", "1h")
    ended = cli("peek", "nightly-prune")
    assert ended.returncode == 0
    lines = ended.stdout.splitlines()
    assert lines[0] == "nightly-prune: held"
    facts = dict(line.split(maxsplit=1) for line in lines[1:])
    assert re.fullmatch(r"[0-9a-f-]{36}:\d+", facts["holder"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC \(\d+s ago\)", facts["since"])
    assert facts["where"] == f"host {os.uname().nodename}, pid {holder.pid} (sh)"
    assert re.search(
        r" UTC \((59m \d+s|1h 0m)\) unless renewed$", facts["until"].replace("in ", "")
    )
    assert facts["token"].isdigit()
    assert facts["queue:"] == "nobody waits"


def test_peek_at_a_free_key_exits_with_1(cli, locks):
    ended = cli("peek", "k")
    assert (ended.returncode, ended.stdout) == (1, "k: free\nqueue: nobody waits\n")
    let_lapse(locks, "k")
    ended = cli("peek", "k")
    assert ended.returncode == 1
    assert ended.stdout.startswith("k: expired\n")
    assert "it is free for whoever is next" in ended.stdout


def test_peek_at_a_key_in_grace_exits_with_0(cli, locks):
    close_for_an_hour(locks, "k")
    ended = cli("peek", "k")
    assert ended.returncode == 0
    assert ended.stdout.startswith("k: grace\n")
    assert "  opens   " in ended.stdout


def test_peek_shows_the_queue_in_its_order(cli, locks, queued):
    with locks.lock("k"):
        waiting = []
        for number in range(2):
            waiting.append(cli.start("run", "--wait", "1h", "k", "--", f"job{number}"))
            queued("k", number + 1)
        shown, found = cli("peek", "k").stdout, cli.json("peek", "k")
        for each in waiting:
            each.process.terminate()
            assert each.end() == 143
    assert "queue: 2 waiting, the first in line first" in shown
    for number, each in enumerate(waiting):
        assert f"  {number + 1}. host {os.uname().nodename}, pid {each.pid} (job{number})" in shown
    assert [each["pid"] for each in found["queue"]] == [each.pid for each in waiting]


def test_peek_as_json_has_every_field_with_its_type(cli, locks, queued):
    with locks.lock("k") as lease:
        waiting = cli.start("run", "--wait", "1h", "k", "--", "true")
        queued("k", 1)
        found = cli.json("peek", "k")
        waiting.process.terminate()
        waiting.end()
    assert set(found) == {"key", "state", "leases", "queue"}
    assert (found["key"], found["state"]) == ("k", "held")
    [shown] = found["leases"]
    assert {name: type(value) for name, value in shown.items()} == LEASE_FIELDS
    assert shown["token"] == lease.token
    [waiter] = found["queue"]
    assert {name: type(value) for name, value in waiter.items()} == {
        "holder": str,
        "arrival": int,
        "weight": int,
        "limit": int,
        "queued_at": str,
        "live": bool,
        "host": str,
        "pid": int,
        "label": str,
    }
    ended = cli("peek", "--json", "free")
    assert (ended.returncode, json.loads(ended.stdout)["state"]) == (1, "free")


def test_peek_shows_each_lease_of_a_key_that_has_several(cli, locks):
    with locks.lock("gpu", limit=4), locks.lock("gpu", limit=4, weight=2):
        shown = cli("peek", "gpu").stdout
    assert "lease 1 of 2" in shown
    assert "  takes   1 of 4" in shown
    assert "  takes   2 of 4" in shown
    with locks.lock("catalog", shared=True):
        assert "  takes   shared" in cli("peek", "catalog").stdout


# schema, version, and what all commands have in common


def test_the_schema_of_sqlite_makes_the_tables_of_the_store(cli, locks):
    ddl = cli("schema").stdout
    assert cli("schema", "sqlite").stdout == ddl
    made = sqlite3.connect(":memory:")
    made.executescript(ddl)
    assert locks.model.peek("k") is None
    used = sqlite3.connect(cli.url.removeprefix("sqlite:///"))
    names = "SELECT name FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%' ORDER BY name"
    assert made.execute(names).fetchall() == used.execute(names).fetchall()
    assert (joblock.JOB_LOCKS_TABLE,) in made.execute(names).fetchall()
    made.close()
    used.close()


def test_a_store_without_tables_says_so(cli):
    ended = cli("schema", "memory")
    assert (ended.returncode, ended.stdout) == (0, "-- The memory store has no tables.\n")


def test_the_version_is_that_of_the_package(cli):
    ended = cli("--version")
    assert (ended.returncode, ended.stdout) == (0, f"joblock {joblock.__version__}\n")


@pytest.mark.parametrize(
    "url", ["redis://:hunter2@nowhere.invalid/0", "nonsense://me:hunter2@h/x", "me:hunter2@h"]
)
def test_no_password_is_ever_shown(cli, url):
    run = cli("run", "k", "--", "true", env={"JOBLOCK_URL": url})
    listing = cli("ls", "--url", url)
    for ended in (run, listing):
        assert ended.returncode in {64, 69}
        assert "hunter2" not in ended.stdout + ended.stderr
        assert "Traceback" not in ended.stderr


def test_the_default_store_is_told_of_in_one_line(cli):
    for arguments in (["run", "k", "--", "true"], ["ls"]):
        ended = cli(*arguments, env={"JOBLOCK_URL": None})
        assert ended.returncode == 0
        assert ended.stderr.count("\n") == 1
        assert ended.stderr.startswith("joblock: no store was named")
        assert str(cli.folder / "state") in ended.stderr


def test_the_url_can_come_from_a_file_and_an_option_comes_first(cli, tmp_path):
    (tmp_path / "url").write_text(f"{cli.url}\n")
    other = f"sqlite:///{tmp_path / 'other.db'}"
    env = {"JOBLOCK_URL": None, "JOBLOCK_URL_FILE": str(tmp_path / "url")}
    run = cli.start("run", "k", "--", "sh", "-c", "echo started; read _", env=env)
    run.expect("started")
    assert cli("peek", "k").returncode == 0
    assert cli("peek", "--url", other, "k").returncode == 1


def test_without_click_it_says_what_to_install(cli):
    program = (
        "import sys; sys.modules['click'] = None; from joblock.cli import main; sys.exit(main())"
    )
    ended = cli.plain([JOBLOCK[0], "-c", program, "ls"])
    assert (ended.returncode, ended.stdout) == (64, "")
    assert ended.stderr == "joblock: the command line needs click: pip install 'joblock[cli]'\n"


def test_a_run_loads_neither_rich_nor_asyncio_nor_what_reads_package_metadata(cli):
    # A run starts every minute on every replica.
    program = (
        "import sys; from joblock.cli import main; code = main();"
        "print(*sorted({'rich', 'asyncio', 'importlib.metadata', 'subprocess', 'socketserver'}"
        " & set(sys.modules))); sys.exit(code)"
    )
    for arguments in (["run", "k", "--", "true"], ["ls", "--json"]):
        ended = cli.plain([JOBLOCK[0], "-c", program, *arguments])
        assert ended.returncode == 0
        assert ended.stdout.splitlines()[-1] == ""


def test_help_keeps_to_eighty_columns_and_tells_the_exit_codes(cli):
    for name in ("run", "ls", "peek", "release", "schema", "doctor"):
        ended = cli(name, "--help", env={"COLUMNS": "80"})
        assert ended.returncode == 0
        assert all(len(line) <= 80 for line in ended.stdout.splitlines()), ended.stdout
        assert "Exit codes:" in ended.stdout
    shown = cli("run", "--help").stdout
    for part in ("flock", "75 (or -E)", "74 ", "69 ", "128+n", "ps", "token goes stale"):
        assert part in shown


@pytest.mark.parametrize("option", [(), ("--json",)])
def test_nothing_is_listed_of_a_store_that_cannot_be_reached(cli, option):
    ended = cli("ls", *option, "--url", "redis://127.0.0.1:1")
    assert (ended.returncode, ended.stdout) == (69, "")
    assert "127.0.0.1:1" in ended.stderr
