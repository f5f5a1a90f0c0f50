"""How the suites of `joblock.testing` get their SQLite stores: one file, many store objects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from joblock.stores.sqlite import SqliteStore
from joblock.testing import ManualHarness

if TYPE_CHECKING:
    from pathlib import Path


class SqliteHarness(ManualHarness):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.path = folder / "leases.db"

    def make_store(self) -> SqliteStore:
        return SqliteStore(self.path, clock=self.clock)
