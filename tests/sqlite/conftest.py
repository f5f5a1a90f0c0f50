"""A lease file, its store on a clock turned by hand and on the machine's own."""

from __future__ import annotations

import pytest
from child_process import Child

from joblock.stores.sqlite import SqliteStore
from joblock.testing import ManualClock


@pytest.fixture
def path(tmp_path):
    return tmp_path / "leases.db"


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def open_store(path, clock):
    """Opens stores on that clock; they are closed at the end of the test."""
    stores = []

    def open_one(where=path, on=clock):
        stores.append(SqliteStore(where, clock=on))
        return stores[-1]

    yield open_one
    for store in stores:
        store.close()


@pytest.fixture
def store(path):
    """A store on the machine's clock."""
    store = SqliteStore(path)
    yield store
    store.close()


@pytest.fixture
def call(store):
    return store.driver().call


@pytest.fixture
def start(path):
    """Starts processes on the lease file; none outlives the test."""
    children = []

    def start_one(program, *arguments):
        children.append(Child(path, program, *arguments))
        return children[-1]

    yield start_one
    for child in children:
        child.kill()
