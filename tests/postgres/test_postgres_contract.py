"""The PostgreSQL store keeps the contract, and does what the machine says."""

from __future__ import annotations

import pytest
from postgres_harness import PostgresHarness, TurnedHarness

from joblock.stores.postgres import PostgresStore
from joblock.testing import StoreContract
from joblock.testing.clients import ClientContract
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


class TestPostgres(StoreContract):
    """On the server's own clock."""

    @pytest.fixture
    def harness(self, pg):
        return PostgresHarness(lambda: PostgresStore.from_url(pg.url))


class TestClientsOnPostgres(ClientContract):
    @pytest.fixture
    def harness(self, pg):
        return PostgresHarness(lambda: PostgresStore.from_url(pg.url))
