"""The memory store answers every history as the machine, through both of its drivers."""

from __future__ import annotations

import uuid

import pytest

from joblock.stores.memory import MemoryStore
from joblock.testing import ManualHarness
from joblock.testing.model import ModelContract


class MemoryHarness(ManualHarness):
    def __init__(self) -> None:
        super().__init__()
        self.name = uuid.uuid4().hex
        self.first = self.make_store()

    def make_store(self) -> MemoryStore:
        return MemoryStore(self.name, clock=self.clock)


class TestMemoryStoreIsTheMachine(ModelContract):
    @pytest.fixture
    def harness(self) -> MemoryHarness:
        return MemoryHarness()
