"""The Redis store keeps the contract, on one server of Redis and of Valkey."""

from __future__ import annotations

import pytest
from redis import Redis
from redis_harness import TurnedHarness

from joblock.store.ops import Purge
from joblock.stores.redis.scripts import FLOOR_MS, row_name
from joblock.testing import StoreContract
from joblock.testing.contract.claims import Claims
from joblock.testing.contract.joining import Joining
from joblock.testing.contract.notices import Notices
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
    with Redis.from_url(key.store.url) as client:
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
