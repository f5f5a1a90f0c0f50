"""The promises about waiting: first come, first served, and nobody sleeps before a free key."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from joblock.store.ops import CLAIM_MS, Busy, Leave
from joblock.verify.history import NEVER, Act, History
from joblock.verify.lives import Bounds, KeyStory, Life, Span, done_by, label
from joblock.verify.rules import Violation

SLACK = 0.05
"""Seconds by which a claim may be seen to outlast its time."""


class Sitting(NamedTuple):
    """One stretch in which a waiter slept: from the answer that queued it to what it did next.

    ``told`` is when its client learned that the run which it had joined has ended well: after that
    it asks for nothing any more.
    """

    queued: Act
    next: Act | None
    told: float

    @property
    def begin(self) -> float:
        """It surely waited from then on."""
        return self.queued.returned

    @property
    def end(self) -> float:
        """It surely waited until then."""
        return self.told if self.next is None else min(self.told, self.next.invoked)


def sittings(story: KeyStory) -> list[Sitting]:
    """All such stretches."""
    found: list[Sitting] = []
    checks = _checks_by_client(story)
    leaving: dict[str, list[Act]] = {}
    for act in story.ends:
        if isinstance(act.op, Leave):
            leaving.setdefault(act.op.holder, []).append(act)
    for holder, asked in story.asked.items():
        steps = sorted([*asked, *leaving.get(holder, ())], key=lambda act: act.invoked)
        for number, act in enumerate(steps):
            if isinstance(act.result, Busy) and act.result.arrival:
                following = steps[number + 1] if number + 1 < len(steps) else None
                told = _joined_at(act, checks.get(act.op.queue.client, []))
                found.append(Sitting(act, following, told))
    return found


def _joined_at(queued: Act, checks: list[Act]) -> float:
    if queued.op.queue.join is None:
        return NEVER
    run = queued.op.queue.join or queued.result.token
    return next(
        (act.returned for act in _after(checks, queued.invoked) if act.result.ok_token >= run),
        NEVER,
    )


class Stretch(NamedTuple):
    """A time in which a waiter surely kept its place and was not handed the key, and the proof."""

    begin: float
    end: float
    sitting: Sitting
    proof: Act


def order(story: KeyStory, history: History) -> Iterator[Violation]:
    """Nobody is granted the key before a live waiter that came earlier."""
    drawn = sorted(story.lives, key=story.drawn_after)
    begins = [story.drawn_after(life) for life in drawn]
    voids = [fault for fault in history.faults if fault.voids]
    for stretch in _stretches(story):
        if any(void.begin < stretch.end and stretch.begin < void.end for void in voids):
            continue
        came = _came(story, stretch.sitting)
        for number in range(bisect_left(begins, stretch.begin), len(drawn)):
            life = drawn[number]
            if begins[number] > stretch.end:
                break
            if life.granted < stretch.end and _is_later(story, life, stretch.sitting, came):
                waiter = stretch.sitting.queued
                yield Violation(
                    "order",
                    story.key,
                    f"token {life.token} was granted before {label(waiter.op.holder)}, "
                    "who came earlier and waited all the time",
                    (came, waiter, life.first, stretch.proof),
                )
                return


def _came(story: KeyStory, sitting: Sitting) -> Act:
    """The answer that first gave the waiter the number which it has now."""
    asked = story.asked[sitting.queued.op.holder]
    number = sitting.queued.result.arrival
    same = [act for act in asked if isinstance(act.result, Busy) and act.result.arrival == number]
    return min(same, key=lambda act: act.returned)


def _is_later(story: KeyStory, life: Life, sitting: Sitting, came: Act) -> bool:
    """Whether the lease is somebody's who came after the waiter."""
    waiter = sitting.queued
    if life.holder == waiter.op.holder:
        return False
    asked = story.asked[life.holder]
    if asked[0].invoked > came.returned:
        return True
    numbers = [act.result.arrival for act in asked if isinstance(act.result, Busy)]
    return bool(numbers) and 0 not in numbers and numbers[-1] > waiter.result.arrival


def _stretches(story: KeyStory) -> Iterator[Stretch]:
    """What is known of places in line.

    A waiter loses its place only by not confirming a claim or by not reporting, and either begins
    a new epoch of its client's presence. Without an epoch at hand: whoever is seen in line, and
    was not struck from it, has lost nothing that anybody has found; and a claim is seen as a lease
    for as long as it lasts, so looks that come fast enough one after the other would show it.
    """
    checks = _checks_by_client(story)
    looks = _looks_by_waiter(story)
    for sitting in sittings(story):
        waiter, following = sitting.queued, sitting.next
        if following is not None and isinstance(following.result, Busy):
            busy = following.result
            if (busy.epoch, busy.arrival) == (waiter.result.epoch, waiter.result.arrival):
                yield Stretch(sitting.begin, following.invoked, sitting, following)
        yield from _known_by_checks(sitting, checks.get(waiter.op.queue.client, []))
        seen = looks.get((waiter.op.holder, waiter.result.arrival), [])
        yield from _known_by_looks(sitting, seen)


def _known_by_checks(sitting: Sitting, checks: list[Act]) -> Iterator[Stretch]:
    waiter = sitting.queued
    for act in _after(checks, sitting.begin):
        if act.invoked >= sitting.end:
            return
        state = act.result
        kept = state.epoch == waiter.result.epoch and waiter.op.holder not in state.claimed
        if act.returned < sitting.end and kept:
            yield Stretch(sitting.begin, act.invoked, sitting, act)


def _known_by_looks(sitting: Sitting, looks: list[tuple[Act, Act]]) -> Iterator[Stretch]:
    claim = min(CLAIM_MS, sitting.queued.op.ttl) / 1000 * 0.98
    base = sitting.begin
    for line, look in looks:
        if sitting.begin < line.invoked and look.returned < sitting.end:
            if look.returned < base + claim:
                yield Stretch(base, line.invoked, sitting, line)
            base = look.invoked


def _checks_by_client(story: KeyStory) -> dict[str, list[Act]]:
    found: dict[str, list[Act]] = {}
    for act in story.checks:
        if act.result is not None:
            found.setdefault(act.op.client, []).append(act)
    for acts in found.values():
        acts.sort(key=_invoked)
    return found


def _invoked(act: Act) -> float:
    return act.invoked


def _after(acts: list[Act], at: float) -> list[Act]:
    """Those of them, in order, that were sent after that."""
    return acts[bisect_right(acts, at, key=_invoked) :]


def _looks_by_waiter(story: KeyStory) -> dict[tuple[str, int], list[tuple[Act, Act]]]:
    """By holder and arrival number: the looks at line and leases that found it live, unclaimed."""
    found: dict[tuple[str, int], list[tuple[Act, Act]]] = {}
    looks: dict[str, list[Act]] = {}
    for act in story.looks:
        looks.setdefault(act.worker, []).append(act)
    starts = {worker: [act.invoked for act in acts] for worker, acts in looks.items()}
    for line in story.queues:
        if not line.result or line.worker not in looks:
            continue
        number = bisect_left(starts[line.worker], line.returned)
        if number == len(starts[line.worker]):
            continue
        look = looks[line.worker][number]
        if look.result is None or look.invoked > line.returned + SLACK:
            continue
        holders = {seen.holder for seen in look.result}
        for one in line.result:
            if one.live and one.holder not in holders:
                found.setdefault((one.holder, one.arrival), []).append((line, look))
    return found


def liveness(story: KeyStory, history: History, bounds: Bounds) -> Iterator[Violation]:
    """No live waiter is left sleeping while the key is free."""
    taken = _merged_spans(_maybe_taken(story, history, bounds))
    every = _merged_spans(Span(fault.begin, fault.end + bounds.settle) for fault in history.faults)
    own = _Disturbances(history)
    for sitting in sittings(story):
        worker = sitting.queued.worker
        asleep = Span(sitting.begin, min(sitting.end, history.end, own.killed(worker)))
        for disturbed, bound in ((every, bounds.stall), (own.of(worker), bounds.stall_after)):
            if asleep.end - asleep.begin <= bound:
                continue
            free = _longest_free(asleep, taken, disturbed)
            if free.end - free.begin > bound:
                yield Violation(
                    "liveness",
                    story.key,
                    f"{label(sitting.queued.op.holder)} slept for {free.end - free.begin:.1f} s "
                    f"before a free key",
                    (sitting.queued, *_last_before(story, free.begin), *_following(sitting)),
                )
                return


class _Disturbances:
    """What each worker suffered itself, or all of them with the store."""

    def __init__(self, history: History) -> None:
        self._faults = history.faults
        self._spans: dict[str, list[Span]] = {}
        self._killed: dict[str, float] = {}
        for fault in history.faults:
            if fault.kind == "kill":
                before = self._killed.get(fault.worker, NEVER)
                self._killed[fault.worker] = min(before, fault.begin)

    def killed(self, worker: str) -> float:
        """When it was, or never."""
        return self._killed.get(worker, NEVER)

    def of(self, worker: str) -> list[Span]:
        """When it had an excuse."""
        if worker not in self._spans:
            self._spans[worker] = _merged_spans(
                Span(fault.begin, fault.end)
                for fault in self._faults
                if fault.worker in {"", worker}
            )
        return self._spans[worker]


def _following(sitting: Sitting) -> tuple[Act, ...]:
    return () if sitting.next is None else (sitting.next,)


def _last_before(story: KeyStory, at: float) -> tuple[Act, ...]:
    ends = [act for act in story.ends if act.returned <= at and act.result is True]
    return (max(ends, key=lambda act: act.returned),) if ends else ()


def _maybe_taken(story: KeyStory, history: History, bounds: Bounds) -> Iterator[Span]:
    for life in story.lives:
        # Handed over as a claim, it was that for a second at most before it was confirmed.
        begin = max(story.drawn_after(life), story.asked_for(life) - CLAIM_MS / 1000 - SLACK)
        yield Span(begin, life.surely_ended)
    for act in story.acquires:
        if act.result is None:
            at_most = max(act.op.ttl, act.op.at_least) / 1000 * (1 + bounds.drift)
            yield Span(act.invoked, done_by(act, history, bounds) + at_most)


def _merged_spans(spans: Iterable[Span]) -> list[Span]:
    merged: list[Span] = []
    for span in sorted(spans):
        if merged and span.begin <= merged[-1].end:
            merged[-1] = Span(merged[-1].begin, max(merged[-1].end, span.end))
        else:
            merged.append(span)
    return merged


def _longest_free(within: Span, taken: list[Span], disturbed: list[Span]) -> Span:
    """The longest stretch in it that nothing fills."""
    busy = [*_within(taken, within), *_within(disturbed, within)]
    best = Span(within.begin, within.begin)
    at = within.begin
    for span in sorted(busy):
        if span.begin - at > best.end - best.begin:
            best = Span(at, span.begin)
        at = max(at, span.end)
    if within.end - at > best.end - best.begin:
        best = Span(at, within.end)
    return best


def _within(spans: list[Span], within: Span) -> list[Span]:
    first = bisect_left(spans, within.begin, key=lambda span: span.end)
    last = bisect_left(spans, within.end, key=lambda span: span.begin)
    return spans[first:last]
