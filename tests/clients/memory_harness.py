"""The memory store for the tests of clients: no I/O, and a clock turned by hand."""

from __future__ import annotations

import uuid

from joblock.stores.memory import MemoryStore
from joblock.testing import ManualHarness


class MemoryHarness(ManualHarness):
    """Store objects of one name share their leases."""

    def __init__(self) -> None:
        super().__init__()
        self.name = uuid.uuid4().hex
        self.first = self.make_store()  # the leases live as long as some store of that name

    def make_store(self) -> MemoryStore:
        return MemoryStore(self.name, clock=self.clock)
