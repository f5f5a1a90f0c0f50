"""The servers, each started once for all tests that want it."""

from __future__ import annotations

import pytest
from postgres_servers import Bouncer, Server


@pytest.fixture(scope="session")
def pg():
    server = Server()
    yield server
    server.remove()


@pytest.fixture(scope="session")
def bouncer(pg):
    bouncer = Bouncer(pg)
    yield bouncer
    bouncer.remove()


@pytest.fixture
def own_pg():
    """A server that the test may restart, fill or break."""
    server = Server()
    yield server
    server.remove()
