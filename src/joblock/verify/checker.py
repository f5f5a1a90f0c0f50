"""The checker: from a history to every breach of a promise that it definitely shows."""

from __future__ import annotations

from typing import Any

from joblock.store.ops import Refresh
from joblock.verify.history import NEVER, Act, Checking, Fault, History, View
from joblock.verify.lives import Bounds, label, stories
from joblock.verify.rules import Violation, exclusion, lifetimes, ownership, tokens, views
from joblock.verify.waits import liveness, order

MOST = 5
"""So many violations of one promise on one key are told; the others are of the same making."""

PROMISES = {
    "exclusion": "each grant fits beside the live leases, grace included",
    "tokens": "each fresh lease has a greater token than every earlier one of its key",
    "ownership": "a renewal or a release touches the caller's own live lease and no other's",
    "held": "lease.held is never true after the store gave the key to another",
    "lifetime": "no lease outlives its ttl or its release",
    "order": "first come, first served, among live waiters",
    "liveness": "no waiter is left sleeping before a free key",
    "fence": "no update of fenced data is lost",
    "errors": "nothing is raised that is not announced",
}
"""What is checked, by the name it has in a report."""


def check(history: History, bounds: Bounds | None = None) -> list[Violation]:
    """Every definite violation in the history, a few of each kind and key."""
    bounds = bounds or Bounds()
    found: list[Violation] = []
    for story in stories(history, bounds):
        for rule in (
            exclusion(story),
            tokens(story),
            ownership(story, history, bounds),
            views(story, history),
            lifetimes(story, history),
            order(story, history),
            liveness(story, history, bounds),
        ):
            found += [violation for violation, _ in zip(rule, range(MOST), strict=False)]
    found += [
        Violation("errors", "", f"worker {crash.worker} met an unexpected error:\n{crash.text}")
        for crash in history.crashes[:MOST]
    ]
    return found


def explain(violation: Violation, history: History) -> str:
    """A violation as a person reads it: the promise, what happened, and the events that show it."""
    lines = [f"{violation.promise}: {violation.what}"]
    if violation.key:
        lines[0] += f"  [key {violation.key.rpartition(':')[2]!r}]"
    lines.append(f"  promised: {PROMISES[violation.promise]}")
    pieces = list(dict.fromkeys(violation.pieces))
    pieces.sort(key=_moment)
    lines += [f"  {describe(piece, history.begin)}" for piece in pieces]
    return "\n".join(lines)


def _moment(piece: Act | View | Fault) -> float:
    if isinstance(piece, Act):
        return piece.invoked
    return piece.at if isinstance(piece, View) else piece.begin


def describe(piece: Act | View | Fault, begin: float) -> str:
    """One event on one line, with its time since the beginning."""
    if isinstance(piece, View):
        return (
            f"{piece.at - begin:10.4f}            worker {piece.worker}: lease.held is true, "
            f"token {piece.token}, holder {label(piece.holder)}"
        )
    if isinstance(piece, Fault):
        return f"{piece.begin - begin:10.4f}..{piece.end - begin:<9.4f} {piece.kind} {piece.worker}"
    end = f"{piece.returned - begin:<9.4f}" if piece.returned != NEVER else "?        "
    answer = _answer(piece)
    return (
        f"{piece.invoked - begin:10.4f}..{end} worker {piece.worker}: {_asked(piece)} -> {answer}"
    )


def _asked(act: Act) -> str:
    op: Any = act.op
    if isinstance(op, Refresh):
        one = op.renewals[0]
        return f"renew token {one.token} of {label(one.holder)} for {one.ttl} ms"
    if isinstance(op, Checking):
        return f"check by client {label(op.client)}"
    name = type(op).__name__.lower()
    parts = [name]
    if hasattr(op, "holder"):
        parts.append(f"by {label(op.holder)}")
    if name == "acquire":
        parts.append(f"{op.weight} of {op.limit} for {op.ttl} ms")
        parts.append("" if op.queue is None else "queueing")
        parts.append(f"kept closed for {op.at_least} ms" if op.at_least else "")
    if name == "release":
        parts.append(f"token {op.token}" if op.token else "")
        parts.append(f"grace {op.grace} ms" if op.grace else "")
    return " ".join(part for part in parts if part)


def _answer(act: Act) -> str:
    result: Any = act.result
    if result is None:
        return act.error or "no answer"
    if isinstance(result, bool):
        return "done" if result else "refused"
    name = type(result).__name__.lower()
    if name == "granted":
        return f"granted token {result.token}" + (", re-entered" if result.reentered else "")
    if name == "busy":
        place = f", queued as number {result.arrival}" if result.arrival else ""
        return f"busy ({result.why}, by {label(result.holder)}{place}, epoch {result.epoch})"
    if name == "tuple":
        return ", ".join(f"{label(one[0])} {one[1]} {one[2]}" for one in result) or "nobody"
    return str(result)
