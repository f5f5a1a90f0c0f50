"""Both clients keep their promises, on PostgreSQL."""

from __future__ import annotations

import pytest
from postgres_harness import TurnedHarness

from joblock.testing.clients import ClientContract
from joblock.testing.clients.election import Election
from joblock.testing.clients.events import Eventful
from joblock.testing.clients.jobs import Jobs
from joblock.testing.clients.several import Several


class TestClientsOnPostgres(ClientContract):
    @pytest.fixture
    def harness(self, pg):
        return TurnedHarness(pg)


class TestJobsOnPostgres(Jobs, Several, Eventful, Election):
    @pytest.fixture
    def harness(self, pg):
        return TurnedHarness(pg)
