"""The servers of the stores' own tests, and processes to pause."""

from __future__ import annotations

import sys
import uuid
from pathlib import Path

import pytest

_TESTS = Path(__file__).parents[1]
sys.path += [str(_TESTS / "postgres"), str(_TESTS / "redis")]

import postgres_servers  # noqa: E402
import redis_servers  # noqa: E402


@pytest.fixture(scope="session")
def pg():
    server = postgres_servers.Server()
    yield server
    server.remove()


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory):
    server = redis_servers.Server(
        redis_servers.binary("redis-server"), tmp_path_factory.mktemp("redis")
    )
    yield server
    server.stop()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    cluster = redis_servers.Cluster(
        redis_servers.binary("redis-server"), tmp_path_factory.mktemp("cluster")
    )
    yield cluster
    cluster.stop()


@pytest.fixture
def key():
    return uuid.uuid4().hex
