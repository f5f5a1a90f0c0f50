"""The SQLite store keeps the contract."""

from __future__ import annotations

import pytest
from sqlite_harness import SqliteHarness

from joblock.testing import StoreContract


class TestSqliteStore(StoreContract):
    @pytest.fixture
    def harness(self, tmp_path):
        return SqliteHarness(tmp_path)
