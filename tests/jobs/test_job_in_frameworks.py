"""A job works in the frameworks that applications have, as the function it wraps would."""

from __future__ import annotations

import functools
import pickle
import threading
from datetime import UTC, datetime

import click
import pytest
import shapes
from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_EXECUTED
from apscheduler.jobstores.memory import MemoryJobStore
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.util import obj_to_ref, ref_to_obj
from celery import Celery
from celery.contrib.testing.worker import start_worker
from click.testing import CliRunner
from fastapi import FastAPI
from fastapi.testclient import TestClient

from joblock import JobLocks, Outcome

locks = JobLocks("memory://jobs in frameworks")


def test_a_job_is_a_fastapi_route_with_the_parameters_of_its_function() -> None:
    app = FastAPI()
    app.get("/plain")(shapes.plain.call)
    app.get("/coroutine")(shapes.coroutine.call)
    app.get("/outcome")(shapes.coroutine)
    client = TestClient(app)
    assert client.get("/plain", params={"number": 1, "twice": True}).json() == 4
    assert client.get("/coroutine", params={"number": 2}).json() == 3
    assert client.get("/plain").status_code == 422
    ran, value, reason, token = client.get("/outcome", params={"number": 3}).json()
    assert (ran, value, reason) == (True, 4, "ran")
    assert token > 0


def test_a_job_is_a_celery_task_and_its_value_reaches_the_result_backend() -> None:
    app = Celery("jobs", broker="memory://", backend="cache+memory://", set_as_current=False)
    task = app.task(shapes.plain.call, name="plain")
    whole = app.task(shapes.plain)
    assert whole.name == "shapes.plain"
    with start_worker(app, pool="solo", perform_ping_check=False):
        assert task.delay(1, twice=True).get(timeout=30) == 4
        assert Outcome(*whole.delay(2).get(timeout=30)).value == 3


def test_a_job_is_referred_to_by_apscheduler_under_its_own_name() -> None:
    assert obj_to_ref(shapes.plain) == "shapes:plain"
    assert ref_to_obj("shapes:plain") is shapes.plain
    assert ref_to_obj("shapes:plain.call")(1) == 2


@pytest.mark.parametrize("func", [shapes.plain, "shapes:plain", "shapes:plain.call"])
def test_apscheduler_runs_a_job_given_as_an_object_or_by_its_name(func: object) -> None:
    scheduler = BackgroundScheduler(jobstores={"default": MemoryJobStore()}, timezone=UTC)
    events: list[object] = []
    ended = threading.Event()

    def note(event: object) -> None:
        events.append(event.exception or event.retval)
        ended.set()

    scheduler.add_listener(note, EVENT_JOB_EXECUTED | EVENT_JOB_ERROR)
    # Pickled in any store but that of the memory.
    job = scheduler.add_job(func, args=[1], run_date=datetime.now(UTC), misfire_grace_time=None)
    scheduler.start()
    try:
        assert ended.wait(30)
    finally:
        scheduler.shutdown()
    assert pickle.loads(pickle.dumps(job)).func_ref == job.func_ref
    assert events == [2] or [outcome.value for outcome in events] == [2]


def test_a_job_is_a_click_command() -> None:
    @click.command()
    @click.option("--number", type=int)
    @locks.job(name=lambda number: f"click:{number}")
    def add(number: int) -> int:
        """Add one."""
        click.echo(number + 1)
        return number

    result = CliRunner().invoke(add, ["--number", "4"], standalone_mode=False)
    assert result.output == "5\n"
    assert result.return_value.value == 4
    assert "Add one." in CliRunner().invoke(add, ["--help"]).output
    assert add.name == "add"


@pytest.fixture
def folder() -> str:
    return "a fixture of the job's own"


@pytest.fixture
@locks.job
def prepared(folder: str) -> str:
    """Prepared once among several test runs."""
    return folder


def test_a_job_is_a_pytest_fixture_and_asks_for_others(prepared: Outcome) -> None:
    assert prepared.value == "a fixture of the job's own"


def test_a_partial_of_a_job_is_pickled_and_runs_where_it_arrives() -> None:
    arrived = pickle.loads(pickle.dumps(functools.partial(shapes.plain, 1, twice=True)))
    assert arrived().value == 4


def test_a_job_wraps_a_partial_and_a_partial_wraps_a_job() -> None:
    job = locks.job(name="both ways")(functools.partial(shapes.plain.call, 1))
    assert job.call(twice=True) == 4
