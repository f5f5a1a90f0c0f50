"""The SQLite store answers every history as the machine, fast statements and rows alike."""

from __future__ import annotations

import pytest
from sqlite_harness import SqliteHarness

from joblock.testing.model import ModelContract


class TestSqliteStoreIsTheMachine(ModelContract):
    @pytest.fixture
    def harness(self, tmp_path):
        return SqliteHarness(tmp_path)
