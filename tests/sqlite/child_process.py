"""Another process at work on a lease file, which a test talks to line by line."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path

import joblock

PATIENCE = 30.0
SOURCE = str(Path(joblock.__file__).parent.parent)

PRELUDE = """
import os, signal, sys, threading, time
from joblock.store.ops import *
from joblock.stores.sqlite import SqliteStore
from joblock.values.errors import *
store = SqliteStore(sys.argv[1])
call = store.driver().call
def say(*words): print(*words, flush=True)
def hear(): return sys.stdin.readline().strip()
"""


class Child:
    """Runs ``program``, in which ``store``, ``call``, ``say`` and ``hear`` are there for use."""

    def __init__(self, path: Path, program: str, *arguments: object) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + program, str(path), *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": SOURCE},
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def next(self) -> str:
        """The next line it says."""
        ready, _, _ = select.select([self._process.stdout], [], [], PATIENCE)
        assert ready, "the child says nothing"
        return self._process.stdout.readline().decode().strip()

    def tell(self, line: str = "") -> None:
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        """As `kill -9`: it has no time for anything."""
        self._process.kill()
        self.end()

    def end(self) -> int:
        """Wait for its end; its exit code."""
        if self._process.stdin:
            self._process.stdin.close()
        code = self._process.wait(PATIENCE)
        self._process.stdout.close()
        return code


def run(path: Path, program: str, *arguments: object) -> str:
    """Run a child to its end; what it said."""
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + program, str(path), *map(str, arguments)],
        capture_output=True,
        timeout=PATIENCE,
        check=False,
        env={**os.environ, "PYTHONPATH": SOURCE},
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().strip()
