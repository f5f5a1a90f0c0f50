"""Keys and holders: what may name a lock and who holds it, checked at the door."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeAlias

from joblock.values.shown import shown

Keys: TypeAlias = list[str] | tuple[str, ...] | set[str] | frozenset[str]
"""Several keys to lock at once; their order means nothing."""

Several = (list, tuple, set, frozenset)

MAX_LENGTH = 500


def full_key(prefix: str, key: str) -> str:
    """Put ``prefix`` before ``key`` and check what results.

    Raises TypeError if the key is no text, ValueError if it is empty, longer than 500 characters
    with its prefix, or holds NUL or a lone surrogate.
    """
    try:
        return _full_key(prefix, key)
    except TypeError:  # a list cannot even be looked up among the keys seen before
        raise TypeError(f'a key is text, such as "nightly-prune"; got {shown(key)}') from None


@lru_cache(maxsize=1024)
def _full_key(prefix: str, key: str) -> str:
    if not isinstance(key, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError
    if not key:
        raise ValueError("a key has at least one character; got ''")
    return _checked(prefix + key, "key")


def checked_prefix(prefix: Any) -> str:
    """Check the text put before every key; the empty text is none."""
    if not isinstance(prefix, str):
        raise TypeError(f'a prefix is text, such as "shop:"; got {shown(prefix)}')
    return _checked(prefix, "prefix") if prefix else ""


def checked_holder(holder: Any) -> str:
    """Check a holder given by the caller: the same rules as for a key."""
    if not isinstance(holder, str):
        raise TypeError(f'a holder is text, such as "worker-7"; got {shown(holder)}')
    if not holder:
        raise ValueError("a holder has at least one character; got ''")
    return _checked(holder, "holder")


def checked_resource(resource: Any) -> str:
    """Check the name of what is fenced: the same rules as for a key."""
    if not isinstance(resource, str):
        raise TypeError(f'a resource is text, such as "stock:7"; got {shown(resource)}')
    if not resource:
        raise ValueError("a resource has at least one character; got ''")
    return _checked(resource, "resource")


def checked_text(text: Any, what: str) -> str:
    """Check what is only kept to be shown: any text that every store can keep."""
    if not isinstance(text, str):
        raise TypeError(f'{what} is text, such as "night shift"; got {shown(text)}')
    return _keepable(text, what)


def _checked(text: str, what: str) -> str:
    if len(text) > MAX_LENGTH:
        raise ValueError(
            f"a {what} has at most {MAX_LENGTH} characters, its prefix included; "
            f"got {len(text)}: {shown(text)}"
        )
    return _keepable(text, f"a {what}")


def _keepable(text: str, what: str) -> str:
    if "\0" in text:
        raise ValueError(f"{what} holds no NUL character; got {shown(text)}")
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError(f"{what} holds no lone surrogate (half a character); got {shown(text)}")
    return text
