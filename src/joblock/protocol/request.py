"""What a caller asks for, checked as a whole before anything is sent."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias

from joblock.values.durations import Duration, Wait, to_ms, to_wait
from joblock.values.names import checked_holder, full_key
from joblock.values.shown import shown

OnLost = Literal["cancel", "raise", "warn"]
OnStoreError = Literal["raise", "skip"]

DEFAULT_TTL: Duration = 30
SHARED_LIMIT = 1_000_000_000


class Request(NamedTuple):
    """One acquisition as asked for; durations in milliseconds.

    ``key`` carries its prefix, ``name`` is the key as the caller wrote it. ``wait``: ``None`` for
    no limit, 0 to try once. ``holder`` is empty for a new one per acquisition.
    """

    key: str
    name: str
    holder: str
    ttl: int
    wait: int | None
    weight: int
    limit: int
    at_least: int
    max_duration: int
    renew: bool
    on_lost: OnLost
    occurrence: int | None = None
    occurrence_ttl: int = 0

    @property
    def exclusive(self) -> bool:
        """Takes the whole key."""
        return self.weight >= self.limit

    @property
    def prefix(self) -> str:
        """What its client puts before the key."""
        return self.key.removesuffix(self.name)


def make_request(
    prefix: str,
    key: str,
    *,
    ttl: Duration | None,
    wait: Wait,
    holder: str | None = None,
    limit: int | None = None,
    weight: int | None = None,
    shared: bool = False,
    at_least: Duration | None = None,
    max_duration: Duration | None = None,
    renew: bool = True,
    on_lost: OnLost,
) -> Request:
    """Check every option, alone and together; raises ValueError or TypeError with the value."""
    options = (ttl, wait, limit, weight, shared, at_least, max_duration, renew, on_lost)
    try:
        request = _request_once(prefix, key, *options)
    except TypeError:
        checked = _check(*options)
        request = Request(full_key(prefix, key), key, "", *checked)
    return request if holder is None else request._replace(holder=checked_holder(holder))


@lru_cache(maxsize=1024, typed=True)
def _request_once(prefix: str, key: str, *options: Any) -> Request:
    """The same where that very request was made before."""
    checked = _check_once(*options)
    return Request(full_key(prefix, key), key, "", *checked)


_Checked: TypeAlias = tuple[int, "int | None", int, int, int, int, bool, "OnLost"]


def _check(
    ttl: Duration | None,
    wait: Wait,
    limit: int | None,
    weight: int | None,
    shared: bool,
    at_least: Duration | None,
    max_duration: Duration | None,
    renew: bool,
    on_lost: OnLost,
) -> _Checked:
    limit, weight = _capacity(limit, weight, shared)
    longest = 0 if max_duration is None else to_ms(max_duration, "max_duration")
    return (
        _ttl(ttl, longest, renew),
        to_wait(wait),
        weight,
        limit,
        0 if at_least is None else to_ms(at_least, "at_least"),
        longest,
        flag(renew, "renew"),
        one_of(on_lost, ("cancel", "raise", "warn"), "on_lost"),
    )


_PLAIN = frozenset({int, float, str, bool, type(None)})


@lru_cache(maxsize=256, typed=True)
def _check_once(*options: Any) -> _Checked:
    """The same for options seen before; TypeError for those that are not to be remembered.

    (1, "minutes") == (True, "minutes"), of which only one is a duration; and what is of a class of
    the caller's own may be another thing the next time.
    """
    kinds = map(type, options)
    if not all(kind in _PLAIN or kind.__module__ == "datetime" for kind in kinds):
        raise TypeError
    return _check(*options)


def _ttl(ttl: Duration | None, longest: int, renew: bool) -> int:
    if ttl is None:
        default = to_ms(DEFAULT_TTL)
        if not longest:
            return default
        return min(default, longest) if renew else longest
    value = to_ms(ttl, "ttl")
    if longest and value > longest:
        raise ValueError(
            f"ttl={shown(ttl)} is longer than max_duration, which ends the lease before: "
            "make ttl the shorter one"
        )
    return value


def _capacity(limit: int | None, weight: int | None, shared: bool) -> tuple[int, int]:
    if flag(shared, "shared"):
        if limit is not None or weight is not None:
            raise ValueError(
                f"shared=True goes with neither limit nor weight; got limit={shown(limit)}, "
                f"weight={shown(weight)}"
            )
        return SHARED_LIMIT, 1
    if limit is None and weight is None:
        return 1, 1
    limit = _count(1 if limit is None else limit, "limit")
    weight = _count(1 if weight is None else weight, "weight")
    if weight > limit:
        raise ValueError(f"weight={weight} is above limit={limit}, so it would never be granted")
    return limit, weight


def _count(value: Any, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{what} must be a whole number, such as 4; got {shown(value)}")
    if not 1 <= value <= SHARED_LIMIT:
        raise ValueError(f"{what} must be from 1 to {SHARED_LIMIT:,}; got {shown(value)}")
    return value


def flag(value: Any, what: str) -> bool:
    """A bool that really is one."""
    if value is True or value is False:
        return value
    raise TypeError(f"{what} must be True or False; got {shown(value)}")


def one_of(value: Any, known: tuple[str, ...], what: str) -> Any:
    """One of a few words."""
    if value in known:
        return value
    raise ValueError(f"{what} must be one of {', '.join(map(repr, known))}; got {shown(value)}")


def refuse_more(request: Request) -> None:
    """Nobody is let in again for more than they hold: others may hold the rest."""
    wanted = "all of it" if request.exclusive else f"{request.weight} of {request.limit}"
    raise RuntimeError(
        f"{request.name!r} is held already for less than {wanted}, and others may hold the rest: "
        "take the larger part first, or give back the smaller one before"
    )
