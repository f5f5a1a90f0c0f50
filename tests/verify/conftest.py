"""The servers of the stores' own tests, each for one test that may do with it what it likes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

_TESTS = Path(__file__).parents[1]
sys.path += [str(_TESTS / "postgres"), str(_TESTS / "redis")]

import postgres_servers  # noqa: E402
import redis_servers  # noqa: E402
from shaken_sentinels import ShakenSentinels  # noqa: E402


@pytest.fixture
def own_pg():
    server = postgres_servers.Server()
    yield server
    server.remove()


@pytest.fixture
def own_redis(tmp_path):
    server = redis_servers.Server(redis_servers.binary("redis-server"), tmp_path / "redis")
    yield server
    server.stop()


@pytest.fixture
def shaken(tmp_path):
    shaken = ShakenSentinels(tmp_path)
    yield shaken
    shaken.stop()
