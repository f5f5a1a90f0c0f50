"""Where a key's server is: one known address, the primary that sentinels name, or a cluster's map.

What has to be asked of servers for that is asked through steps (`Send`), which the blocking and the
asyncio driver each carry out in their way.
"""

from __future__ import annotations

import time
from binascii import crc_hqx
from collections.abc import Callable, Generator, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, TypeVar

from joblock.stores.redis.login import refusal
from joblock.stores.redis.scripts import tagged
from joblock.stores.redis.target import Login, Place, Target
from joblock.stores.redis.wire import (
    ConnectFailed,
    Disconnected,
    ServerError,
    TimedOut,
    pack,
)
from joblock.values.errors import StoreError, StoreMisconfigured, StoreUnavailable

if TYPE_CHECKING:
    from joblock.stores.redis.shards import Ears

T = TypeVar("T")
Then: TypeAlias = Callable[[list[Any]], bytes | None]

SLOTS = 16384
FRESH = 1.0
"""Seconds for which what a sentinel said is believed. A failover takes longer, as a rule; and in
one that the old primary survives, clients use it on for as long as they believe in it.
"""

AWAY = 30.0
"""Seconds until sentinels are asked again that could not be reached, while the primary can."""

FLIPS = 5
"""How often sentinels may change their mind while a connection to the primary is made."""

BROKEN = (ConnectFailed, Disconnected, TimedOut)


class Send(NamedTuple):
    """Send that to that server and have the replies; errors of the server are among them.

    ``then`` makes of these what is to be sent next on the very same connection, if anything is; it
    has one reply, which is the last one.
    Raises one of `BROKEN`, or the StoreError with which the server turned us away at the door.
    """

    place: Place
    login: Login
    data: bytes
    replies: int
    holder: str = ""
    then: Then | None = None


class Drop(NamedTuple):
    """Give up the idle connections to that server."""

    place: Place


class Sleep(NamedTuple):
    """Wait a little before the next try."""

    seconds: float


Step: TypeAlias = Send | Drop | Sleep
Flow: TypeAlias = Generator[Step, Any, T]


class Route(Protocol):
    """Finds servers for keys."""

    clustered: bool
    login: Login

    def find(self, key: str) -> Flow[Place]:
        """The server in charge of that key."""
        ...

    def every(self) -> Flow[list[Place]]:
        """All servers in charge of keys."""
        ...

    def lost(self, place: Place) -> bool:
        """A server could not be reached or is no primary; whether asking anew may help."""
        ...

    def moved(self, slot: int, place: Place) -> None:
        """A server says that another one is in charge of that slot."""
        ...

    def waits(self, client: str, keys: Iterable[str]) -> None:
        """A client waits for these keys: it is to hear of them wherever they are."""
        ...


def route_to(target: Target, ears: Ears) -> Route:
    """The way that fits a target; ``ears`` are told where else in a cluster to listen."""
    if target.kind == "cluster":
        return ClusterRoute(target, ears)
    if target.kind == "sentinel":
        return SentinelRoute(target)
    return SingleRoute(target)


def slot_of(key: str) -> int:
    """The slot of everything that belongs to a lock's key."""
    return slot_of_name(tagged(key).encode())


def slot_of_name(name: bytes) -> int:
    """The slot of a name in Redis: of its hash tag if it has one that is not empty."""
    begin = name.find(b"{")
    if begin >= 0:
        end = name.find(b"}", begin + 1)
        if end > begin + 1:
            name = name[begin + 1 : end]
    return crc_hqx(name, 0) % SLOTS


class SingleRoute:
    """One server."""

    clustered = False

    def __init__(self, target: Target) -> None:
        self.login = target.login
        self.place = target.places[0]

    def find(self, key: str) -> Flow[Place]:
        """Always the same."""
        del key
        return self.place
        yield  # pyright: ignore[reportUnreachable] - makes it a generator

    def every(self) -> Flow[list[Place]]:
        """The one."""
        return [self.place]
        yield  # pyright: ignore[reportUnreachable]

    def lost(self, place: Place) -> bool:
        """There is nowhere else to look."""
        del place
        return False

    def moved(self, slot: int, place: Place) -> None:
        """Only a cluster says so, and that was found out at the greeting."""

    def waits(self, client: str, keys: Iterable[str]) -> None:
        """It listens at the only server."""


class SentinelRoute:
    """The primary, as most recently named by a sentinel."""

    clustered = False

    def __init__(self, target: Target) -> None:
        self.login = target.login
        self._target = target
        self._primary: Place | None = None
        self._ask_at = 0.0

    def find(self, key: str) -> Flow[Place]:
        """Ask the sentinels, one after the other, unless they were asked just now."""
        del key
        primary = self._primary
        if primary is None:
            return (yield from self._settle_on((yield from self._ask())))
        if time.monotonic() >= self._ask_at:
            return (yield from self._look_again(primary))
        return primary

    def every(self) -> Flow[list[Place]]:
        """The one."""
        return [(yield from self.find(""))]

    def lost(self, place: Place) -> bool:
        """There may be another primary by now."""
        if self._primary == place:
            self._primary = None
        return True

    def moved(self, slot: int, place: Place) -> None:
        """Only a cluster says so."""

    def waits(self, client: str, keys: Iterable[str]) -> None:
        """It listens at the primary."""

    def _look_again(self, primary: Place) -> Flow[Place]:
        self._ask_at = time.monotonic() + FRESH  # whoever comes meanwhile goes on as before
        try:
            named = yield from self._ask()
        except StoreError:
            self._ask_at = time.monotonic() + AWAY
            return primary
        if named == primary:
            return primary
        self.lost(primary)
        yield Drop(primary)
        return (yield from self._settle_on(named))

    def _settle_on(self, named: Place) -> Flow[Place]:
        """Connect there, and ask once more.

        A primary that comes back just after another has taken its place is one, too, if asked
        itself, until the sentinels make it a replica ten seconds later.
        """
        for _ in range(FLIPS):
            yield from _ask_patiently(Send(named, self.login, pack("PING"), 1), self._target)
            again = yield from self._ask()
            if again == named:
                break
            yield Drop(named)
            named = again
        self._primary, self._ask_at = named, time.monotonic() + FRESH
        return named

    def _ask(self) -> Flow[Place]:
        target = self._target
        question = pack("SENTINEL", "GET-MASTER-ADDR-BY-NAME", target.service)
        known, why = False, ""
        for sentinel in target.places:
            ask = Send(sentinel, target.sentinel_login, question, 1)
            try:
                replies = yield from _ask_patiently(ask, target)
            except StoreUnavailable as error:
                why = f"{sentinel}: {error.__cause__ or error}"
                continue
            if isinstance(replies[0], ServerError):
                raise refusal(target.shown, replies[0])
            if replies[0]:
                host, port = replies[0]
                return Place(host.decode(), int(port))
            known = True
        if known:
            raise StoreMisconfigured(
                f"{target.shown}: the sentinels know no service {target.service!r}"
            )
        raise StoreUnavailable(f"{target.shown}: no sentinel can be reached ({why})")


def _ask_patiently(ask: Send, target: Target) -> Flow[list[Any]]:
    """Once more if the connection that was open has broken meanwhile; raises StoreUnavailable."""
    try:
        try:
            return (yield ask)
        except Disconnected:
            yield Drop(ask.place)
            return (yield ask)
    except BROKEN as error:
        raise StoreUnavailable(f"{target.shown}: {ask.place}: {error}") from error


class ClusterRoute:
    """A cluster's map from slots to nodes, asked of any node, mended as nodes object to it.

    Several threads use it, and each may put another map in its place: so it is read once.
    """

    clustered = True

    def __init__(self, target: Target, ears: Ears) -> None:
        self.login = target.login
        self.waits = ears.waits
        self._target = target
        self._slots: list[Place | None] = []

    def find(self, key: str) -> Flow[Place]:
        """Look it up."""
        slot, slots = slot_of(key), self._slots
        for _ in range(2):
            if not slots:
                slots = self._slots = yield from self._ask()
            place = slots[slot]
            if place is not None:
                return place
            slots = []
        raise StoreUnavailable(f"{self._target.shown}: no node of the cluster serves slot {slot}")

    def every(self) -> Flow[list[Place]]:
        """All nodes that serve a slot."""
        slots = self._slots
        if not slots:
            slots = self._slots = yield from self._ask()
        return sorted({place for place in slots if place is not None})

    def lost(self, place: Place) -> bool:
        """Its slots may be elsewhere by now."""
        del place
        self._slots = []
        return True

    def moved(self, slot: int, place: Place) -> None:
        """Mend the map."""
        slots = self._slots
        if slots:
            slots[slot] = place

    def _ask(self) -> Flow[list[Place | None]]:
        why = ""
        for place in self._target.places:
            try:
                replies = yield Send(place, self.login, pack("CLUSTER", "SLOTS"), 1)
            except BROKEN as error:
                why = f"{place}: {error}"
                continue
            reply = replies[0]
            if isinstance(reply, ServerError):
                if "cluster support disabled" in reply.text:
                    raise StoreMisconfigured(
                        f"{self._target.shown}: the server is no cluster: use redis:// instead"
                    )
                raise refusal(self._target.shown, reply)
            slots = self._read(place, reply)
            if any(slots):
                return slots
            why = f"{place}: it knows no slots"
        raise StoreUnavailable(
            f"{self._target.shown}: no node of the cluster tells its map ({why})"
        )

    def _read(self, asked: Place, reply: list[Any]) -> list[Place | None]:
        slots: list[Place | None] = [None] * SLOTS
        seen: list[Place] = []
        for first, last, primary, *replicas in reply:
            place = _node(asked, primary)
            slots[first : last + 1] = [place] * (last + 1 - first)
            seen += [place, *(_node(asked, replica) for replica in replicas)]
        # From now on any of them may be asked, should those that the caller named be gone.
        named = [*self._target.places, *seen]
        self._target = self._target._replace(places=tuple(dict.fromkeys(named)))
        return slots


def _node(asked: Place, node: list[Any]) -> Place:
    # A node that does not know its own name means the one it was reached under.
    return Place(node[0].decode() if node[0] else asked.host, int(node[1]))
