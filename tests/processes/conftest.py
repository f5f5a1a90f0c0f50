"""Real processes on one store, and somebody who only looks at it.

Every test here runs on a lease file and on servers: what becomes of a process that is killed,
stopped, forked or ended is the same everywhere.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from worker_process import Spectator, Workers

_TESTS = Path(__file__).parents[1]
sys.path += [str(_TESTS / "postgres"), str(_TESTS / "redis")]

import postgres_servers  # noqa: E402
import redis_servers  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def pg() -> Iterator[postgres_servers.Server]:
    server = postgres_servers.Server()
    yield server
    server.remove()


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[redis_servers.Server]:
    program = redis_servers.binary("redis-server")
    server = redis_servers.Server(program, tmp_path_factory.mktemp("redis"))
    yield server
    server.stop()


@pytest.fixture(params=["sqlite", "redis", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'leases.db'}"
    server = request.getfixturevalue("redis_server" if request.param == "redis" else "pg")
    return server.url


@pytest.fixture
def prefix(request: pytest.FixtureRequest) -> str:
    """Tests of one server keep out of each other's way."""
    return f"{request.node.name}:"


@pytest.fixture
def workers(url: str, prefix: str) -> Iterator[Workers]:
    workers = Workers(url, prefix)
    yield workers
    workers.end()


@pytest.fixture
def spectator(url: str, prefix: str) -> Iterator[Spectator]:
    spectator = Spectator(url, prefix)
    yield spectator
    spectator.close()
