"""The servers, each started once for all tests that want it."""

from __future__ import annotations

import pytest
from redis_servers import Cluster, Guarded, Server, binary, valkey_binary


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory):
    server = Server(binary("redis-server"), tmp_path_factory.mktemp("redis"))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def valkey_server(tmp_path_factory):
    server = Server(valkey_binary(), tmp_path_factory.mktemp("valkey"))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    cluster = Cluster(binary("redis-server"), tmp_path_factory.mktemp("cluster"))
    yield cluster
    cluster.stop()


@pytest.fixture
def own_server(tmp_path):
    """A server that the test may restart, fill or break."""
    server = Server(binary("redis-server"), tmp_path / "redis")
    yield server
    server.stop()


@pytest.fixture
def guarded(tmp_path):
    """A primary that nobody kills."""
    guarded = Guarded(tmp_path, down_after=60_000)
    yield guarded
    guarded.stop()


@pytest.fixture
def failing(tmp_path):
    """A primary that is soon replaced when it is killed."""
    guarded = Guarded(tmp_path)
    yield guarded
    guarded.stop()
