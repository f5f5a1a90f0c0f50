"""The SQLite store keeps what every store promises."""

from pathlib import Path

import pytest

from joblock.store.contract import Store
from joblock.stores.sqlite import SqliteStore
from joblock.testing.contract import ManualHarness, StoreContract


class SqliteHarness(ManualHarness):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def make_store(self) -> Store:
        return SqliteStore(self.path, clock=self.clock)


class TestSqliteStore(StoreContract):
    @pytest.fixture
    def harness(self, tmp_path):
        return SqliteHarness(tmp_path / "leases.db")
