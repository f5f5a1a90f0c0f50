"""What is no argument of the kind that is wanted is refused at once, with the value shown."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from joblock import AsyncJobLocks, JobLocks
from joblock.testing import ManualClock


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


class Timeless:
    """Tells the time, and waits for nothing."""

    monotonic = wall = staticmethod(float)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"clock": 1}, "a clock tells the time.*got 1"),
        ({"clock": Timeless()}, "a clock tells the time.*got <.*Timeless"),
        ({"clock": ManualClock}, "a clock tells the time.*got <class"),
        ({"store": 5}, "a store is a URL.*got builtins.int"),
        ({"store": 5, "notifier": lambda: None}, "a store is a URL.*got builtins.int"),
        ({"prefix": 5}, "a prefix is text.*got 5"),
        ({"label": 5}, "label is text.*got 5"),
        ({"notifier": 5}, "a store is a URL.*got builtins.int"),
        ({"store": "memory://", "notifier": "memory://"}, "MemoryStore cannot carry notices"),
    ],
)
@pytest.mark.parametrize("client", [JobLocks, AsyncJobLocks])
def test_a_client_refuses_what_is_no_option_of_its_own_when_it_is_made(client, options, words):
    with pytest.raises(TypeError, match=words):
        client(**options)


async def computed(*_):
    return "key"


@pytest.mark.parametrize("option", ["name", "grace_period", "occurrence"])
def test_what_a_job_computes_from_its_arguments_is_computed_by_a_plain_function(option):
    async def work(): ...

    for client, function in ((JobLocks, print), (AsyncJobLocks, work)):
        with pytest.raises(TypeError, match=f"^{option}= is computed by a plain function.*comput"):
            client("memory://").job(**{"name": "key", option: computed})(function)


@pytest.mark.parametrize(
    "refused",
    [
        lambda locks, value: locks.lock("key", value),
        lambda locks, value: locks.lock("key", wait=value),
        lambda locks, value: locks.lock("k" + value),
        lambda locks, value: locks.lock("k\0" + value),
        lambda locks, value: locks.lock("key", limit=value),
        lambda locks, value: locks.lock("key", renew=value),
        lambda locks, value: locks.lock("key", on_lost=value),
        lambda locks, value: locks.lock(["key", value, value]),
        lambda locks, value: locks.job(occurrence=value)(print),
        lambda _, value: JobLocks(f"{value}://host"),
        lambda _, value: JobLocks(value),
        lambda _, value: JobLocks(f"redis://host/{value}"),
        lambda _, value: JobLocks(f"redis://host/0?{value}=1"),
        lambda _, value: JobLocks(f"sqlite:///{value}?mode=ro"),
        lambda _, value: JobLocks(f"memory://{value}?a=1"),
    ],
)
def test_of_a_value_that_is_far_too_long_only_its_ends_are_shown(refused):
    with pytest.raises((TypeError, ValueError)) as refusal:
        refused(JobLocks("memory://"), "a" * 100_000)
    assert len(str(refusal.value)) < 1_500


def test_a_number_too_long_to_be_written_is_refused_all_the_same():
    with pytest.raises(ValueError, match=r"positive and finite.*; got a int too long to be shown"):
        JobLocks("memory://").lock("key", 10**5_000)
