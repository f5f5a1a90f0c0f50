"""What workers do, drawn from the seed: the same seed, worker and lane do the same things."""

from __future__ import annotations

import random
from typing import NamedTuple

TTLS = (0.8, 1.2, 2.0)
"""Short, so that a pause outlasts them soon."""

LONGEST_TTL = max(TTLS)


class Task(NamedTuple):
    """One thing to do: with which lock, for how long, and how it is to end.

    ``wait`` is what the clients take: False, seconds, or True. ``cancel`` is after how many seconds
    the caller changes its mind (0: never), which only a task of asyncio can.
    """

    kind: str
    key: str
    ttl: float
    wait: float | bool
    hold: float
    limit: int = 1
    weight: int = 1
    shared: bool = False
    max_duration: float | None = None
    join: bool = False
    grace: float | None = None
    at_least: float | None = None
    fails: bool = False
    cancel: float = 0.0


def dice(seed: int, worker: int, life: int, lane: int) -> random.Random:
    """The source of all that one lane of one process does."""
    return random.Random(f"{seed}/{worker}/{life}/{lane}")


def draw(rng: random.Random) -> Task:
    """The next thing to do."""
    (make,) = rng.choices(list(_KINDS), weights=list(_KINDS.values()))
    return make(rng)


def _chance(rng: random.Random, part: float) -> bool:
    return rng.random() < part


def _basics(rng: random.Random) -> tuple[float, float | bool, float]:
    wait = rng.choice((False, 0.2, 1.0, 3.0, 6.0, True))
    # Mostly short, now and then so long that it takes renewals.
    hold = rng.uniform(0.5, 2.5) if _chance(rng, 0.03) else rng.uniform(0.001, 0.05)
    return rng.choice(TTLS), wait, hold


def _mutex(rng: random.Random) -> Task:
    cancel = rng.uniform(0.001, 0.3) if _chance(rng, 0.2) else 0.0
    return Task("lock", f"mutex-{rng.randrange(3)}", *_basics(rng), cancel=cancel)


def _permit(rng: random.Random) -> Task:
    return Task("lock", "permits", *_basics(rng), limit=3, weight=rng.choice((1, 1, 2, 3)))


def _book(rng: random.Random) -> Task:
    return Task("lock", "book", *_basics(rng), shared=_chance(rng, 0.7))


def _several(rng: random.Random) -> Task:
    return Task("several", "pair", *_basics(rng))


def _bounded(rng: random.Random) -> Task:
    hold = rng.choice((0.02, 0.05, 1.4))
    return Task("lock", "bounded", 0.8, rng.choice((False, 2.0)), hold, max_duration=1.0)


def _job(rng: random.Random) -> Task:
    ttl, _, hold = _basics(rng)
    fails = _chance(rng, 0.3)
    flavour = rng.randrange(4)
    if flavour == 0:
        return Task("job", "joined", ttl, 4.0, hold, join=True, fails=fails)
    if flavour == 1:
        wait = rng.choice((False, 3.0))
        return Task("job", "grace", ttl, wait, hold, grace=rng.uniform(0.05, 0.5), fails=fails)
    if flavour == 2:  # noqa: PLR2004 - the third of four
        return Task("job", "at-least", ttl, 3.0, hold, at_least=0.3, fails=fails)
    return Task("run", "run", ttl, wait=False, hold=hold, fails=fails)


def _raw(rng: random.Random) -> Task:
    # Beyond its ttl now and then: a refresh then succeeds only if nobody came.
    hold = rng.choice((0.01, 0.05, 1.0))
    return Task("raw", "raw", 0.8, wait=False, hold=hold)


def _look(rng: random.Random) -> Task:
    key = rng.choice(("mutex-0", "mutex-1", "permits", "book", "bounded", "joined"))
    return Task("look", key, 1.0, wait=False, hold=0.0)


def _data(rng: random.Random) -> Task:
    name = rng.choice(("fenced", "fenced", "unfenced"))
    return Task(name, name, 1.0, 4.0, rng.uniform(0.01, 0.1))


_KINDS = {
    _mutex: 30,
    _permit: 14,
    _book: 12,
    _several: 8,
    _bounded: 4,
    _job: 16,
    _raw: 6,
    _look: 8,
    _data: 12,
}

PAIR = ("pair-a", "pair-b")
"""The keys of a request for several."""

KEYS = (
    "mutex-0",
    "mutex-1",
    "mutex-2",
    "permits",
    "book",
    *PAIR,
    "bounded",
    "joined",
    "grace",
    "at-least",
    "run",
    "raw",
    "fenced",
    "unfenced",
)
"""All the keys there are."""
