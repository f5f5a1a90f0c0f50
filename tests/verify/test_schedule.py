"""What is done and what goes wrong comes from the seed, and from nothing else."""

from __future__ import annotations

from joblock.verify.nemesis import FAULTS, QUIET, schedule
from joblock.verify.operations import KEYS, PAIR, dice, draw
from joblock.verify.proxy import address_of, through


def test_a_seed_draws_the_same_faults_each_time():
    one, same = (schedule(7, 60.0, 4, list(FAULTS), ["restart"]) for _ in range(2))
    assert one == same
    assert one != schedule(8, 60.0, 4, list(FAULTS), ["restart"])
    assert {blow.kind for blow in schedule(7, 600.0, 4, list(FAULTS))} == set(FAULTS)


def test_no_worker_suffers_from_two_faults_at_once_and_the_end_is_quiet():
    blows = schedule(7, 120.0, 3, list(FAULTS))
    free = dict.fromkeys(range(3), 0.0)
    for blow in blows:
        assert blow.at >= free[blow.worker]
        free[blow.worker] = blow.at + blow.seconds
    assert max(blow.at for blow in blows) < 120.0 - QUIET


def test_without_faults_nothing_is_scheduled():
    assert schedule(7, 60.0, 4, []) == []


def test_a_seed_draws_the_same_tasks_for_a_lane_and_others_for_another():
    def tasks(worker, life, lane):
        rng = dice(7, worker, life, lane)
        return [draw(rng) for _ in range(50)]

    assert tasks(1, 0, 2) == tasks(1, 0, 2)
    assert tasks(1, 0, 2) != tasks(1, 1, 2)
    assert {task.kind for lane in range(20) for task in tasks(0, 0, lane)} >= {
        *("lock", "several", "job", "run", "raw", "look", "fenced", "unfenced")
    }


def test_every_key_that_is_used_is_swept():
    rng = dice(7, 0, 0, 0)
    assert {draw(rng).key for _ in range(3000)} - {"pair"} | set(PAIR) == set(KEYS)


def test_only_plain_connections_to_one_server_are_led_through_a_proxy():
    assert address_of("redis://cache/0") == ("cache", 6379)
    assert address_of("postgresql://app:secret@db:5433/app") == ("db", 5433)
    for url in (
        "rediss://cache",
        "redis+sentinel://one,two/mymaster",
        "postgresql://one,two/app",
        "postgresql://db/app?sslmode=require",
        "postgresql:///app?host=/run/postgresql",
        "sqlite:////var/lib/x.db",
    ):
        assert address_of(url) is None, url


def test_a_url_through_the_proxy_keeps_everything_but_the_address():
    url = "postgresql://app:p%40ss@db:5433/app?schema=jobs"
    assert through(url, 1234) == "postgresql://app:p%40ss@127.0.0.1:1234/app?schema=jobs"
