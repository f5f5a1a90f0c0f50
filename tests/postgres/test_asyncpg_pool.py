"""An asyncpg pool as a store: its settings, other connections, and a keeper beside the loop."""

from __future__ import annotations

import asyncio
import threading
import time
import traceback
import uuid
from concurrent.futures import ThreadPoolExecutor

import asyncpg
import pytest
from postgres_harness import AsyncpgHarness
from postgres_proxy import Proxy

from joblock import AsyncJobLocks, JobLocks, StoreError, StoreMisconfigured, StoreUnavailable
from joblock.store.ops import Acquire, Granted
from joblock.stores.postgres.beside import BesideDriver
from joblock.testing.clients.running import Running
from joblock.testing.clients.stage import Stage


class TestTasksOnAnAsyncpgPool(Running):
    @pytest.fixture
    def harness(self, pg):
        return AsyncpgHarness(pg.url)

    @pytest.fixture
    def stage(self, harness):
        stage = Stage(harness, "async")
        yield stage
        stage.close()
        harness.close()


@pytest.fixture
def key():
    return uuid.uuid4().hex


@pytest.fixture
async def pool(pg):
    async with asyncpg.create_pool(pg.url, min_size=1, max_size=1) as pool:
        yield pool


@pytest.mark.parametrize("lazy", [False, True])
async def test_the_sync_client_does_not_take_a_pool_that_belongs_to_a_loop(pool, lazy):
    with pytest.raises(TypeError, match="AsyncJobLocks"):
        JobLocks((lambda: pool) if lazy else pool).model.peek("key")


async def test_a_connection_or_record_of_asyncpg_is_no_store(pool):
    async with pool.acquire() as connection:
        with pytest.raises(TypeError, match="create_pool"):
            AsyncJobLocks(connection)


class Endless:
    """What asks a server that never answers, and would ask it again for ever."""

    def __init__(self):
        self.asked = threading.Event()

    async def call(self, op):
        del op
        self.asked.set()
        await asyncio.Event().wait()

    def settled(self, holder, then):
        del holder
        then()

    async def aclose(self):
        pass


def test_whoever_waits_beside_a_loop_is_told_when_that_ends():
    endless = Endless()
    driver = BesideDriver(lambda: endless)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(driver.call, Acquire("key", "A", 60_000))
        assert endless.asked.wait(60)
        driver.close()
        with pytest.raises(StoreUnavailable, match="was closed before it answered"):
            answer.result(60)


async def test_no_connection_of_the_pool_is_used(pool, key):
    async with AsyncJobLocks(pool) as locks, pool.acquire() as only_one:
        async with only_one.transaction(), locks.lock(key) as lease:
            assert lease.held
            assert [await only_one.fetchval("select 1")] == [1]
        assert await locks.model.peek(key) is None


async def test_a_loop_that_is_blocked_for_many_ttls_keeps_its_lease(pool, key):
    async with AsyncJobLocks(pool) as locks, locks.lock(key, ttl=4) as lease:
        time.sleep(9)  # noqa: ASYNC251 - that is the point
        assert lease.held


async def test_waiters_are_woken_in_turn(pool, key):
    order: list[int] = []

    async def work(number: int) -> None:
        async with locks.lock(key, wait=60):
            order.append(number)

    async with AsyncJobLocks(pool) as locks:
        async with locks.lock(key):
            waiting: list[asyncio.Task[None]] = []
            for number in range(5):
                waiting.append(asyncio.create_task(work(number)))
                async with asyncio.timeout(60):
                    while len(await locks.model.waiters(key)) <= number:  # noqa: ASYNC110
                        await asyncio.sleep(0.01)
        await asyncio.gather(*waiting)
    assert order == [0, 1, 2, 3, 4]


async def test_what_the_pool_does_to_its_connections_is_done_to_ours(pg, key):
    roles: list[str] = []

    async def become(connection: asyncpg.Connection) -> None:
        roles.append(await connection.fetchval("select current_user"))

    pool = asyncpg.create_pool(
        pg.url, min_size=0, init=become, server_settings={"application_name": key}
    )
    async with pool, AsyncJobLocks(pool) as locks, locks.lock(key):
        rows = await asyncio.to_thread(pg.run, "select application_name from pg_stat_activity")
        assert (key,) in rows
    assert roles


async def test_a_lease_is_guarded_in_a_transaction_on_a_connection_of_the_pool(pool, key):
    async with AsyncJobLocks(pool) as locks, locks.lock(key) as lease:
        async with pool.acquire() as connection, connection.transaction():
            await lease.guard(connection)
        await lease.release()
        async with pool.acquire() as connection, connection.transaction():
            with pytest.raises(Exception, match="released"):
                await lease.guard(connection)


@pytest.mark.parametrize("settings", [{}, {"statement_cache_size": 0}], ids=str)
async def test_behind_pgbouncer_many_tasks_take_turns(bouncer, key, settings):
    inside = 0

    async def work() -> None:
        nonlocal inside
        async with locks.lock(key, wait=60):
            inside += 1
            assert inside == 1
            await asyncio.sleep(0)
            inside -= 1

    async with (
        asyncpg.create_pool(bouncer.url, min_size=1, max_size=2, **settings) as pool,
        AsyncJobLocks(pool) as locks,
    ):
        await asyncio.gather(*(work() for _ in range(20)))
        assert await locks.model.peek(key) is None


@pytest.mark.parametrize("level", ["serializable", "repeatable read"])
async def test_another_default_isolation_level_changes_nothing(pg, key, level):
    settings = {"default_transaction_isolation": level}
    async with (
        asyncpg.create_pool(pg.url, min_size=1, server_settings=settings) as pool,
        AsyncJobLocks(pool) as locks,
        locks.lock(key, ttl=6) as lease,
    ):
        first = await locks.model.peek(key)
        async with asyncio.timeout(60):
            while (await locks.model.peek(key)).expires_at == first.expires_at:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert lease.held  # and it has been renewed
        assert await locks.acquire(key) is None


async def test_a_server_that_restarts_costs_no_lease(own_pg, key):
    async with AsyncJobLocks(asyncpg.create_pool(own_pg.url, min_size=0)) as locks:
        async with locks.lock(key, ttl=600) as lease:
            await asyncio.to_thread(own_pg.crash)
            with pytest.raises(StoreUnavailable):
                await locks.model.peek(key)
            await asyncio.to_thread(own_pg.start)
            await lease.refresh(600)
            assert lease.held
        assert await locks.model.peek(key) is None


@pytest.mark.parametrize("what", ["user", "database"])
async def test_a_wrong_name_is_a_matter_of_set_up(pg, what):
    url = pg.url_of("stranger") if what == "user" else pg.url_of("postgres", "nowhere")
    pool = asyncpg.create_pool(url, min_size=0)
    async with AsyncJobLocks(pool) as locks:
        with pytest.raises(StoreMisconfigured, match="does not exist"):
            await locks.model.peek("key")


async def test_a_password_is_not_shown(pg):
    named = asyncpg.create_pool(f"postgresql://u:s3cret@127.0.0.1:{pg.port}/d", min_size=0)
    told = asyncpg.create_pool(
        host="127.0.0.1", port=pg.port, user="u", password="s3cret", min_size=0
    )
    for pool in (named, told):
        async with AsyncJobLocks(pool) as locks:
            assert "s3cret" not in locks.store.url + repr(locks)
            assert str(pg.port) in locks.store.url


@pytest.mark.parametrize("secret", ["s3c/retpw", "s3c@retpw", "s3c:retpw", "s3c%zzretpw"])
async def test_a_password_is_not_shown_by_the_error_about_a_wrong_url(secret):
    pool = asyncpg.create_pool(f"postgresql://u:{secret}@127.0.0.1:1/d", min_size=0)
    async with AsyncJobLocks(pool) as locks:
        with pytest.raises(StoreError) as refused:
            await locks.model.peek("key")
    said = "".join(traceback.format_exception(refused.value)) + repr(locks) + locks.store.url
    assert "s3c" not in said
    assert "retpw" not in said


async def test_acquires_that_are_cancelled_behind_a_slow_network_leave_nothing_held(pg, key):
    proxy = Proxy(pg.port, 0.02)
    url = f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres"
    try:
        async with AsyncJobLocks(asyncpg.create_pool(url, min_size=0)) as locks:
            async with locks.lock(key):
                pass
            for number in range(40):
                task = asyncio.create_task(locks.acquire(key, ttl=60, wait=False))
                await asyncio.sleep(number * 0.0015)
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


async def test_it_goes_on_after_its_event_loop_and_in_another(pg, key):
    """One store, several loops, as an application that calls asyncio.run again and again."""
    pool = asyncpg.create_pool(pg.url, min_size=0)
    locks = AsyncJobLocks(pool)

    async def once() -> int:
        async with locks.lock(key) as lease:
            token = lease.token
        await locks.close()
        return token

    first = await asyncio.to_thread(asyncio.run, once())
    assert await once() > first


async def test_the_tables_are_made_through_asyncpg(own_pg):
    pool = asyncpg.create_pool(own_pg.url, min_size=0)
    async with AsyncJobLocks(pool) as locks:
        driver = locks.store.async_driver()
        replies = await asyncio.gather(
            *(driver.call(Acquire(f"key {number}", "A", 30_000)) for number in range(20))
        )
        assert all(isinstance(reply, Granted) for reply in replies)
        await driver.aclose()
