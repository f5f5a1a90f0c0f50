"""One worker process: does what its seed says on the store, and writes down what it sees.

Started by `joblock.verify.crew` as ``python -m joblock.verify.worker``. It reads what to do as one
JSON line from standard input, and after that orders: ``stop``, or ``clock SECONDS`` to set its
wall clock off by that much. With the end of that input, or of its parent, it ends at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import logging
import os
import signal
import sys
import threading
import time
from typing import Any

from joblock import AsyncJobLocks, JobLocks
from joblock.stores.registry import open_store
from joblock.values.clock import SYSTEM_CLOCK
from joblock.verify.history import Recorder, now
from joblock.verify.lanes import TaskLane, ThreadLane
from joblock.verify.operations import dice, draw
from joblock.verify.recording import RecordingStore

_PR_SET_PDEATHSIG = 1
BEAT, LATE = 0.1, 0.4
"""Seconds between two looks at whether this process gets to run, and how late that is noted."""


class Settings:
    """What the crew says a worker is to do."""

    def __init__(self, line: str) -> None:
        given: dict[str, Any] = json.loads(line)
        self.url: str = given["url"]
        self.prefix: str = given["prefix"]
        self.seed: int = given["seed"]
        self.number: int = given["number"]
        self.life: int = given["life"]
        self.kind: str = given["kind"]
        self.lanes: int = given["lanes"]
        self.history: str = given["history"]
        self.data: str = given["data"]
        self.parent: int = given["parent"]

    @property
    def name(self) -> str:
        """What it is called in the history."""
        return f"{self.number}.{self.life}"


class _Orders:
    """What is said on standard input after the settings."""

    def __init__(self) -> None:
        self.stopped = False
        self._offset = 0.0
        wall = SYSTEM_CLOCK.wall
        SYSTEM_CLOCK.wall = lambda: wall() + self._offset
        threading.Thread(target=self._listen, name="orders", daemon=True).start()

    def stop(self) -> bool:
        return self.stopped

    def _listen(self) -> None:
        for line in sys.stdin:
            word, _, rest = line.strip().partition(" ")
            if word == "stop":
                self.stopped = True
            elif word == "clock":
                self._offset = float(rest)
        os._exit(1)


def main() -> None:
    """Do it, until it is told to stop."""
    settings = Settings(sys.stdin.readline())
    _end_with_parent(settings.parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.getLogger("joblock").addHandler(logging.NullHandler())
    logging.getLogger("joblock").propagate = False
    recorder = Recorder(settings.history, settings.name)
    orders = _Orders()
    threading.Thread(target=_beat, args=(recorder,), name="beat", daemon=True).start()
    store = RecordingStore(open_store(settings.url), recorder)
    recorder.put("begin", kind=settings.kind, pid=os.getpid())
    if settings.kind == "async":
        asyncio.run(_run_tasks(settings, store, recorder, orders))
    else:
        _run_threads(settings, store, recorder, orders)
    recorder.put("end")


def _run_threads(
    settings: Settings, store: RecordingStore, recorder: Recorder, orders: _Orders
) -> None:
    with JobLocks(store, prefix=settings.prefix, label="joblock verify") as locks:
        threads = [
            threading.Thread(
                target=ThreadLane(
                    locks, recorder, _dice(settings, lane), settings.data, orders.stop
                ).run,
                args=(draw,),
                name=f"lane-{lane}",
                daemon=True,
            )
            for lane in range(settings.lanes)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


async def _run_tasks(
    settings: Settings, store: RecordingStore, recorder: Recorder, orders: _Orders
) -> None:
    async with AsyncJobLocks(store, prefix=settings.prefix, label="joblock verify") as locks:
        await asyncio.gather(
            *(
                TaskLane(locks, recorder, _dice(settings, lane), settings.data, orders.stop).run(
                    draw
                )
                for lane in range(settings.lanes)
            )
        )


def _dice(settings: Settings, lane: int) -> Any:
    return dice(settings.seed, settings.number, settings.life, lane)


def _beat(recorder: Recorder) -> None:
    """Note when this process did not get to run: its own slowness is nobody's breach."""
    while True:
        begin = now()
        time.sleep(BEAT)
        late = now() - begin - BEAT
        if late > LATE:
            recorder.put("fault", begin, kind="late", on=recorder.worker, end=now())


def _end_with_parent(parent: int) -> None:
    """Even while it is stopped, which no end of input reaches (Linux only)."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


if __name__ == "__main__":
    main()
