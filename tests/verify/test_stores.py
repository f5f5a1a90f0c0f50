"""Each store under every fault there is for it: no promise is broken, and nothing is left behind.

Short runs, each with a seed of its own; docs/faults.md tells of long ones.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing

import redis

from joblock.verify import Plan, run
from joblock.verify.nemesis import FAULTS, ServerFault

SECONDS = 25.0
LOCAL = ("pause", "kill", "clock")


def passed(plan):
    report = run(plan)
    assert report.violations == [], report.to_text()
    assert report.acquisitions > 0
    assert report.updates["fenced"].lost == 0
    return report


def test_sqlite_keeps_its_promises_while_workers_are_paused_killed_and_replaced(tmp_path):
    path = tmp_path / "leases.db"
    plan = Plan(f"sqlite:///{path}", seconds=SECONDS, workers=3, seed=41, faults=LOCAL)
    report = passed(plan)
    assert set(report.faults) >= {"pause", "kill"}
    with closing(sqlite3.connect(path)) as data:
        for table in ("job_locks", "permits", "waiters", "presence"):
            assert data.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)  # noqa: S608


def test_postgresql_keeps_its_promises_while_it_crashes_and_connections_are_cut(own_pg):
    def restart():
        own_pg.stop()
        own_pg.start()

    def crash():
        own_pg.crash()
        own_pg.start()

    report = passed(
        Plan(
            own_pg.url,
            seconds=SECONDS,
            workers=3,
            seed=42,
            faults=tuple(FAULTS),
            server_faults={
                "restart": ServerFault(restart),
                "crash": ServerFault(crash, forgets=True),
            },
        )
    )
    assert report.faults
    for table in ("job_locks", "job_lock_permits", "job_lock_waiters", "job_lock_presence"):
        assert own_pg.run(f"SELECT count(*) FROM {table}") == [(0,)]  # noqa: S608


def test_redis_keeps_its_promises_while_it_forgets_all_and_connections_are_cut(own_redis):
    report = passed(
        Plan(
            own_redis.url,
            seconds=SECONDS,
            workers=3,
            seed=43,
            faults=tuple(FAULTS),
            server_faults={
                "restart": ServerFault(own_redis.restart, voids=True),
                "flush": ServerFault(lambda: own_redis.ask("FLUSHALL"), voids=True),
                "forget": ServerFault(lambda: own_redis.ask("SCRIPT", "FLUSH")),
            },
        )
    )
    assert report.faults
    with redis.Redis.from_url(own_redis.url) as client:
        assert list(client.scan_iter("*verify*")) == []


def test_redis_behind_sentinels_keeps_its_promises_through_failovers(shaken):
    report = passed(
        Plan(
            shaken.url,
            seconds=SECONDS,
            workers=3,
            seed=54,
            faults=("pause", "kill"),
            server_faults=shaken.faults,
        )
    )
    assert report.faults["replaced"]
    assert [name for name in shaken.names() if "verify" in name] == []
