"""What a real database brings: settings, rights, restarts, poolers, other people's transactions."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from queue import SimpleQueue
from random import Random
from urllib.parse import quote

import asyncpg
import psycopg
import psycopg.sql
import pytest
import sqlalchemy
from postgres_proxy import Proxy
from postgres_servers import Bouncer, Server, Standby
from psycopg_pool import AsyncConnectionPool, ConnectionPool
from sqlalchemy.ext.asyncio import create_async_engine

from joblock import AsyncJobLocks, JobLocks
from joblock.store.ops import (
    CLAIM_MS,
    Acquire,
    Busy,
    Check,
    Granted,
    Holders,
    Leave,
    Notice,
    Queueing,
    Refresh,
    Release,
    Renewal,
    Waiters,
)
from joblock.stores.postgres import PostgresStore
from joblock.stores.registry import open_store
from joblock.values.errors import StoreMisconfigured, StoreUnavailable

LONG = 600_000


@contextmanager
def opened(store):
    try:
        yield store.driver()
    finally:
        store.close()


@pytest.fixture
def key():
    return uuid.uuid4().hex


def with_options(url: str, **settings: str) -> str:
    options = "%20".join(f"-c%20{name}%3D{value}" for name, value in settings.items())
    return f"{url}?options={options}"


def cycle(driver, key, holder="A") -> None:
    """Everything once: granted, refused and queued, renewed, released, handed on, confirmed."""
    assert isinstance(driver.call(Acquire(key, holder, LONG)), Granted)
    assert isinstance(driver.call(Acquire(key, "W", LONG, queue=Queueing("client"))), Busy)
    assert driver.call(Refresh((Renewal(key, holder, 0, LONG),))).renewed == (True,)
    released = time.monotonic()
    assert driver.call(Release(key, holder)).freed
    claimed = driver.call(Check("client", (key,))).states[0].claimed
    kept_waiting = (time.monotonic() - released) * 1000 > CLAIM_MS  # by a busy machine
    assert claimed == ("W",) or kept_waiting
    assert isinstance(driver.call(Acquire(key, "W", LONG, queue=Queueing("client", 1))), Granted)
    assert driver.call(Leave(key, "W")).freed
    assert driver.call(Holders(key)) == ()


# The tables.


def test_fifty_processes_that_start_at_once_make_the_tables_together(own_pg):
    program = """
import os, sys
import psycopg  # once for all of them: it takes longer than anything else here
from joblock.stores.postgres import PostgresStore
from joblock.store.ops import Acquire, Granted
gate, open_gate = os.pipe()
children = []
for number in range(50):
    pid = os.fork()
    if pid == 0:
        os.read(gate, 1)
        store = PostgresStore.from_url(sys.argv[1], schema="fifty")
        granted = store.driver().call(Acquire(f"key {number}", "A", 600_000))
        store.close()
        os._exit(0 if isinstance(granted, Granted) else 1)
    children.append(pid)
os.write(open_gate, b"x" * 50)
sys.exit(sum(os.waitpid(pid, 0)[1] != 0 for pid in children))
"""
    done = subprocess.run(
        [sys.executable, "-c", program, own_pg.url],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert own_pg.run("select count(*) from fifty.job_locks") == [(50,)]


def test_a_schema_may_have_any_name(pg, key):
    name = 'of "joblock", it\'s {mine}'
    with opened(PostgresStore.from_url(pg.url, schema=name)) as driver:
        cycle(driver, key)
    with opened(
        PostgresStore.from_url(f"{pg.url}?schema=of%20%22joblock%22,%20it's%20{{mine}}")
    ) as d:
        d.call(Acquire(key, "A", LONG))
    with opened(PostgresStore.from_url(pg.url, schema=name)) as driver:
        assert [lease.holder for lease in driver.call(Holders(key))] == ["A"]


def test_a_cycle_is_all_in_place_updates(own_pg, key):
    with opened(PostgresStore.from_url(own_pg.url)) as driver:
        for _ in range(500):
            driver.call(Acquire(key, "A", LONG))
            driver.call(Refresh((Renewal(key, "A", 0, LONG),)))
            driver.call(Release(key, "A"))
    own_pg.run("select pg_stat_force_next_flush()")
    end = time.monotonic() + 20
    while True:
        ((updated, hot),) = own_pg.run(
            "select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relname = 'job_locks'"
        )
        if updated >= 1_500:
            break
        assert time.monotonic() < end, f"{updated} updates were counted"
        time.sleep(0.05)
    assert hot == updated


def test_a_million_keys_make_no_operation_read_more(own_pg, key):
    """Pages, not time: a lookup in a tree of a million keys reads a page or two more."""
    others = """
        insert into job_locks (key, expires_at)
        select md5(g::text), 2000000000000 from generate_series(1, {}) g
    """
    with opened(PostgresStore.from_url(own_pg.url)) as driver:
        cycle(driver, key)
    own_pg.run(others.format(100), "analyze job_locks")
    few = pages_of_a_cycle(own_pg, key)
    own_pg.run("truncate job_locks", others.format(1_000_000), "vacuum analyze job_locks")
    many = pages_of_a_cycle(own_pg, key)
    ((pages,),) = own_pg.run("select relpages from pg_class where relname = 'job_locks'")
    assert pages > 10_000
    for what, count in many.items():
        assert count <= few[what] + 20, (what, few, many)


def pages_of_a_cycle(server, key: str) -> dict[str, int]:
    """How many pages each operation on a key touches, by the server's own count."""
    statements = PostgresStore.from_url(server.url).statements
    operations = {
        "granted": Acquire(key, "A", LONG),
        "refused": Acquire(key, "B", LONG),
        "queued": Acquire(key, "W", LONG, queue=Queueing("client")),
        "renewed": Refresh((Renewal(key, "A", 0, LONG),)),
        "handed on": Release(key, "A"),
        "checked": Check("client", (key,)),
        "confirmed": Acquire(key, "W", LONG, queue=Queueing("client", 1)),
        "released": Release(key, "W"),
        "shared": Acquire(key, "S", LONG, 1, 3),
        "left": Leave(key, "S"),
        "read": Holders(key),
    }
    with psycopg.connect(server.url, autocommit=True) as connection:
        # A session's first requests read catalogues too.
        counts = [
            {what: pages(connection, statements, op) for what, op in operations.items()}
            for _ in range(8)
        ]
    return {what: min(count[what] for count in counts) for what in operations}


def pages(connection, statements, op) -> int:
    request = statements.request(op)
    literals = [psycopg.sql.Literal(value).as_string(connection) for value in request.values]
    name = request.statement.name.decode()
    if not connection.execute(
        "select from pg_prepared_statements where name = %s", (name,)
    ).rowcount:
        connection.execute(f"prepare {name} as {request.statement.text}".encode())
    explain = "explain (analyze, buffers, format json) execute"
    row = connection.execute(f"{explain} {name}({','.join(literals)})".encode()).fetchone()
    plan = row[0][0]["Plan"]
    return plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]


def test_a_contender_of_a_held_key_waits_for_no_row_that_is_locked(pg, key):
    """Somebody's update of the row, or a release that waits for a guard: he is refused at once."""
    with opened(PostgresStore.from_url(pg.url)) as driver, psycopg.connect(pg.url) as other:
        driver.call(Acquire(key, "A", LONG))
        other.execute("select from job_locks where key = %s for update", (key,))
        refused = driver.call(Acquire(key, "B", LONG))
        assert isinstance(refused, Busy)
        assert (refused.holder, refused.why) == ("A", "held")
        other.rollback()


def test_a_contender_of_a_key_that_somebody_waits_for_finds_who_is_dead(pg, key):
    with opened(PostgresStore.from_url(pg.url)) as driver, psycopg.connect(pg.url) as other:
        driver.call(Acquire(key, "A", LONG))
        driver.call(Acquire(key, "W", LONG, queue=Queueing("dead")))
        other.execute("update job_lock_presence set until = 0 where key = %s", (key,))
        other.commit()
        assert isinstance(driver.call(Acquire(key, "B", LONG)), Busy)
        assert other.execute(
            "select parked from job_lock_waiters where key = %s", (key,)
        ).fetchall() == [(True,)]


# Settings of the database, the role or the session.


@pytest.mark.parametrize("level", ["serializable", "repeatable%5C%20read"])
def test_another_default_isolation_level_changes_nothing(pg, key, level):
    url = with_options(pg.url, default_transaction_isolation=level)
    with opened(PostgresStore.from_url(url)) as driver:
        cycle(driver, key)


def test_contenders_under_serializable_get_no_serialization_failure(pg, key):
    url = with_options(pg.url, default_transaction_isolation="serializable")
    granted: list[str] = []
    errors: list[BaseException] = []

    def contend(name: str) -> None:
        with opened(PostgresStore.from_url(url)) as driver:
            try:
                for _ in range(50):
                    if isinstance(driver.call(Acquire(key, name, LONG)), Granted):
                        granted.append(name)
                        driver.call(Release(key, name))
            except BaseException as error:  # noqa: BLE001 - the test shows it
                errors.append(error)

    run_together([lambda name=name: contend(name) for name in "ABCD"])
    assert errors == []
    assert granted


@pytest.mark.parametrize(
    "setting",
    [
        {"lock_timeout": "1"},
        {"statement_timeout": "500"},
        {"idle_in_transaction_session_timeout": "1"},
        {"timezone": "Asia/Kathmandu"},
        {"datestyle": "SQL,DMY"},
        {"standard_conforming_strings": "off"},
        {"search_path": "nowhere"},
        {"synchronous_commit": "off"},
        {"default_transaction_deferrable": "on"},
    ],
    ids="".join,
)
def test_a_setting_of_the_session_changes_nothing(pg, key, setting):
    with opened(PostgresStore.from_url(with_options(pg.url, **setting))) as driver:
        cycle(driver, key)


def test_a_row_that_is_locked_longer_than_lock_timeout_is_waited_for(pg, key):
    url = with_options(pg.url, lock_timeout="10")
    with opened(PostgresStore.from_url(url)) as driver, psycopg.connect(pg.url) as other:
        driver.call(Acquire(key, "A", LONG))
        other.execute("select from job_locks where key = %s for update", (key,))
        threading.Timer(0.3, other.rollback).start()
        assert driver.call(Release(key, "A")).freed


def test_times_are_the_same_in_every_time_zone_and_across_a_clock_change(pg, key):
    with (
        opened(PostgresStore.from_url(with_options(pg.url, timezone="America/New_York"))) as here,
        opened(PostgresStore.from_url(with_options(pg.url, timezone="Pacific/Auckland"))) as there,
    ):
        half_a_year = 183 * 24 * 3_600_000
        granted = here.call(Acquire(key, "A", half_a_year))
        (lease,) = there.call(Holders(key))
        assert granted.expires_at - granted.acquired_at == half_a_year
        assert lease.expires_at.timestamp() == granted.expires_at / 1000
        assert abs(lease.acquired_at.timestamp() - time.time()) < 60
        assert isinstance(there.call(Acquire(key, "B", LONG)), Busy)


def test_a_lease_counts_from_its_grant_and_not_from_the_wait_for_the_row_before_it(pg, key):
    with opened(PostgresStore.from_url(pg.url)) as driver, psycopg.connect(pg.url) as other:
        driver.call(Acquire(key, "A", LONG))
        driver.call(Release(key, "A"))
        other.execute("update job_locks set worker = 'somebody' where key = %s", (key,))
        with ThreadPoolExecutor() as pool:
            asking = pool.submit(driver.call, Acquire(key, "B", LONG))
            wait_until(lambda: blocked(pg, key))
            time.sleep(0.05)  # so that it shows from when it counts
            ((end,),) = pg.run("select floor(extract(epoch from clock_timestamp()) * 1000)::bigint")
            other.commit()
            granted = asking.result(20)
        assert granted.acquired_at >= end
        assert granted.expires_at - granted.acquired_at == LONG


# Rights.


def test_a_role_that_may_not_create_the_tables_is_told_what_to_do(own_pg):
    own_pg.run("create role nobody login", "revoke create on schema public from public")
    with (
        opened(PostgresStore.from_url(own_pg.url_of("nobody"))) as driver,
        pytest.raises(StoreMisconfigured, match="joblock schema postgresql"),
    ):
        driver.call(Acquire("key", "A", LONG))


def test_a_role_with_the_grants_that_the_message_names_can_work(own_pg, key):
    with opened(PostgresStore.from_url(own_pg.url)) as driver:
        cycle(driver, key)
    own_pg.run("create role clerk login")
    store = PostgresStore.from_url(own_pg.url_of("clerk"))
    with opened(store) as driver:
        with pytest.raises(StoreMisconfigured) as refused:
            driver.call(Acquire(key, "A", LONG))
        grants = str(refused.value).partition("then: ")[2].replace("the_role", "clerk")
        own_pg.run(*grants.split("; "))
        cycle(driver, key)


@pytest.mark.parametrize("limit", [1, 3])
def test_a_read_only_server_is_a_matter_of_set_up(pg, key, limit):
    """Also for whoever would be refused: what a standby knows may be old."""
    url = with_options(pg.url, default_transaction_read_only="on")
    with (
        opened(PostgresStore.from_url(pg.url)) as driver,
        opened(PostgresStore.from_url(url)) as read_only,
    ):
        cycle(driver, key)
        for holder in (None, "A"):
            if holder is not None:
                driver.call(Acquire(key, holder, LONG))
            with pytest.raises(StoreMisconfigured, match="target_session_attrs"):
                read_only.call(Acquire(key, "B", LONG, 1, limit))


def test_a_standby_is_a_matter_of_set_up_and_the_primary_is_found(key):
    with standby_of_a_server() as (primary, standby):
        with opened(PostgresStore.from_url(primary.url)) as driver:
            cycle(driver, key)
            driver.call(Acquire(key, "A", LONG))
        ((lsn,),) = primary.run("select pg_current_wal_flush_lsn()::text")
        wait_until(lambda: standby.run(f"select pg_last_wal_replay_lsn() >= '{lsn}'") == [(True,)])
        with (
            opened(PostgresStore.from_url(standby.url)) as driver,
            pytest.raises(StoreMisconfigured, match="read only"),
        ):
            driver.call(Acquire(key, "B", LONG))
        both = f"postgresql://postgres@127.0.0.1:{standby.port},127.0.0.1:{primary.port}/postgres"
        with opened(PostgresStore.from_url(f"{both}?target_session_attrs=read-write")) as driver:
            assert isinstance(driver.call(Acquire(key, "B", LONG)), Busy)
            assert driver.call(Release(key, "A")).freed


@contextmanager
def standby_of_a_server():
    primary = Server(wal_level="replica")
    standby = Standby(primary)
    try:
        yield primary, standby
    finally:
        standby.remove()
        primary.remove()


@pytest.mark.parametrize("what", ["role", "database"])
def test_a_wrong_name_is_a_matter_of_set_up(pg, what):
    url = pg.url_of("stranger") if what == "role" else pg.url_of("postgres", "nowhere")
    with (
        opened(PostgresStore.from_url(url)) as driver,
        pytest.raises(StoreMisconfigured, match="does not exist"),
    ):
        driver.call(Holders("key"))


def test_a_password_is_never_shown(pg):
    store = PostgresStore.from_url(
        f"postgresql://app:s3cret@127.0.0.1:{pg.port}/x?sslpassword=s3cret"
    )
    assert "s3cret" not in store.url
    assert "app" in store.url


# Going away and coming back.


def test_a_server_that_is_down_is_unavailable_in_bounded_time(own_pg, key):
    store = PostgresStore.from_url(own_pg.url)
    with opened(store) as driver:
        cycle(driver, key)
        own_pg.stop()
        begin = time.monotonic()
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            driver.call(Acquire(key, "A", LONG))
        assert time.monotonic() - begin < 30  # 5, and what a busy machine takes


def test_a_server_that_does_not_answer_is_unavailable_in_bounded_time(own_pg, key):
    with opened(PostgresStore.from_url(own_pg.url)) as driver:
        cycle(driver, key)
        ((backend,),) = own_pg.run(
            "select pid from pg_stat_activity where application_name = 'joblock'"
        )
        os.kill(backend, signal.SIGSTOP)
        try:
            begin = time.monotonic()
            with pytest.raises(StoreUnavailable, match="no answer within"):
                driver.call(Acquire(key, "A", LONG))
            assert time.monotonic() - begin < 30
        finally:
            os.kill(backend, signal.SIGCONT)
        assert driver.call(Leave(key, "A")) is not None


@pytest.mark.parametrize("through", ["psycopg", "asyncpg"])
async def test_a_driver_whose_store_was_closed_goes_on_and_keeps_no_connection(
    own_pg, key, through
):
    """It may be in the middle of something, and connect once more."""

    def connections():
        return own_pg.run("select count(*) from pg_stat_activity where application_name='joblock'")

    async def none_left():
        async with asyncio.timeout(60):
            while await asyncio.to_thread(connections) != before:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.01)

    async with opened_in_loop(through, own_pg.url) as locks:
        before, store = connections(), locks.store
        driver, tasks = store.driver(), store.async_driver()
        await asyncio.to_thread(driver.call, Acquire(key, "A", LONG))
        assert await tasks.call(Leave(key, "A")) is not None
        store.close()
        await tasks.aclose()
        await none_left()
        assert (await asyncio.to_thread(driver.call, Acquire(key, "A", LONG))).token
        await none_left()
        asked = (tasks.call(Acquire(f"{key} {number}", "A", LONG)) for number in range(5))
        assert all(reply.token for reply in await asyncio.gather(*asked))
        await none_left()


async def test_whoever_waits_beside_a_loop_for_an_answer_learns_that_the_store_was_closed(
    own_pg, key
):
    async with opened_in_loop("asyncpg", own_pg.url) as locks:
        store = locks.store
        driver = store.driver()
        await asyncio.to_thread(driver.call, Acquire(key, "A", LONG))
        own_pg.stop()
        # It connects again and again, for five seconds.
        asked = driver._side.ask(Acquire(key, "A", LONG))  # noqa: SLF001 - on its way for sure
        await asyncio.to_thread(store.close)
        with pytest.raises(StoreUnavailable):
            await asyncio.to_thread(asked.answer)


@pytest.mark.parametrize("through", ["psycopg", "asyncpg", "sqlalchemy"])
async def test_tasks_too_are_told_in_bounded_time_of_a_server_that_does_not_answer(
    own_pg, key, through
):
    async with opened_in_loop(through, own_pg.url) as locks:
        assert await locks.model.acquire(key, 60, "A")
        backends = own_pg.run("select pid from pg_stat_activity where application_name = 'joblock'")
        for (backend,) in backends:
            os.kill(backend, signal.SIGSTOP)
        try:
            begin = time.monotonic()
            with pytest.raises(StoreUnavailable, match="no answer within"):
                await locks.model.acquire(key, 60, "A")
            assert time.monotonic() - begin < 30
        finally:
            for (backend,) in backends:
                os.kill(backend, signal.SIGCONT)
        assert await locks.model.acquire(key, 60, "A")


@asynccontextmanager
async def opened_in_loop(through, url):
    """A client by the one or the other way there is to PostgreSQL from a loop."""
    if through == "psycopg":
        async with AsyncJobLocks(url) as locks:
            yield locks
    elif through == "asyncpg":
        name = {"application_name": "joblock"}
        pool = asyncpg.create_pool(url, min_size=1, server_settings=name)
        async with pool, AsyncJobLocks(pool) as locks:
            yield locks
    else:
        engine = create_async_engine(url.replace("postgresql:", "postgresql+psycopg:"))
        async with AsyncJobLocks(engine) as locks:
            yield locks
        await engine.dispose()


@pytest.mark.parametrize("how", ["stop", "crash"])
def test_leases_and_connections_survive_a_restart(own_pg, key, how):
    with opened(PostgresStore.from_url(own_pg.url)) as driver:
        cycle(driver, key)
        token = driver.call(Acquire(key, "A", LONG)).token
        getattr(own_pg, how)()
        own_pg.start()
        assert isinstance(driver.call(Acquire(key, "B", LONG)), Busy)
        assert driver.call(Refresh((Renewal(key, "A", token, LONG),))).renewed == (True,)
        assert driver.call(Release(key, "A", token)).freed


def test_a_crash_loses_no_grace(unwritten_pg, key):
    with opened(PostgresStore.from_url(unwritten_pg.url)) as driver:
        token = driver.call(Acquire(key, "A", LONG)).token
        assert driver.call(Release(key, "A", token, grace=LONG)).freed
        unwritten_pg.crash()
        unwritten_pg.start()
        reply = driver.call(Acquire(key, "B", LONG))
        assert isinstance(reply, Busy)
        assert reply.why == "grace"


def test_whoever_a_crash_may_have_forgotten_is_told_to_queue_again(unwritten_pg, key):
    queue = Queueing("c", listening=True)
    with opened(PostgresStore.from_url(unwritten_pg.url)) as driver:
        driver.call(Acquire(key, "A", LONG))
        first = driver.call(Acquire(key, "B", LONG, queue=queue))
        driver.call(Acquire(f"{key} other", "A", LONG))  # writes all that is before it
        second = driver.call(Acquire(key, "C", LONG, queue=queue))
        assert isinstance(first, Busy)
        assert isinstance(second, Busy)
        unwritten_pg.crash()
        unwritten_pg.start()
        (state,) = driver.call(Check("c", (key,))).states
        assert state.epoch not in {first.epoch, second.epoch}
        again = queue._replace(arrival=second.arrival)
        driver.call(Acquire(key, "C", LONG, queue=again))
        driver.call(Acquire(key, "B", LONG, queue=queue._replace(arrival=first.arrival)))
        waiting = driver.call(Waiters(key))
        assert [(waiter.holder, waiter.arrival) for waiter in waiting] == [
            ("B", first.arrival),
            ("C", second.arrival),
        ]


def test_a_crash_forgets_nobody_where_somebody_has_made_the_table_of_presence_a_logged_one(
    unwritten_pg, key
):
    with opened(PostgresStore.from_url(unwritten_pg.url)) as driver:
        driver.call(Acquire(key, "A", LONG))
        unwritten_pg.run("alter table job_lock_presence set logged")
        try:
            driver.call(Acquire(key, "B", LONG, queue=Queueing("c", listening=True)))
            unwritten_pg.crash()
            unwritten_pg.start()
            assert [waiter.holder for waiter in driver.call(Waiters(key))] == ["B"]
        finally:
            unwritten_pg.run("alter table job_lock_presence set unlogged")


def test_a_waiter_that_a_crash_may_have_forgotten_has_its_turn(unwritten_pg, key):
    with (
        JobLocks(unwritten_pg.url) as locks,
        JobLocks(unwritten_pg.url) as others,
        ThreadPoolExecutor(1) as pool,
    ):
        lease = locks.acquire(key, LONG)
        assert lease is not None
        waiting = pool.submit(others.acquire, key, LONG, True)
        wait_until(lambda: locks.model.waiters(key))
        unwritten_pg.crash()
        unwritten_pg.start()
        assert lease.release()
        assert waiting.result(60) is not None


@pytest.fixture
def unwritten_pg():
    """A server that writes what was committed asynchronously only when it must."""
    server = Server(fsync=True, wal_writer_delay="10s")
    yield server
    server.remove()


async def test_the_async_driver_survives_a_restart(own_pg, key):
    store = PostgresStore.from_url(own_pg.url)
    driver = store.async_driver()
    granted = await driver.call(Acquire(key, "A", LONG))
    own_pg.crash()
    own_pg.start()
    assert (await driver.call(Release(key, "A", granted.token))).freed
    await driver.aclose()


@pytest.mark.parametrize("pooled", [False, True], ids=["direct", "pooled"])
def test_a_restart_under_load_costs_no_exclusion_and_no_error_but_unavailable(own_pg, pooled):
    with bouncer_before(own_pg) if pooled else nullcontext(own_pg) as place:
        restart_under_load(own_pg, PostgresStore.from_url(place.url))


@contextmanager
def bouncer_before(server):
    bouncer = Bouncer(server)
    try:
        yield bouncer
    finally:
        bouncer.remove()


HELD = 4_000


def restart_under_load(own_pg, store) -> None:
    stop = threading.Event()
    tokens: list[int] = []
    inside = threading.Lock()

    def take(driver, holder: str) -> None:
        # A crash may lose a release, so the key may stay held for its ttl; which is longer than a
        # busy machine keeps a thread from going through what follows.
        granted = driver.call(Acquire("loaded", holder, HELD))
        if isinstance(granted, Granted):
            assert inside.acquire(blocking=False), "two inside at once"
            tokens.append(granted.token)
            inside.release()

    def work(name: str) -> None:
        driver, number = store.driver(), 0
        while not stop.is_set():
            number += 1
            with suppress(StoreUnavailable):
                take(driver, f"{name} {number}")
            persist(driver, Leave("loaded", f"{name} {number}"))

    def wait_for_more() -> None:
        seen = len(tokens)
        wait_until(lambda: len(tokens) > seen + 20)

    with opened(store), ThreadPoolExecutor(4) as pool:
        working = [pool.submit(work, name) for name in "ABCD"]
        for how in (own_pg.stop, own_pg.crash):
            wait_for_more()
            how()
            own_pg.start()
        wait_for_more()
        stop.set()
        for work in working:
            work.result(30)
        assert tokens == sorted(set(tokens))
        assert store.driver().call(Holders("loaded")) == ()


def persist(driver, op) -> None:
    """Do that as soon as the server is back."""
    while True:
        try:
            driver.call(op)
            return
        except StoreUnavailable:
            time.sleep(0.05)


def test_a_connection_that_the_server_closed_while_idle_costs_no_error(pg, key):
    with opened(PostgresStore.from_url(f"{pg.url}?application_name=idle_{key}")) as driver:
        driver.call(Acquire(key, "A", LONG))
        with psycopg.connect(pg.url) as other:
            other.execute(
                "select pg_terminate_backend(pid, 5000) from pg_stat_activity "
                "where application_name = %s",
                (f"idle_{key}",),
            )
        assert driver.call(Release(key, "A")).freed


def test_tables_that_were_dropped_are_made_again(own_pg, key):
    with opened(PostgresStore.from_url(own_pg.url)) as driver:
        cycle(driver, key)
        own_pg.run("drop schema public cascade", "create schema public")
        cycle(driver, key)


# Other people's transactions, pools and poolers.


def test_the_callers_open_transaction_is_neither_used_nor_ended(pg, key):
    with (
        ConnectionPool(pg.url, min_size=1, max_size=1) as pool,
        JobLocks(pool) as locks,
        pool.connection() as connection,
    ):
        connection.execute("create temp table mine (x int)")
        with locks.lock(key, wait=False) as lease:
            connection.execute("insert into mine values (1)")
            connection.rollback()
            assert lease.held
            assert locks.model.peek(key).holder == lease.holder
        assert connection.info.transaction_status.name == "IDLE"
        assert locks.model.peek(key) is None


def test_a_pool_with_an_aborted_transaction_does_no_harm(pg, key):
    with (
        ConnectionPool(pg.url, min_size=1, max_size=1) as pool,
        opened(open_store(pool)) as driver,
        pool.connection() as connection,
    ):
        with pytest.raises(psycopg.errors.DivisionByZero):
            connection.execute("select 1 / 0")
        cycle(driver, key)
        connection.rollback()


async def test_an_async_pool_is_a_store_for_both_drivers(pg, key):
    async with (
        AsyncConnectionPool(pg.url, min_size=1, open=False) as pool,
        AsyncJobLocks(pool) as locks,
    ):
        async with locks.lock(key, ttl=6) as lease:
            first = await locks.model.peek(key)
            async with asyncio.timeout(60):  # the keeper renews through the sync driver
                while (await locks.model.peek(key)).expires_at == first.expires_at:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            assert lease.held
        assert await locks.model.peek(key) is None


@pytest.mark.parametrize("dialect", ["psycopg", "psycopg2"])
def test_a_sqlalchemy_engine_is_a_store_and_its_open_transaction_is_left_alone(pg, key, dialect):
    engine = sqlalchemy.create_engine(
        pg.url.replace("postgresql:", f"postgresql+{dialect}:"), pool_size=1, max_overflow=0
    )
    with engine.begin() as connection, JobLocks(engine) as locks:
        connection.execute(sqlalchemy.text("create temp table mine (x int)"))
        cycle(locks.store.driver(), key)
        with locks.lock(key, wait=False) as lease:
            connection.rollback()
            assert lease.held
            assert locks.model.peek(key).holder == lease.holder
    engine.dispose()


def test_what_an_engine_does_to_its_new_connections_is_done_to_ours(pg, key):
    pg.run("drop role if exists worker", "create role worker superuser")
    engine = sqlalchemy.create_engine(pg.url.replace("postgresql:", "postgresql+psycopg:"))

    @sqlalchemy.event.listens_for(engine, "connect")
    def become(connection, record):
        connection.execute("set role worker")
        connection.commit()

    with opened(PostgresStore.from_engine(engine, schema=f"of {key}")) as driver:
        cycle(driver, key)
    owners = dict(pg.run("select nspname, nspowner::regrole::text from pg_namespace"))
    assert owners[f"of {key}"] == "worker"
    engine.dispose()


@pytest.mark.parametrize("dialect", ["psycopg", "asyncpg"])
async def test_an_async_engine_is_a_store(pg, key, dialect):
    engine = create_async_engine(pg.url.replace("postgresql:", f"postgresql+{dialect}:"))
    async with AsyncJobLocks(engine) as locks:
        async with locks.lock(key) as lease:
            assert lease.held
        assert await locks.model.peek(key) is None
    await engine.dispose()


def test_all_works_behind_pgbouncer_in_transaction_mode(bouncer, key):
    with opened(PostgresStore.from_url(bouncer.url)) as driver:
        cycle(driver, key)

    def work(name: str) -> None:
        with opened(PostgresStore.from_url(bouncer.url)) as driver:
            for number in range(20):
                cycle(driver, f"{key} {name} {number}", name)

    run_together([lambda name=name: work(name) for name in "ABCDEFGH"])


def test_a_waiter_behind_pgbouncer_is_served_by_polling(bouncer, key):
    with JobLocks(bouncer.url) as locks:
        held = locks.acquire(key, ttl=600)
        served = threading.Event()

        def wait() -> None:
            with locks.lock(key, wait=100):
                served.set()

        waiter = threading.Thread(target=wait)
        waiter.start()
        wait_until(lambda: locks.model.waiters(key))
        held.release()
        assert served.wait(60)
        waiter.join(60)


def test_behind_pgbouncer_nobody_listens_who_would_hear_nothing(bouncer):
    store = PostgresStore.from_url(bouncer.url)
    connected = threading.Event()
    ear = store.subscribe("client", lambda _: None, connected.set)
    wait_until(lambda: not ear.is_alive())
    assert not ear.listening
    assert not connected.is_set()
    ear.close()


def test_behind_pgbouncer_a_direct_listen_url_carries_the_notices(bouncer, pg, key):
    store = PostgresStore.from_url(f"{bouncer.url}?listen_url={quote(pg.url, safe='')}")
    connected, heard = threading.Event(), SimpleQueue()
    ear = store.subscribe("client", heard.put, connected.set)
    assert connected.wait(20)
    assert ear.listening
    with opened(store) as driver:
        driver.call(Acquire(key, "A", LONG))
        driver.call(Acquire(key, "W", LONG, queue=Queueing("client")))
        driver.call(Release(key, "A"))
        assert heard.get(timeout=20) == Notice("client", key, "W")
    ear.close()


# Many at once.


def test_many_callers_of_one_new_key_see_no_error_and_one_is_granted(pg, key):
    store = PostgresStore.from_url(pg.url)
    replies: list[object] = []

    def ask(name: str) -> None:
        replies.append(store.driver().call(Acquire(key, name, LONG)))

    with opened(store):
        run_together([lambda number=number: ask(f"h{number}") for number in range(40)])
    assert sum(isinstance(reply, Granted) for reply in replies) == 1
    assert len(replies) == 40


def test_no_pair_of_operations_deadlocks(own_pg):
    program = """
import sys, random
from joblock.stores.postgres import PostgresStore
from joblock.store.ops import *
url, name = sys.argv[1:]
draw, keys = random.Random(name), [f"k{n}" for n in range(8)]
store = PostgresStore.from_url(url)
driver = store.driver()
def some():
    return tuple(draw.sample(keys, 5))
for _ in range(400):
    key, holder = draw.choice(keys), f"{name}{draw.randrange(3)}"
    limit = draw.choice((1, 1, 3))
    driver.call(draw.choice((
        Acquire(key, holder, draw.choice((1, 20)), 1, limit, queue=Queueing(name)),
        Acquire(key, holder, draw.choice((1, 20)), 1, limit),
        Release(key, holder, grace=draw.choice((0, 0, 5)), ok=True),
        Leave(key, holder), Strike(key, holder), Force(key, name, "test"),
        Check(name, some()), Check(name, some()), Purge(5, 0),
        Refresh(tuple(Renewal(key, holder, 0, 20) for key in some())),
        Refresh(tuple(Renewal(key, holder, 0, 20) for key in some())),
    )))
store.close()
"""
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", program, own_pg.url, name], stderr=subprocess.PIPE, text=True
        )
        for name in "ABCDEF"
    ]
    errors = [worker.communicate()[1] for worker in workers]
    assert {worker.returncode for worker in workers} == {0}, errors
    ((deadlocks,),) = own_pg.run("select sum(deadlocks)::int from pg_stat_database")
    assert deadlocks == 0


def test_a_row_that_somebody_locks_does_not_stall_the_renewal_of_other_keys(pg, key):
    keys = [f"{key} {number}" for number in range(5)]
    store = PostgresStore.from_url(pg.url)
    with opened(store) as driver, psycopg.connect(pg.url) as other:
        for name in keys:
            driver.call(Acquire(name, "A", 1_000))
        other.execute("select from job_locks where key = %s for key share", (keys[2],))
        batch = Refresh(tuple(Renewal(name, "A", 0, LONG) for name in keys))
        assert driver.call(batch).renewed == (True,) * 5
        other.rollback()
        other.execute("select from job_locks where key = %s for update", (keys[2],))
        replies: list[object] = []
        renewing = threading.Thread(target=lambda: replies.append(driver.call(batch)))
        renewing.start()
        wait_until(
            lambda: (
                min(
                    lease.expires_at
                    for name in keys
                    if name != keys[2]
                    for lease in driver.call(Holders(name))
                )
                > driver.call(Holders(keys[2]))[0].expires_at
            )
        )
        other.rollback()
        renewing.join(20)
        assert replies[0].renewed == (True,) * 5


def test_a_guarded_lease_is_neither_taken_over_nor_released_before_the_commit(pg, key):
    """A guard is FOR KEY SHARE on the lease row, in the caller's own transaction."""
    with opened(PostgresStore.from_url(pg.url)) as driver, psycopg.connect(pg.url) as other:
        token = driver.call(Acquire(key, "A", 200)).token
        other.execute("select from job_locks where key = %s for key share", (key,))
        wait_until(lambda: driver.call(Holders(key))[0].state == "expired")
        refused = driver.call(Acquire(key, "B", LONG))
        assert isinstance(refused, Busy)
        assert (refused.holder, refused.token) == ("A", token)
        released: list[object] = []
        releasing = threading.Thread(
            target=lambda: released.append(driver.call(Release(key, "A", token)))
        )
        releasing.start()
        wait_until(lambda: blocked(pg, key))
        assert released == []
        other.commit()
        releasing.join(20)
        assert released[0].freed
        assert isinstance(driver.call(Acquire(key, "B", LONG)), Granted)


def blocked(pg, key: str) -> bool:
    ((count,),) = pg.run(
        "select count(*)::int from pg_stat_activity where wait_event_type = 'Lock'"
    )
    return count > 0


# Cancelled and interrupted.


async def test_acquires_that_are_cancelled_behind_a_slow_network_leave_nothing_held(pg, key):
    proxy = Proxy(pg.port, 0.02)
    draw = Random(1)
    try:
        async with AsyncJobLocks(f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres") as locks:
            async with locks.lock(key):
                pass
            for _ in range(40):
                task = asyncio.create_task(locks.acquire(key, ttl=60, wait=False))
                await asyncio.sleep(draw.uniform(0, 0.06))
                task.cancel()
                try:
                    lease = await task
                except asyncio.CancelledError:
                    continue
                if lease is not None:  # the one before may be on its way out still
                    await lease.release()
            async with asyncio.timeout(60):
                while await locks.model.holders(key) or await locks.model.waiters(key):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
    finally:
        proxy.stop()


def test_an_interrupt_ends_the_request_before_it_is_raised(pg, key):
    proxy = Proxy(pg.port, 0.3)
    store = PostgresStore.from_url(f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres")
    try:
        with opened(store) as driver:
            driver.call(Leave(key, "A"))
            with pytest.raises(KeyboardInterrupt):
                interrupted(lambda: driver.call(Acquire(key, "A", LONG)))
            proxy.delay = 0.0
            driver.call(Leave(key, "A"))
            assert driver.call(Holders(key)) == ()
            assert driver.call(Waiters(key)) == ()
            cycle(driver, key)
    finally:
        proxy.stop()


def interrupted(call) -> None:
    """Do that, and have the interrupt come meanwhile; on a busy machine before it, or after."""
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
    call()
    time.sleep(60)


def test_a_forked_child_uses_connections_of_its_own_and_leaves_the_parents_alone(pg, key):
    program = """
import os, sys
from joblock import JobLocks
locks = JobLocks(sys.argv[1])
with locks.lock(sys.argv[2]) as lease:
    pid = os.fork()
    if pid == 0:
        assert not lease.held
        assert locks.acquire(sys.argv[2]) is None
        with locks.lock(sys.argv[2] + " child"):
            pass
        locks.close()
        sys.exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    lease.refresh(30)
    assert lease.held
assert locks.model.peek(sys.argv[2]) is None
locks.close()
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, pg.url, key],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def run_together(calls) -> None:
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)


def wait_until(condition, patience: float = 60.0) -> None:
    end = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)
