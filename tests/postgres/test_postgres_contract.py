"""The PostgreSQL store keeps the contract, and does what the machine says."""

from __future__ import annotations

import uuid

import pytest
from postgres_harness import AsyncpgHarness, PostgresHarness, TurnedHarness
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine

from joblock.store.ops import Acquire, Check, Purge, Queueing, Waiters
from joblock.stores.postgres import PostgresStore
from joblock.testing import StoreContract
from joblock.testing.contract.claims import Claims
from joblock.testing.contract.drivers import Drivers
from joblock.testing.contract.notices import Notices
from joblock.testing.contract.table import Table
from joblock.testing.contract.threads import Threads
from joblock.testing.model import ModelContract

HOUR = 3_600_000


class TestPostgresByTheHour(StoreContract):
    """The real SQL, with a clock turned by hand: what takes long, and exact times."""

    @pytest.fixture
    def harness(self, pg):
        return TurnedHarness(pg)


class TestPostgresIsTheMachine(ModelContract):
    examples = 25
    steps = 30

    @pytest.fixture
    def harness(self, pg):
        return TurnedHarness(pg)


class TestPostgres(Table, Claims, Notices, Drivers, Threads):
    """On the server's own clock: what could depend on its being real."""

    @pytest.fixture
    def harness(self, pg):
        return PostgresHarness(lambda: PostgresStore.from_url(pg.url))


class TestBehindPgBouncer(Table, Drivers, Threads):
    """Where nothing survives a transaction but what was committed; listening goes round it."""

    @pytest.fixture
    def harness(self, bouncer, pg):
        return PostgresHarness(lambda: PostgresStore.from_url(bouncer.url, listen_url=pg.url))


class TestSqlalchemyEngine(Table, Drivers, Threads):
    """Connected as the engine's own pool does it; tasks go by its URL."""

    @pytest.fixture
    def harness(self, pg):
        engine = create_engine(pg.url.replace("postgresql:", "postgresql+psycopg:"))
        yield PostgresHarness(lambda: PostgresStore.from_engine(engine))
        engine.dispose()


class TestSqlalchemyAsyncEngine(Table, Drivers):
    @pytest.fixture
    def harness(self, pg):
        engine = create_async_engine(pg.url.replace("postgresql:", "postgresql+asyncpg:"))
        return PostgresHarness(lambda: PostgresStore.from_engine(engine))


class TestAsyncpgPool(Table, Claims, Notices, Drivers, Threads):
    """Through the pool's way to connect; ``[sync]`` is what the keeper's thread goes by."""

    @pytest.fixture
    def harness(self, pg):
        return AsyncpgHarness(pg.url)


class TestAsyncpgPoolBehindPgBouncer(Table, Drivers, Threads):
    @pytest.fixture
    def harness(self, bouncer, pg):
        return AsyncpgHarness(bouncer.url, listen_url=pg.url)


def test_purge_forgets_who_no_longer_waits_for_a_key_that_is_never_vacant(pg):
    harness = TurnedHarness(pg)
    store, key = harness.make_store(), uuid.uuid4().hex
    driver = store.driver()
    driver.call(Acquire(key, "A", 10 * HOUR))
    for holder in ("gone", "waits", "last"):
        driver.call(Acquire(key, holder, HOUR, queue=Queueing(holder)))
    harness.elapse(1_800)
    driver.call(Check("waits", (key,)))  # which parks whoever is gone, up to the first that waits
    purge_all(driver)
    assert len(driver.call(Waiters(key))) == 3
    harness.elapse(15)
    purge_all(driver)
    assert [waiter.holder for waiter in driver.call(Waiters(key))] == ["waits", "last"]
    store.close()
    harness.close()


def purge_all(driver):
    """Three times: the first begins wherever the last purge of these tables has ended."""
    for _ in range(3):
        driver.call(Purge(idle=HOUR // 2))
