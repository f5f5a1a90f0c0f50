"""What is no argument of the kind that is wanted is refused at once, with the value shown."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from joblock import AsyncJobLocks, JobLocks


@pytest.mark.parametrize("wrong", ["no", 1, None])
@pytest.mark.parametrize("client", [JobLocks, AsyncJobLocks])
def test_reentrant_is_a_flag(client, wrong):
    with pytest.raises(TypeError, match=f"reentrant must be True or False; got {wrong!r}"):
        client("memory://").lock("key", reentrant=wrong)


@pytest.mark.parametrize("wrong", [0, "", "no", False])
def test_no_policy_for_a_loss_is_one_too_many(wrong):
    locks = JobLocks("memory://")
    with pytest.raises(ValueError, match=f"on_lost must be one of .*; got {wrong!r}"):
        locks.run_with_lock("key", 1, print, on_lost=wrong)


async def test_no_policy_for_a_loss_of_tasks_is_one_too_many():
    locks = AsyncJobLocks("memory://")
    with pytest.raises(ValueError, match=r"on_lost must be one of .*; got 0"):
        await locks.run_with_lock("key", 1, asyncio.Event().wait, on_lost=0)


@pytest.mark.parametrize("wrong", [5, "10s", 0.5])
def test_a_time_is_not_taken_for_blocking(wrong):
    with pytest.raises(TypeError, match=f"write timeout={wrong!r}"):
        JobLocks("memory://").lock("key").acquire(wrong)


@pytest.mark.parametrize(("blocking", "won"), [(0, False), (False, False)])
def test_blocking_may_be_written_as_the_locks_of_threading_take_it(blocking, won):
    locks = JobLocks("memory://")
    with locks.lock("key"):
        assert locks.lock("key").acquire(blocking) is won


def test_a_star_import_brings_the_public_names():
    program = (
        "from joblock import *; import joblock; names = set(dir(joblock)) - {'__version__'}; "
        "print(names - set(globals()), sorted(names) == sorted(joblock.__all__))"
    )
    shown = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert shown.stdout.strip() == "set() True"
