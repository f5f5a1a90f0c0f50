"""What a fence is asked about: a resource, and the token of an exclusive lease."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

from joblock.values.shown import shown

LARGEST = 2**53 - 1


class Fencing(Protocol):
    """A lease: what has a token, and says whether that orders its holders."""

    @property
    def token(self) -> int:
        """The fencing token."""
        ...

    @property
    def exclusive(self) -> bool:
        """Whether it takes the whole key."""
        ...


Token: TypeAlias = int | Fencing


def token_of(token: Any) -> int:
    """The number of a token, or of the lease that is given in its place."""
    if hasattr(token, "exclusive"):
        if not token.exclusive:
            raise ValueError(
                f"{shown(token)} takes only a part of its key: holders side by side are not "
                "ordered by their tokens, so only an exclusive lease can be fenced"
            )
        token = token.token
    elif hasattr(token, "tokens"):
        raise TypeError(
            "a lease of several keys has a token for each: pass lease.tokens[key] of the key that "
            "guards this resource"
        )
    if not isinstance(token, int) or isinstance(token, bool):
        raise TypeError(f"a token is a lease, or the number in lease.token; got {shown(token)}")
    if not 0 < token <= LARGEST:
        raise ValueError(f"a token is a number from 1 to 2**53 - 1, as in lease.token; got {token}")
    return token
