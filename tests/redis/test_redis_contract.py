"""The Redis store keeps the contract: on Redis and Valkey, one server, a cluster, by clients."""

from __future__ import annotations

import pytest
from joblock.stores.redis import RedisStore
from joblock.testing import StoreContract
from redis_harness import RedisHarness, TurnedHarness


class TestOnRedis(StoreContract):
    @pytest.fixture
    def harness(self, redis_server):
        return RedisHarness(lambda: RedisStore.from_url(redis_server.url))


class TestOnRedisByTheHour(StoreContract):
    """The real scripts, with a clock turned by hand: what takes long, and exact times."""

    @pytest.fixture
    def harness(self, redis_server, monkeypatch):
        return TurnedHarness(redis_server, monkeypatch)
