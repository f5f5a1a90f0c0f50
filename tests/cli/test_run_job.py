"""`joblock run` as a job: joining the run in progress, several at a time, closing the key."""

from __future__ import annotations

import signal

import pytest
from cli_process import TTL, wait_until

FORWARDED_STOP = 128 + signal.SIGTERM


@pytest.fixture
def job(cli, tmp_path):
    """A script that notes that it began, and ends as its first line of input says."""
    log = tmp_path / "log"
    script = f'echo "$$" >>{log}; echo started; read code; exit ${{code:-0}}'

    def start(*options, key="migrate"):
        return cli.start("run", *options, key, "--", "sh", "-c", script)

    def runs():
        return len(log.read_text().splitlines()) if log.exists() else 0

    start.runs = runs
    return start


# --join


def test_several_that_join_a_run_that_ends_well_all_exit_with_0_and_it_ran_once(job, queued):
    first = job("--join")
    first.expect("started")
    others = []
    for number in range(4):
        others.append(job("--join"))
        queued("migrate", number + 1)
    first.tell("0")
    assert first.end() == 0
    assert [other.end() for other in others] == [0, 0, 0, 0]
    assert job.runs() == 1
    assert others[0].output() == ""
    assert others[0].errors() == (
        "joblock: not run: the run of migrate that was in progress ended well, and counts for this "
        "one\n"
    )


def test_a_plain_run_can_be_joined_and_a_quiet_joiner_says_nothing(job, queued):
    first = job()
    first.expect("started")
    joiner = job("--join", "-q")
    queued("migrate", 1)
    first.tell("0")
    assert joiner.end() == 0
    assert joiner.output() + joiner.errors() == ""
    assert job.runs() == 1


def _one_in_its_stead(joiners):
    """The one that has begun, once it has; the rest go on waiting."""
    begun = []

    def look():
        begun.extend(each for each in joiners if each not in begun and each.started())
        return begun

    wait_until(look, "a run in stead of the one that failed")
    [one] = begun
    return one


def test_a_run_that_fails_is_run_by_exactly_one_of_those_who_joined_it(job, queued):
    first = job("--join")
    first.expect("started")
    joiners = [job("--join") for _ in range(3)]
    queued("migrate", 3)
    first.tell("3")
    assert first.end() == 3
    second = _one_in_its_stead(joiners)
    second.tell("0")
    assert [each.end() for each in joiners] == [0, 0, 0]
    assert job.runs() == 2


def test_a_run_that_is_killed_is_run_by_exactly_one_of_those_who_joined_it(job, queued):
    first = job("--join", "--ttl", TTL)
    first.expect("started")
    joiners = [job("--join") for _ in range(3)]
    queued("migrate", 3)
    first.signal(signal.SIGKILL)
    second = _one_in_its_stead(joiners)
    second.tell("0")
    assert [each.end() for each in joiners] == [0, 0, 0]
    assert job.runs() == 2


def test_a_run_that_is_over_is_not_joined(cli, job):
    assert cli("run", "migrate", "--", "true").returncode == 0
    later = job("--join")
    later.expect("started")
    later.tell("0")
    assert later.end() == 0


def test_who_joins_after_the_run_finds_its_grace_and_exits_with_75_at_once(cli):
    assert cli("run", "--grace", "1h", "migrate", "--", "true").returncode == 0
    ended = cli("run", "--join", "--wait", "1h", "migrate", "--", "echo", "ran")
    assert (ended.returncode, ended.stdout) == (75, "")
    assert "migrate is in grace" in ended.stderr
    ended = cli("run", "--join", "-E", "0", "-q", "migrate", "--", "echo", "ran")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_a_join_whose_wait_is_over_gives_75(job, cli, locks):
    first = job()
    first.expect("started")
    ended = cli("run", "--join", "--wait", "200ms", "migrate", "--", "echo", "ran")
    assert (ended.returncode, ended.stdout) == (75, "")
    assert "not run after 0.2 s: migrate is held since" in ended.stderr
    assert locks.model.waiters("migrate") == ()


def test_a_signal_ends_a_join(job, queued, locks):
    first = job()
    first.expect("started")
    joiner = job("--join")
    queued("migrate", 1)
    joiner.signal(signal.SIGTERM)
    assert joiner.end() == FORWARDED_STOP
    assert locks.model.waiters("migrate") == ()


def test_a_run_that_lost_its_lease_counts_for_nobody(cli, job, queued):
    first = job("--ttl", "1h")
    first.expect("started")
    joiner = job("--join")
    queued("migrate", 1)
    assert cli("release", "--force", "--yes", "migrate").returncode == 0
    joiner.expect("started")
    first.tell("0")
    assert first.end() == 74
    joiner.tell("0")
    assert joiner.end() == 0


def test_a_command_that_fails_after_a_loss_that_nobody_had_noticed_gives_74(cli, job):
    first = job("--ttl", "1h")
    first.expect("started")
    cli("release", "--force", "--yes", "migrate")
    first.tell("3")
    assert first.end() == 74


# --limit, --weight, --shared


def test_so_many_run_at_a_time_and_the_next_is_refused(cli):
    first = cli.hold("gpu", "--limit", "2")
    cli.hold("gpu", "--limit", "2")
    ended = cli("run", "--limit", "2", "gpu", "--", "echo", "ran")
    assert (ended.returncode, ended.stdout) == (75, "")
    assert "gpu is held since" in ended.stderr
    first.tell()
    assert first.end() == 0
    assert cli("run", "--limit", "2", "gpu", "--", "echo", "ran").stdout == "ran\n"


def test_a_weight_takes_so_much_of_the_limit(cli, locks):
    cli.hold("gpu", "--limit", "4", "--weight", "3")
    [lease] = locks.model.holders("gpu")
    assert (lease.weight, lease.limit) == (3, 4)
    assert cli("run", "--limit", "4", "--weight", "2", "gpu", "--", "true").returncode == 75
    assert cli("run", "--limit", "4", "gpu", "--", "true").returncode == 0


def test_shared_runs_run_beside_each_other_and_no_other(cli):
    cli.hold("catalog", "--shared")
    assert cli("run", "--shared", "catalog", "--", "true").returncode == 0
    assert cli("run", "catalog", "--", "true").returncode == 75


def test_no_shared_run_begins_beside_one_that_is_alone(cli):
    cli.hold("catalog")
    assert cli("run", "--shared", "catalog", "--", "true").returncode == 75


# --grace, --at-least


def test_after_a_run_that_ended_well_the_key_is_closed_for_its_grace(cli, locks):
    assert cli("run", "--grace", "1h", "k", "--", "true").returncode == 0
    lease = locks.model.peek("k")
    assert lease.state == "grace"
    assert (lease.expires_at - lease.ended_at).total_seconds() == 3600
    ended = cli("run", "k", "--", "echo", "ran")
    assert (ended.returncode, ended.stdout) == (75, "")
    assert "k is in grace" in ended.stderr


def test_a_run_that_failed_leaves_no_grace(cli, locks):
    assert cli("run", "--grace", "1h", "k", "--", "false").returncode == 1
    assert locks.model.peek("k") is None
    assert cli("run", "--grace", "1h", "k", "--", "no-such-command").returncode == 127
    assert locks.model.peek("k") is None


def test_a_run_with_a_wait_waits_out_a_grace(cli):
    assert cli("run", "--grace", "1s", "k", "--", "true").returncode == 0
    assert cli("run", "--wait", "1h", "k", "--", "echo", "ran").stdout == "ran\n"


@pytest.mark.parametrize("command", ["true", "false"])
def test_the_key_stays_closed_until_so_long_after_the_start_however_it_ended(cli, locks, command):
    cli("run", "--at-least", "1h", "k", "--", command)
    lease = locks.model.peek("k")
    assert lease.state == "grace"
    assert (lease.expires_at - lease.acquired_at).total_seconds() == 3600
    assert cli("run", "k", "--", "true").returncode == 75


def test_a_killed_run_keeps_the_key_closed_as_long(cli, locks):
    run = cli.hold("k", "--at-least", "1h", "--ttl", "1s")
    run.signal(signal.SIGKILL)
    run.end()
    wait_until(lambda: locks.model.peek("k").state != "held", "the lapse of its lease")
    assert cli("run", "k", "--", "true").returncode == 75
