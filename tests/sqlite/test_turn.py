"""The turn, which one thread at a time has of a lease file, is never lost for long."""

from __future__ import annotations

import threading

import pytest

from joblock.store.ops import Acquire, Count, Granted, Holders
from joblock.stores.sqlite.file import PATIENCE

LONG = 60_000


def take_and_be_interrupted(file):
    turn = file.take()
    assert turn
    raise KeyboardInterrupt


def test_a_turn_that_the_traceback_of_an_interrupt_keeps_is_made_anew(store, call):
    call(Count())
    with pytest.raises(KeyboardInterrupt) as interrupted:
        take_and_be_interrupted(store.file)
    assert store.file.turns == []
    assert isinstance(call(Acquire("key", "A", LONG)), Granted)
    assert len(store.file.turns) == 1
    assert interrupted.tb is not None


def test_a_lost_turn_does_not_keep_the_file_from_being_closed(store, call):
    call(Count())
    with pytest.raises(KeyboardInterrupt) as interrupted:
        take_and_be_interrupted(store.file)
    store.close()
    assert not store.file.is_open
    assert call(Count()) == 0
    assert interrupted.tb is not None


def test_a_turn_that_a_thread_has_for_long_is_not_made_anew(store, call):
    """It is away for longer than a lost one, and waited for."""
    call(Count())
    begun, go, told = threading.Event(), threading.Event(), []

    def work():
        begun.set()
        assert go.wait(PATIENCE)
        told.append(len(store.file.turns))

    thread = threading.Thread(target=store.file._do, args=(work,), kwargs={"keep": False})  # noqa: SLF001
    thread.start()
    assert begun.wait(PATIENCE)
    waiting = threading.Thread(target=call, args=(Acquire("key", "A", LONG),))
    waiting.start()
    waiting.join(0.5)  # ten times as long as a lost one is looked for: time is the subject
    go.set()
    thread.join(PATIENCE)
    waiting.join(PATIENCE)
    assert told == [0]
    assert len(store.file.turns) == 1
    assert [lease.holder for lease in call(Holders("key"))] == ["A"]
