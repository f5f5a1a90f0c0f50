"""What scripts hand back with their replies: notices for clients that something else notifies.

Such a reply is ``[ELSEWHERE, reply, [client, mark, holder, after, ...]]``; see ``answer`` in
``lua/rows.lua``. All others are as they would be without.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, cast

from joblock.store.contract import ELSEWHERE
from joblock.store.ops import Notice

Post: TypeAlias = Callable[[Sequence[Notice]], None]

_MARK, _PARTS = ELSEWHERE.encode(), 3


class Hand:
    """Takes the notices out of replies for whoever sends them on, if anybody does."""

    __slots__ = ("post",)

    def __init__(self) -> None:
        self.post: Post | None = None

    def opened(self, reply: Any) -> Any:
        """The reply as such; what it brings along is handed over."""
        if type(reply) is not list:
            return reply
        whole = cast("list[Any]", reply)
        if len(whole) != _PARTS or whole[0] != _MARK:
            return whole
        if self.post is not None:
            self.post(_notices(whole[2]))
        return whole[1]

    def all_opened(self, replies: list[Any]) -> list[Any]:
        """The same for some."""
        return [self.opened(reply) for reply in replies]


def _notices(told: list[Any]) -> list[Notice]:
    return [
        Notice(client.decode(), mark.decode(), holder.decode(), after)
        for client, mark, holder, after in zip(*[iter(told)] * 4, strict=True)
    ]
