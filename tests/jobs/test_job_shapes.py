"""A job passes as the function that it wraps: to inspect, pickle, classes and frameworks."""

from __future__ import annotations

import asyncio
import functools
import inspect
import pickle
from datetime import datetime

import pytest
import shapes
from shapes import Base, Derived, locks

from joblock import AsyncJobLocks, JobLocks, LockNotAcquired, Outcome


def test_a_job_keeps_the_name_docstring_and_signature_of_its_function() -> None:
    assert shapes.plain.__name__ == "plain"
    assert shapes.plain.__doc__ == "Add one."
    assert shapes.plain.__module__ == "shapes"
    signature = inspect.signature(shapes.plain)
    assert str(signature).startswith("(number: 'int', *, twice: 'bool' = False)")
    assert signature.return_annotation is Outcome
    assert inspect.unwrap(shapes.plain)(1) == 2


def test_a_job_without_a_name_is_named_after_its_module_and_function() -> None:
    assert shapes.plain.key(1) == "shapes.plain"
    assert Base.static.key("x") == "shapes.Base.static"


def test_a_job_is_a_coroutine_function_if_and_only_if_its_function_is() -> None:
    assert inspect.iscoroutinefunction(shapes.coroutine)
    assert asyncio.iscoroutinefunction(shapes.coroutine)
    assert inspect.iscoroutinefunction(Base().coroutine)
    assert not inspect.iscoroutinefunction(shapes.plain)
    assert not asyncio.iscoroutinefunction(shapes.plain)


def test_arguments_reach_the_function_as_they_are() -> None:
    assert shapes.plain(1, twice=True).value == 4
    assert shapes.plain.run(number=2).value == 3
    assert shapes.plain.call(3) == 4
    assert shapes.partial(2).value == 3
    with pytest.raises(TypeError, match="missing"):
        shapes.plain()


def test_the_call_of_a_job_passes_as_its_function_too() -> None:
    assert inspect.signature(shapes.plain.call) == inspect.signature(shapes.plain.__wrapped__)
    assert list(inspect.signature(Base().method.call).parameters) == ["word"]
    assert inspect.isfunction(shapes.plain)
    assert inspect.isfunction(shapes.plain.call)
    assert inspect.iscoroutinefunction(shapes.coroutine.call)
    assert not inspect.iscoroutinefunction(shapes.plain.call)
    assert shapes.plain.call.__qualname__ == "plain.call"


async def test_a_coroutine_job_is_awaited() -> None:
    assert (await shapes.coroutine(1)).value == 2
    assert (await shapes.coroutine.run(1)).value == 2
    assert await shapes.coroutine.call(1) == 2
    base = Base()
    assert (await base.coroutine("x")).value == (base, "x")


def test_a_method_is_bound_as_any_and_so_are_its_run_and_call() -> None:
    base, derived = Base(), Derived()
    assert base.method("x").value == (base, "x")
    assert base.method.run("x").value == (base, "x")
    assert base.method.call("x") == (base, "x")
    assert Base.method(base, "x").value == (base, "x")
    assert derived.overridden() == (derived, "over")
    assert base.method.key("x") == "method:base:x"
    assert derived.method.key("x") == "method:derived:x"
    assert list(inspect.signature(base.method).parameters) == ["word"]
    assert list(inspect.signature(Base.method).parameters) == ["self", "word"]


def test_class_and_static_methods_are_bound_as_any() -> None:
    assert Base.of_class("x").value == (Base, "x")
    assert Base().of_class.call("x") == (Base, "x")
    assert Derived.of_class.run("x").value == (Derived, "x")
    assert Base.static("x").value == "x"
    assert Derived().static.call("x") == "x"


def test_the_work_of_an_instance_is_refused_while_it_runs() -> None:
    seen: list[Outcome] = []

    class Nested:
        @locks.job(name="nested")
        def method(self) -> None:
            seen.append(self.method())

    assert Nested().method()
    assert [outcome.reason for outcome in seen] == ["held"]


def test_jobs_and_outcomes_are_pickled() -> None:
    assert pickle.loads(pickle.dumps(shapes.plain)) is shapes.plain
    assert pickle.loads(pickle.dumps(shapes.coroutine)) is shapes.coroutine
    assert pickle.loads(pickle.dumps(shapes.plain.call)) is shapes.plain.call
    assert pickle.loads(pickle.dumps(Derived().method.call))("x")[1] == "x"
    assert pickle.loads(pickle.dumps(Derived.of_class))("x").value == (Derived, "x")
    outcome = shapes.plain(1)
    assert pickle.loads(pickle.dumps(outcome)) == outcome


def test_an_outcome_cannot_be_changed_and_is_true_only_if_it_ran() -> None:
    outcome = Outcome(ran=True, value=0)
    assert outcome
    assert not Outcome(ran=False, reason="held")
    with pytest.raises(AttributeError):
        outcome.ran = False


def test_a_partial_of_a_job_is_one_more_way_to_call_it() -> None:
    assert functools.partial(shapes.plain, 1)().value == 2
    assert functools.partial(shapes.plain.call, 1, twice=True)() == 4


def test_a_coroutine_function_is_refused_by_the_sync_client() -> None:
    async def work() -> None: ...

    with pytest.raises(TypeError, match="AsyncJobLocks"):
        JobLocks("memory://").job(work)


def test_a_plain_function_is_refused_by_the_asyncio_client() -> None:
    with pytest.raises(TypeError, match="plain function"):
        AsyncJobLocks("memory://").job()(lambda: None)


def test_generators_are_refused_with_the_reason() -> None:
    def generator() -> object:
        yield 1

    async def agenerator() -> object:
        yield 1

    class Iterates:
        def __call__(self) -> object:
            yield 1

    for function in (generator, agenerator, Iterates(), functools.partial(generator)):
        with pytest.raises(TypeError, match="generator"):
            locks.job(name="iterates")(function)
        with pytest.raises(TypeError, match="generator"):
            AsyncJobLocks("memory://").job(name="iterates")(function)


@pytest.mark.parametrize(
    ("options", "both"),
    [
        ({"join": True, "wait": False}, ("join", "wait")),
        ({"join": True, "wait": 0}, ("join", "wait")),
        ({"in_grace": "wait", "wait": False}, ("in_grace", "wait")),
        ({"limit": 2, "weight": 3}, ("limit", "weight")),
        ({"ttl": "1m", "max_duration": "30s"}, ("ttl", "max_duration")),
        ({"grace_on": "always"}, ("grace_on", "grace_period")),
        ({"occurrence_ttl": "1d"}, ("occurrence_ttl", "occurrence")),
    ],
)
def test_options_that_contradict_each_other_are_refused_when_decorating(
    options: dict[str, object], both: tuple[str, str]
) -> None:
    with pytest.raises(ValueError, match=f"(?s){both[0]}.*{both[1]}|{both[1]}.*{both[0]}"):
        locks.job(**options)(lambda: None)


@pytest.mark.parametrize(
    "options",
    [
        {"name": 5},
        {"name": ""},
        {"name": "x" * 501},
        {"wait": "soon"},
        {"join": 1},
        {"in_grace": "never"},
        {"ttl": 0},
        {"ttl": True},
        {"max_duration": -1},
        {"grace_period": "long"},
        {"grace_period": 5, "grace_on": "failure"},
        {"at_least": float("nan")},
        {"limit": 0},
        {"weight": 1.5},
        {"renew": "yes"},
        {"on_lost": "shrug"},
        {"on_store_error": "ignore"},
        {"occurrence": "monday"},
        {"occurrence": True},
        {"occurrence": datetime(2027, 1, 31, 3)},  # noqa: DTZ001
        {"occurrence": 1, "occurrence_ttl": -1},
    ],
)
def test_an_option_that_cannot_be_is_refused_when_decorating_and_shown(
    options: dict[str, object],
) -> None:
    value = list(options.values())[-1]
    with pytest.raises((TypeError, ValueError)) as refused:
        locks.job(**options)(lambda: None)
    assert (repr(value) if len(repr(value)) < 60 else "501") in str(refused.value)


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(TypeError, match="wraps a function"):
        locks.job()(5)


def test_a_bound_method_can_be_made_a_job() -> None:
    words: list[str] = []
    with JobLocks("memory://") as locks:
        job = locks.job(name="bound")(words.append)
        assert locks.job(name="other")("{}!".format).call("hello") == "hello!"
        bound = locks.job(name="of an object")(Shout("!").shout)
        assert bound.call("hello") == "hello!"
        assert job("word").ran
    assert words == ["word"]


class Shout:
    def __init__(self, mark: str) -> None:
        self.mark = mark

    def shout(self, word: str) -> str:
        return word + self.mark


def test_a_callable_object_needs_a_name_and_keeps_its_own_attributes() -> None:
    class Callable:
        _function = _client = "its own"

        def __call__(self) -> str:
            return "called"

    with pytest.raises(ValueError, match="name="):
        locks.job()(Callable())
    assert locks.job(name="a callable object")(Callable()).call() == "called"


def test_the_call_of_a_job_in_grace_says_so() -> None:
    job = locks.job(name="left in grace", grace_period="1m")(lambda: None)
    job()
    with pytest.raises(LockNotAcquired, match="grace") as refused:
        job.call()
    assert refused.value.reason == "grace"
    assert 0 < (refused.value.remaining or 0) <= 60
