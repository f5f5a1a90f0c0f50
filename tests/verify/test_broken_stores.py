"""A store that is wrong in one way is found out by its history in some seconds."""

from __future__ import annotations

import random
import threading
import time

import pytest
from broken_stores import BROKEN, QUIET, Sound

from joblock import JobLocks
from joblock.store.ops import (
    Acquire,
    Granted,
    Holders,
    Queueing,
    Refresh,
    Release,
    Renewal,
    Waiters,
)
from joblock.verify import Bounds, check, read_history
from joblock.verify.history import Recorder
from joblock.verify.lanes import ThreadLane
from joblock.verify.operations import Task
from joblock.verify.recording import RecordingStore

CLIENTS = 8
LONGEST = 40.0
"""Seconds in which a broken store must be found out even on a busy machine; mostly it takes two."""

SOUND_FOR = 6.0
"""Seconds for which a sound store is watched."""

BOUNDS = Bounds(stall=1.8, settle=0.0)
QUIET_BOUNDS = Bounds(stall=0.8, settle=0.0)
"""Nobody is cut off here, so nothing but the claim of somebody dead is waited for, if that."""


def draw(rng: random.Random) -> Task:
    """Short holds of one key, most of them waited for."""
    wait = rng.choice((False, 3.0, 3.0, 3.0))
    return Task("lock", "key", 4.0, wait=wait, hold=rng.uniform(0.0, 0.01))


def draw_for_two(number: int):
    """Two clients on a key, who have a rest now and then, so that nobody comes by and mends it."""

    def draw(rng: random.Random) -> Task:
        time.sleep(rng.choice((0.0, 0.02, 0.04, 1.3)))
        return Task("lock", f"key-{number // 2}", 4.0, wait=3.0, hold=0.02)

    return draw


class Torment:
    """Clients in threads on one store, each with a history of its own as a process would have."""

    def __init__(self, store_class, path) -> None:
        self.path = str(path)
        self.stopped = threading.Event()
        self.store_class = store_class
        self.quiet = store_class in QUIET
        self.name = str(path)
        self.recorders: list[Recorder] = []
        self.threads: list[threading.Thread] = []
        self.clients: list[JobLocks] = []

    def start(self):
        for number in range(CLIENTS):
            recorder, store = self._store(str(number))
            locks = JobLocks(store)
            self.clients.append(locks)
            lane = ThreadLane(locks, recorder, random.Random(number), "", self.stopped.is_set)
            self._thread(lane.run, draw_for_two(number) if self.quiet else draw)
        if not self.quiet:
            self._thread(self._watch)
            self._thread(self._die)
            self._thread(self._be_late)

    def end(self):
        self.stopped.set()
        for thread in self.threads:
            thread.join(30)
            assert not thread.is_alive(), "it should have stopped"
        for locks in self.clients:
            locks.close()
        for recorder in self.recorders:
            recorder.close()

    def _store(self, worker):
        recorder = Recorder(self.path, worker)
        self.recorders.append(recorder)
        return recorder, RecordingStore(self.store_class(self.name), recorder)

    def _thread(self, work, *arguments):
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self.threads.append(thread)
        thread.start()

    def _watch(self):
        driver = self._store("watcher")[1].driver()
        while not self.stopped.wait(0.005):
            driver.call(Waiters("key"))
            driver.call(Holders("key"))

    def _die(self):
        """Once in a while somebody queues and is never heard of again."""
        driver = self._store("dead")[1].driver()
        number = 0
        while not self.stopped.wait(2.5):
            number += 1
            queue = Queueing(f"nobody-{number}")
            driver.call(Acquire("key", f"dead-{number}", 1000, queue=queue))

    def _be_late(self):
        """Again and again somebody renews and releases what it had a little while ago."""
        driver = self._store("late")[1].driver()
        number = 0
        while not self.stopped.is_set():
            number += 1
            op = Acquire("key", f"late-{number}", 50, queue=Queueing("late"))
            while not isinstance(granted := driver.call(op), Granted):
                if self.stopped.wait(0.005):
                    return
            self.stopped.wait(0.1)
            driver.call(Refresh((Renewal("key", op.holder, granted.token, 50),)))
            driver.call(Release("key", op.holder, granted.token))


def promises_broken(store_class, path, wanted):
    torment = Torment(store_class, path)
    torment.start()
    found: set[str] = set()
    end = time.monotonic() + (LONGEST if wanted else SOUND_FOR)
    try:
        while time.monotonic() < end and (not wanted or wanted not in found):
            time.sleep(1.0)  # it takes its time until something goes wrong
            history = read_history(torment.path)
            bounds = QUIET_BOUNDS if torment.quiet else BOUNDS
            found = {one.promise for one in check(history, bounds)}
    finally:
        torment.end()
    return found


@pytest.mark.parametrize("store_class", BROKEN, ids=lambda each: each.__name__)
def test_a_broken_store_is_found_out(store_class, tmp_path):
    promise = BROKEN[store_class]
    assert promise in promises_broken(store_class, tmp_path / "history", promise)


def test_a_sound_store_passes(tmp_path):
    assert promises_broken(Sound, tmp_path / "history", "") == set()


def test_a_sound_store_passes_when_it_has_little_to_do(tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "QUIET", {Sound})
    assert promises_broken(Sound, tmp_path / "history", "") == set()
