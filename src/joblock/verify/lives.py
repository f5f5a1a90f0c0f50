"""What the history says of each lease: when it surely was there, and until when it may have been.

A request is done at some moment between its sending and its answer, and nobody knows which. So
there are two sides to everything: a lease *surely* stands from the answer to its grant until its
ttl, counted from the sending, is over or somebody sends what ends it; and it *may* stand from the
sending of the first request for it until the last moment that any answer, or the lack of one,
leaves open. A breach of a promise is reported only if it is one whatever those moments were.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, NamedTuple

from joblock.store.ops import (
    Acquire,
    Busy,
    Force,
    Granted,
    Holders,
    Leave,
    Refresh,
    Release,
    Strike,
    Waiters,
)
from joblock.verify.history import NEVER, Act, Checking, Fault, History, View

SHOWN = 18
"""So long a name is shown whole."""


class Bounds(NamedTuple):
    """How far apart clocks may run, and how long things may take, in seconds.

    ``drift`` is the part by which two clocks differ. ``late``: so long after its sender has given
    it up, a request may still arrive. ``forgotten``: a release so shortly before a crash of the
    store may be undone by it. ``stall``: so long a waiter may sleep before a free key while there
    is no fault and ``settle`` after the last; ``stall_after``: while others have faults.
    """

    drift: float = 0.01
    late: float = 8.0
    forgotten: float = 3.0
    stall: float = 4.0
    settle: float = 5.0
    stall_after: float = 12.0


class Span(NamedTuple):
    """From when until when."""

    begin: float
    end: float


class Life:
    """One lease, by all that was asked and answered about it."""

    __slots__ = (
        "ends",
        "grants",
        "holder",
        "key",
        "renewals",
        "running",
        "sure",
        "surely_ended",
        "token",
    )

    def __init__(self, key: str, holder: str, token: int) -> None:
        self.key = key
        self.holder = holder
        self.token = token
        self.grants: list[Act] = []
        self.renewals: list[Act] = []
        self.ends: list[Act] = []
        self.sure: list[Span] = []
        self.running: list[Span] = []
        self.surely_ended = NEVER

    @property
    def first(self) -> Act:
        """The request that was the first to be answered with it."""
        return self.grants[0]

    @property
    def granted(self) -> float:
        """By then it was granted."""
        return self.first.returned

    @property
    def weight(self) -> int:
        """How much of its limit it takes."""
        return self.first.op.weight

    @property
    def limit(self) -> int:
        """The capacity that it was granted under."""
        return self.first.op.limit

    @property
    def exclusive(self) -> bool:
        """Whether it takes the whole key."""
        return self.weight >= self.limit

    def excludes(self, other: Life) -> bool:
        """Whether the two can never stand side by side."""
        return self.exclusive or other.exclusive

    def surely_ran(self, begin: float, end: float) -> bool:
        """Whether it was surely held all that time, and not just kept its place."""
        return any(span.begin <= begin and end < span.end for span in self.running)


class KeyStory:
    """All that happened to one key."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.acquires: list[Act] = []
        self.refreshes: list[Act] = []
        self.ends: list[Act] = []
        self.checks: list[Act] = []
        self.looks: list[Act] = []
        self.queues: list[Act] = []
        self.views: list[View] = []
        self.asked: dict[str, list[Act]] = defaultdict(list)
        self.lives: list[Life] = []
        self.by_token: dict[tuple[str, int], Life] = {}
        self.by_holder: dict[str, list[Life]] = defaultdict(list)
        self._replacing: dict[int, Life] | None = None

    def replaced_by(self, life: Life) -> Life | None:
        """The lease beside which it cannot stand whose grant was answered first, if any was.

        From that answer on the store has surely taken the key from it.
        """
        if self._replacing is None:
            self._replacing = _replacing(self.lives)
        return self._replacing.get(id(life))

    def asked_for(self, life: Life) -> float:
        """Not before that was the lease granted (or its claim confirmed)."""
        first = life.first
        return first.invoked if not first.result.reentered else self.first_asked(life)

    def first_asked(self, life: Life) -> float:
        """When its holder asked for the key at all."""
        return self.asked[life.holder][0].invoked

    def drawn_after(self, life: Life) -> float:
        """Not before that was its token drawn: a claim's is, before it is confirmed."""
        asked = self.asked[life.holder]
        busy = [act.invoked for act in asked if act.returned <= life.granted and _queued(act)]
        return busy[-1] if busy else asked[0].invoked


def _replacing(lives: list[Life]) -> dict[int, Life]:
    found: dict[int, Life] = {}
    any_one: Life | None = None
    exclusive: Life | None = None
    for life in sorted(lives, key=lambda life: -life.token):
        later = any_one if life.exclusive else exclusive
        if later is not None:
            found[id(life)] = later
        if any_one is None or life.granted < any_one.granted:
            any_one = life
        if life.exclusive and (exclusive is None or life.granted < exclusive.granted):
            exclusive = life
    return found


def _queued(act: Act) -> bool:
    return isinstance(act.result, Busy)


def stories(history: History, bounds: Bounds) -> list[KeyStory]:
    """The history by key, with the leases that it tells of."""
    told: dict[str, KeyStory] = {}
    for act in history.acts:
        key = act.op.renewals[0].key if isinstance(act.op, Refresh) else act.op.key
        story = told.get(key)
        if story is None:
            story = told[key] = KeyStory(key)
        _sort_in(story, act)
    for view in history.views:
        if view.key in told:
            told[view.key].views.append(view)
    voids = [fault for fault in history.faults if fault.voids]
    crashes = [fault for fault in history.faults if fault.forgets]
    for story in told.values():
        _find_lives(story)
        for life in story.lives:
            _measure(life, voids, bounds)
            life.surely_ended = _surely_ended(life, history, crashes, bounds)
    return list(told.values())


def _sort_in(story: KeyStory, act: Act) -> None:
    op = act.op
    if isinstance(op, Acquire):
        story.acquires.append(act)
        story.asked[op.holder].append(act)
    elif isinstance(op, Refresh):
        story.refreshes.append(act)
    elif isinstance(op, Release | Leave | Strike | Force):
        story.ends.append(act)
    elif isinstance(op, Checking):
        story.checks.append(act)
    elif isinstance(op, Holders):
        story.looks.append(act)
    elif isinstance(op, Waiters):
        story.queues.append(act)


def _find_lives(story: KeyStory) -> None:
    for act in sorted(story.acquires, key=lambda act: act.returned):
        if isinstance(act.result, Granted):
            name = act.op.holder, act.result.token
            life = story.by_token.get(name)
            if life is None:
                life = story.by_token[name] = Life(story.key, *name)
                story.lives.append(life)
                story.by_holder[life.holder].append(life)
            life.grants.append(act)
    for act in story.refreshes:
        renewal = act.op.renewals[0]
        life = _meant(story, renewal.holder, renewal.token, act)
        if life is not None:
            life.renewals.append(act)
    for act in story.ends:
        for life in _ended_by(story, act):
            life.ends.append(act)


def _meant(story: KeyStory, holder: str, token: int, act: Act) -> Life | None:
    """The lease that a request is about; without a token the last one that its sender knew."""
    if token:
        return story.by_token.get((holder, token))
    known = [life for life in story.by_holder.get(holder, ()) if life.granted <= act.invoked]
    return known[-1] if known else None


def _ended_by(story: KeyStory, act: Act) -> list[Life]:
    op = act.op
    if isinstance(op, Force):
        return story.lives
    if isinstance(op, Release) and op.token:
        life = story.by_token.get((op.holder, op.token))
        return [] if life is None else [life]
    return story.by_holder.get(op.holder, [])


def _measure(life: Life, voids: list[Fault], bounds: Bounds) -> None:
    """Find when it surely ran, and when it surely was in the way of others."""
    part = 1 - bounds.drift
    spans: list[Span] = []
    for act, ttl in _extensions(life):
        if act.result is not None and act.result is not False:
            end = act.invoked + ttl * part
            for other, shorter in _extensions(life):
                # It may have been done after this one, and brought the end forward.
                if other is not act and _shortens(other) and act.invoked < other.returned:
                    end = min(end, other.invoked + shorter * part)
            spans.append(Span(act.returned, _unless_void(act, end, voids)))
    ended = min((act.invoked for act in life.ends if act.result is not False), default=NEVER)
    closed = _closed_spans(life, part, spans, voids)
    running = [Span(span.begin, min(span.end, ended)) for span in spans]
    life.running = _merged(running)
    life.sure = _merged([*closed, *running])


def _unless_void(act: Act, end: float, voids: list[Fault]) -> float:
    """Until when what it gave surely lasts: a fault that came after it may have ended that."""
    return min([end, *(fault.begin for fault in voids if act.invoked < fault.end)])


def _closed_spans(life: Life, part: float, live: list[Span], voids: list[Fault]) -> list[Span]:
    """While it keeps its place although its run has ended: grace, and ``at_least``.

    Only if it was live throughout: a release that was sent twice and refused counts as done.
    """
    dropped = min(
        (
            act.invoked
            for act in life.ends
            if not isinstance(act.op, Release) and act.result is not False
        ),
        default=NEVER,
    )
    spans = [
        Span(
            act.returned,
            _unless_void(act, act.invoked + act.op.at_least / 1000 * part, voids),
        )
        for act in life.grants
        if act.op.at_least and not act.result.reentered
    ]
    spans += [
        Span(act.returned, _unless_void(act, act.invoked + act.op.grace / 1000 * part, voids))
        for act in life.ends
        if isinstance(act.op, Release)
        and act.op.grace
        and act.result is True
        and any(span.begin <= act.invoked and act.returned < span.end for span in live)
    ]
    return [Span(begin, min(end, dropped)) for begin, end in spans]


def _extensions(life: Life) -> list[tuple[Act, float]]:
    """What gave it time, and how many seconds."""
    return [
        *((act, act.op.ttl / 1000) for act in life.grants),
        *((act, act.op.renewals[0].ttl / 1000) for act in life.renewals),
    ]


def _shortens(act: Act) -> bool:
    return act.result is not False and not act.op.extend_only


def _merged(spans: list[Span]) -> list[Span]:
    merged: list[Span] = []
    for span in sorted(span for span in spans if span.begin < span.end):
        if merged and span.begin <= merged[-1].end:
            last = merged.pop()
            span = Span(last.begin, max(last.end, span.end))  # noqa: PLW2901 - one longer span
        merged.append(span)
    return merged


def _surely_ended(life: Life, history: History, crashes: list[Fault], bounds: Bounds) -> float:
    """From then on nothing of it can be in anybody's way, not even by a late request."""
    part = 1 + bounds.drift

    def latest(act: Act, seconds: float) -> float:
        end = done_by(act, history, bounds) + seconds * part + 0.01
        return _delayed(act, end, history.faults)

    end = max(latest(act, ttl) for act, ttl in _extensions(life) if act.result is not False)
    closed = max((latest(act, act.op.at_least / 1000) for act in life.grants), default=0.0)
    for act in life.ends:
        if act.result is True and not forgotten(act, crashes, bounds):
            end = min(end, act.returned)
            if not isinstance(act.op, Release):
                closed = 0.0
    for act in life.ends:
        if isinstance(act.op, Release) and act.op.grace and act.result is not False:
            closed = max(closed, latest(act, act.op.grace / 1000))
    return max(end, closed)


def _delayed(act: Act, end: float, faults: list[Fault]) -> float:
    """When what it gave lapses at the latest, if faults since then have put that off.

    What lapsed just before such a fault, and was not taken by anybody, stands again.
    """
    for fault in faults:
        if fault.delays and act.invoked < fault.end and fault.begin < end + fault.delays:
            end += fault.delays
    return end


def done_by(act: Act, history: History, bounds: Bounds) -> float:
    """By then a request was done, or never will be."""
    if act.result is not None:
        return act.returned
    return min(act.returned, history.killed_at(act.worker)) + bounds.late


def forgotten(act: Act, crashes: list[Fault], bounds: Bounds) -> bool:
    """Whether a crash of the store may have undone it."""
    return any(fault.begin - bounds.forgotten <= act.returned <= fault.end for fault in crashes)


def label(value: Any) -> str:
    """A name short enough to read: the end of a holder's, which is what differs."""
    text = str(value)
    return text if len(text) <= SHOWN else f"...{text[-12:]}"
