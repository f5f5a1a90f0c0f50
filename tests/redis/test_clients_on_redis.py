"""Both clients keep their promises, on Redis."""

from __future__ import annotations

import pytest
from redis_harness import TurnedHarness

from joblock.testing.clients import ClientContract
from joblock.testing.clients.jobs import Jobs
from joblock.testing.clients.several import Several


class TestClientsOnRedis(ClientContract):
    @pytest.fixture
    def harness(self, redis_server, monkeypatch):
        return TurnedHarness(redis_server, monkeypatch)


class TestJobsOnRedis(Jobs, Several):
    @pytest.fixture
    def harness(self, redis_server, monkeypatch):
        return TurnedHarness(redis_server, monkeypatch)
