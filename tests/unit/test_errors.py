"""Errors: one family, readable by who is paged, and able to cross a process boundary."""

from __future__ import annotations

import copy
import pickle

import pytest

import joblock
from joblock import (
    JobLockError,
    LockLost,
    LockNotAcquired,
    StoreError,
    StoreMisconfigured,
    StoreUnavailable,
)

ERRORS = [
    LockNotAcquired("reindex", "host:1", 12.5, "held"),
    LockNotAcquired("reindex"),
    LockNotAcquired("reindex", prefix="shop:"),
    LockLost("reindex", "host:1", 1_750_000_000_000_000, "deadline", {"rows": 7}),
    StoreUnavailable("redis://db:6379 does not answer"),
    StoreMisconfigured("set JOBLOCK_URL"),
    JobLockError("anything"),
]


def test_all_errors_are_of_one_family():
    assert {JobLockError} == {
        base for error in (LockNotAcquired, LockLost, StoreError) for base in error.__bases__
    }
    assert StoreUnavailable.__bases__ == StoreMisconfigured.__bases__ == (StoreError,)
    assert JobLockError.__bases__ == (Exception,)


def test_errors_are_public():
    for error in (JobLockError, LockLost, LockNotAcquired, StoreError, StoreUnavailable):
        assert getattr(joblock, error.__name__) is error


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("copied", [lambda error: pickle.loads(pickle.dumps(error)), copy.copy])
def test_errors_cross_a_process_boundary_unchanged(error, copied):
    error.add_note("while reindexing")
    other = copied(error)
    assert type(other) is type(error)
    assert str(other) == str(error)
    assert other.__dict__ == error.__dict__


def test_a_refusal_says_which_key_who_holds_it_for_how_long_and_what_to_do():
    error = LockNotAcquired("reindex", "host:1", 12.5, "held")
    assert (error.key, error.holder, error.remaining, error.reason) == (
        "reindex",
        "host:1",
        12.5,
        "held",
    )
    message = str(error)
    for part in ("'reindex'", "'host:1'", "12.500 s", "joblock peek"):
        assert part in message


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("held", "another holder has it"),
        ("grace", "grace period"),
        ("waiting", "others are queued"),
        ("timeout", "timed out"),
    ],
)
def test_a_refusal_says_why(reason, words):
    assert words in str(LockNotAcquired("reindex", None, None, reason))


def test_a_refusal_says_nothing_of_what_the_store_does_not_know():
    message = str(LockNotAcquired("reindex"))
    assert "held by" not in message
    assert "None" not in message


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("refused", "no longer knows it as the holder"),
        ("deadline", "no renewal was confirmed in time"),
        ("max_duration", "max_duration is over"),
        ("closed", "client was closed"),
        ("forked", "forked process"),
        ("another reason", "another reason"),
    ],
)
def test_a_loss_says_how_which_lease_and_what_that_means(reason, words):
    message = str(LockLost("reindex", "host:1", 17, reason))
    for part in (words, "'reindex'", "'host:1'", "token 17", "fenced"):
        assert part in message


def test_a_loss_keeps_what_the_work_returned():
    error = LockLost("reindex", "host:1", 17, "deadline", value=[1, 2])
    assert (error.key, error.holder, error.token, error.reason) == (
        "reindex",
        "host:1",
        17,
        "deadline",
    )
    assert error.value == [1, 2]


@pytest.mark.parametrize("nasty", ["a\x1b[31mb", "a\u202eb", "a\nb"])
def test_messages_show_control_and_right_to_left_characters_escaped(nasty):
    for error in (LockNotAcquired(nasty, nasty, 1.0), LockLost(nasty, nasty, 1, "deadline")):
        assert nasty not in str(error)


@pytest.mark.parametrize(
    ("prefix", "key", "command"),
    [
        ("", "reindex", "joblock peek reindex"),
        ("shop:", "reindex", "JOBLOCK_PREFIX=shop: joblock peek reindex"),
        ("", "it's $HOME", """joblock peek 'it'"'"'s $HOME'"""),
        ("my shop:", "-v", "JOBLOCK_PREFIX='my shop:' joblock peek -- -v"),
    ],
)
def test_a_refusal_has_the_command_that_shows_that_very_lock(prefix, key, command):
    assert str(LockNotAcquired(key, prefix=prefix)).endswith(f" with: {command}")
