"""One run of a job: skip, wait, join or run; and how the run that ended closes the key."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from joblock.protocol.acquire import Desk, acquire_or_join
from joblock.protocol.hold import Hold
from joblock.protocol.occurrences import (
    Occurrence,
    done_by,
    to_occurrence,
    with_occurrence,
)
from joblock.protocol.occurrences import occurrence_ttl as check_ttl
from joblock.protocol.request import (
    OnLost,
    OnStoreError,
    Request,
    flag,
    make_request,
    one_of,
)
from joblock.protocol.run import Ended, give_back, work_under
from joblock.protocol.steps import Flow
from joblock.store.ops import Joined
from joblock.values.durations import Duration, Wait, to_ms, to_wait
from joblock.values.errors import LockNotAcquired, StoreUnavailable
from joblock.values.log import logger
from joblock.values.names import checked_prefix, full_key
from joblock.values.shown import shown

if TYPE_CHECKING:
    from joblock.store.ops import Busy

Reason = Literal["ran", "held", "timeout", "joined", "grace", "done", "store_error"]
InGrace = Literal["skip", "wait"]
GraceOn = Literal["success", "always"]
Grace = Duration | Callable[..., "Duration | None"] | None


class Outcome(NamedTuple):
    """How a call of a job ended; true if and only if it ran.

    ``reason``: ``"ran"``; ``"held"`` (another run is in progress, or others wait for one);
    ``"timeout"`` (it was not to be had while it waited); ``"joined"`` (the run in progress ended
    well, and counts for this call too); ``"grace"`` (the last run closed the key for a while);
    ``"done"`` (its occurrence, or a later one, was run and ended well); ``"store_error"`` (the
    store is down and the job skips then). ``token`` is the fencing token of the run, or of the run
    in the way as far as it is known, else 0.
    """

    ran: bool
    value: Any = None
    reason: Reason = "ran"
    token: int = 0

    def __bool__(self) -> bool:
        return self.ran


class Terms(NamedTuple):
    """The options of a job, checked when it is decorated; durations in milliseconds."""

    name: str | Callable[..., str]
    request: Request
    join: bool
    skip_grace: bool
    grace: Grace
    grace_always: bool
    on_store_error: OnStoreError
    occurrence: Occurrence | Callable[..., Occurrence] | None
    occurrence_ttl: Duration | None


class Verdict(NamedTuple):
    """How one call ended, and what it is to raise."""

    outcome: Outcome
    error: BaseException | None = None
    busy: Busy | None = None


def make_terms(
    prefix: str,
    *,
    name: str | Callable[..., str],
    wait: Wait | None,
    join: bool,
    in_grace: InGrace,
    ttl: Duration | None,
    max_duration: Duration | None,
    grace_period: Grace,
    grace_on: GraceOn,
    at_least: Duration | None,
    limit: int | None,
    weight: int | None,
    renew: bool,
    on_lost: OnLost,
    on_store_error: OnStoreError,
    occurrence: Occurrence | Callable[..., Occurrence] | None,
    occurrence_ttl: Duration | None,
) -> Terms:
    """Check every option of a job, alone and together."""
    waits = _waits(wait, join=flag(join, "join"), in_grace=in_grace)
    if grace_on != "success" and grace_period is None:
        raise ValueError(f"grace_on={shown(grace_on)} needs a grace_period")
    if grace_period is not None and not callable(grace_period):
        to_ms(grace_period, "grace_period")
    check_ttl(occurrence_ttl, given=occurrence is not None)
    if occurrence is not None and not callable(occurrence):
        to_occurrence(occurrence)
    if isinstance(name, str):
        full_key(prefix, name)
    elif not callable(name):
        raise TypeError(f"name is text, or a function of the call's arguments; got {shown(name)}")
    checked_prefix(prefix)
    return Terms(
        name,
        make_request(
            prefix,
            "-",
            ttl=ttl,
            wait=waits,
            limit=limit,
            weight=weight,
            at_least=at_least,
            max_duration=max_duration,
            renew=renew,
            on_lost=on_lost,
        ),
        join,
        in_grace == "skip",
        grace_period,
        one_of(grace_on, ("success", "always"), "grace_on") == "always",
        one_of(on_store_error, ("raise", "skip"), "on_store_error"),
        occurrence,
        occurrence_ttl,
    )


def _waits(wait: Wait | None, *, join: bool, in_grace: InGrace) -> Wait:
    """How long a call waits: what waits by its nature does so without end unless that is said."""
    one_of(in_grace, ("skip", "wait"), "in_grace")
    if wait is not None and to_wait(wait) == 0:
        if join:
            raise ValueError(
                f"join=True waits for the run in progress, so it contradicts wait={shown(wait)}: "
                "leave wait out, or give it a duration"
            )
        if in_grace == "wait":
            raise ValueError(
                f"in_grace='wait' waits until the key opens, so it contradicts wait={shown(wait)}: "
                "leave wait out, or give it a duration"
            )
    return (join or in_grace == "wait") if wait is None else wait


def key_of(terms: Terms, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """The key of a call, without its prefix."""
    return terms.name if isinstance(terms.name, str) else terms.name(*args, **kwargs)


def run_job(
    desk: Desk,
    prefix: str,
    terms: Terms,
    work: Callable[[], Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Flow[Verdict]:
    """One call of a job: all that is computed from its arguments comes before the lease."""
    key = key_of(terms, args, kwargs)
    request = terms.request._replace(key=full_key(prefix, key), name=key)
    if terms.occurrence is not None:
        tick = terms.occurrence
        tick = tick(*args, **kwargs) if callable(tick) else tick
        request = with_occurrence(request, tick, terms.occurrence_ttl)
    grace = _grace_of(terms, args, kwargs)
    won = None
    try:
        won = yield from acquire_or_join(
            desk, request, skip_grace=terms.skip_grace, join=0 if terms.join else None
        )
        if isinstance(won, Joined):
            return Verdict(Outcome(ran=False, reason="joined", token=won.token))
        if not isinstance(won, Hold):
            return Verdict(Outcome(ran=False, reason=_why(request, won), token=won.token), busy=won)
        ended: Ended = yield from work_under(
            desk,
            won,
            work,
            grace=grace,
            grace_always=terms.grace_always,
            counts=True,
            done=done_by(request),
        )
        return Verdict(Outcome(ran=True, value=ended.value, token=won.token), ended.error)
    except StoreUnavailable as error:
        if won is not None or terms.on_store_error == "raise":
            raise
        logger("job").warning("skipped %r: the store is unavailable: %s", request.key, error)
        if desk.events is not None:
            desk.events.tell("skipped", request.name, reason="store_error")
        return Verdict(Outcome(ran=False, reason="store_error"))
    except BaseException:
        give_back(desk, won)
        raise


def not_run(prefix: str, key: str, verdict: Verdict) -> LockNotAcquired:
    """The error of a call that must have a value and has none."""
    busy, reason = verdict.busy, verdict.outcome.reason
    if busy is None:
        return LockNotAcquired(key, reason=reason, prefix=prefix)
    return LockNotAcquired(key, busy.holder or None, busy.remaining / 1000, reason, prefix)


def _why(request: Request, busy: Busy) -> Reason:
    if busy.why in ("grace", "done"):
        return busy.why
    return "held" if request.wait == 0 else "timeout"


def _grace_of(terms: Terms, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    grace = terms.grace(*args, **kwargs) if callable(terms.grace) else terms.grace
    return 0 if grace is None else to_ms(grace, "grace_period")
