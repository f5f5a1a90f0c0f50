"""A guard: a transaction on the store's database commits only if the lease is still held."""

from __future__ import annotations

import sqlite3
import threading
import time
from contextlib import closing, contextmanager

import psycopg
import pytest
from connections import (
    ASYNC_ON_POSTGRES,
    ON_POSTGRES,
    alchemy_on_sqlite,
    psycopg_connection,
    sqlite_connection,
)

from joblock import AsyncJobLocks, JobLocks, LockLost
from joblock.store.ops import Acquire, Busy, Granted, Leave, Queueing, Refresh, Release, Renewal
from joblock.stores.postgres import PostgresStore
from joblock.testing import ManualClock

LONG = 30_000
PATIENCE = 20.0
SOON = 1.0
"""Seconds: what needs no lock takes milliseconds, what waits for one here many seconds."""

alike = pytest.mark.parametrize("kind", ON_POSTGRES, ids=lambda kind: kind.__name__)
awaited = pytest.mark.parametrize("kind", ASYNC_ON_POSTGRES, ids=lambda kind: kind.__name__)


@contextmanager
def believing(url):
    """A client whose own clock stands still, so that only the store tells it of a loss."""
    with JobLocks(url, clock=ManualClock()) as locks:
        yield locks


@contextmanager
def driver_of(url):
    store = PostgresStore.from_url(url)
    try:
        yield store.driver()
    finally:
        store.close()


def wait_until_lapsed(locks, key):
    end = time.monotonic() + PATIENCE
    while locks.model.peek(key).state != "expired":
        assert time.monotonic() < end
        time.sleep(0.01)


def took(call):
    begin = time.monotonic()
    return call(), time.monotonic() - begin


def check_that_only_the_newer_of_two_passes(url, kind, key):
    """Two leases of one holder, which its caller named."""
    with believing(url) as locks, JobLocks(url) as others, kind(url) as data:
        lease = locks.acquire(key, holder="me")
        others.model.delete(key)
        newer = others.acquire(key, holder="me")
        with pytest.raises(LockLost):
            lease.guard(data)
        data.rollback()
        newer.guard(data)
        data.rollback()
        newer.release()
        lease.release()


# PostgreSQL.


@alike
def test_of_two_leases_of_one_holder_only_the_newer_passes(pg, key, kind):
    check_that_only_the_newer_of_two_passes(pg.url, kind, key)


@alike
def test_the_holder_passes_as_often_as_it_likes(pg, key, kind):
    with JobLocks(pg.url) as locks, locks.lock(key) as lease, kind(pg.url) as data:
        lease.guard(data)
        lease.guard(data)
        data.commit()
        lease.guard(data)
        data.rollback()


@alike
def test_a_lease_that_was_broken_is_refused(pg, key, kind):
    with believing(pg.url) as locks, JobLocks(pg.url) as others, kind(pg.url) as data:
        lease = locks.acquire(key)
        others.model.delete(key)
        assert lease.held
        with pytest.raises(LockLost, match="roll back") as lost:
            lease.guard(data)
        assert (lost.value.key, lost.value.token, lost.value.reason) == (key, lease.token, "guard")
        data.rollback()
        lease.release()


def test_a_lease_that_lapsed_is_refused_though_nobody_took_it(pg, key):
    with believing(pg.url) as locks, psycopg.connect(pg.url) as data:
        lease = locks.acquire(key, ttl="1ms")
        with pytest.raises(LockLost):
            lease.guard(data)
        lease.release()


def test_a_lease_that_was_released_is_refused_without_asking(pg, key):
    with JobLocks(pg.url) as locks, psycopg.connect(pg.url) as data:
        lease = locks.acquire(key)
        lease.release()
        with pytest.raises(LockLost, match="released before"):
            lease.guard(data)
        assert data.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


def test_a_contender_is_told_busy_at_once_though_the_guarded_lease_has_lapsed(pg, key):
    with driver_of(pg.url) as driver, believing(pg.url) as locks, psycopg.connect(pg.url) as data:
        lease = locks.acquire(key, ttl="1s")
        lease.guard(data)
        wait_until_lapsed(locks, key)
        reply, seconds = took(lambda: driver.call(Acquire(key, "B", LONG)))
        assert isinstance(reply, Busy)
        assert reply.token == lease.token
        assert seconds < SOON
        data.commit()
        end = time.monotonic() + PATIENCE
        while not isinstance(driver.call(Acquire(key, "B", LONG)), Granted):
            assert time.monotonic() < end
            time.sleep(0.01)


def test_a_guard_held_for_long_stalls_no_renewal_of_its_own_key_or_another(pg, key):
    names = [f"{key} {number}" for number in range(3)]
    with driver_of(pg.url) as driver, JobLocks(pg.url) as locks, psycopg.connect(pg.url) as data:
        lease = locks.acquire(names[1], ttl="30s")
        others = [driver.call(Acquire(name, "A", LONG)) for name in (names[0], names[2])]
        lease.guard(data)
        batch = Refresh(
            (
                Renewal(names[0], "A", others[0].token, LONG),
                Renewal(names[1], lease.holder, lease.token, LONG),
                Renewal(names[2], "A", others[1].token, LONG),
            )
        )
        reply, seconds = took(lambda: driver.call(batch))
        assert reply.renewed == (True, True, True)
        assert seconds < SOON
        data.rollback()
        lease.release()


def test_a_lease_lives_on_through_a_guard_that_is_longer_than_its_ttl(pg, key):
    with (
        JobLocks(pg.url) as locks,
        locks.lock([f"{key} 1", f"{key} 2"], ttl="2s") as leases,
        psycopg.connect(pg.url) as data,
    ):
        leases.members[0].guard(data)
        assert not leases.lost.wait(3.5)  # it would have lapsed by then
        assert leases.held
        data.commit()


def test_a_waiter_gives_up_in_time_beside_a_guarded_lease(pg, key):
    with (
        JobLocks(pg.url) as locks,
        JobLocks(pg.url) as others,
        psycopg.connect(pg.url) as data,
        locks.lock(key) as lease,
    ):
        lease.guard(data)
        others.model.peek(key)  # connected by now
        lost, seconds = took(lambda: others.acquire(key, wait="200ms"))
        assert lost is None
        assert seconds < 0.2 + SOON
        assert others.model.waiters(key) == ()
        data.commit()


def test_a_release_by_who_is_no_holder_does_not_wait_for_a_guard(pg, key):
    with driver_of(pg.url) as driver, JobLocks(pg.url) as locks, psycopg.connect(pg.url) as data:
        lease = locks.acquire(key)
        lease.guard(data)
        for contended in (False, True):
            release = Release(key, "former", lease.token - 1, contended=contended)
            reply, seconds = took(lambda release=release: driver.call(release))
            assert not reply.freed
            assert seconds < SOON
        data.rollback()
        lease.release()


def test_whoever_would_end_a_guarded_lease_waits_for_the_commit(pg, key):
    with driver_of(pg.url) as driver, believing(pg.url) as locks, psycopg.connect(pg.url) as data:
        lease = locks.acquire(key)
        lease.guard(data)
        replies = []
        release = Release(key, lease.holder, lease.token)
        ending = threading.Thread(target=lambda: replies.append(driver.call(release)))
        ending.start()
        ending.join(0.2)  # it would be done by then if it did not wait
        assert replies == []
        for queue in (None, Queueing("client")):  # and nobody waits for it in turn
            acquire = Acquire(key, "B", LONG, queue=queue)
            reply, seconds = took(lambda acquire=acquire: driver.call(acquire))
            assert isinstance(reply, Busy)
            assert seconds < SOON
        driver.call(Leave(key, "B"))
        assert replies == []
        data.commit()
        ending.join(PATIENCE)
        assert replies[0].freed
        lease.release()


def test_a_guard_waits_for_who_is_just_breaking_the_lease_and_is_then_refused(pg, key):
    outcome = []

    def guard(lease):
        with psycopg.connect(pg.url) as data:
            try:
                lease.guard(data)
                outcome.append("passed")
            except LockLost:
                outcome.append("refused")

    with believing(pg.url) as locks, psycopg.connect(pg.url) as breaking:
        lease = locks.acquire(key)
        breaking.execute("SELECT joblock_1_force(%s, 'somebody', 'test')", (key,))
        guarding = threading.Thread(target=guard, args=(lease,))
        guarding.start()
        guarding.join(0.2)  # it would have passed by then if it did not wait
        assert outcome == []
        breaking.commit()
        guarding.join(PATIENCE)
        assert outcome == ["refused"]
        lease.release()


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_under_a_strict_isolation_level_a_guard_that_comes_first_passes(pg, key, level):
    with JobLocks(pg.url) as locks, locks.lock(key) as lease, psycopg.connect(pg.url) as data:
        data.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
        lease.guard(data)
        lease.refresh("1m")
        data.execute("SELECT 1")
        data.commit()


def test_under_a_strict_isolation_level_a_late_guard_never_passes_on_old_facts(pg, key):
    with believing(pg.url) as locks, JobLocks(pg.url) as others, psycopg.connect(pg.url) as data:
        lease = locks.acquire(key)
        data.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        data.execute("SELECT count(*) FROM job_locks")
        others.model.delete(key)
        with pytest.raises(psycopg.errors.SerializationFailure):
            lease.guard(data)
        data.rollback()
        lease.release()


def test_outside_a_transaction_a_guard_is_refused(pg, key):
    with (
        JobLocks(pg.url) as locks,
        locks.lock(key) as lease,
        psycopg.connect(pg.url, autocommit=True) as data,
    ):
        with pytest.raises(RuntimeError, match=r"lease\.guard says nothing outside a transaction"):
            lease.guard(data)
        with data.transaction():
            lease.guard(data)


def test_leases_in_another_schema_are_guarded_there(pg, key):
    url = f"{pg.url}?schema=100%25%20of%20%22it%22:key"
    with JobLocks(url) as locks, locks.lock(key) as lease:
        for kind in ON_POSTGRES:
            with kind(pg.url) as data:
                lease.guard(data)
                data.rollback()


@awaited
async def test_awaited_connections_are_guarded_alike(pg, key, kind):
    async with AsyncJobLocks(pg.url, clock=ManualClock()) as locks:
        lease = await locks.acquire(key)
        async with kind(pg.url) as data:
            await lease.guard(data)
        await locks.model.delete(key)
        async with kind(pg.url) as data:
            with pytest.raises(LockLost):
                await lease.guard(data)
        await lease.release()


async def test_several_leases_are_guarded_together(pg, key):
    keys = [f"{key} 1", f"{key} 2"]
    with (
        believing(pg.url) as locks,
        psycopg.connect(pg.url) as data,
        locks.lock(keys, on_lost="warn") as leases,
    ):
        leases.guard(data)
        data.commit()
        locks.model.delete(keys[1])
        with pytest.raises(LockLost) as lost:
            leases.guard(data)
        assert lost.value.key == keys[1]
        data.rollback()
    async with (
        AsyncJobLocks(pg.url) as tasks,
        tasks.lock(keys) as leases,
        ASYNC_ON_POSTGRES[0](pg.url) as data,
    ):
        await leases.guard(data)


# SQLite.


@pytest.fixture
def leases(tmp_path):
    return f"sqlite:///{tmp_path}/lease's file.db"


@pytest.fixture
def path(leases):
    return leases.removeprefix("sqlite:///")


@pytest.mark.parametrize(
    "kind", [sqlite_connection, alchemy_on_sqlite], ids=lambda kind: kind.__name__
)
def test_data_in_the_lease_file_itself_is_guarded(leases, kind):
    with believing(leases) as locks:
        lease = locks.acquire("report")
        with kind(leases) as data:
            lease.guard(data)
            data.commit()
            locks.model.delete("report")
            with pytest.raises(LockLost):
                lease.guard(data)
            data.rollback()
        lease.release()


def test_of_two_leases_of_one_holder_only_the_newer_passes_in_sqlite(leases, key):
    check_that_only_the_newer_of_two_passes(leases, sqlite_connection, key)


@pytest.fixture
def attached(tmp_path, path):
    """The caller's own database, which has tables of the same names, with the lease file."""
    with closing(sqlite3.connect(tmp_path / "data.db", timeout=PATIENCE)) as data:
        data.execute("CREATE TABLE job_locks (mine)")
        data.execute("CREATE TABLE report (body)")
        data.commit()
        data.execute('ATTACH ? AS "the ""leases"', (path,))
        data.row_factory = lambda cursor, row: {cursor.description[0][0]: row[0]}
        yield data


def test_data_in_another_file_is_guarded_with_the_lease_file_attached(leases, attached):
    with believing(leases) as locks:
        lease = locks.acquire("report")
        attached.execute("INSERT INTO report VALUES ('by A')")
        lease.guard(attached)
        attached.commit()
        locks.model.delete("report")
        attached.execute("INSERT INTO report VALUES ('too late')")
        with pytest.raises(LockLost):
            lease.guard(attached)
        attached.rollback()
        assert attached.execute("SELECT body FROM report").fetchall() == [{"body": "by A"}]
        lease.release()


def test_nobody_gets_a_lease_that_is_guarded_in_sqlite_before_the_commit(leases, path):
    replies = []

    def contend():
        with JobLocks(leases) as others:
            replies.append(others.acquire("report"))

    with believing(leases) as locks, closing(sqlite3.connect(path)) as data:
        lease = locks.acquire("report", ttl="1s")
        lease.guard(data)
        wait_until_lapsed(locks, "report")
        contending = threading.Thread(target=contend)
        contending.start()
        contending.join(0.2)  # it would have been granted by then
        assert replies == []
        data.commit()
        contending.join(PATIENCE)
        assert replies[0].token > lease.token
        replies.pop().release()
        lease.release()


def test_a_connection_to_another_file_is_refused(leases, tmp_path):
    with (
        JobLocks(leases) as locks,
        locks.lock("report") as lease,
        closing(sqlite3.connect(tmp_path / "data.db")) as data,
        pytest.raises(TypeError, match="ATTACH"),
    ):
        lease.guard(data)


def test_outside_a_transaction_a_guard_in_sqlite_is_refused(leases, path):
    with (
        JobLocks(leases) as locks,
        locks.lock("report") as lease,
        closing(sqlite3.connect(path, isolation_level=None)) as data,
    ):
        with pytest.raises(RuntimeError, match="outside a transaction"):
            lease.guard(data)
        data.execute("BEGIN")
        lease.guard(data)
        data.execute("COMMIT")


async def test_a_connection_of_sqlite3_is_guarded_in_asyncio_too(leases, path):
    async with AsyncJobLocks(leases) as locks, locks.lock("report") as lease:
        with closing(sqlite3.connect(path)) as data:
            await lease.guard(data)
            data.commit()


# What cannot be guarded.


def test_a_permit_is_refused(leases, path):
    with (
        JobLocks(leases) as locks,
        locks.lock("gpu", limit=2) as lease,
        closing(sqlite3.connect(path)) as data,
        pytest.raises(ValueError, match="whole"),
    ):
        lease.guard(data)


def test_a_store_that_cannot_says_which_can(path, redis_server):
    for url in ("memory://", redis_server.url):
        with (
            JobLocks(url) as locks,
            locks.lock("report") as lease,
            closing(sqlite3.connect(path)) as data,
            pytest.raises(TypeError, match=r"PostgreSQL, or an SQLite file.*joblock\.fencing"),
        ):
            lease.guard(data)


def test_a_connection_to_another_kind_of_database_is_refused(pg, leases, path, key):
    with JobLocks(pg.url) as locks, locks.lock(key) as lease:
        for kind in (sqlite_connection, alchemy_on_sqlite):
            with kind(leases) as data, pytest.raises(TypeError, match="to postgresql here"):
                lease.guard(data)
    with (
        JobLocks(leases) as locks,
        locks.lock(key) as lease,
        psycopg_connection(pg.url) as data,
        pytest.raises(TypeError, match="to sqlite here"),
    ):
        lease.guard(data)
