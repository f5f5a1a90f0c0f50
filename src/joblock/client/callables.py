"""Telling coroutine functions from plain ones without importing inspect or asyncio."""

from __future__ import annotations

from types import CoroutineType, MethodType
from typing import Any, cast

from joblock.values.shown import shown

_CO_COROUTINE = 0x80


def is_async(function: Any) -> bool:
    """Whether calling it gives a coroutine: through partials, methods and callable objects."""
    while True:
        if getattr(function, "_is_coroutine_marker", None) is not None:
            return True
        if isinstance(function, MethodType):
            function = function.__func__
        elif hasattr(function, "func") and hasattr(function, "keywords"):
            function = function.func
        else:
            break
    code = getattr(function, "__code__", None)
    if code is None and not isinstance(function, type):
        kind = cast("Any", type(function))
        code = getattr(getattr(kind, "__call__", None), "__code__", None)  # noqa: B004 - which one
    return bool(code is not None and code.co_flags & _CO_COROUTINE)


def checked_callable(function: Any) -> Any:
    """Refuse what cannot be called."""
    if not callable(function):
        raise TypeError(f"work is a function without arguments; got {shown(function)}")
    return function


def refuse_coroutine(value: Any) -> Any:
    """A plain call that gave a coroutine has done nothing: say so instead of dropping it."""
    if isinstance(value, CoroutineType):
        value.close()
        raise TypeError(
            "the work returned a coroutine, which the sync client cannot await: use AsyncJobLocks"
        )
    return value
