"""What happened, as the processes that did it wrote it down: one JSON object a line.

Each line is one `os.write` to a file that is open for appending, so a process that is killed loses
no line that it has written, and lines of many processes never mix. A request is two lines, one
before it is sent and one when its answer is there; so a request of which only the first is found
may have been done or not. All times are seconds on the machine's boot clock, which all its
processes share.
"""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any, NamedTuple

from joblock.store import ops
from joblock.store.ops import (
    Acquire,
    Force,
    Holders,
    KeyState,
    Leave,
    Queueing,
    Refresh,
    Release,
    Renewal,
    Strike,
    Waiters,
)
from joblock.values.clock import SYSTEM_CLOCK

NEVER = float("inf")
now = SYSTEM_CLOCK.monotonic


class Seen(NamedTuple):
    """One lease as a reader saw it."""

    holder: str
    token: int
    state: str


class SeenWaiting(NamedTuple):
    """One waiter as a reader saw it."""

    holder: str
    arrival: int
    live: bool


class Act:
    """One operation on one key: when it was sent, when its answer came, and what that was.

    A batch is one act for each of its keys. ``result`` is None while nobody knows: there was no
    answer, or it was an error.
    """

    __slots__ = ("error", "invoked", "op", "result", "returned", "worker")

    def __init__(self, worker: str, op: Any, invoked: float) -> None:
        self.worker = worker
        self.op = op
        self.invoked = invoked
        self.returned = NEVER
        self.result: Any = None
        self.error = ""


class Checking(NamedTuple):
    """A client's report on one key; part of a `Check`."""

    key: str
    client: str


class View(NamedTuple):
    """A holder looked at its lease at that moment or after, and it was held."""

    worker: str
    key: str
    holder: str
    token: int
    at: float


class Fault(NamedTuple):
    """What the nemesis did, to a worker or (no worker named) to the store, and for how long.

    ``voids``: leases and queues that were there may be gone. ``forgets``: a release that was
    answered shortly before may be undone. ``delays``: what was there may lapse so many seconds
    later.
    """

    kind: str
    worker: str
    begin: float
    end: float
    voids: bool = False
    forgets: bool = False
    delays: float = 0.0


class Crash(NamedTuple):
    """An exception of a worker that nobody expected."""

    worker: str
    at: float
    text: str


class Wrote(NamedTuple):
    """An update of the protected data that was confirmed."""

    worker: str
    name: str
    token: int
    at: float


class History:
    """All that happened, in the order of the file."""

    def __init__(self) -> None:
        self.acts: list[Act] = []
        self.views: list[View] = []
        self.faults: list[Fault] = []
        self.crashes: list[Crash] = []
        self.wrote: list[Wrote] = []
        self.begin = NEVER
        self.end = 0.0
        self.torn = 0

    def killed_at(self, worker: str) -> float:
        """By when that process was dead, or never."""
        return min(
            (one.end for one in self.faults if one.worker == worker and one.kind == "kill"),
            default=NEVER,
        )


class Recorder:
    """Appends events to a history file, from any thread."""

    def __init__(self, path: str, worker: str) -> None:
        self.worker = worker
        self._write = os.write
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._lock = threading.Lock()
        self._count = 0

    def call(self, op: Any) -> int:
        """An operation is about to be sent; its number."""
        with self._lock:
            self._count += 1
            number = self._count
        self.put("call", n=number, op=type(op).__name__, a=op)
        return number

    def reply(self, number: int, reply: Any) -> None:
        """Its answer has come."""
        kind = type(reply).__name__
        self.put("reply", n=number, kind=kind, a=_plain(reply) if kind == "tuple" else reply)

    def failed(self, number: int, error: BaseException) -> None:
        """There is none: whether it was done, nobody knows."""
        self.put("failed", n=number, what=type(error).__name__)

    def put(self, event: str, at: float | None = None, **facts: Any) -> None:
        """One line."""
        t = now() if at is None else at
        line = json.dumps(
            {"t": round(t, 7), "w": self.worker, "e": event, **facts}, separators=(",", ":")
        )
        self._write(self._fd, line.encode() + b"\n")

    def close(self) -> None:
        """Nothing more is to be written."""
        os.close(self._fd)


def _plain(records: Any) -> list[Any]:
    """A reader's records without their moments, which nobody checks."""
    return [
        [one.holder, one.token, one.state]
        if hasattr(one, "state")
        else [one.holder, one.arrival, one.live]
        for one in records
    ]


def read_history(path: str | Path) -> History:
    """The history in a file; a line that was cut off by a full disk, say, is only counted."""
    reading = _Reading()
    with Path(path).open("rb") as lines:
        for line in lines:
            try:
                event = json.loads(line)
            except ValueError:
                reading.history.torn += 1
            else:
                reading.take(event)
    return reading.history


class _Reading:
    def __init__(self) -> None:
        self.history = History()
        self._open: dict[tuple[str, int], tuple[str, list[Act]]] = {}

    def take(self, event: dict[str, Any]) -> None:
        history, worker, at = self.history, event["w"], event["t"]
        history.begin = min(history.begin, at)
        history.end = max(history.end, at)
        kind = event["e"]
        if kind == "call":
            acts = [Act(worker, op, at) for op in _operations(event["op"], event["a"])]
            history.acts += acts
            self._open[worker, event["n"]] = event["op"], acts
        elif kind == "reply":
            name, acts = self._open.pop((worker, event["n"]))
            for act, result in zip(acts, _results(name, event), strict=True):
                act.returned, act.result = at, result
        elif kind == "failed":
            for act in self._open.pop((worker, event["n"]))[1]:
                act.returned, act.error = at, event["what"]
        else:
            self._take_other(kind, worker, at, event)

    def _take_other(self, kind: str, worker: str, at: float, event: dict[str, Any]) -> None:
        history = self.history
        if kind == "view":
            view = View(worker, event["key"], event["holder"], event["token"], at)
            history.views.append(view)
        elif kind == "fault":
            history.faults.append(
                Fault(
                    event["kind"],
                    event["on"],
                    at,
                    event["end"],
                    event.get("voids", False),
                    event.get("forgets", False),
                    event.get("delays", 0.0),
                )
            )
        elif kind == "crash":
            history.crashes.append(Crash(worker, at, event["text"]))
        elif kind == "wrote":
            history.wrote.append(Wrote(worker, event["name"], event["token"], at))


def _operations(name: str, fields: list[Any]) -> list[Any]:
    """The operations on single keys that a recorded one stands for."""
    if name == "Acquire":
        op = Acquire(*fields)
        return [op if op.queue is None else op._replace(queue=Queueing(*op.queue))]
    if name == "Refresh":
        return [Refresh((Renewal(*one),), fields[1]) for one in fields[0]]
    if name == "Check":
        return [Checking(key, fields[0]) for key in fields[1]]
    kind = {
        "Release": Release,
        "Leave": Leave,
        "Strike": Strike,
        "Force": Force,
        "Holders": Holders,
        "Waiters": Waiters,
    }.get(name)
    return [] if kind is None else [kind(*fields)]


def _results(name: str, event: dict[str, Any]) -> list[Any]:
    fields = event["a"]
    if name == "Acquire":
        return [getattr(ops, event["kind"])(*fields)]
    if name == "Refresh":
        return fields[0]
    if name == "Check":
        return [KeyState(one[0], one[1], tuple(one[2]), *one[3:]) for one in fields[0]]
    if name in {"Release", "Leave", "Strike"}:
        return [fields[0]]
    if name == "Force":
        return [True]
    if name == "Holders":
        return [tuple(Seen(*one) for one in fields)]
    if name == "Waiters":
        return [tuple(SeenWaiting(*one) for one in fields)]
    return []
