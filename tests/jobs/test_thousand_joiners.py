"""Whoever joined a run that ended well returns on one broadcast, however many they are."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from joblock import JobLocks
from joblock.store.ops import CHECK_MS, Release
from joblock.stores.registry import open_store
from joblock.testing.faults import FaultyStore

if TYPE_CHECKING:
    from collections.abc import Iterator

PROCESSES, TASKS = 8, 125
PROGRAM = Path(__file__).with_name("joiners_process.py")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/leases.db"


class Joiners(list[Any]):
    """The processes that join, started once there is a run."""

    def start(self, url: str) -> None:
        for _ in range(PROCESSES):
            command = [sys.executable, str(PROGRAM), url, str(TASKS)]
            pipe = subprocess.PIPE
            self.append(subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True))


@pytest.fixture
def joiners() -> Iterator[Joiners]:
    joiners = Joiners()
    yield joiners
    for each in joiners:
        each.kill()
        each.communicate()


def test_a_thousand_joiners_return_after_one_broadcast_and_one_command_for_each_client(
    url: str, joiners: Joiners
) -> None:
    store = FaultyStore(open_store(url))
    with JobLocks(store) as locks:

        @locks.job(name="warm", join=True)
        def warm() -> float:
            joiners.start(url)
            for each in joiners:
                assert each.stdout.readline() == "queued\n"
            assert len(locks.model.waiters("warm")) == PROCESSES * TASKS
            for each in joiners:
                each.stdin.write("\n")
                each.stdin.flush()
                assert each.stdout.readline() == "ready\n"
            return time.monotonic()

        outcome = warm()
        told = [json.loads(each.stdout.readline()) for each in joiners]
        periods = 1 + int((time.monotonic() - outcome.value) * 1000 / CHECK_MS)
        assert locks.model.waiters("warm") == ()
        assert len(store.faults.sent(Release)) == 1
    assert [reasons for reasons, _ in told] == [{"joined": TASKS}] * PROCESSES
    for _, sent in told:
        # One that is due anyway every few seconds may fall into the time that this takes.
        assert set(sent) == {"Check"}
        assert 1 <= sent["Check"] <= 1 + periods
