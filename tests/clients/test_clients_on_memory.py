"""Both clients keep their promises, on the memory store."""

from __future__ import annotations

import pytest
from memory_harness import MemoryHarness

from joblock.testing.clients import ClientContract


class TestClientsOnMemory(ClientContract):
    @pytest.fixture
    def harness(self) -> MemoryHarness:
        return MemoryHarness()
