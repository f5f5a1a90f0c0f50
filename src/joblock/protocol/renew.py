"""The renewal schedule: which holds are due, what a reply or an error means for them.

A hold is renewed every third of its ttl, all that are due or nearly due in one batch. An error is
not a loss: the batch is tried again after a pause that grows, until a hold's own deadline.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter

from joblock.protocol.hold import NEVER, Hold
from joblock.store.ops import Refresh, Refreshed

FIRST_PAUSE = 0.05
LONGEST_PAUSE = 2.0
_BY_KEY = attrgetter("key")

EARLY = 12
"""A hold is taken along in a batch if it is due within a twelfth of its ttl."""


def due_holds(holds: Iterable[Hold], now: float) -> list[Hold]:
    """The holds to renew now, if any is due: those due or nearly due."""
    found = [hold for hold in holds if hold.renew and hold.due <= now + hold.ttl / EARLY]
    return found if any(hold.due <= now for hold in found) else []


def ended_holds(holds: Iterable[Hold], now: float) -> list[Hold]:
    """The holds that are lost by now: seen as lost, past their deadline or their end."""
    return [hold for hold in holds if hold.lost or hold.deadline <= now]


def next_moment(holds: Iterable[Hold]) -> float:
    """When the next hold is due or lost (infinity: none ever)."""
    return min((min(hold.due, hold.deadline) for hold in holds), default=NEVER)


def batches(holds: list[Hold]) -> list[list[Hold]]:
    """Those to renew together: all of them, but for each that a transaction may keep waiting.

    A guarded lease cannot be renewed before the transaction ends that guards it, and what is
    renewed with it is not told before.
    """
    free = [hold for hold in holds if not hold.guarded]
    guarded = [[hold] for hold in holds if hold.guarded]
    return [free, *guarded] if free else guarded


def set_aside(holds: list[Hold]) -> None:
    """They are being renewed, and the answer may be long in coming: not to be sent again."""
    for hold in holds:
        hold.due = hold.deadline


def batch(holds: list[Hold], now: float) -> Refresh:
    """One request for all of them, in key order so that two batches never deadlock."""
    holds.sort(key=_BY_KEY)
    return Refresh(tuple(hold.renewal(now) for hold in holds))


def confirm(holds: list[Hold], reply: Refreshed, sent: float) -> list[Hold]:
    """Take the reply in; the holds that the store refused, which are lost."""
    refused: list[Hold] = []
    now = holds[0].clock.monotonic()
    for hold, renewed in zip(holds, reply.renewed, strict=True):
        if renewed:
            hold.renewed(sent, now)
        else:
            refused.append(hold)
    for hold, waiting in zip(holds, reply.waiting, strict=False):
        hold.waiting = waiting
    return refused


def postpone(holds: list[Hold], now: float, pause: float) -> float:
    """After an error: try these again a little later; the next pause."""
    for hold in holds:
        hold.due = now + min(pause, hold.ttl / 6)
    return min(LONGEST_PAUSE, pause * 2)
