"""The reference says of every public name exactly what the code says."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import ForwardRef, Literal, NamedTuple, Union, get_args

import click
import pytest
from doc_pages import ROOT, Page

import joblock
import joblock.fencing
import joblock.occurrence
import joblock.testing
from joblock.cli.app import joblock as command_line
from joblock.client import several
from joblock.protocol import job, occurrences, request, tell
from joblock.values import durations, names, records

PAGE = Page(ROOT / "docs" / "reference.md")
SOURCE = ROOT / "src" / "joblock"

INTERNAL = {
    "Lease": {"hold"},
    "AsyncLease": {"hold", "enter_block", "leave_block"},
    "JobLocks": {"drive", "job_flow"},
    "AsyncJobLocks": {"drive", "job_flow"},
    "Lock": {"enter"},
    "AsyncLock": {"enter"},
    "StoreContract": None,
}
"""Names without an underscore that are not for users; ``None``: all of them."""

SET_WHEN_MADE = {
    "JobLocks": {"model"},
    "AsyncJobLocks": {"model"},
    "ManualHarness": {"manual"},
}
"""Public attributes that a class does not show, but its instances have."""

TYPE_VARIABLES = {"Lock": ("L", "Lease"), "AsyncLock": ("L", "AsyncLease")}
"""What stands for a type variable of the code where the page names the type itself."""


def _documented():
    """What the signatures on the page define, run as Python."""
    found = {
        "NamedTuple": NamedTuple,
        "Union": Union,
        "Literal": Literal,
        "timedelta": timedelta,
        "datetime": datetime,
        "Callable": Callable,
    }
    given = {*found, "annotations"}
    for block in PAGE.blocks:
        if block.language == "pyi":
            code = "from __future__ import annotations\n" + block.text
            exec(compile(code, f"{block.page}:{block.line}", "exec"), found)  # noqa: S102
    variables = set(found.pop("__annotations__", {}))
    return {
        name: value for name, value in found.items() if name not in given and name[0] != "_"
    }, variables


NAMES, VARIABLES = _documented()
ALIASES = {
    "Duration",
    "Wait",
    "OnLost",
    "OnStoreError",
    "LeaseState",
    "Reason",
    "InGrace",
    "GraceOn",
    "Grace",
    "Keys",
    "Occurrence",
    "Kind",
}
TESTING = set(joblock.testing.__all__)
FENCING = set(joblock.fencing.__all__)
OCCURRENCE = {"tick"}
SEVERAL = {"LockSeveral", "AsyncLockSeveral", "Leases", "AsyncLeases"}
"""What `lock` gives for several keys; nobody makes one, so they are not exported."""


def _real(name):
    if name in SEVERAL:
        return getattr(several, name)
    if name in OCCURRENCE:
        return getattr(joblock.occurrence, name)
    if name in FENCING:
        return getattr(joblock.fencing, name)
    return getattr(joblock.testing if name in TESTING else joblock, name)


FUNCTIONS = sorted(name for name, value in NAMES.items() if inspect.isfunction(value))
CLASSES = sorted(name for name, value in NAMES.items() if inspect.isclass(value))
METHODS = [
    (name, member)
    for name in CLASSES
    for member, value in vars(NAMES[name]).items()
    if isinstance(value, property | classmethod) or inspect.isfunction(value)
    if member == "__init__" or member[0] != "_"
]


def test_every_public_name_is_in_the_reference_and_nothing_else():
    public = {name for name in dir(joblock) if not name.startswith("_")}
    assert (set(NAMES) - ALIASES) | VARIABLES == (public | TESTING | FENCING | SEVERAL | OCCURRENCE)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_signature_of_a_function_is_that_of_the_code(name):
    assert _signature(NAMES[name]) == _signature(_real(name))


@pytest.mark.parametrize(("name", "member"), METHODS)
def test_the_signature_of_a_method_is_that_of_the_code(name, member):
    if member == "__init__" and issubclass(NAMES[name], tuple):
        pytest.skip("a named tuple is told by its fields")
    documented = inspect.getattr_static(NAMES[name], member)
    real = inspect.getattr_static(_real(name), member)
    if not isinstance(real, classmethod):
        real = getattr(real, "__func__", real)
    assert isinstance(documented, property) == isinstance(real, property)
    assert _signature(documented) == _signature(real, *TYPE_VARIABLES.get(name, ()))
    assert inspect.iscoroutinefunction(documented) == inspect.iscoroutinefunction(real)


@pytest.mark.parametrize("name", CLASSES)
def test_the_public_members_of_a_class_are_in_the_reference(name):
    hidden = INTERNAL.get(name, set())
    if hidden is None:
        return
    documented = set(dir(NAMES[name])).union(*map(_annotations, NAMES[name].__mro__))
    real = set(dir(_real(name))) | SET_WHEN_MADE.get(name, set())
    assert {member for member in documented - hidden if member[0] != "_"} == {
        member for member in real - hidden if member[0] != "_"
    }


@pytest.mark.parametrize("name", ["JobLock", "Waiting", "Worker"])
def test_the_fields_of_a_record_are_those_of_the_code(name):
    documented, real = NAMES[name], _real(name)
    assert documented._fields == real._fields
    assert documented._field_defaults == real._field_defaults
    assert _annotations(documented) == _annotations(real)


@pytest.mark.parametrize("name", [name for name in CLASSES if name.endswith(("Error", "Lost"))])
def test_errors_stand_below_each_other_as_in_the_code(name):
    assert [base.__name__ for base in NAMES[name].__mro__] == [
        base.__name__ for base in _real(name).__mro__
    ]


def test_the_models_of_both_clients_are_there():
    with joblock.JobLocks("memory://") as locks:
        assert type(locks.model).__name__ == NAMES["JobLocks"].__annotations__["model"]


def test_the_aliases_are_those_of_the_code():
    assert NAMES["OnLost"] == request.OnLost
    assert NAMES["OnStoreError"] == request.OnStoreError
    assert NAMES["LeaseState"] == records.LeaseState
    assert NAMES["Kind"] == tell.Kind
    for name in ("Reason", "InGrace", "GraceOn"):
        assert NAMES[name] == getattr(job, name)
    for name, module in (
        ("Duration", durations),
        ("Wait", durations),
        ("Keys", names),
        ("Occurrence", occurrences),
    ):
        assert _alternatives(NAMES[name]) == _alternatives(getattr(module, name))


def test_every_logger_is_in_the_table_and_exists():
    used = {
        f"joblock.{name}"
        for path in SOURCE.rglob("*.py")
        for name in re.findall(r'logger\("(\w+)"\)', path.read_text(encoding="utf-8"))
    }
    listed = {name for row in PAGE.table("logger") for name in re.findall(r"`(.*?)`", row[0])}
    assert listed == used


def test_every_environment_variable_that_is_read_is_in_the_reference():
    used = {
        name
        for path in SOURCE.rglob("*.py")
        if "testing" not in path.relative_to(SOURCE).parts
        for name in re.findall(r'"(JOBLOCK_[A-Z_]+)"', path.read_text(encoding="utf-8"))
    }
    assert used <= set(re.findall(r"JOBLOCK_[A-Z_]+", Path(PAGE.path).read_text(encoding="utf-8")))


def test_every_option_of_the_clients_is_explained():
    taken = {
        parameter
        for method in (joblock.JobLocks.lock, joblock.JobLocks.acquire, joblock.run_with_lock)
        for parameter in inspect.signature(method).parameters
    }
    assert {row[0].strip("`") for row in PAGE.table("option")} == taken - {"self", "work"}


def test_every_option_of_a_job_is_explained():
    explained = {
        row[0].strip("`") for table in ("option", "option of a job") for row in PAGE.table(table)
    }
    taken = set(inspect.signature(joblock.JobLocks.job).parameters) - {"self", "function"}
    assert taken <= explained


def test_every_command_and_option_of_the_command_line_is_in_the_reference():
    context = click.Context(command_line)
    names = command_line.list_commands(context)
    commands = {name: command_line.get_command(context, name) for name in names}
    listed = {
        option
        for row in PAGE.table("option of a command")
        for option in re.findall(r"`(--?\w[\w-]*)`", row[0])
    }
    assert {row[0].strip("`").split()[1] for row in PAGE.table("command")} == set(commands)
    assert listed == {
        max(parameter.opts, key=len)
        for command in commands.values()
        for parameter in command.params
        if isinstance(parameter, click.Option)
    }


def _signature(thing, variable="", meaning=""):
    thing = getattr(thing, "fget", getattr(thing, "__func__", thing))
    signature = inspect.signature(thing)
    if variable:
        returned = re.sub(rf"\b{variable}\b", meaning, signature.return_annotation)
        signature = signature.replace(return_annotation=returned)
    return signature


def _annotations(kind):
    return {
        name: hint.__forward_arg__ if isinstance(hint, ForwardRef) else hint
        for name, hint in vars(kind).get("__annotations__", {}).items()
    }


def _alternatives(alias):
    return {_text(part) for part in get_args(alias)}


def _text(hint):
    if isinstance(hint, ForwardRef):
        return hint.__forward_arg__
    return hint.__name__ if type(hint) is type else str(hint)
