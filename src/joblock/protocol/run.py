"""Running a piece of work under a lease: `run_with_lock`, for both clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from joblock.protocol.acquire import Desk, acquire, settle
from joblock.protocol.steps import Flow, Work
from joblock.store.ops import Busy, Release
from joblock.values.errors import LockLost, StoreUnavailable

if TYPE_CHECKING:
    from joblock.protocol.hold import Hold
    from joblock.protocol.request import OnStoreError, Request


def run_with_lock(
    desk: Desk, request: Request, work: Callable[[], Any], on_store_error: OnStoreError
) -> Flow[bool]:
    """Call ``work`` if the lease is won at once; see `joblock.JobLocks.run_with_lock`."""
    try:
        hold = yield from acquire(desk, request)
    except StoreUnavailable as error:
        if on_store_error == "raise":
            raise
        _tell_skipped(request, error)
        return False
    if isinstance(hold, Busy):
        return False
    yield from work_under(desk, hold, work)
    return True


def work_under(desk: Desk, hold: Hold, work: Callable[[], Any]) -> Flow[Any]:
    """Do the work, give the lease back, and return the value; raises LockLost with it if lost."""
    try:
        value = yield Work(work, hold)
    except GeneratorExit:
        # The flow was dropped: nothing may be yielded any more.
        if desk.retire(hold):
            desk.undo(Release(hold.key, hold.holder, hold.token))
        raise
    except BaseException as error:
        annotate(error, (yield from settle(desk, hold)))
        raise
    lost = yield from settle(desk, hold, ok=True)
    if lost is not None:
        lost.value = value
        raise lost
    return value


def annotate(error: BaseException, lost: LockLost | None) -> None:
    """Note a loss on the exception that the work itself raised, which is what the caller sees."""
    if lost is not None and lost is not error:
        error.add_note(str(lost))


def _tell_skipped(request: Request, error: StoreUnavailable) -> None:
    from joblock.values.log import logger

    logger("run").warning("skipped %r: the store is unavailable: %s", request.key, error)
