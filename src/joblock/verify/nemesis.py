"""What goes wrong, and when: a schedule drawn from the seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

from joblock.verify.operations import LONGEST_TTL

FAULTS = {
    "pause": "a worker is stopped (SIGSTOP) for longer than any ttl, then continued",
    "kill": "a worker is killed (SIGKILL), and another started in its place",
    "clock": "a worker's wall clock is set an hour forward or back, and right again",
    "cut": "a worker's connections are cut",
    "reply": "a request is done, its answer is lost and the connection cut",
    "delay": "what a worker sends and gets is delayed",
    "hole": "what a worker sends and gets is held back, as by a network that drops everything",
}
"""The faults that need no control over the server."""

NETWORK = frozenset({"cut", "reply", "delay", "hole"})
"""Those that need the connections to go through a proxy."""

QUIET = 3.0
"""Seconds at the end without a new fault, for what is left to be put right."""


class ServerFault(NamedTuple):
    """A fault of the store's server: ``strike`` does it, and returns when it is over.

    ``voids``, ``forgets`` and ``delays`` are as in `joblock.verify.history.Fault`.
    """

    strike: Callable[[], None]
    voids: bool = False
    forgets: bool = False
    delays: float = 0.0


WorkerFault = Callable[[int], Callable[[], None]]
"""A fault between the store and one worker, told by its number: does it, returns what undoes it.

It lasts longer than any ttl, as a pause does.
"""


class Blow(NamedTuple):
    """One fault: when, which, to which worker, for how many seconds or how strong."""

    at: float
    kind: str
    worker: int
    seconds: float
    strength: float


def schedule(
    seed: int, seconds: float, workers: int, kinds: Sequence[str], server_kinds: Sequence[str] = ()
) -> list[Blow]:
    """Every blow there will be, none to a worker that still suffers from another."""
    rng = random.Random(f"{seed}/nemesis")
    blows: list[Blow] = []
    free = [0.0] * workers
    at = rng.uniform(0.5, 1.0)
    every = [*kinds, *server_kinds]
    while every and at < seconds - QUIET:
        # Faults of the server hit everybody, so they come less often.
        kind = rng.choices(every, [*(3 for _ in kinds), *(1 for _ in server_kinds)])[0]
        worker = rng.randrange(workers)
        lasts = _duration(rng, kind)
        strength = rng.choice((-3600.0, 3600.0)) if kind == "clock" else rng.uniform(0.02, 0.4)
        if free[worker] <= at:
            blows.append(Blow(at, kind, worker, lasts, strength))
            free[worker] = at + lasts + 0.3
        at += rng.uniform(0.2, 1.6)
    return blows


def _duration(rng: random.Random, kind: str) -> float:
    if kind == "pause" or kind not in FAULTS:
        return LONGEST_TTL * rng.uniform(1.1, 1.6)
    if kind in {"cut", "reply"}:
        return 0.1
    if kind == "kill":
        return rng.uniform(0.0, 1.0)
    return rng.uniform(0.5, 3.0)
