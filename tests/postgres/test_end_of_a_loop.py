"""An event loop that ends cancels every task in it; what was sent is on its way all the same.

Another transaction keeps the request waiting in the server meanwhile, so that nothing here depends
on who is faster.
"""

from __future__ import annotations

import asyncio
import time
import uuid

import asyncpg
import psycopg
import pytest
from sqlalchemy.ext.asyncio import create_async_engine

from joblock.store.ops import Acquire, Holders, Leave
from joblock.stores.postgres.store import PostgresStore

PATIENCE = 30.0
LONG = 60_000

BLOCKED = "select count(*) from pg_stat_activity where %s = any(pg_blocking_pids(pid))"


class Obstacle:
    """A transaction that keeps all grants waiting, and somebody who sees whether one waits."""

    def __init__(self, url: str) -> None:
        self._wall = psycopg.connect(url)
        self._eye = psycopg.connect(url, autocommit=True)

    def rise(self, schema: str) -> None:
        self._wall.execute(f'lock table "{schema}".job_locks in exclusive mode')

    def fall(self) -> None:
        self._wall.rollback()

    def kept_waiting(self) -> int:
        found = self._eye.execute(BLOCKED, [self._wall.info.backend_pid]).fetchone()
        assert found is not None
        return found[0]

    def close(self) -> None:
        self._wall.close()
        self._eye.close()


@pytest.fixture
def obstacle(pg):
    obstacle = Obstacle(pg.url)
    yield obstacle
    obstacle.close()


@pytest.fixture(params=["psycopg", "asyncpg", "sqlalchemy"])
async def store(request, pg):
    if request.param == "psycopg":
        yield PostgresStore.from_url(pg.url)
    elif request.param == "asyncpg":
        yield PostgresStore.from_asyncpg(asyncpg.create_pool(pg.url))
    else:
        engine = create_async_engine(pg.url.replace("postgresql://", "postgresql+asyncpg://"))
        yield PostgresStore.from_engine(engine)
        await engine.dispose()


@pytest.mark.parametrize("connected", [False, True])
async def test_what_the_end_of_a_loop_cancels_is_settled_once_the_server_is_done_with_it(
    store, obstacle, connected
):
    op = Acquire(uuid.uuid4().hex, "A", LONG)
    driver, other = store.async_driver(), store.async_driver()
    await other.call(Leave(op.key, op.holder))
    if connected:
        await driver.call(Leave(op.key, op.holder))
    obstacle.rise(store.schema)
    asking = asyncio.create_task(driver.call(op))
    await _until(obstacle.kept_waiting)
    everything = asyncio.all_tasks() - {asyncio.current_task()}
    for task in everything:
        task.cancel()
    await asyncio.wait(everything)
    assert asking.cancelled()

    kept_waiting: list[int] = []
    driver.settled(op.holder, lambda: kept_waiting.append(obstacle.kept_waiting()))
    obstacle.fall()
    await _until(lambda: kept_waiting)
    assert kept_waiting == [0]

    await other.call(Leave(op.key, op.holder))
    assert await other.call(Holders(op.key)) == ()
    await driver.aclose()
    await other.aclose()


async def _until(fact):
    end = time.monotonic() + PATIENCE
    while not fact():
        assert time.monotonic() < end
        await asyncio.sleep(0.005)
