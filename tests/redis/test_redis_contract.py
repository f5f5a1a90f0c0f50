"""The Redis store keeps the contract: on Redis and Valkey, one server and a cluster."""

from __future__ import annotations

import pytest
from redis_harness import RedisHarness, TurnedHarness

from joblock.store.ops import Purge
from joblock.stores.redis.scripts import FLOOR_MS, row_name
from joblock.testing import StoreContract
from joblock.testing.contract.checks import Checks
from joblock.testing.contract.claims import Claims
from joblock.testing.contract.drivers import Drivers
from joblock.testing.contract.holding import Holding
from joblock.testing.contract.joining import Joining
from joblock.testing.contract.names import Names
from joblock.testing.contract.notices import Notices
from joblock.testing.contract.queueing import Queue
from joblock.testing.contract.reading import Reading
from joblock.testing.contract.table import Table
from joblock.testing.model import ModelContract


class RedisContract(StoreContract):
    """What is different here: rows carry their own end, and no purge is needed."""

    def test_purge_deletes_what_has_been_vacant_for_long(self, key):
        key.grant("A")
        key.release("A")
        assert key.driver.call(Purge(batch=500, idle=1)) == 0
        assert FLOOR_MS - 5_000 < milliseconds_left(key) <= FLOOR_MS


def milliseconds_left(key) -> int:
    """How soon the server forgets a key's row."""
    from redis import Redis
    from redis.cluster import RedisCluster

    url = key.store.url.replace("redis+cluster", "redis")
    client = RedisCluster.from_url(url) if url != key.store.url else Redis.from_url(url)
    with client:
        return client.pttl(row_name(key.name))


class TestRedisByTheHour(RedisContract):
    """The real scripts, with a clock turned by hand: what takes long, and exact times."""

    @pytest.fixture
    def harness(self, redis_server, monkeypatch):
        return TurnedHarness(redis_server, monkeypatch)


class TestValkeyByTheHour(Table, Claims, Joining, Notices):
    """What depends on the scripts most; that they mean the same is for the machine to say."""

    @pytest.fixture
    def harness(self, valkey_server, monkeypatch):
        return TurnedHarness(valkey_server, monkeypatch)


class TestRedisIsTheMachine(ModelContract):
    examples = 25
    steps = 30

    @pytest.fixture
    def harness(self, redis_server, monkeypatch):
        return TurnedHarness(redis_server, monkeypatch)


class TestValkeyIsTheMachine(ModelContract):
    examples = 10
    steps = 30

    @pytest.fixture
    def harness(self, valkey_server, monkeypatch):
        return TurnedHarness(valkey_server, monkeypatch)


class TestCluster(Holding, Queue, Checks, Reading, Names, Drivers):
    """On the servers' own clock, and through three nodes: what depends on where a key lies.

    Notices come from several nodes here, so in no order, which the tests of notices go by.
    """

    test_purge_deletes_what_has_been_vacant_for_long = (
        RedisContract.test_purge_deletes_what_has_been_vacant_for_long
    )

    @pytest.fixture
    def harness(self, cluster):
        return RedisHarness(cluster.url)
