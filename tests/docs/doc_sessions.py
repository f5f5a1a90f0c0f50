"""A Python and a shell that run the blocks of one page in order, as its reader would.

Both are real processes in the page's own folder, with ``JOBLOCK_URL`` naming a fresh lease file
there. Every wait here has a deadline that fails the test.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

from joblock import JobLocks

if TYPE_CHECKING:
    from doc_pages import Block

PATIENCE = 30.0
"""Seconds an example may take: they take fractions, but two cores may be busy."""

LATE = 3.0
"""Seconds after the prompt in which what a command in the background prints has to come."""

_PYTHON = Path(__file__).with_name("doc_python.py")
_SHELL = r"""
while IFS= read -r -d '' -u "$1" command; do
  (exit "${status:-0}")
  eval "$command"
  status=$?
  printf '\001'
done
"""

# A shell tells of a job that was killed, each in its own words and when it likes.
_JOB_NOTICE = re.compile(r"^\S+: line \d+: +\d+ Killed.*\n", re.MULTILINE)


class Command(NamedTuple):
    """One command of a console block and the output shown for it."""

    line: int
    text: str
    output: str


def commands_of(block: Block) -> list[Command]:
    """The commands of a console block, each with what the page shows under it."""
    found: list[Command] = []
    for line, text in enumerate(block.text.splitlines(), block.line):
        if text.startswith("$ "):
            found.append(Command(line, text[2:], ""))
        elif text.startswith("> ") and found and not found[-1].output:
            found[-1] = found[-1]._replace(text=f"{found[-1].text}\n{text[2:]}")
        elif found:
            found[-1] = found[-1]._replace(output=f"{found[-1].output}{text}\n")
        else:
            raise AssertionError(f"{block.page}:{line}: a console block begins with '$ '")
    return found


def looks_like(shown: str, printed: str) -> bool:
    """Whether that was printed; ``...`` stands for anything in a line, or alone for any lines."""
    lines = "".join(map(_line_pattern, shown.splitlines()))
    whole = printed if printed.endswith("\n") or not printed else f"{printed}\n"
    return re.fullmatch(lines, whole) is not None


def _line_pattern(line: str) -> str:
    if line == "...":
        return r"(?:.*\n)*?"
    return re.escape(line.rstrip()).replace(r"\.\.\.", ".*") + r" *\n"


def environment(folder: Path) -> dict[str, str]:
    """That of a user who has set JOBLOCK_URL, with ``joblock`` and ``python`` on the path."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("JOBLOCK_", "PYTEST_", "KUBERNETES_", "PYTHON", "XDG_"))
    }
    path = f"{Path(sys.executable).parent}{os.pathsep}{kept.get('PATH', '')}"
    return {
        **kept,
        "HOME": str(folder),
        "PATH": path,
        "JOBLOCK_URL": f"sqlite:///{folder}/locks.db",
        "COLUMNS": "100",
        "LC_ALL": "C.UTF-8",
    }


class _Process:
    """A child that is spoken to through one pipe and answers through another."""

    def __init__(self, command: list[str], folder: Path, stderr: int | IO[bytes]) -> None:
        theirs, self._tell = os.pipe()
        self._child = subprocess.Popen(
            [*command, str(theirs)],
            cwd=folder,
            env=environment(folder),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            pass_fds=(theirs,),
            start_new_session=True,
        )
        os.close(theirs)
        assert self._child.stdout is not None
        self._out = self._child.stdout.fileno()

    def send(self, data: bytes) -> None:
        os.write(self._tell, data)

    def read(self, deadline: float) -> bytes:
        """What it says next; nothing if that is not in time."""
        if not select.select([self._out], [], [], max(0.0, deadline - time.monotonic()))[0]:
            return b""
        data = os.read(self._out, 1 << 16)
        assert data, f"{self._child.args} ended by itself"
        return data

    def close(self) -> None:
        """Let it end, and end what it left behind."""
        os.close(self._tell)
        try:
            self._child.wait(PATIENCE)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._child.pid, signal.SIGKILL)
            self._child.communicate()


class PythonSession(_Process):
    """Executes blocks one after the other in one namespace; warnings are errors."""

    def __init__(self, folder: Path) -> None:
        self._errors = (folder / ".stderr").open("w+b")
        super().__init__([sys.executable, "-W", "error", str(_PYTHON)], folder, self._errors)

    def run(self, block: Block) -> str:
        """What the block prints; whatever it raises fails the test, with the page's own lines."""
        place = f"{block.page}:{block.line}"
        self.send(json.dumps([block.page, block.line, block.text]).encode() + b"\n")
        deadline = time.monotonic() + PATIENCE
        answer = b""
        while not answer.endswith(b"\n"):
            assert time.monotonic() < deadline, f"{place} is not over after {PATIENCE} s"
            answer += self.read(deadline)
        printed, trace = json.loads(answer)
        assert not trace, f"{place}\n{trace}"
        return printed

    def close(self) -> None:
        super().close()
        self._errors.close()


class ShellSession(_Process):
    """Runs commands one after the other in one shell, as typed by a person who waits to see."""

    def __init__(self, folder: Path) -> None:
        super().__init__(["bash", "--norc", "-c", _SHELL, "bash"], folder, subprocess.STDOUT)
        self._url = environment(folder)["JOBLOCK_URL"]

    def run(self, block: Block) -> None:
        """Run a block's commands and hold what they print against what the page shows."""
        for command in commands_of(block):
            self._run(f"{block.page}:{command.line}", command)

    def _run(self, place: str, command: Command) -> None:
        behind = command.text.rstrip().endswith("&")
        before = _queued(self._url) if behind else 0
        self.send(command.text.encode() + b"\0")
        deadline = time.monotonic() + PATIENCE
        printed, ended = "", False
        while not ended or not looks_like(command.output, printed):
            assert time.monotonic() < deadline, (
                f"{place}: $ {command.text}\n--- should print:\n{command.output}"
                f"--- prints:\n{printed}"
            )
            said = self.read(deadline).decode()
            if "\1" in said:
                ended, deadline = True, min(deadline, time.monotonic() + LATE)
            printed = _JOB_NOTICE.sub("", printed + said.replace("\1", ""))
        while behind and _queued(self._url) <= before:
            assert time.monotonic() < deadline, f"{place}: $ {command.text}\nholds nothing"
            time.sleep(0.02)


def _queued(url: str) -> int:
    """How many leases and waiters there are: a person starts the next command when it shows."""
    with JobLocks(url) as locks:
        keys = [lease.key for lease in locks.model.all()]
        return len(keys) + sum(len(locks.model.waiters(key)) for key in set(keys))
