"""A holder that was stopped for longer than its lease cannot write over who came after it."""

from __future__ import annotations

import signal
import sqlite3
from contextlib import contextmanager

import psycopg
import pytest
import redis
from paused_holder import Holder

from joblock import JobLocks, fencing


@pytest.fixture
def data_in_sqlite(tmp_path):
    path = tmp_path / "data.db"
    with sqlite3.connect(path) as data:
        data.execute("CREATE TABLE report (body TEXT)")
        data.execute("INSERT INTO report VALUES ('')")
        fencing.create(data)
    data.close()
    return path


@pytest.fixture
def data_in_postgres(pg, key):
    with psycopg.connect(pg.url) as data:
        data.execute("CREATE TABLE IF NOT EXISTS report (key text PRIMARY KEY, body text)")
        data.execute("INSERT INTO report VALUES (%s, '')", (key,))
        fencing.create(data)
    return pg.url


@contextmanager
def stopped(holder):
    """It stands still meanwhile, right behind its last look at its lease."""
    token = int(holder.next())
    holder.signal(signal.SIGSTOP)
    try:
        yield token
        holder.go_on()
    finally:
        holder.signal(signal.SIGCONT)


def body_in(pg, key):
    with psycopg.connect(pg.url) as data:
        ((body,),) = data.execute("SELECT body FROM report WHERE key = %s", (key,))
    return body


def after(holder):
    try:
        return holder.next()
    finally:
        holder.end()


def test_a_paused_holder_is_refused_by_a_fence_in_sqlite(data_in_sqlite, tmp_path, key):
    leases = f"sqlite:///{tmp_path}/leases.db"
    holder = Holder("sqlite", leases, data_in_sqlite, key)
    with (
        stopped(holder) as token,
        JobLocks(leases) as locks,
        locks.lock(key, wait="20s") as lease,
        sqlite3.connect(data_in_sqlite) as data,
    ):
        assert lease.token > token
        fencing.check(data, key, lease)
        data.execute("UPDATE report SET body = 'by B'")
    data.close()
    assert after(holder) == "StaleToken"
    data = sqlite3.connect(data_in_sqlite)
    assert data.execute("SELECT body FROM report").fetchall() == [("by B",)]
    data.close()


def test_a_paused_holder_is_refused_by_a_fence_in_postgresql(pg, data_in_postgres, key):
    holder = Holder("postgres", pg.url, data_in_postgres, key)
    with (
        stopped(holder) as token,
        JobLocks(pg.url) as locks,
        locks.lock(key, wait="20s") as lease,
        psycopg.connect(pg.url) as data,
    ):
        assert lease.token > token
        fencing.check(data, key, lease)
        data.execute("UPDATE report SET body = 'by B' WHERE key = %s", (key,))
    assert after(holder) == "StaleToken"
    assert body_in(pg, key) == "by B"


def test_a_paused_holder_is_refused_by_a_fence_in_redis(redis_server, key):
    holder = Holder("redis", redis_server.url, redis_server.url, key)
    with redis.Redis.from_url(redis_server.url) as client:
        with (
            stopped(holder) as token,
            JobLocks(redis_server.url) as locks,
            locks.lock(key, wait="20s") as lease,
        ):
            assert lease.token > token
            fencing.redis_write(client, key, lease, ("SET", key, "by B"))
        assert after(holder) == "StaleToken"
        assert client.get(key) == b"by B"


def test_a_paused_holder_is_refused_by_a_guard_in_postgresql(pg, data_in_postgres, key):
    holder = Holder("postgres", pg.url, data_in_postgres, key, guarded=True)
    with (
        stopped(holder),
        JobLocks(pg.url) as locks,
        locks.lock(key, wait="20s") as lease,
        psycopg.connect(pg.url) as data,
    ):
        data.execute("UPDATE report SET body = 'by B' WHERE key = %s", (key,))
        lease.guard(data)
        data.commit()
    assert after(holder) == "LockLost"
    assert body_in(pg, key) == "by B"


def test_a_holder_that_nobody_replaced_meanwhile_may_still_write(data_in_sqlite, tmp_path, key):
    holder = Holder("sqlite", f"sqlite:///{tmp_path}/leases.db", data_in_sqlite, key)
    holder.next()
    holder.go_on()
    assert after(holder) == "written"
