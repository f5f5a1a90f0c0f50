"""Real `joblock` processes on an embedded store, and waiting for what they do."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

PATIENCE = 60.0
"""Seconds after which what a test waits for is taken as never to come."""

TTL = "6s"
"""For a lease that is renewed, or lost and missed, within a test: a busy machine may keep a process
from running for a second or two, and only then is it lost by itself.
"""

JOBLOCK = (sys.executable, "-m", "joblock.cli")


def wait_until(reached: Callable[[], Any], what: str) -> Any:
    """What `reached` returns, once that is true."""
    end = time.monotonic() + PATIENCE
    while not (found := reached()):
        assert time.monotonic() < end, f"{what} should have come by now"
        time.sleep(0.01)
    return found


class Running:
    """A `joblock` process; its output is read as it comes."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.pid = process.pid
        self._read: dict[int, bytes] = {}

    def line(self) -> str:
        """The next line of standard output."""
        return self._line(self.process.stdout)

    def error_line(self) -> str:
        """The next line of standard error."""
        return self._line(self.process.stderr)

    def started(self) -> bool:
        """Whether it has written anything yet; does not wait."""
        stream = self.process.stdout
        return bool(self._read.get(stream.fileno()) or select.select([stream], [], [], 0)[0])

    def expect(self, line: str) -> None:
        got = self.line()
        assert got == line, (got, self.process.poll())

    def tell(self, line: str = "") -> None:
        """Write a line to the command's standard input."""
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def end(self) -> int:
        """Wait for its end; the exit code."""
        return self.process.wait(PATIENCE)

    def errors(self) -> str:
        """What is left of standard error, once it has ended."""
        return self._rest(self.process.stderr)

    def output(self) -> str:
        return self._rest(self.process.stdout)

    def _line(self, stream: Any) -> str:
        end = time.monotonic() + PATIENCE
        read = self._read.get(stream.fileno(), b"")
        while b"\n" not in read:
            ready, _, _ = select.select([stream], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"a line should have come by now; so far: {read!r}"
            more = os.read(stream.fileno(), 65536)
            assert more, f"the process ended after: {read!r}; its errors: {self.errors()}"
            read += more
        line, _, self._read[stream.fileno()] = read.partition(b"\n")
        return line.decode()

    def _rest(self, stream: Any) -> str:
        return (self._read.pop(stream.fileno(), b"") + stream.read()).decode()


class Cli:
    """Starts `joblock` with the test's store."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"sqlite:///{folder / 'leases.db'}"
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("JOBLOCK_", "KUBERNETES_", "COLUMNS", "NO_COLOR"))
        }
        self.environment |= {"JOBLOCK_URL": self.url, "XDG_STATE_HOME": str(folder / "state")}
        self.started: list[Running] = []

    def __call__(
        self, *arguments: str, env: dict[str, str | None] | None = None, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run it to its end."""
        return self.plain([*JOBLOCK, *arguments], env=env, **options)

    def plain(
        self, command: list[str], env: dict[str, str | None] | None = None, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run any command the same way."""
        options.setdefault("input", "")
        return subprocess.run(
            command,
            env=self._environment(env),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
            cwd=self.folder,
            **options,
        )

    def start(
        self, *arguments: str, env: dict[str, str | None] | None = None, **options: Any
    ) -> Running:
        """Start it with pipes for its input and outputs."""
        process = subprocess.Popen(
            [*JOBLOCK, *arguments],
            env=self._environment(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.folder,
            **options,
        )
        running = Running(process)
        self.started.append(running)
        return running

    def hold(self, key: str, *options: str) -> Running:
        """A run of `key` that has begun, and ends well at a line of input."""
        running = self.start("run", *options, key, "--", "sh", "-c", "echo started; read _")
        running.expect("started")
        return running

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--json").stdout)

    def end(self) -> None:
        for running in self.started:
            process = running.process
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                try:
                    stream.close()
                except BrokenPipeError:
                    continue

    def _environment(self, changes: dict[str, str | None] | None) -> dict[str, str]:
        merged = {**self.environment, **(changes or {})}
        return {name: value for name, value in merged.items() if value is not None}
