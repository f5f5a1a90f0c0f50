"""A client's ears in a cluster: at each node where a key lies that it waits for.

`PUBLISH` reaches a listener at any node, and therefore goes through all of them. `SPUBLISH` stays
at the node of the key, where the listener has to be. So the scripts try that first, and the other
one whenever it reached nobody: `joblock.stores.redis.listen` goes on hearing it. What is done here
thus only spares a cluster the broadcasts. It may be late, while a key was waited for just now or
its slot is being moved, and it may be missing, as in clusters older than Redis 7.
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from joblock.stores.redis.login import refusal
from joblock.stores.redis.scripts import shard_channel
from joblock.stores.redis.wire import (
    ConnectFailed,
    Disconnected,
    ServerError,
    TimedOut,
    pack,
)
from joblock.values.errors import StoreError, StoreMisconfigured
from joblock.values.log import logger

if TYPE_CHECKING:
    from joblock.stores.redis.listen import RedisSubscription
    from joblock.stores.redis.sync import Connection, SyncDriver
    from joblock.stores.redis.target import Place

KEPT = 60.0
"""Seconds for which a key's channel is listened to after nobody has waited for the key."""

PAUSE = 1.0
"""Seconds before a channel that was lost is looked for again."""

ELSEWHERE = ("MOVED", "ASK")
"""What a node answers to a subscription that belongs to another one."""

QUIET, PATIENCE = 10.0, 5.0
"""Seconds of silence after which a node is asked whether it is there, and that it has to answer."""


class Ears:
    """The ears of a store's clients; drivers tell which keys a client waits for."""

    def __init__(self) -> None:
        self._ears: dict[str, ShardEar] = {}

    def subscribe(
        self, driver: SyncDriver, client: str, anywhere: RedisSubscription
    ) -> ClusterSubscription:
        """Hear at the keys' own nodes what ``anywhere`` does not need to hear then."""
        ear = self._ears[client] = ShardEar(driver, client, anywhere.pass_on)
        return ClusterSubscription(anywhere, ear, partial(self._remove, client, ear))

    def _remove(self, client: str, ear: ShardEar) -> None:
        if self._ears.get(client) is ear:
            del self._ears[client]

    def waits(self, client: str, keys: Iterable[str]) -> None:
        """A client waits for these keys."""
        ear = self._ears.get(client)
        if ear is not None:
            ear.want(keys)


class ClusterSubscription:
    """See `joblock.store.contract.Subscription`."""

    def __init__(
        self, anywhere: RedisSubscription, ear: ShardEar, removed: Callable[[], None]
    ) -> None:
        self._anywhere = anywhere
        self._ear = ear
        self._removed = removed

    @property
    def listening(self) -> bool:
        """Whether a notice sent now would arrive."""
        return self._anywhere.listening

    def close(self) -> None:
        """Stop listening; returns when the connections are closed."""
        self._removed()
        self._ear.close()
        self._anywhere.close()


class _Node:
    """A connection to a node: which key each channel there is for, and what was not answered."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.keys: dict[bytes, str] = {}
        self.asked: deque[bytes] = deque()
        self.heard_at = time.monotonic()
        self.pinged = False


class ShardEar:
    """One client's connections to the nodes, and the thread that listens to all of them."""

    def __init__(self, driver: SyncDriver, client: str, pass_on: Callable[[str], None]) -> None:
        self._driver = driver
        self._client = client
        self._pass_on = pass_on
        self._lock = threading.Lock()
        # Until when each key is worth a channel, where that is, and which have none yet.
        self._wanted: dict[str, float] = {}
        self._placed: dict[str, Place] = {}
        self._missing: set[str] = set()
        self._nodes: dict[Place, _Node] = {}
        self._retry_at = self._look_at = 0.0
        self._closed = False
        self._selector = selectors.DefaultSelector()
        self._awake, self._bell = socket.socketpair()
        self._awake.settimeout(0)
        self._bell.settimeout(0)
        self._selector.register(self._awake, selectors.EVENT_READ, None)
        self._thread = threading.Thread(
            target=self._run, name="joblock-redis-shard-ears", daemon=True
        )
        self._thread.start()

    def want(self, keys: Iterable[str]) -> None:
        """Listen for these keys too; from any thread, and returns at once."""
        till = time.monotonic() + KEPT
        with self._lock:
            if self._closed:
                return
            missing = [key for key in keys if key not in self._wanted]
            self._wanted.update(dict.fromkeys(keys, till))
            if missing:
                self._missing.update(missing)
                self._ring()

    def close(self) -> None:
        """Stop listening; returns when the connections are closed."""
        with self._lock:
            self._closed = True
            self._ring()
        if self._thread is not threading.current_thread():
            self._thread.join(PATIENCE)

    def _ring(self) -> None:
        try:
            self._bell.send(b"!")
        except OSError:
            # It was closed, or rings already with a buffer full of it.
            return

    def _run(self) -> None:
        try:
            while not self._closed:
                self._turn()
        except StoreMisconfigured as error:
            logger("wait").warning(
                "this cluster's notices go through all of its nodes, since the keys' own channels "
                "cannot be listened to: %s",
                error,
            )
        except Exception:  # noqa: BLE001 - a thread of a library says so and ends
            logger("wait").exception("the thread that listens to a cluster's nodes failed")
        finally:
            for place in list(self._nodes):
                self._part(place)
            with self._lock:
                self._closed = True
                self._selector.close()
                self._bell.close()
                self._awake.close()

    def _turn(self) -> None:
        """Ask for what is missing, and pass on what comes, or see to what does not."""
        if self._missing and time.monotonic() >= self._retry_at:
            self._place_all()
        for ready, _ in self._selector.select(PAUSE if self._missing else QUIET):
            if ready.data is None:
                self._drain()
            else:
                self._hear(ready.data)
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at = now + PAUSE
            self._look_after(now)

    def _drain(self) -> None:
        try:
            self._awake.recv(4096)
        except BlockingIOError:
            return

    # Channels.

    def _place_all(self) -> None:
        """Subscribe where a wanted key has no channel yet."""
        with self._lock:
            missing = list(self._missing)
        for key in missing:
            if self._closed:
                return
            try:
                self._place(key)
            except (ConnectFailed, Disconnected, TimedOut, StoreError):
                # The drivers meet the same cluster, and say what ails it.
                self._retry_at = time.monotonic() + PAUSE
                return

    def _place(self, key: str) -> None:
        place = self._driver.run(self._driver.route.find(key))
        node = self._nodes.get(place)
        if node is None:
            node = self._nodes[place] = _Node(self._driver.connect_to(place))
            self._selector.register(node.connection, selectors.EVENT_READ, place)
        channel = shard_channel(key, self._client)
        self._placed[key] = place
        self._missing.discard(key)
        node.keys[channel] = key
        node.asked.append(channel)
        try:
            node.connection.send(pack("SSUBSCRIBE", channel))
        except (Disconnected, TimedOut):
            self._lose(place)
            raise

    def _displace(self, place: Place, channel: bytes) -> None:
        """A channel is not where it was thought to be; one that was given up is nobody's."""
        key = self._nodes[place].keys.pop(channel, None)
        if key is not None:
            self._misses(key)
            self._driver.route.lost(place)
            self._retry_at = time.monotonic() + PAUSE

    def _part(self, place: Place) -> None:
        """Give up a connection; what is still wanted of it is looked for again."""
        node = self._nodes.pop(place)
        self._selector.unregister(node.connection)
        node.connection.close()
        for key in node.keys.values():
            self._misses(key)

    def _misses(self, key: str) -> None:
        del self._placed[key]
        self._missing.add(key)

    def _lose(self, place: Place) -> None:
        self._part(place)
        self._driver.route.lost(place)
        self._retry_at = time.monotonic() + PAUSE

    # What nodes say.

    def _hear(self, place: Place) -> None:
        node = self._nodes.get(place)
        if node is None:
            return
        try:
            messages = node.connection.listen(PATIENCE) or []
        except (Disconnected, TimedOut):
            self._lose(place)
            return
        node.heard_at, node.pinged = time.monotonic(), False
        for message in messages:
            self._take(place, node, message)

    def _take(self, place: Place, node: _Node, message: Any) -> None:
        if isinstance(message, ServerError):
            channel = node.asked.popleft()
            error = refusal(f"channel {channel.decode()}", message)
            if message.code not in ELSEWHERE and isinstance(error, StoreMisconfigured):
                raise error
            self._displace(place, channel)
        elif message[0] == b"smessage":
            self._pass_on(message[2].decode())
        elif message[0] == b"ssubscribe":
            node.asked.popleft()
        elif message[0] == b"sunsubscribe":
            # Unless the channel was given up, its slot has just moved to another node.
            self._displace(place, message[1])

    # Order.

    def _look_after(self, now: float) -> None:
        """Give up channels that nobody wants, and nodes that have none or do not answer."""
        self._forget(now)
        for place, node in list(self._nodes.items()):
            silent = now - node.heard_at
            if not node.keys and not node.asked:
                self._part(place)
            elif silent > QUIET + PATIENCE:
                self._lose(place)
            elif silent > QUIET and not node.pinged:
                node.pinged = True
                self._send(place, node, pack("PING"))

    def _forget(self, now: float) -> None:
        with self._lock:
            over = [key for key, till in self._wanted.items() if till < now]
            for key in over:
                del self._wanted[key]
                self._missing.discard(key)
        for key in over:
            place = self._placed.pop(key, None)
            if place is not None:
                channel = shard_channel(key, self._client)
                del self._nodes[place].keys[channel]
                self._send(place, self._nodes[place], pack("SUNSUBSCRIBE", channel))

    def _send(self, place: Place, node: _Node, data: bytes) -> None:
        try:
            node.connection.send(data)
        except (Disconnected, TimedOut):
            self._lose(place)
