"""Notices of another store's, sent to whoever listens for them here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from joblock.stores.redis.login import refusal
from joblock.stores.redis.route import Drop, Flow, Route, Send
from joblock.stores.redis.scripts import CHANNEL
from joblock.stores.redis.wire import (
    ConnectFailed,
    Disconnected,
    ServerError,
    TimedOut,
    pack,
)
from joblock.values.errors import StoreUnavailable

if TYPE_CHECKING:
    from joblock.store.ops import Notice


def publish(notices: Sequence[Notice], route: Route, shown: str) -> Flow[None]:
    """Publish them, in their order."""
    data = b"".join(
        pack("PUBLISH", CHANNEL + client, f"{after} {mark} {holder}")
        for client, mark, holder, after in notices
    )
    place = yield from route.find("")
    try:
        try:
            replies = yield Send(place, route.login, data, len(notices))
        except Disconnected:
            # One that was idle may have been dead for long.
            yield Drop(place)
            replies = yield Send(place, route.login, data, len(notices))
    except (ConnectFailed, Disconnected, TimedOut) as error:
        route.lost(place)
        raise StoreUnavailable(f"{shown}: {place}: {error}") from error
    for reply in replies:
        if isinstance(reply, ServerError):
            raise refusal(shown, reply)
