"""Both clients keep their promises, on Redis."""

from __future__ import annotations

import pytest
from redis_harness import TurnedHarness

from joblock.testing.clients import ClientContract
from joblock.testing.clients.election import Election
from joblock.testing.clients.events import Eventful
from joblock.testing.clients.jobs import Jobs
from joblock.testing.clients.several import Several


class TestClientsOnRedis(ClientContract):
    @pytest.fixture
    def harness(self, redis_server, monkeypatch):
        return TurnedHarness(redis_server, monkeypatch)


class TestJobsOnRedis(Jobs, Several, Eventful, Election):
    # What is done is forgotten by the server's own clock, which no test turns.
    test_an_occurrence_may_depend_on_the_arguments_and_is_kept_as_long_as_said = None

    @pytest.fixture
    def harness(self, redis_server, monkeypatch):
        return TurnedHarness(redis_server, monkeypatch)
