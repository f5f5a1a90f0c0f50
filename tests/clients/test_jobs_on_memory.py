"""Jobs and locks on several keys keep their promises in both clients, on the memory store."""

from __future__ import annotations

import pytest
from memory_harness import MemoryHarness

from joblock.testing.clients.election import Election
from joblock.testing.clients.events import Eventful
from joblock.testing.clients.jobs import Jobs
from joblock.testing.clients.several import Several


class TestJobsOnMemory(Jobs, Several, Eventful, Election):
    @pytest.fixture
    def harness(self) -> MemoryHarness:
        return MemoryHarness()
