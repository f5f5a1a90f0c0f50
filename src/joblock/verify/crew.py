"""The worker processes of a run: started, tormented, and every one of them ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

from joblock.verify.history import Recorder, now

PATIENCE = 30.0
"""Seconds for a worker that was asked to stop; what it waits for does not last longer."""


class Task(NamedTuple):
    """What all workers of a run have in common."""

    urls: list[str]
    prefix: str
    seed: int
    lanes: int
    history: str
    data: str


class Member:
    """One place in the crew; a killed process is replaced by its next life."""

    def __init__(self, task: Task, number: int, recorder: Recorder) -> None:
        self.number = number
        self.life = -1
        self._task = task
        self._recorder = recorder
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with its owner

    @property
    def name(self) -> str:
        """What its process is called in the history."""
        return f"{self.number}.{self.life}"

    def start(self) -> None:
        """Begin its next life."""
        task = self._task
        self.life += 1
        settings: dict[str, Any] = {
            "url": task.urls[self.number],
            "prefix": task.prefix,
            "seed": task.seed,
            "number": self.number,
            "life": self.life,
            "kind": "async" if self.number % 2 else "sync",
            "lanes": task.lanes,
            "history": task.history,
            "data": task.data,
            "parent": os.getpid(),
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "joblock.verify.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            env=_environment(),
            # Ctrl-C is for the one who started it all, who then ends the workers.
            process_group=0,
        )
        self.tell(json.dumps(settings))

    def tell(self, line: str) -> None:
        """Say a line to it; a process that is gone hears nothing."""
        process = self._process
        if process is not None and process.stdin is not None:
            with suppress(BrokenPipeError):
                process.stdin.write(f"{line}\n".encode())
                process.stdin.flush()

    def signal(self, number: int) -> None:
        """Send it a signal."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def kill(self) -> None:
        """Kill it, and wait until it is dead."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        self._process = None

    def look_after(self) -> None:
        """If it has ended although nobody said so, tell, and begin its next life."""
        if self._process is None or self._process.poll() is None:
            return
        self._report(f"ended by itself with code {self._process.returncode}")
        self.kill()
        self.start()

    def await_end(self, end: float) -> None:
        """Wait for it to end by itself, and kill it if it does not."""
        process = self._process
        if process is None:
            return
        try:
            code = process.wait(max(0.0, end - now()))
        except subprocess.TimeoutExpired:
            self._report("did not stop when it was told to")
        else:
            if code:
                self._report(f"ended with code {code}")
        self.kill()

    def close(self) -> None:
        """End it for good."""
        self.kill()
        self._errors.close()

    def _report(self, what: str) -> None:
        self._errors.seek(0)
        errors = self._errors.read().decode(errors="replace").strip()
        text = f"worker {self.name} {what}\n{errors[-2000:]}"
        self._recorder.put("crash", text=text.strip())
        self._recorder.put("fault", kind="kill", on=self.name, end=now())


class Crew:
    """All of them."""

    def __init__(self, task: Task, size: int, recorder: Recorder) -> None:
        self.members = [Member(task, number, recorder) for number in range(size)]
        self._begun = now()

    def start(self) -> None:
        """Begin all first lives."""
        for member in self.members:
            member.start()

    def look_after(self) -> None:
        """Replace those that ended by themselves."""
        for member in self.members:
            member.look_after()

    def stop(self) -> None:
        """Let all finish what they are doing, and end."""
        for member in self.members:
            member.signal(signal.SIGCONT)
            member.tell("stop")
        end = now() + PATIENCE
        for member in self.members:
            member.await_end(end)

    def close(self) -> None:
        """End all at once, whatever they do."""
        for member in self.members:
            member.close()


def _environment() -> dict[str, str]:
    """Without what would point a worker elsewhere, and with this very package."""
    source = str(Path(__file__).parents[2])
    paths = [source, *filter(None, [os.environ.get("PYTHONPATH")])]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("JOBLOCK_")}
    return {**kept, "PYTHONPATH": os.pathsep.join(paths)}


def pause(seconds: float) -> None:
    """Let time pass."""
    time.sleep(seconds)
