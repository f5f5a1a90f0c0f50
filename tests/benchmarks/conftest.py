"""The benchmarks are a package of the checkout, not of the distribution."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks import servers


@pytest.fixture(scope="session")
def urls():
    """A store of each kind that contenders name."""
    with ExitStack() as stack:
        yield {
            "redis": stack.enter_context(servers.redis()).url,
            "postgres": stack.enter_context(servers.postgres(fsync=False)).url,
            "files": stack.enter_context(servers.sqlite()).url,
            "memory": "memory://bench",
            "any": stack.enter_context(servers.sqlite()).url,
        }
