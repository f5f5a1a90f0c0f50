"""The servers, of the tests that they are otherwise for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent
sys.path += [str(TESTS / "postgres"), str(TESTS / "redis")]

from postgres_servers import Bouncer  # noqa: E402
from postgres_servers import Server as Postgres  # noqa: E402
from redis_servers import Cluster, binary  # noqa: E402
from redis_servers import Server as Redis  # noqa: E402


@pytest.fixture(scope="session")
def pg():
    server = Postgres()
    yield server
    server.remove()


@pytest.fixture(scope="session")
def bouncer(pg):
    bouncer = Bouncer(pg)
    yield bouncer
    bouncer.remove()


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory):
    server = Redis(binary("redis-server"), tmp_path_factory.mktemp("redis"))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def other_redis(tmp_path_factory):
    server = Redis(binary("redis-server"), tmp_path_factory.mktemp("other"))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    cluster = Cluster(binary("redis-server"), tmp_path_factory.mktemp("cluster"))
    yield cluster
    cluster.stop()


@pytest.fixture
def own_redis(tmp_path):
    """A server that the test may stop and start."""
    server = Redis(binary("redis-server"), tmp_path / "redis")
    yield server
    server.stop()
