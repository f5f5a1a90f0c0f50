"""From what a caller has (a URL, a client object) to a store that works; who may do what."""

from __future__ import annotations

import asyncio
import threading

import pytest
import redis
import redis.asyncio
import valkey
import valkey.asyncio
from redis_servers import Server, binary, wait_until

from joblock import AsyncJobLocks, JobLocks
from joblock.store.ops import Acquire, Queueing, Release
from joblock.stores.redis import RedisStore
from joblock.stores.redis.target import Place, from_url
from joblock.stores.registry import open_store
from joblock.values.errors import StoreMisconfigured, StoreUnavailable

ACL = (
    "on >secret resetkeys ~joblock:* resetchannels &joblock:to:* -@all "
    "+eval +evalsha +get +set +del +time +pexpire +pttl "
    "+hget +hset +hdel +hgetall +hlen +hvals "
    "+zadd +zrem +zcount +zrangebyscore +zrevrange "
    "+publish +subscribe +ping +scan"
)
"""As docs/stores/redis.md has it."""

CLIENTS = {
    "redis": lambda port: redis.Redis(port=port),
    "decoding": lambda port: redis.Redis(port=port, decode_responses=True),
    "resp3": lambda port: redis.Redis(port=port, protocol=3),
    "hasty": lambda port: redis.Redis(port=port, socket_timeout=0.000_1, max_connections=1),
    "latin": lambda port: redis.Redis(port=port, encoding="latin-1"),
    "asyncio": lambda port: redis.asyncio.Redis(port=port),
    "valkey": lambda port: valkey.Valkey(port=port),
    "valkey-asyncio": lambda port: valkey.asyncio.Valkey(port=port, decode_responses=True),
}


@pytest.mark.parametrize("kind", CLIENTS)
def test_any_client_object_means_its_server(kind, redis_server):
    client = CLIENTS[kind](redis_server.port)
    with JobLocks(client) as locks, locks.lock(f"of:{kind} é") as lease:
        assert lease.held
        assert redis_server.ask("EXISTS", f"joblock:{{.of:{kind} é}}") == 1


@pytest.mark.parametrize("kind", CLIENTS)
async def test_any_client_object_serves_the_async_client_too(kind, redis_server):
    client = CLIENTS[kind](redis_server.port)
    async with AsyncJobLocks(client) as locks, locks.lock(f"async {kind}") as lease:
        assert lease.held


def test_a_client_of_a_cluster_means_the_cluster(cluster):
    port = cluster.nodes[1].port
    client = redis.RedisCluster(host="127.0.0.1", port=port)
    with client, JobLocks(client) as locks:
        for number in range(20):
            with locks.lock(f"k{number}") as lease:
                assert lease.held


async def test_an_asyncio_client_of_a_cluster_means_the_cluster(cluster):
    client = redis.asyncio.RedisCluster(host="127.0.0.1", port=cluster.nodes[1].port)
    async with AsyncJobLocks(client) as locks:
        leases = await asyncio.gather(*(locks.acquire(f"k{number}") for number in range(20)))
        assert all(lease.held for lease in leases)


def test_a_client_that_sentinels_made_means_what_they_guard(guarded):
    sentinels = [("127.0.0.1", sentinel.port) for sentinel in guarded.sentinels]
    client = redis.Sentinel(sentinels).master_for("mymaster")
    with JobLocks(client) as locks, locks.lock("k") as lease:
        assert lease.held
        assert guarded.primary.ask("EXISTS", "joblock:{.k}") == 1


def test_a_client_with_connections_of_another_kind_is_refused():
    class Odd(redis.Connection):
        pass

    pool = redis.ConnectionPool(connection_class=Odd)
    with pytest.raises(TypeError, match="pass a URL"):
        RedisStore(redis.Redis(connection_pool=pool))


@pytest.mark.parametrize(
    ("url", "places", "db"),
    [
        ("redis://", (Place("localhost", 6379),), 0),
        ("redis://:p%40ss@h:1/2", (Place("h", 1),), 2),
        ("rediss://u:p@[::1]:7/0?ssl_cert_reqs=none", (Place("::1", 7),), 0),
        ("valkey://h?db=3&decode_responses=true", (Place("h", 6379),), 3),
        ("redis+unix:///run/r.sock?db=1", (Place("/run/r.sock", 0),), 1),
        ("redis+cluster://a:1,b:2", (Place("a", 1), Place("b", 2)), 0),
        ("valkey+sentinel://a,b:9/main/4", (Place("a", 26379), Place("b", 9)), 4),
    ],
)
def test_a_url_is_read_as_it_is_meant(url, places, db):
    target = from_url(url)
    assert (target.places, target.login.db) == (places, db)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis://h:x/0", "cannot read the server"),
        ("redis://h/zero", "database must be a whole number"),
        ("redis://a,b/0", "several servers"),
        ("redis://h/0?min_replica=1", "unknown option 'min_replica'"),
        ("redis+unix://run/r.sock", "must be absolute"),
        ("redis+cluster://h/1", "database 0 only"),
        ("redis+sentinel://h:1", "names the service"),
    ],
)
def test_a_url_that_cannot_be_read_says_why_and_shows_no_password(url, says):
    secret = url.replace("://", "://user:hunter2@")
    with pytest.raises(ValueError, match=says) as caught:
        open_store(secret)
    assert "hunter2" not in str(caught.value)


def test_the_url_shown_has_no_password():
    store = RedisStore.from_url("redis://user:hunter2@h:1/0?sentinel_password=hunter2")
    assert "hunter2" not in store.url


def test_a_unix_socket_is_a_way_in(tmp_path):
    path = tmp_path / "r.sock"
    server = Server(binary("redis-server"), tmp_path / "data", "--unixsocket", str(path))
    with JobLocks(f"redis+unix://{path}") as locks, locks.lock("k") as lease:
        assert lease.held
    server.stop()


@pytest.fixture
def guest(own_server):
    own_server.ask("ACL", "SETUSER", "guest", *ACL.split())
    return f"redis://guest:secret@127.0.0.1:{own_server.port}/0"


def test_the_smallest_acl_lets_everything_work(guest, own_server):
    with JobLocks(guest) as locks:
        first = locks.acquire("k", ttl="5s")
        assert locks.acquire("k") is None
        permits = [locks.acquire("p", limit=2) for _ in range(2)]
        waiter = threading.Thread(target=_wait, args=(locks,))
        waiter.start()
        wait_until(lambda: locks.model.waiters("k"), "it is queued")
        wait_until(lambda: own_server.ask("PUBSUB", "CHANNELS", "*"), "it listens")
        first.refresh("6s")
        permits[0].refresh("6s")
        first.release()
        waiter.join(10)
        assert [lease.key for lease in locks.model.all()] == ["p", "p"]
        assert locks.model.count() == 2
        assert len(locks.model.delete("p")) == 2
    refused = own_server.ask("ACL", "LOG")
    assert [entry for entry in refused if b"client" not in entry[7]] == []


def _wait(locks):
    with locks.lock("k", wait=10):
        pass


@pytest.mark.parametrize(
    ("missing", "says"),
    [
        ("-evalsha", "evalsha"),
        ("-get", "doing GET"),
        ("-publish", "doing PUBLISH"),
        ("resetchannels", "channel"),
        ("resetkeys", "key"),
    ],
)
def test_a_missing_right_is_named(guest, own_server, missing, says):
    own_server.ask("ACL", "SETUSER", "guest", missing)
    store = RedisStore.from_url(guest)
    try:
        with pytest.raises(StoreMisconfigured, match=says) as caught:
            _hand_off(store.driver())
        assert "secret" not in str(caught.value)
    finally:
        store.close()


def _hand_off(driver):
    driver.call(Acquire("k", "a", 1_000))
    driver.call(Acquire("k", "b", 1_000, queue=Queueing("c")))
    driver.call(Release("k", "a"))


@pytest.mark.parametrize("login", ["guest:wrong@", "nobody:secret@"])
def test_a_wrong_password_is_a_misconfiguration(guest, own_server, login):
    url = guest.replace("guest:secret@", login)
    with JobLocks(url) as locks, pytest.raises(StoreMisconfigured, match="password"):
        locks.acquire("k")


def test_a_password_that_is_missing_is_a_misconfiguration(own_server):
    own_server.ask("CONFIG", "SET", "requirepass", "hunter2")
    with JobLocks(own_server.url) as locks, pytest.raises(StoreMisconfigured, match="password"):
        locks.acquire("k")


def test_a_replica_is_refused_with_what_to_do(guarded):
    with JobLocks(guarded.replica.url) as locks, pytest.raises(StoreUnavailable, match="replica"):
        locks.acquire("k")


def test_a_cluster_node_taken_for_a_single_server_is_a_misconfiguration(cluster):
    url = cluster.nodes[0].url
    with JobLocks(url) as locks, pytest.raises(StoreMisconfigured, match=r"redis\+cluster://"):
        locks.acquire("k")


def test_a_single_server_taken_for_a_cluster_is_a_misconfiguration(redis_server):
    url = redis_server.url.replace("redis:", "redis+cluster:")
    with JobLocks(url) as locks, pytest.raises(StoreMisconfigured, match="no cluster"):
        locks.acquire("k")


def test_a_full_memory_is_said_to_be_that(own_server):
    own_server.ask("CONFIG", "SET", "maxmemory", "1")
    with JobLocks(own_server.url) as locks, pytest.raises(StoreUnavailable, match="maxmemory"):
        locks.acquire("k")
