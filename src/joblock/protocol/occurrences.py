"""Occurrences: which tick of a schedule a run is for, as callers say it and as stores keep it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, Union

from joblock.store.ops import Done
from joblock.values.durations import Duration, to_ms
from joblock.values.shown import shown

if TYPE_CHECKING:
    from datetime import datetime

    from joblock.protocol.request import Request

Occurrence: TypeAlias = Union["datetime", int]

DEFAULT_TTL: Duration = "7d"
LARGEST = 2**53 - 1


def with_occurrence(request: Request, occurrence: Any, ttl: Duration | None) -> Request:
    """The request for a run of that occurrence, which is remembered for ``ttl`` if it ends well."""
    kept = occurrence_ttl(ttl, given=occurrence is not None)
    return request._replace(occurrence=to_occurrence(occurrence), occurrence_ttl=kept)


def to_occurrence(value: Any) -> int:
    """An aware datetime or a number, as the number that orders it.

    Raises TypeError or ValueError with the value and an example.
    """
    from datetime import UTC, datetime, timedelta

    number = value
    if isinstance(value, datetime):
        if value.utcoffset() is None:
            raise ValueError(
                f"an occurrence is an aware datetime, or machines would take it for different "
                f"moments: got {shown(value)}, without a time zone (such as tzinfo=UTC)"
            )
        number = (value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    if isinstance(number, bool) or not isinstance(number, int):
        raise TypeError(
            "an occurrence is an aware datetime or a whole number, such as "
            f"datetime(2027, 1, 31, 3, tzinfo=UTC) or 42; got {shown(value)}"
        )
    if not 0 <= number <= LARGEST:
        raise ValueError(
            f"an occurrence is a number from 0 to 2**53 - 1, or a datetime from 1970 on; "
            f"got {shown(value)}"
        )
    return number


def occurrence_ttl(ttl: Duration | None, *, given: bool) -> int:
    """How long an occurrence is remembered, in milliseconds; 0 if none is given."""
    if not given:
        if ttl is not None:
            raise ValueError(f"occurrence_ttl={shown(ttl)} needs an occurrence")
        return 0
    return to_ms(DEFAULT_TTL if ttl is None else ttl, "occurrence_ttl")


def done_by(request: Request) -> Done | None:
    """What the release of a run that ended well has the store remember."""
    if request.occurrence is None:
        return None
    return Done(request.occurrence, request.occurrence_ttl)
