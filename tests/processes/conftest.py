"""Real processes on one lease file, and somebody who only looks at it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from worker_process import Spectator, Workers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'leases.db'}"


@pytest.fixture
def workers(url: str) -> Iterator[Workers]:
    workers = Workers(url)
    yield workers
    workers.end()


@pytest.fixture
def spectator(url: str) -> Iterator[Spectator]:
    spectator = Spectator(url)
    yield spectator
    spectator.close()
