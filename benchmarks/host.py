"""A contender's side: a process in its environment that does as many turns as it is told to.

``python -m benchmarks.host CONTENDER URL KEY [CPU]`` reads one command a line and answers each
with one line of JSON. It uses nothing beyond the standard library and the contender, so that it
runs in any of their environments. Commands:

- ``ready``: what is installed; ``warm MODE``: connect, so that what follows begins at once;
- ``cycle TURNS``, ``tasks TURNS``: that many acquisitions and releases, the seconds taken;
- ``crowd SIZE TURNS``: so many tasks at once, each on a key of its own;
- ``handoff FILE FIRST WAITERS SECONDS WORK MODE``: waiters on one key, threads or tasks, who note
  each of their turns in a file that all processes share (`benchmarks.turns`);
- ``wait WAITERS SETTLE``: tasks that ask for the key and stay, and the seconds that they need to
  come to rest; ``weigh WAITERS SETTLE``: the bytes that each of them takes, by tracemalloc;
- ``take``, ``take_async``: hold the key; ``hold LEASES TTL``: that many renewed leases;
- ``usage``: seconds of processor time so far, bytes of memory, threads.
"""

from __future__ import annotations

import asyncio
import gc
import importlib.metadata
import itertools
import json
import logging
import os
import resource
import sys
import threading
import time
import traceback
import tracemalloc
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.contenders import load
from benchmarks.processor import pin
from benchmarks.turns import Turns


class Host:
    """One contender, on one store."""

    def __init__(self, name: str, url: str, key: str) -> None:
        self.contender = load(name)
        self.url = url
        self.key = key
        self.held = ExitStack()
        self.numbers = itertools.count()
        self.entering: Any = None
        self.entering_async: Any = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.kept: list[Any] = []
        self.arrival = getattr(self.contender, "arrival", _unknown)

    def fresh(self) -> Any:
        """A context manager for a thread."""
        if self.entering is None:
            self.entering = self.contender.make(self.url, self.key)
        return self.entering

    def fresh_async(self) -> Any:
        """A context manager for a task."""
        if self.entering_async is None:
            self.entering_async = self.contender.make_async(self.url, self.key)
        return self.entering_async

    def start(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Begin something in the loop, which runs in a thread of its own."""
        if self.loop is None:
            self.loop = asyncio.new_event_loop()
            threading.Thread(target=self.loop.run_forever, daemon=True).start()
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def ready(self) -> dict[str, str]:
        found = {}
        for requirement in (
            *getattr(self.contender, "REQUIRES", ()),
            *getattr(self.contender, "DISTRIBUTIONS", ()),
        ):
            name = requirement.partition("[")[0].partition("=")[0].partition("<")[0]
            found[name] = importlib.metadata.version(name)
        return found

    def warm(self, mode: str) -> bool:
        """Connect, and whatever else comes first, on a key that nobody else wants."""
        watch = getattr(self.contender, "watch_arrivals", None)
        if watch is not None:
            watch()
        key = f"{self.key}-{os.getpid()}"
        if mode == "tasks":

            async def once() -> None:
                async with self.contender.make_async(self.url, key)():
                    pass

            self.start(once()).result()
        else:
            with self.contender.make(self.url, key)():
                pass
        return True

    def cycle(self, turns: str) -> float:
        fresh = self.fresh()
        begun = time.perf_counter()
        for _ in range(int(turns)):
            with fresh():
                pass
        return time.perf_counter() - begun

    def tasks(self, turns: str) -> float:
        fresh = self.fresh_async()

        async def cycles() -> float:
            begun = time.perf_counter()
            for _ in range(int(turns)):
                async with fresh():
                    pass
            return time.perf_counter() - begun

        return self.start(cycles()).result()

    def crowd(self, size: str, turns: str) -> float:
        async def cycles(fresh: Any) -> None:
            for _ in range(int(turns)):
                async with fresh():
                    pass

        async def all_at_once() -> float:
            each = [
                self.contender.make_async(self.url, f"{self.key}-{number}")
                for number in range(int(size))
            ]
            begun = time.perf_counter()
            await asyncio.gather(*(cycles(fresh) for fresh in each))
            return time.perf_counter() - begun

        return self.start(all_at_once()).result()

    def handoff(
        self, file: str, first: str, waiters: str, seconds: str, work: str, mode: str
    ) -> int:
        """Queue again and again until the time is over; turns taken."""
        turns = Turns(Path(file))
        names = range(int(first), int(first) + int(waiters))
        if mode == "tasks":
            fresh = self.fresh_async()
            until = time.monotonic_ns() + int(float(seconds) * 1e9)

            async def all_at_once() -> list[int]:
                return await asyncio.gather(
                    *(
                        _queue_task(turns, fresh, self.arrival, name, until, float(work))
                        for name in names
                    )
                )

            return sum(self.start(all_at_once()).result())
        # A waiter of its own for each: what a library keeps per thread or connection is so, too.
        each = [self.contender.make(self.url, self.key) for _ in names]
        until = time.monotonic_ns() + int(float(seconds) * 1e9)
        with ThreadPoolExecutor(len(each)) as pool:
            queued = [
                pool.submit(_queue_thread, turns, fresh, self.arrival, name, until, float(work))
                for fresh, name in zip(each, names, strict=True)
            ]
            return sum(waiter.result() for waiter in queued)

    def wait(self, waiters: str, settle: str) -> int:
        """Let so many tasks ask for a key that is held, and stay with them."""
        fresh = self.fresh_async()

        async def begin() -> None:
            self.kept += [asyncio.create_task(_enter(fresh)) for _ in range(int(waiters))]
            await asyncio.sleep(float(settle))

        self.start(begin()).result()
        return len(self.kept)

    def weigh(self, waiters: str, settle: str) -> float:
        """What one waiter takes, next to the first of them, who brings what is shared."""
        self.wait("1", settle)
        gc.collect()
        tracemalloc.start()
        self.wait(waiters, settle)
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return taken / int(waiters)

    def take(self) -> bool:
        self.held.enter_context(self.fresh()())
        return True

    def take_async(self) -> bool:
        async def enter() -> None:
            held = self.fresh_async()()
            await held.__aenter__()
            self.kept.append(held)

        self.start(enter()).result()
        return True

    def hold(self, leases: str, ttl: str) -> float:
        """Take leases that are renewed from then on; the seconds that took."""
        kept = self.contender.make_kept(self.url, int(ttl))
        begun = time.perf_counter()
        for _ in range(int(leases)):
            self.held.enter_context(kept(f"{self.key}-{next(self.numbers)}"))
        return time.perf_counter() - begun

    def usage(self) -> dict[str, float]:
        used = resource.getrusage(resource.RUSAGE_SELF)
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return {
            "cpu": used.ru_utime + used.ru_stime,
            "rss": pages * resource.getpagesize(),
            "threads": threading.active_count(),
        }


def _unknown(entry: Any) -> int:
    """The place in the queue of a contender that does not tell it."""
    del entry
    return 0


def _queue_thread(
    turns: Turns, fresh: Any, arrival: Any, name: int, until: int, work: float
) -> int:
    done = 0
    while time.monotonic_ns() < until:
        asked = time.monotonic_ns()
        with fresh() as entry:
            entered = time.monotonic_ns()
            if work:
                time.sleep(work)
            turns.note(asked, entered, name, arrival(entry))
        done += 1
    return done


async def _queue_task(
    turns: Turns, fresh: Any, arrival: Any, name: int, until: int, work: float
) -> int:
    done = 0
    while time.monotonic_ns() < until:
        asked = time.monotonic_ns()
        async with fresh() as entry:
            entered = time.monotonic_ns()
            await asyncio.sleep(work)  # or the others would never get to queue
            turns.note(asked, entered, name, arrival(entry))
        done += 1
    return done


async def _enter(fresh: Any) -> None:
    async with fresh():
        raise AssertionError("the key was to be held by another")


def main(name: str, url: str, key: str, cpu: str = "") -> None:
    if cpu:
        pin(0, cpu)
    # What a library prints is no answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    logging.disable(logging.CRITICAL)
    host = Host(name, url, key)
    for line in sys.stdin:
        command, *words = line.split()
        try:
            answer = {"answer": getattr(host, command)(*words)}
        except Exception as error:  # noqa: BLE001 - the other side is told, and goes on without it
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"[:300]}
        print(json.dumps(answer), file=answers, flush=True)
    os._exit(0)  # leases end with their ttl: nobody else uses the key


if __name__ == "__main__":
    main(*sys.argv[1:])
