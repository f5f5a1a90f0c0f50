"""The servers of the stores' own tests, to be set up badly."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

_TESTS = Path(__file__).parents[1]
sys.path += [str(_TESTS / "postgres"), str(_TESTS / "redis")]

import postgres_servers  # noqa: E402
import redis_servers  # noqa: E402


@pytest.fixture
def redis_server(tmp_path):
    """A server that the test may set up as it likes."""
    server = redis_servers.Server(redis_servers.binary("redis-server"), tmp_path / "redis")
    yield server
    server.stop()


@pytest.fixture(scope="module")
def pg():
    """A server on which nothing is lost; each test has a database of its own."""
    server = postgres_servers.Server(fsync=True)
    yield server
    server.remove()
