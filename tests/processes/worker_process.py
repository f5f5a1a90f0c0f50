"""Worker processes that a test writes, talks to line by line, and ends by their own pids."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import textwrap
import time
from typing import TYPE_CHECKING

from joblock.store.ops import Holders, Waiters
from joblock.stores.registry import open_store

if TYPE_CHECKING:
    import signal
    from collections.abc import Callable

    from joblock.values.records import JobLock, Waiting

PATIENCE = 60.0
"""Seconds for what must come, on a busy machine."""

PROLOGUE = """
import asyncio, gc, os, signal, sys, threading, time
import joblock
from joblock import AsyncJobLocks, JobLocks, LockLost, current, worker_id

url = sys.argv[1]

def say(*words):
    print(*words, flush=True)

def hear():
    return sys.stdin.readline().strip()
"""


class Worker:
    """One process, which runs a program of the test's."""

    def __init__(self, url: str, prefix: str, program: str) -> None:
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-W",
                "ignore::DeprecationWarning",  # of forking with threads, which is the subject
                "-c",
                PROLOGUE + textwrap.dedent(program),
                url,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "JOBLOCK_PREFIX": prefix},
        )
        self._unread = b""

    @property
    def pid(self) -> int:
        return self.process.pid

    def hear(self) -> str:
        """The next line that it says."""
        assert self.process.stdout is not None
        end = time.monotonic() + PATIENCE
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._unread:
                left = end - time.monotonic()
                assert left > 0, f"it should have said something: {self._unread!r}"
                if selector.select(left):
                    came = self.process.stdout.read1()
                    assert came, f"it ended without a word: {self.errors()}"
                    self._unread += came
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode()

    def tell(self, line: str = "") -> None:
        """Say a line to it."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())
        self.process.stdin.flush()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ended(self) -> int:
        """Its exit code, once it has ended."""
        return self.process.wait(PATIENCE)

    def errors(self) -> str:
        """What it wrote to stderr, once it has ended."""
        assert self.process.stderr is not None
        self.process.wait(PATIENCE)
        return self.process.stderr.read().decode()

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()


class Workers:
    """The processes of one test."""

    def __init__(self, url: str, prefix: str) -> None:
        self._url = url
        self._prefix = prefix
        self._all: list[Worker] = []

    def start(self, program: str) -> Worker:
        worker = Worker(self._url, self._prefix, program)
        self._all.append(worker)
        return worker

    def end(self) -> None:
        for worker in self._all:
            worker.end()


class Spectator:
    """Reads the store, and never writes."""

    def __init__(self, url: str, prefix: str) -> None:
        self._store = open_store(url)
        self._prefix = prefix

    def leases(self, key: str = "key") -> tuple[JobLock, ...]:
        return self._store.driver().call(Holders(self._prefix + key))

    def holders(self, key: str = "key") -> list[str]:
        return [lease.holder for lease in self.leases(key) if lease.state == "held"]

    def queue(self, key: str = "key") -> tuple[Waiting, ...]:
        return self._store.driver().call(Waiters(self._prefix + key))

    def until_queued(self, count: int, key: str = "key") -> None:
        until(lambda: len(self.queue(key)) == count, f"{count} should wait for {key!r}")

    def until_renewed(self, *keys: str) -> None:
        """The one lease of each is still renewed from now on, in the store."""
        before = {key: self.leases(key) for key in keys}

        def is_renewed(key: str) -> bool:
            ((old,), (new,)) = before[key], self.leases(key)
            assert (new.token, new.state) == (old.token, "held")
            return new.expires_at > old.expires_at

        until(lambda: all(map(is_renewed, keys)), f"what holds {keys} should be renewed")

    def close(self) -> None:
        self._store.close()


def until(fact: Callable[[], bool], complaint: str) -> None:
    """Wait for something that must come, by looking again and again."""
    end = time.monotonic() + PATIENCE
    while not fact():
        assert time.monotonic() < end, complaint
        time.sleep(0.005)
