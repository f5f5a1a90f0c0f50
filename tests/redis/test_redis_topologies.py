"""The contract in whole through three nodes of a cluster, and behind sentinels."""

from __future__ import annotations

import uuid

import pytest
import redis
import valkey
from redis_harness import RedisHarness, TurnedHarness, TurnedStore
from redis_servers import Guarded

from joblock.store.ops import Purge
from joblock.stores.redis import RedisStore, flows
from joblock.stores.redis.scripts import FLOOR_MS, row_name
from joblock.testing import StoreContract
from joblock.testing.clients.locking import Locking
from joblock.testing.clients.running import Running
from joblock.testing.contract import Bench
from joblock.testing.contract.drivers import Drivers
from joblock.testing.contract.holding import Holding
from joblock.testing.contract.notices import Notices
from joblock.testing.contract.queueing import Queue


class Whole(StoreContract):
    """What is different here: rows carry their own end, and no purge is needed."""

    def test_purge_deletes_what_has_been_vacant_for_long(self, key):
        key.grant("A")
        key.release("A")
        assert key.driver.call(Purge(batch=500, idle=1)) == 0
        assert FLOOR_MS - 10_000 < self.milliseconds_left(row_name(key.name)) <= FLOOR_MS

    def milliseconds_left(self, name):
        raise NotImplementedError


class TestClusterInWhole(Whole):
    """On the servers' own clocks, which no test may turn."""

    # Notices of several nodes come in no order; see below.
    locals().update({name: None for name in vars(Notices) if name.startswith("test_")})

    @pytest.fixture
    def harness(self, cluster):
        self.nodes = cluster.nodes
        return RedisHarness(cluster.url)

    def milliseconds_left(self, name):
        with redis.RedisCluster(host="127.0.0.1", port=self.nodes[0].port) as client:
            return client.pttl(name)


class TestClusterNotices(Notices):
    """These tests go by the order of notices: so one node, and the one way that keeps it.

    What is heard at the keys' own nodes, and by both ways in turn, is in test_redis_cluster.
    """

    @pytest.fixture
    def harness(self, cluster):
        for node in cluster.nodes:
            node.ask("ACL", "SETUSER", "one-way", "on", ">p", "~*", "&*", "+@all", "-ssubscribe")
        return RedisHarness(cluster.url.replace("://", "://one-way:p@"))

    @pytest.fixture(params=["sync", "async"])
    def bench(self, request, harness):
        bench = OneSlot(harness, through_loop=request.param == "async")
        yield bench
        bench.close()


class OneSlot(Bench):
    """All keys of a test in one slot: what is before the first ``}`` decides."""

    def key(self, name=""):
        return super().key(name or f"{self.mark}}}{uuid.uuid4().hex}")


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """A primary that nobody will kill, its replica, and their sentinels."""
    guarded = Guarded(tmp_path_factory.mktemp("watched"), down_after=60_000)
    yield guarded
    guarded.stop()


class Sentinels:
    """What `TurnedHarness` wants of a server: where stores find it, and where its clock is set."""

    def __init__(self, guarded, url=""):
        self.url = url or guarded.url
        self.port = guarded.primary.port


class TestBehindSentinels(Whole):
    @pytest.fixture
    def harness(self, watched, monkeypatch):
        self.watched = watched
        return TurnedHarness(Sentinels(watched), monkeypatch)

    def milliseconds_left(self, name):
        return self.watched.primary.ask("PTTL", name)


class TestBehindSentinelsWithAReplicaThatAcknowledges(Holding, Queue, Drivers):
    """Each grant is on its way to the replica and back before it counts."""

    test_purge_deletes_what_has_been_vacant_for_long = (
        Whole.test_purge_deletes_what_has_been_vacant_for_long
    )
    milliseconds_left = TestBehindSentinels.milliseconds_left

    @pytest.fixture
    def harness(self, watched, monkeypatch):
        self.watched = watched
        monkeypatch.setattr(flows, "REPLICAS_MS", 3_000)  # where it is busy, too
        return TurnedHarness(Sentinels(watched, f"{watched.url}?min_replicas=1"), monkeypatch)


class Given(TurnedHarness):
    """Stores made of a caller's client object instead of a URL."""

    def __init__(self, guarded, patch, client):
        super().__init__(Sentinels(guarded), patch)
        self._client = client

    def make_store(self):
        return TurnedStore(RedisStore(self._client), self.tell)


@pytest.mark.parametrize("library", [redis, valkey], ids=["redis", "valkey"])
class TestAClientThatSentinelsMade(Running, Locking):
    @pytest.fixture
    def harness(self, watched, monkeypatch, library):
        where = [("127.0.0.1", sentinel.port) for sentinel in watched.sentinels]
        return Given(watched, monkeypatch, library.Sentinel(where).master_for("mymaster"))
