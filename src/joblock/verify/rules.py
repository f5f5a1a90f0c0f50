"""The promises about leases: who may have one beside whom, their tokens, and whose they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from itertools import combinations
from typing import NamedTuple

from joblock.store.ops import Acquire, Busy, Granted, Refresh, Release
from joblock.verify.history import Act, Fault, History, Seen, View
from joblock.verify.lives import Bounds, KeyStory, Life, forgotten, label

_HARMLESS = frozenset({"pause", "kill", "clock", "late"})
"""Faults that cut no connection."""


class Violation(NamedTuple):
    """A promise that was broken, and the piece of history that shows it."""

    promise: str
    key: str
    what: str
    pieces: tuple[Act | View | Fault, ...] = ()


def exclusion(story: KeyStory) -> Iterator[Violation]:
    """Each grant fits under the grantee's own limit beside the live leases."""
    spans = sorted(
        ((span, number) for number, life in enumerate(story.lives) for span in life.sure),
    )
    live: list[tuple[float, int]] = []
    for span, number in spans:
        while live and live[0][0] <= span.begin:
            heappop(live)
        heappush(live, (span.end, number))
        together = [story.lives[number] for _, number in live]
        if not _may_stand(together):
            crowd = _smallest(together)
            names = ", ".join(
                f"token {life.token} ({life.weight} of {life.limit})" for life in crowd
            )
            yield Violation(
                "exclusion",
                story.key,
                f"{len(crowd)} leases stood at once that do not fit beside each other: {names}",
                tuple(piece for life in crowd for piece in _proof(life, span.begin)),
            )
            return


def _may_stand(lives: list[Life]) -> bool:
    """Whether there is an order in which each came while it fitted beside those before it."""
    if len(lives) < 2:  # noqa: PLR2004 - one alone is in nobody's way
        return True
    if any(life.exclusive for life in lives):
        return False
    return sum(life.weight for life in lives) <= max(life.limit for life in lives)


def _smallest(lives: list[Life]) -> list[Life]:
    """The fewest of them that do not fit."""
    for size in range(2, len(lives)):
        for some in combinations(lives, size):
            if not _may_stand(list(some)):
                return list(some)
    return lives


def _proof(life: Life, at: float) -> list[Act]:
    """What shows that it stood then: its grant, and the last renewal before."""
    grants = [act for act in life.grants if act.returned <= at]
    renewals = [act for act in life.renewals if act.result and act.returned <= at]
    closing = [
        act
        for act in life.ends
        if isinstance(act.op, Release) and act.op.grace and act.returned <= at
    ]
    return [*grants[-1:], *renewals[-1:], *closing]


def tokens(story: KeyStory) -> Iterator[Violation]:
    """Each fresh lease has a token greater than every earlier one of its key."""
    owner: dict[int, Life] = {}
    for life in story.lives:
        if life.token in owner:
            other = owner[life.token]
            yield Violation(
                "tokens",
                story.key,
                f"two leases have token {life.token}",
                (other.first, life.first),
            )
            return
        owner[life.token] = life
    # While an exclusive lease stands no claim does, so there the confirmation counts as the draw.
    exclusive = [life for life in story.lives if life.exclusive]
    for lives, earliest in ((story.lives, story.drawn_after), (exclusive, story.asked_for)):
        violation = _not_growing(story, sorted(lives, key=earliest), earliest)
        if violation is not None:
            yield violation
            return


def _not_growing(
    story: KeyStory, lives: list[Life], earliest: Callable[[Life], float]
) -> Violation | None:
    """``lives`` come by the moment before which they did not begin."""
    begun = sorted(lives, key=lambda life: life.granted)
    greatest: Life | None = None
    at = 0
    for life in lives:
        while at < len(begun) and begun[at].granted < earliest(life):
            if greatest is None or begun[at].token > greatest.token:
                greatest = begun[at]
            at += 1
        if greatest is not None and life.token <= greatest.token and life is not greatest:
            return Violation(
                "tokens",
                story.key,
                f"token {life.token} was given after token {greatest.token}",
                (greatest.first, life.first),
            )
    return None


def ownership(story: KeyStory, history: History, bounds: Bounds) -> Iterator[Violation]:
    """A refresh or a release touches the caller's own live lease, and no other's."""
    crashes = [fault for fault in history.faults if fault.forgets]
    # A release that is sent again after its connection was cut counts as done if it is refused.
    plain = all(fault.kind in _HARMLESS for fault in history.faults)
    for life in story.lives:
        later = story.replaced_by(life)
        again = [act for act in life.grants if act.result.reentered]
        touching = [
            act
            for act in (*life.renewals, *life.ends, *again)
            if _was_done(act) and _by_token(act) and (plain or not isinstance(act.op, Release))
        ]
        for act in touching:
            if later is not None and act.invoked > later.granted:
                yield Violation(
                    "ownership",
                    story.key,
                    f"{_verb(act)} with token {life.token} was done after the key had been "
                    f"granted with token {later.token}",
                    (life.first, later.first, act),
                )
        yield from _revived(story, life, touching, crashes, bounds)
        yield from _denied(story, life)


def _was_done(act: Act) -> bool:
    return act.result is True or isinstance(act.result, Granted)


def _by_token(act: Act) -> bool:
    """Whether it names a lease by its token, so that it cannot be about another of its holder's."""
    op = act.op
    if isinstance(op, Release):
        return bool(op.token)
    if isinstance(op, Refresh):
        return bool(op.renewals[0].token)
    return isinstance(op, Acquire)


def _verb(act: Act) -> str:
    name = type(act.op).__name__
    return {"Acquire": "a re-entry", "Refresh": "a renewal", "Release": "a release"}.get(name, name)


def _revived(
    story: KeyStory, life: Life, touching: list[Act], crashes: list[Fault], bounds: Bounds
) -> Iterator[Violation]:
    ends = [act for act in life.ends if act.result is True and _by_token(act)]
    for end in ends:
        if forgotten(end, crashes, bounds):
            continue
        for act in touching:
            if act.invoked > end.returned and act is not end:
                yield Violation(
                    "ownership",
                    story.key,
                    f"{_verb(act)} with token {life.token} was done after its lease had ended",
                    (life.first, end, act),
                )


def _denied(story: KeyStory, life: Life) -> Iterator[Violation]:
    releases = [act for act in life.ends if isinstance(act.op, Release)]
    for act in (*life.renewals, *releases):
        if act.result is False and life.surely_ran(act.invoked, act.returned):
            yield Violation(
                "ownership",
                story.key,
                f"{_verb(act)} with token {life.token} was refused although its lease was live",
                (*_proof(life, act.invoked), act),
            )


def views(story: KeyStory, history: History) -> Iterator[Violation]:
    """``lease.held`` is never true after the store has given the key to another."""
    voids = [fault for fault in history.faults if fault.voids]
    for view in story.views:
        life = story.by_token.get((view.holder, view.token))
        later = None if life is None else story.replaced_by(life)
        if life is None or later is None or view.at <= later.granted:
            continue
        if any(life.first.invoked < fault.end and fault.begin < view.at for fault in voids):
            continue
        yield Violation(
            "held",
            story.key,
            f"lease.held was true with token {life.token} after the key had been granted with "
            f"token {later.token}",
            (*_proof(life, view.at), later.first, view),
        )


def lifetimes(story: KeyStory, history: History) -> Iterator[Violation]:
    """No lease outlives its ttl, or its release, without a confirmed renewal."""
    voids = [fault for fault in history.faults if fault.voids]
    for act in story.looks:
        for seen in act.result or ():
            life = story.by_token.get((seen.holder, seen.token))
            if life is not None and seen.state != "expired":
                yield from _outlived(story, life, act, _state(seen))
    for act in story.acquires:
        if isinstance(act.result, Busy) and act.result.why == "held":
            asked = story.asked.get(act.result.holder, [])
            lives = story.by_holder.get(act.result.holder, [])
            if lives and _is_through(asked, lives) and not _is_back(lives, act, voids):
                last = max(lives, key=lambda life: life.surely_ended)
                yield from _outlived(story, last, act, "in the way")


def _is_back(lives: list[Life], act: Act, voids: list[Fault]) -> bool:
    """Whether it may be a claim for a waiter that a fault has put back into the queue.

    Who takes over from a server may know that it waited, and not that it has had its turn.
    """
    known = {life.token for life in lives}
    return act.result.token not in known and any(
        fault.begin < act.invoked and any(life.first.invoked < fault.end for life in lives)
        for fault in voids
    )


def _is_through(asked: list[Act], lives: list[Life]) -> bool:
    """Whether nothing that a holder asked for can have brought it back after its last lease."""
    last = max(life.granted for life in lives)
    return all(
        isinstance(act.result, Granted) or (act.result is not None and act.returned < last)
        for act in asked
    )


def _state(seen: Seen) -> str:
    return "held" if seen.state == "held" else "in grace"


def _outlived(story: KeyStory, life: Life, act: Act, how: str) -> Iterator[Violation]:
    if act.invoked > life.surely_ended:
        last = [*life.grants, *(one for one in life.renewals if one.result is not False)]
        yield Violation(
            "lifetime",
            story.key,
            f"the lease of {label(life.holder)} with token {life.token} was {how} "
            f"{act.invoked - life.surely_ended:.3f} s after its end",
            (max(last, key=lambda one: one.invoked), *life.ends[:1], act),
        )
