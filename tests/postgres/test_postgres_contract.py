"""The PostgreSQL store keeps the contract, and does what the machine says."""

from __future__ import annotations

import pytest
from postgres_harness import AsyncpgHarness, PostgresHarness, TurnedHarness
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine

from joblock.stores.postgres import PostgresStore
from joblock.testing import StoreContract
from joblock.testing.contract.claims import Claims
from joblock.testing.contract.drivers import Drivers
from joblock.testing.contract.notices import Notices
from joblock.testing.contract.table import Table
from joblock.testing.contract.threads import Threads
from joblock.testing.model import ModelContract


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
