"""Both clients keep their promises, on a lease file."""

from __future__ import annotations

import pytest
from sqlite_harness import SqliteHarness

from joblock.testing.clients import ClientContract
from joblock.testing.clients.election import Election
from joblock.testing.clients.events import Eventful
from joblock.testing.clients.jobs import Jobs
from joblock.testing.clients.several import Several


class TestClientsOnSqlite(ClientContract):
    @pytest.fixture
    def harness(self, tmp_path):
        return SqliteHarness(tmp_path)


class TestJobsOnSqlite(Jobs, Several, Eventful, Election):
    @pytest.fixture
    def harness(self, tmp_path):
        return SqliteHarness(tmp_path)
