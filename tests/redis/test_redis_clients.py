"""From what a caller has (a URL, a client object) to a store that works; who may do what."""

from __future__ import annotations

import asyncio
import re
import threading
import traceback
from pathlib import Path

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
from joblock.values.errors import StoreError, StoreMisconfigured, StoreUnavailable

PAGE = Path(__file__).parents[2] / "docs" / "stores" / "redis.md"


def acl_of_the_page(*more):
    """The smallest user that the page shows, whose password is "secret"."""
    text = PAGE.read_text(encoding="utf-8")
    rights = re.search(r"```text\nuser locks (.*?)```", text, re.DOTALL)[1]
    return [*rights.replace("PASSWORD", "secret").split(), *more]


def also_on_a_cluster():
    """What the page adds to that for a cluster."""
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    return re.search(r"On a cluster it also needs `([^`]*)`", text)[1].split()


BLOCKING = (redis.BlockingConnectionPool, redis.asyncio.BlockingConnectionPool)
CLIENTS = {
    "redis": lambda port: redis.Redis(port=port),
    "decoding": lambda port: redis.Redis(port=port, decode_responses=True),
    "resp2": lambda port: redis.Redis(port=port, protocol=2),
    "resp3": lambda port: redis.Redis(port=port, protocol=3, decode_responses=True),
    "hasty": lambda port: redis.Redis(port=port, socket_timeout=0.000_1, max_connections=1),
    "patient": lambda port: redis.Redis(port=port, socket_timeout=None),
    "latin": lambda port: redis.Redis(port=port, encoding="latin-1"),
    "blocking pool": lambda port: redis.Redis(
        connection_pool=BLOCKING[0](port=port, max_connections=1, timeout=0.1)
    ),
    "from url": lambda port: redis.Redis.from_url(f"redis://127.0.0.1:{port}/0?protocol=3"),
    "asyncio": lambda port: redis.asyncio.Redis(port=port),
    "asyncio blocking pool": lambda port: redis.asyncio.Redis(
        connection_pool=BLOCKING[1](port=port, max_connections=1, timeout=0.1)
    ),
    "valkey": lambda port: valkey.Valkey(port=port),
    "valkey blocking pool": lambda port: valkey.Valkey(
        connection_pool=valkey.BlockingConnectionPool(port=port, max_connections=1)
    ),
    "valkey asyncio": lambda port: valkey.asyncio.Valkey(port=port, decode_responses=True),
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


def test_a_pool_whose_only_connection_is_borrowed_is_in_nobodys_way(redis_server):
    """The application has its connection, and four threads of it take locks all the same."""
    pool = redis.ConnectionPool(port=redis_server.port, max_connections=1)
    client = redis.Redis(connection_pool=pool)
    subscribed = client.pubsub()
    subscribed.subscribe("the application's own")
    tokens = []

    def work(locks):
        with locks.lock("busy pool", wait=30) as lease:
            tokens.append(lease.token)

    with JobLocks(client) as locks:
        threads = [threading.Thread(target=work, args=(locks,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert tokens == sorted(tokens)
    assert len(tokens) == 4
    subscribed.close()
    client.close()


@pytest.mark.parametrize("library", [redis, valkey], ids=["redis", "valkey"])
@pytest.mark.parametrize("decode", [False, True])
async def test_waiting_with_a_client_object_is_being_told(library, decode, redis_server):
    """With its settings that would break off a wait: a timeout, one connection, decoding."""
    client = (library.Redis if library is redis else library.Valkey)(
        port=redis_server.port, socket_timeout=0.05, max_connections=1, decode_responses=decode
    )
    with JobLocks(client) as held:
        lease = held.acquire("told", ttl=60)
        async with AsyncJobLocks(client) as locks:
            waiting = asyncio.create_task(locks.acquire("told", wait=30))
            while not held.model.waiters("told"):  # noqa: ASYNC110 - the store tells
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.2)  # four of the client's own timeouts
            lease.release()
            later = await waiting
            assert later.token > lease.token
            await later.release()


@pytest.mark.parametrize("kind", [redis.RedisCluster, valkey.ValkeyCluster])
def test_a_client_of_a_cluster_means_the_cluster(kind, cluster):
    port = cluster.nodes[1].port
    client = kind(host="127.0.0.1", port=port)
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


async def test_an_asyncio_client_that_sentinels_made_means_what_they_guard(guarded):
    sentinels = [("127.0.0.1", sentinel.port) for sentinel in guarded.sentinels]
    client = redis.asyncio.Sentinel(sentinels).master_for("mymaster", decode_responses=True)
    async with AsyncJobLocks(client) as locks, locks.lock("k") as lease:
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
    ("url", "kind"),
    [
        ("rediss://h", "single"),
        ("redis://h?ssl=true", "single"),
        ("rediss+cluster://a,b", "cluster"),
        ("valkeys+cluster://a,b", "cluster"),
        ("rediss+sentinel://a,b/main", "sentinel"),
        ("redis+sentinel://a,b/main?ssl=1", "sentinel"),
    ],
)
def test_a_url_with_two_s_is_over_tls(url, kind):
    store = open_store(url)
    target = store._target  # noqa: SLF001
    assert target.kind == kind
    assert target.login.tls is not None
    assert target.sentinel_login.tls is not None or kind != "sentinel"


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


MALFORMED = [
    "redis:user:hunter2@h",
    "redis:/user:hunter2@h/0",
    "redis:///user:hunter2@h/0",
    "redis://user:hunter2@h:port/0",
    "redis://user:hunter2@h/zero",
    "redis://user:hunter2@h/0?nonsense=1",
    "redis://user:hunter2@h/0?db=x&password=hunter2",
    "redis://user:hunter2@a,b",
    "redis://user:hun@hunter2/ter@h:x/0",
    "redis://user:#/hunter2@h:x",
    "redis://h:x?password=hunter2",
    "redis://h/0?passwrod=hunter2",
    "redis+unix://user:hunter2@run/r.sock",
    "redis+cluster://user:hunter2@h/7",
    "redis+sentinel://user:hunter2@h",
    "redis+sentinel://user:hunter2@h/m/x?sentinel_password=hunter2",
    "redis+nothing://user:hunter2@h",
    "rediss+nothing://user:hunter2@h",
    "user:hunter2@h",
    "//user:hunter2@h",
    "redis://user:hunter2@[::1/0",
    "redis://user:hunter2@/x",
]


@pytest.mark.parametrize("url", MALFORMED)
def test_no_error_about_a_url_shows_its_password(url):
    try:
        shown = open_store(url).url
    except ValueError as error:
        shown = "".join(traceback.format_exception(error, chain=True)[-1:])
    assert "hunter2" not in shown


def test_no_error_about_a_login_shows_its_password(own_server):
    own_server.ask("CONFIG", "SET", "requirepass", "something else")
    for url in (
        f"redis://user:hunter2@127.0.0.1:{own_server.port}/0",
        f"redis://127.0.0.1:{own_server.port}/0?password=hunter2",
        "redis://user:hunter2@127.0.0.1:1/0?sentinel_password=hunter2",
        "redis+cluster://user:hunter2@127.0.0.1:1",
        "redis+sentinel://user:hunter2@127.0.0.1:1/main?sentinel_password=hunter2",
    ):
        with JobLocks(url) as locks, pytest.raises(StoreError) as caught:
            locks.acquire("k")
        error = caught.value
        while error is not None:
            assert "hunter2" not in repr(error)
            error = error.__cause__
        assert "hunter2" not in repr(locks)


def test_the_url_shown_has_no_password():
    store = RedisStore.from_url("redis://user:hunter2@h:1/0?sentinel_password=hunter2")
    assert "hunter2" not in store.url


@pytest.fixture
def socket_path(tmp_path):
    path = tmp_path / "r.sock"
    server = Server(binary("redis-server"), tmp_path / "data", "--unixsocket", str(path))
    yield str(path)
    server.stop()


THROUGH_A_SOCKET = {
    "url": lambda path: f"redis+unix://{path}",
    "redis": lambda path: redis.Redis(unix_socket_path=path),
    "redis from url": lambda path: redis.Redis.from_url(f"unix://{path}?db=0"),
    "redis asyncio": lambda path: redis.asyncio.Redis(unix_socket_path=path),
    "valkey": lambda path: valkey.Valkey(unix_socket_path=path),
}


@pytest.mark.parametrize("kind", THROUGH_A_SOCKET)
async def test_a_unix_socket_is_a_way_in(kind, socket_path):
    given = THROUGH_A_SOCKET[kind](socket_path)
    with JobLocks(given) as held:
        lease = held.acquire("k", ttl=60)
        async with AsyncJobLocks(given) as locks:
            waiting = asyncio.create_task(locks.acquire("k", wait=30))
            while not held.model.waiters("k"):  # noqa: ASYNC110 - the store tells
                await asyncio.sleep(0.01)
            lease.release()
            later = await waiting
            assert later.token > lease.token
            await later.release()


@pytest.fixture
def guest(own_server):
    own_server.ask("ACL", "SETUSER", "guest", *acl_of_the_page())
    return f"redis://guest:secret@127.0.0.1:{own_server.port}/0"


def test_the_smallest_acl_lets_everything_work(guest, own_server):
    with JobLocks(guest) as locks:
        first = locks.acquire("k", ttl="60s")
        assert locks.acquire("k") is None
        permits = [locks.acquire("p", limit=2) for _ in range(2)]
        waiter = threading.Thread(target=_wait, args=(locks,))
        waiter.start()
        wait_until(lambda: locks.model.waiters("k"), "it is queued")
        wait_until(lambda: own_server.ask("PUBSUB", "CHANNELS", "*"), "it listens")
        first.refresh("70s")
        permits[0].refresh("70s")
        first.release()
        waiter.join(60)
        assert [lease.key for lease in locks.model.all()] == ["p", "p"]
        assert locks.model.count() == 2
        assert len(locks.model.delete("p")) == 2
        _jobs(locks)
    refused = own_server.ask("ACL", "LOG")
    assert [entry for entry in refused if b"client" not in entry[7]] == []


def _jobs(locks):
    """Joined by one that waits, in grace, and remembered as done."""
    started, go_on = threading.Event(), threading.Event()

    @locks.job(name="job", join=True, grace_period="1m", occurrence=7)
    def job():
        started.set()
        assert go_on.wait(60)

    runs = [threading.Thread(target=job) for _ in range(2)]
    runs[0].start()
    assert started.wait(60)
    runs[1].start()
    wait_until(lambda: locks.model.waiters("job"), "it is joined")
    go_on.set()
    for run in runs:
        run.join(60)
    assert not job.run()


def test_the_smallest_acl_of_a_cluster_lets_waiters_be_told_at_each_node(cluster):
    for node in cluster.nodes:
        rights = acl_of_the_page(*also_on_a_cluster())
        node.ask("ACL", "SETUSER", "guest", *rights)
        node.ask("ACL", "LOG", "RESET")
    url = cluster.url.replace("://", "://guest:secret@")
    with JobLocks(url) as locks:
        for number in range(6):
            lease = locks.acquire(f"k{number}", ttl=60)
            waiting = threading.Thread(target=_wait, args=(locks, f"k{number}"))
            waiting.start()
            wait_until(
                lambda number=number: any(
                    f"joblock:to:{{.k{number}}}".encode() in channel
                    for node in cluster.nodes
                    for channel in node.ask("PUBSUB", "SHARDCHANNELS")
                ),
                "it listens at the node of its key",
            )
            lease.refresh("70s")
            lease.release()
            waiting.join(60)
        assert [lease for lease in locks.model.all("k") if lease.key[1:].isdigit()] == []
    refused = [entry for node in cluster.nodes for entry in node.ask("ACL", "LOG")]
    # For a name in CLIENT LIST a user may lack the right.
    assert [entry for entry in refused if b"client" not in entry[7]] == []


def test_the_smallest_acl_with_what_a_database_and_replicas_need(guarded):
    for server in (guarded.primary, guarded.replica):
        server.ask("ACL", "SETUSER", "guest", *acl_of_the_page("+select", "+wait"))
    url = guarded.url.replace("://", "://guest:secret@") + "/3?min_replicas=1"
    with JobLocks(url) as locks, locks.lock("k") as lease:
        assert lease.held


def _wait(locks, key="k"):
    with locks.lock(key, wait=100):
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


def test_with_its_memory_full_what_is_held_can_be_renewed_given_back_and_handed_on(own_server):
    """Only what is new has to wait: who has a lease must not lose it to a full cache."""
    with JobLocks(own_server.url) as locks:
        alone, waited = locks.acquire("alone", ttl=60), locks.acquire("waited", ttl=60)
        permits = [locks.acquire("permits", limit=3, ttl=ttl) for ttl in (60, 90)]
        waiter = threading.Thread(target=_wait, args=(locks, "waited"))
        waiter.start()
        wait_until(lambda: locks.model.waiters("waited"), "it is queued")
        wait_until(lambda: own_server.ask("PUBSUB", "CHANNELS"), "it listens")
        own_server.ask("CONFIG", "SET", "maxmemory", "1")
        for lease in (alone, waited, *permits):
            lease.refresh("70s")
            assert lease.remaining > 60
        names = own_server.keys()
        ends = [own_server.ask("PEXPIRETIME", name) for name in names if "permits" in name]
        assert max(ends) - min(ends) < 1_000
        assert waited.release()
        waiter.join(30)
        assert not waiter.is_alive()
        for lease in (alone, *permits):
            assert lease.release()
        with pytest.raises(StoreUnavailable, match="maxmemory"):
            locks.acquire("new")
