"""Durations as users write them, turned into whole milliseconds.

Accepted everywhere: seconds (int or float), ``datetime.timedelta``, text such as ``"500ms"``,
``"30s"``, ``"1h30m"``, ``"10 minutes"``, or a pair such as ``(10, "minutes")``. Fractions of a
millisecond round up, so that a duration is never shorter than what was asked for.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias, Union

from joblock.values.shown import shown

if TYPE_CHECKING:
    from datetime import timedelta

Duration: TypeAlias = Union[int, float, str, "tuple[int | float, str]", "timedelta"]
Wait: TypeAlias = Union[bool, int, float, str, "tuple[int | float, str]", "timedelta"]

EXAMPLES = 'such as 30, 0.5, "500ms", "30s", "1h30m", (10, "minutes") or a timedelta'
LONGEST_MS = 100 * 365 * 24 * 3600 * 1000

_UNITS = {
    "ms": 1,
    "millisecond": 1,
    "s": 1000,
    "sec": 1000,
    "second": 1000,
    "m": 60_000,
    "min": 60_000,
    "minute": 60_000,
    "h": 3_600_000,
    "hour": 3_600_000,
    "d": 86_400_000,
    "day": 86_400_000,
    "w": 604_800_000,
    "week": 604_800_000,
}


def to_ms(value: Duration, what: str = "duration") -> int:
    """Turn ``value`` into whole milliseconds, at least 1.

    Raises TypeError for what is no duration at all (a bool included), ValueError for one that is
    not positive, not finite, longer than a hundred years or unreadable; ``what`` names the
    argument in the message.
    """
    kind = type(value)
    if kind is int or kind is float or kind is str:
        return _to_ms(value, kind, what)
    return _convert(value, what)


@lru_cache(maxsize=512)
def _to_ms(value: Any, kind: type, what: str) -> int:
    # `kind` is part of the cache key because 1 == 1.0 == True.
    del kind
    return _convert(value, what)


def _convert(value: Any, what: str) -> int:
    ms = _milliseconds(value, what)
    if not math.isfinite(ms) or ms <= 0:
        raise ValueError(f"{what} must be positive and finite, {EXAMPLES}; got {shown(value)}")
    if ms > LONGEST_MS:
        raise ValueError(
            f"{what} must be at most a hundred years; got {shown(value)} (numbers are seconds)"
        )
    # 1.1 * 1000 is 1100.0000000000002: what the float cannot express is not a fraction.
    return max(1, math.ceil(round(ms, 6)))


def _milliseconds(value: Any, what: str) -> float:
    if isinstance(value, bool):
        raise TypeError(f"{what} must be a duration, {EXAMPLES}; got {shown(value)}")
    if isinstance(value, int | float):
        return value * 1000.0 if abs(value) < LONGEST_MS else math.inf if value > 0 else -math.inf
    if isinstance(value, str):
        return _text(value, what)
    if isinstance(value, tuple):
        return _pair(value, what)  # pyright: ignore[reportUnknownArgumentType]
    total = getattr(value, "total_seconds", None)
    if total is None:
        raise TypeError(f"{what} must be a duration, {EXAMPLES}; got {shown(value)}")
    return total() * 1000.0


def _text(value: str, what: str) -> float:
    import re

    part = r"(\d+(?:\.\d+)?)\s*([a-z]+)"
    if not re.fullmatch(rf"\s*(?:{part}\s*)+", value, re.ASCII):
        raise ValueError(f"{what} cannot be read as a duration, {EXAMPLES}; got {shown(value)}")
    parts = re.findall(part, value, re.ASCII)
    factors = [_factor(unit) for _, unit in parts]
    if None in factors:
        raise ValueError(f"{what} cannot be read as a duration, {EXAMPLES}; got {shown(value)}")
    known = [factor or 0 for factor in factors]
    if known != sorted(set(known), reverse=True):
        raise ValueError(
            f"{what} cannot be read as a duration: each unit goes in it once, the largest first, "
            f"{EXAMPLES}; got {shown(value)}"
        )
    return sum(float(number) * factor for (number, _), factor in zip(parts, known, strict=True))


def _factor(unit: str) -> int | None:
    """Milliseconds of a unit: a letter or two, or a word that may be plural."""
    word = unit.removesuffix("s") if len(unit) > len("min") else unit
    return _UNITS.get(unit) or _UNITS.get(word)


def _pair(value: tuple[Any, ...], what: str) -> float:
    match value:
        case (int() | float() as number, str() as unit) if not isinstance(number, bool):
            factor = _factor(unit)
            if factor is not None:
                return number * float(factor) if abs(number) < LONGEST_MS else math.inf
        case _:
            pass
    raise ValueError(f"{what} cannot be read as a duration, {EXAMPLES}; got {shown(value)}")


def to_wait(value: Wait | None, what: str = "wait") -> int | None:
    """Turn a wait into milliseconds: ``None`` for no limit (``True``), 0 to try once."""
    if value is True:
        return None
    if value is False or (value == 0 and isinstance(value, int | float)):
        return 0
    if value is None:
        raise TypeError(
            f"{what} must be True (no limit), False (try once) or a duration, {EXAMPLES}; got None"
        )
    if value in ("forever", math.inf):
        raise ValueError(
            f"{what} without a limit is {what}=True, else a duration, {EXAMPLES}; "
            f"got {shown(value)}"
        )
    return to_ms(value, what)
