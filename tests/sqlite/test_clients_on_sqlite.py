"""Both clients keep their promises, on a lease file."""

from __future__ import annotations

import pytest
from sqlite_harness import SqliteHarness

from joblock.testing.clients.locking import Locking
from joblock.testing.clients.losing import Losing
from joblock.testing.clients.running import Running
from joblock.testing.clients.waiting import Waiting


class TestClientsOnSqlite(Running, Locking, Losing, Waiting):
    @pytest.fixture
    def harness(self, tmp_path):
        return SqliteHarness(tmp_path)
