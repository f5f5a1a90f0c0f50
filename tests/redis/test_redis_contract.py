"""The Redis store keeps the contract: on Redis and Valkey, one server, a cluster, by clients."""

from __future__ import annotations

import pytest
from joblock.store.ops import Purge
from joblock.stores.redis import RedisStore
from joblock.stores.redis.scripts import FLOOR_MS, row_name
from joblock.testing import StoreContract
from redis_harness import RedisHarness, TurnedHarness


class RedisContract(StoreContract):
    """What is different here: rows carry their own end, and no purge is needed."""

    def test_purge_deletes_what_has_been_vacant_for_long(self, key, redis_server):
        key.grant("A")
        key.release("A")
        assert key.driver.call(Purge(batch=500, idle=1)) == 0
        remaining = redis_server.ask("PTTL", row_name(key.name))
        assert FLOOR_MS - 5_000 < remaining <= FLOOR_MS


class TestOnRedis(RedisContract):
    @pytest.fixture
    def harness(self, redis_server):
        return RedisHarness(lambda: RedisStore.from_url(redis_server.url))


class TestOnRedisByTheHour(RedisContract):
    """The real scripts, with a clock turned by hand: what takes long, and exact times."""

    @pytest.fixture
    def harness(self, redis_server, monkeypatch):
        return TurnedHarness(redis_server, monkeypatch)
