"""The measuring side: host processes of contenders, told what to do and bounded in time."""

from __future__ import annotations

import itertools
import json
import os
import select
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterable
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from benchmarks import contenders
from benchmarks.measure import Candidate
from benchmarks.processor import processor
from benchmarks.servers import Store
from benchmarks.turns import Turn, Turns

if TYPE_CHECKING:
    from types import TracebackType

PATIENCE = 30.0
"""Seconds in which a host answers, or is ended."""

DRAIN = 8.0
"""Seconds more than it was given that a hand-off may take until everybody has had the last turn."""

SETTLING = 0.5
"""Seconds at the start that are left out: connecting, and the first times everybody queues."""

TIE = 1_000_000
"""Nanoseconds within which two have asked at the same time."""

NEVER = 1 << 62
"""After every turn and arrival."""


class Failed(RuntimeError):
    """A contender did not do what it was told; the message is for the page's reader."""


class Host:
    """One process of `benchmarks.host`."""

    def __init__(self, name: str, url: str, key: str, *, pinned: bool = False) -> None:
        python = contenders.python(name)
        if python is None:
            raise Failed("not installed: python -m benchmarks.peers")
        self.noise = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the host
        self.process = subprocess.Popen(
            [
                *(python, "-m", "benchmarks.host", name, url, key),
                *([processor()] if pinned else []),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.noise,
            text=True,
            cwd=tempfile.gettempdir(),
            env=_environment(name),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        self.noise.close()

    def tell(self, *words: object) -> None:
        """Send a command; `answer` reads what comes of it."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(" ".join(map(str, words)) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Failed(self._last_words()) from None

    def answer(self, patience: float = PATIENCE) -> Any:
        """Wait for it; a host that fails or does not answer is of no more use."""
        stdout = self.process.stdout
        assert stdout is not None
        if not select.select([stdout], [], [], max(0.0, patience))[0]:
            raise Failed(f"no answer within {patience:.0f} s")
        line = stdout.readline()
        if not line:
            raise Failed(self._last_words())
        answer = json.loads(line)
        if "error" in answer:
            raise Failed(answer["error"])
        return answer["answer"]

    def do(self, *words: object, patience: float = PATIENCE) -> Any:
        self.tell(*words)
        return self.answer(patience)

    def _last_words(self) -> str:
        self.noise.seek(0)
        return (self.noise.read().strip().splitlines() or ["it ended"])[-1][:300]


def _environment(name: str) -> dict[str, str]:
    places = [contenders.ROOT]
    if not contenders.requires(contenders.load(name)):
        places.append(contenders.ROOT / "src")
    return {
        **{key: value for key, value in os.environ.items() if not key.startswith("JOBLOCK")},
        "PYTHONPATH": os.pathsep.join(map(str, places)),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


class Hosted:
    """A candidate of `measure.compare`, in a process of its own that starts at the first turn."""

    def __init__(self, name: str, url: str, mode: str, *words: object) -> None:
        self.name = name
        self.url = url
        self.mode = (mode, *words)
        self.host: Host | None = None

    def __call__(self, turns: int) -> float:
        if self.host is None:
            self.host = Host(self.name, self.url, f"{self.mode[0]}-{self.name}", pinned=True)
            self.host.do("ready")
        try:
            return float(self.host.do(*self.mode, turns))
        except Failed:
            self.end()
            raise

    def end(self) -> None:
        if self.host is not None:
            self.host.end()
            self.host = None


class Cycles:
    """Candidates by the name that the table shows, ended together."""

    def __init__(self) -> None:
        self.candidates: dict[str, Candidate] = {}
        self.contenders: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for candidate in self.candidates.values():
            if isinstance(candidate, Hosted):
                candidate.end()

    def add(self, name: str, url: str, mode: str, *words: object, shown: str = "") -> None:
        shown = shown or contenders.load(name).NAME
        self.candidates[shown] = Hosted(name, url, mode, *words)
        self.contenders[shown] = name


class HandOff(NamedTuple):
    """What a run of hand-offs came to."""

    gaps: list[float]
    """Milliseconds from "release called" to the next holder's first step, in order."""

    in_order: float | None
    """The share of turns for which nobody waited that was queued, or had asked, before; None where
    nobody had a second turn, since the first are asked for all at once."""

    overlaps: int
    """How often somebody entered before the last one had called release."""

    turns: int
    """All of them, the start too."""

    commands: float | None = None
    """Sent to the store for each turn, if they were counted."""

    @property
    def median(self) -> float:
        return statistics.median(self.gaps)

    @property
    def high(self) -> float:
        """The 99th percentile."""
        return sorted(self.gaps)[int(len(self.gaps) * 0.99)]


class Crew(NamedTuple):
    """Who hands off: processes, the waiters in each, threads or tasks, seconds of work."""

    processes: int
    waiters: int
    mode: str = "threads"
    work: float = 0.001


def hand_off(
    name: str,
    store: Store,
    crew: Crew,
    seconds: float,
    *,
    key: str = "handoff",
    count: bool = False,
) -> HandOff:
    """Let a crew queue for one key for a while; every process is a new one."""
    with tempfile.TemporaryDirectory(prefix="jbench") as folder, ExitStack() as stack:
        file = Path(folder) / "turns"
        turns = Turns.create(file)
        hosts = [stack.enter_context(Host(name, store.url, key)) for _ in range(crew.processes)]
        for host in hosts:
            host.tell("warm", crew.mode)
        for host in hosts:
            host.answer()
        with store.counting() if count else nullcontext([]) as counted:
            for number, host in enumerate(hosts):
                host.tell(
                    *("handoff", file, number * crew.waiters, crew.waiters),
                    *(SETTLING + seconds, crew.work, crew.mode),
                )
            _let_finish(hosts, time.monotonic() + SETTLING + seconds + DRAIN)
        found = read_turns(turns.read())
        return found._replace(commands=counted[0] / found.turns) if counted else found


def _let_finish(hosts: Iterable[Host], until: float) -> None:
    """Turns are on record: who is still waiting when time is over is not waited for."""
    for host in hosts:
        try:
            host.answer(until - time.monotonic())
        except Failed as failure:
            if "no answer" not in str(failure):
                raise


def read_turns(turns: list[Turn]) -> HandOff:
    """Without the start, the end (when nobody queues again), and who follows itself."""
    begun = turns[0].entered + int(SETTLING * 1e9) if turns else 0
    settled = [turn for turn in turns if turn.entered >= begun]
    if len(settled) < 3:
        raise Failed(f"{len(settled)} turns taken")
    pairs = list(itertools.pairwise(settled))
    gaps = [
        (after.entered - before.released) / 1e6
        for before, after in pairs
        if before.who != after.who
    ]
    if not gaps:
        raise Failed("one waiter had all the turns")
    return HandOff(
        [gap for gap in gaps if gap >= 0] or [0.0],
        _in_order([turn for turn in settled if turn.asked >= begun]),
        sum(gap < 0 for gap in gaps),
        len(turns),
    )


def _in_order(turns: list[Turn]) -> float | None:
    """A turn is out of order if somebody came after it who was queued before it.

    Of who does not tell its place in the queue, that is taken from when it asked; and that of two
    who asked just now is not known.
    """
    kept = 0
    asked = arrived = NEVER
    for turn in reversed(turns):
        if turn.arrival:
            kept += arrived > turn.arrival
            arrived = min(arrived, turn.arrival)
        else:
            kept += asked + TIE >= turn.asked
        asked = min(asked, turn.asked)
    return kept / len(turns) if turns else None
