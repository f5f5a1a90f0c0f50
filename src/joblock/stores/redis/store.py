"""The store: from a URL or a client object to drivers and ears; constructing one does no I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from joblock.store.contract import Abilities, Deliver
from joblock.stores.redis import commands
from joblock.stores.redis.handing import Hand, Post
from joblock.stores.redis.listen import RedisSubscription
from joblock.stores.redis.shards import ClusterSubscription, Ears
from joblock.stores.redis.sync import SyncDriver
from joblock.stores.redis.target import Target, from_client, from_url
from joblock.values.imports import importing

if TYPE_CHECKING:
    from joblock.store.ops import Notice

# What a forked child inherited: closing it would disturb the parent, so it is kept as it is.
_inherited: list[Any] = []


class RedisStore:
    """Leases in Redis 6.2 or later, or Valkey: one server, a cluster, or what sentinels guard.

    ``client`` is a client object of redis-py or valkey-py, sync or asyncio, of which only the way
    to connect is used: the connections are the store's own. With ``min_replicas`` a grant counts
    only when that many replicas have acknowledged it.
    """

    abilities = Abilities()

    def __init__(self, client: Any, *, min_replicas: int = 0) -> None:
        given = isinstance(client, Target)
        self._target = client if given else from_client(client, min_replicas)
        self._driver: SyncDriver | None = None
        self._ears = Ears()
        self._hand = Hand()
        self.url = self._target.shown

    @classmethod
    def from_url(cls, url: str, *, min_replicas: int | None = None) -> RedisStore:
        """The store that a URL means; raises ValueError if it cannot be read."""
        return cls(from_url(url, min_replicas))

    def driver(self) -> SyncDriver:
        """The blocking driver, shared by all threads."""
        driver = self._driver
        if driver is None:
            driver = self._driver = SyncDriver(self._target, self._ears, self._hand)
        return driver

    def async_driver(self) -> Any:
        """A driver for the running event loop."""
        with importing():
            from joblock.stores.redis.aio import AsyncDriver

        return AsyncDriver(self._target, self._ears, self._hand)

    def subscribe(
        self, client: str, deliver: Deliver, connected: Callable[[], None]
    ) -> RedisSubscription | ClusterSubscription:
        """Hear the notices for ``client``, from a thread of its own."""
        driver = self.driver()
        ear = RedisSubscription(driver, client, commands.key_marked, deliver, connected)
        return self._ears.subscribe(driver, client, ear) if driver.route.clustered else ear

    def hand_notices_to(self, post: Post) -> None:
        """See `joblock.store.contract.Handing`."""
        self._hand.post = post

    def publish(self, notices: Sequence[Notice]) -> None:
        """See `joblock.store.contract.Notifier`."""
        with importing():
            from joblock.stores.redis.publish import publish

        driver = self.driver()
        driver.run(publish(notices, driver.route, self.url))

    def after_fork(self) -> None:
        """In a forked child: abandon what was inherited without closing it."""
        _inherited.append((self._driver, self._ears))
        self._driver, self._ears = None, Ears()

    def close(self) -> None:
        """Close the connections; a later call opens new ones."""
        driver, self._driver = self._driver, None
        if driver is not None:
            driver.close()
