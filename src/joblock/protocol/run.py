"""Running a piece of work under a lease: `run_with_lock`, for both clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from joblock.protocol.acquire import Desk, acquire, loss_after, release
from joblock.protocol.hold import Hold
from joblock.protocol.occurrences import done_by
from joblock.protocol.steps import Flow, Work
from joblock.store.ops import Busy
from joblock.values.errors import LockLost, StoreUnavailable

if TYPE_CHECKING:
    from joblock.protocol.request import OnStoreError, Request
    from joblock.store.ops import Done


class Ended(NamedTuple):
    """How a run ended: not at all, with a value, or with the exception to raise."""

    ran: bool
    value: Any = None
    error: BaseException | None = None


def run_with_lock(
    desk: Desk, request: Request, work: Callable[[], Any], on_store_error: OnStoreError
) -> Flow[Ended]:
    """Call ``work`` if the lease is won at once; see `joblock.JobLocks.run_with_lock`."""
    hold = None
    try:
        hold = yield from acquire(desk, request)
        if isinstance(hold, Busy):
            return Ended(ran=False)
        return (yield from work_under(desk, hold, work, done=done_by(request)))
    except StoreUnavailable as error:
        if hold is not None or on_store_error == "raise":
            raise
        _tell_skipped(request, error)
        if desk.events is not None:
            desk.events.tell("skipped", request.name, request.holder, reason="store_error")
        return Ended(ran=False)
    except BaseException:
        give_back(desk, hold)
        raise


def work_under(
    desk: Desk,
    hold: Hold,
    work: Callable[[], Any],
    *,
    grace: int = 0,
    grace_always: bool = False,
    counts: bool = False,
    done: Done | None = None,
) -> Flow[Ended]:
    """Do the work and give the lease back, whatever the work raises.

    ``grace`` keeps the key closed after a run that ended well, or after any if ``grace_always``;
    a run that ``counts`` and ended well is what those who joined it waited for, and ``done`` is
    the occurrence that is over then. The exception is returned, not raised: a StopIteration would
    not get out of a generator.
    """
    value, error = yield Work(work, hold)
    well = error is None
    grace = grace if well or grace_always else 0
    yield from release(desk, hold, grace=grace, ok=counts and well, done=done if well else None)
    lost = loss_after(hold)
    if error is not None:
        annotate(error, lost)
    elif lost is not None:
        lost.value = value
        error = lost
    return Ended(ran=True, value=value, error=error)


def give_back(desk: Desk, won: object) -> None:
    """A run was cut off, or its flow dropped, somewhere between its grant and its release.

    Nothing may be yielded any more, so it is released behind the caller's back; unless it was
    already, or a thread still works under it, which then does so.
    """
    if isinstance(won, Hold) and not won.detached:
        desk.collected(won)


def annotate(error: BaseException, lost: LockLost | None) -> None:
    """Note a loss on the exception that the work itself raised, which is what the caller sees."""
    if lost is not None and lost is not error:
        error.add_note(str(lost))


def _tell_skipped(request: Request, error: StoreUnavailable) -> None:
    from joblock.values.log import logger

    logger("run").warning("skipped %r: the store is unavailable: %s", request.key, error)
