"""A store of its own for each test of the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from cli_process import Cli, wait_until

from joblock import JobLocks

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    cli = Cli(tmp_path)
    yield cli
    cli.end()


@pytest.fixture
def locks(cli: Cli) -> Iterator[JobLocks]:
    """A client of the same store, in the test's own process."""
    with JobLocks(cli.url) as locks:
        yield locks


@pytest.fixture
def queued(locks: JobLocks) -> Callable[[str, int], None]:
    """Waits until so many are queued for a key."""

    def wait(key: str, count: int) -> None:
        wait_until(lambda: len(locks.model.waiters(key)) == count, f"{count} waiter(s) for {key!r}")

    return wait
