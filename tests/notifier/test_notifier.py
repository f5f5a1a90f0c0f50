"""Leases in one place, notices by another: those who wait are pushed, and never stranded."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
import time
import uuid
from contextlib import contextmanager
from queue import SimpleQueue

import psycopg
import pytest
import redis
from postgres_harness import PostgresHarness
from postgres_servers import Server as Postgres
from redis_harness import RedisHarness, TurnedStore
from reserved_ports import reserved_port

from joblock import AsyncJobLocks, JobLocks, LockLost, StoreUnavailable
from joblock.client.keeper import Keeper
from joblock.store.ops import Acquire, Holders, Notice, Queueing, Refresh, Release, Renewal
from joblock.stores import notified as stores_notified
from joblock.stores.notified import notified
from joblock.stores.redis import RedisStore
from joblock.stores.registry import open_store
from joblock.testing.contract.claims import Claims
from joblock.testing.contract.drivers import Drivers
from joblock.testing.contract.joining import Joining
from joblock.testing.contract.notices import Notices
from joblock.testing.contract.occurrences import Occurrences
from joblock.testing.model import ModelContract

PATIENCE = 30.0
TTL = 600.0
PAIRS = [
    "bouncer to pg", "pg to redis", "bouncer to redis", "sqlite to redis", "sqlite to pg",
    "memory to redis", "redis to pg", "redis to other", "cluster to redis",
]  # fmt: skip
SERVERS = {"redis": "redis_server", "other": "other_redis"}


@pytest.fixture
def key():
    return uuid.uuid4().hex


@pytest.fixture
def place(request, tmp_path):
    """The URL of a store or notifier, by its name."""

    def find(name: str) -> str:
        if name == "sqlite":
            return f"sqlite:///{tmp_path}/leases.db"
        if name == "memory":
            return f"memory://{tmp_path.name}"
        return request.getfixturevalue(SERVERS.get(name, name)).url

    return find


@pytest.fixture
def no_checks(monkeypatch):
    """Let no check wake anybody, though it reports who waits: whoever is served was told."""
    monkeypatch.setattr(Keeper, "_tell_seats", lambda *_: None)


@pytest.fixture(autouse=True)
def patient_office(monkeypatch):
    """That a notice is sent before its client is closed is what counts here, not how soon."""
    monkeypatch.setattr(stores_notified, "PATIENCE", PATIENCE)


def wait_until(condition) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@contextmanager
def waiter(kind: str, key: str, store, notifier=None):
    """Somebody in a client of its own who waits for the key; the event says that it was served."""
    served, ready = threading.Event(), threading.Event()
    clients: list[JobLocks | AsyncJobLocks] = []

    def wait() -> None:
        with JobLocks(store, notifier=notifier) as locks:
            clients.append(locks)
            ready.set()
            with locks.lock(key, ttl=TTL):
                served.set()

    async def await_it() -> None:
        async with AsyncJobLocks(store, notifier=notifier) as locks:
            clients.append(locks)
            ready.set()
            async with locks.lock(key, ttl=TTL):
                served.set()

    work = wait if kind == "sync" else lambda: asyncio.run(await_it())
    thread = threading.Thread(target=work)
    thread.start()
    assert ready.wait(PATIENCE)
    served.client = clients[0]
    try:
        yield served
    finally:
        thread.join(PATIENCE)
        assert not thread.is_alive()


def sits(locks: JobLocks, key: str, event) -> None:
    """Wait until it is queued, and hears what it will be told."""
    wait_until(lambda: locks.model.waiters(key))
    wait_until(lambda: listening(event))


def listening(event) -> bool:
    return event.client._hub.listening  # noqa: SLF001 - nothing else shows it


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("pair", PAIRS)
def test_whoever_waits_is_woken_by_the_notifier_alone(pair, kind, place, key, no_checks):
    store, _, notifier = pair.partition(" to ")
    store, notifier = place(store), place(notifier)
    with JobLocks(store, notifier=notifier) as locks:
        for number in range(3):
            lease = locks.acquire(f"{key} {number}", ttl=TTL)
            with waiter(kind, f"{key} {number}", store, notifier) as served:
                sits(locks, f"{key} {number}", served)
                lease.release()
                assert served.wait(PATIENCE)


@pytest.mark.parametrize("pair", ["pg to redis", "sqlite to redis", "redis to pg"])
def test_a_task_that_releases_tells_too(pair, place, key, no_checks):
    store, _, notifier = pair.partition(" to ")
    store, notifier = place(store), place(notifier)

    held = threading.Event()

    async def hold_and_hand_on() -> None:
        async with AsyncJobLocks(store, notifier=notifier) as locks:
            lease = await locks.acquire(key, ttl=TTL)
            held.set()
            assert await asyncio.to_thread(go.wait, PATIENCE)
            await lease.release()

    go = threading.Event()
    holder = threading.Thread(target=lambda: asyncio.run(hold_and_hand_on()))
    holder.start()
    assert held.wait(PATIENCE)
    with JobLocks(store) as reader, waiter("sync", key, store, notifier) as served:
        sits(reader, key, served)
        go.set()
        assert served.wait(PATIENCE)
    holder.join(PATIENCE)


@pytest.mark.parametrize("pair", ["pg to redis", "sqlite to redis", "redis to pg"])
def test_a_process_that_releases_and_ends_at_once_has_told(pair, place, key, no_checks):
    store, _, notifier = pair.partition(" to ")
    store, notifier = place(store), place(notifier)
    program = """
import sys
from joblock import JobLocks
from joblock.stores import notified
notified.PATIENCE = 30.0  # that it tells is what counts here, not how soon
store, notifier, key = sys.argv[1:]
locks = JobLocks(store, notifier=notifier)
lease = locks.acquire(key, ttl=600)
print("held", flush=True)
sys.stdin.readline()
"""
    holder = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", program, store, notifier, key],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout.readline() == "held\n"
        with JobLocks(store) as reader, waiter("sync", key, store, notifier) as served:
            sits(reader, key, served)
            holder.stdin.close()
            assert served.wait(PATIENCE)
        assert holder.stderr.read() == ""
    assert holder.returncode == 0


def test_a_forked_child_tells_over_connections_of_its_own(place, key, tmp_path):
    program = """
import os, sys, threading
from joblock import JobLocks
store, notifier, key = sys.argv[1:]
locks = JobLocks(store, notifier=notifier)
with locks.lock(key):
    pass
read, write = os.pipe()
pid = os.fork()
if pid == 0:
    os.close(write)
    lease = locks.acquire(key, ttl=600)
    os.read(read, 1)
    lease.release()
    locks.close()
    os._exit(0)
while not locks.model.peek(key):
    pass
served = threading.Event()
def wait():
    with locks.lock(key, ttl=600):
        served.set()
thread = threading.Thread(target=wait)
thread.start()
while not (locks.model.waiters(key) and locks._hub.listening):
    pass
os.write(write, b"x")
assert served.wait(30)
thread.join()
assert os.waitpid(pid, 0)[1] == 0
locks.close()
"""
    done = subprocess.run(
        [sys.executable, "-c", program, place("sqlite"), place("redis"), key],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("store", ["pg", "sqlite", "other"])
def test_a_notifier_that_is_down_costs_time_and_no_wait(store, place, key, caplog):
    url, nowhere = place(store), f"redis://127.0.0.1:{reserved_port()}/0"
    with JobLocks(url, notifier=nowhere) as locks:
        lease = locks.acquire(key, ttl=TTL)
        with waiter("sync", key, url, nowhere) as served:
            wait_until(lambda: locks.model.waiters(key))
            wait_until(lambda: "hears no notices" in caplog.text)
            lease.release()
            assert served.wait(PATIENCE)


def test_a_notifier_that_restarts_is_heard_again(own_redis, place, key, monkeypatch):
    url = place("sqlite")
    with JobLocks(url, notifier=own_redis.url) as locks:
        lease = locks.acquire(key, ttl=TTL)
        with waiter("sync", key, url, own_redis.url) as served:
            sits(locks, key, served)
            own_redis.stop()
            wait_until(lambda: not listening(served))
            own_redis.start()
            sits(locks, key, served)
            lease.release()
            assert served.wait(PATIENCE)


@pytest.mark.parametrize("store", ["pg", "sqlite", "other"])
def test_whoever_releases_without_the_notifier_strands_nobody(store, place, key):
    """As while a fleet is being given one: those who wait find out by their own check."""
    url = place(store)
    with JobLocks(url) as locks:
        lease = locks.acquire(key, ttl=TTL)
        with waiter("sync", key, url, place("redis")) as served:
            sits(locks, key, served)
            lease.release()
            assert served.wait(PATIENCE)


@pytest.mark.parametrize("store", ["pg", "sqlite", "other"])
def test_whoever_waits_without_the_notifier_is_told_by_the_store(store, place, key, no_checks):
    url = place(store)
    with JobLocks(url, notifier=place("redis")) as locks:
        lease = locks.acquire(key, ttl=TTL)
        with waiter("sync", key, url) as served:
            sits(locks, key, served)
            lease.release()
            assert served.wait(PATIENCE)


@pytest.mark.parametrize("how", ["notifier", "listen_url"])
def test_another_database_is_not_listened_to_in_vain(how, pg, key, caplog):
    caplog.set_level(logging.INFO, "joblock")
    other = Postgres()
    try:
        if how == "notifier":
            store, notifier = pg.url, other.url
        else:
            store, notifier = f"{pg.url}?listen_url={other.url}", None
        with JobLocks(store, notifier=notifier) as locks:
            lease = locks.acquire(key, ttl=TTL)
            with waiter("sync", key, store, notifier) as served:
                wait_until(lambda: "another database" in caplog.text)
                lease.release()
                assert served.wait(PATIENCE)
    finally:
        other.remove()


def test_a_client_object_is_a_notifier_too_and_so_is_what_a_function_returns(place, key, no_checks):
    url = place("sqlite")
    with redis.Redis.from_url(place("redis")) as client:
        for given in (client, lambda: client):
            with JobLocks(url, notifier=given) as locks:
                lease = locks.acquire(key, ttl=TTL)
                with waiter("sync", key, url, given) as served:
                    sits(locks, key, served)
                    lease.release()
                    assert served.wait(PATIENCE)


def test_no_key_is_sent(place, redis_server, key):
    """Whoever may listen at the notifier is told that somebody is to ask, and not what for."""
    url = place("sqlite")
    with redis.Redis.from_url(redis_server.url) as client, client.pubsub() as ear:
        ear.psubscribe("*")
        assert ear.get_message(timeout=PATIENCE)["type"] == "psubscribe"
        with JobLocks(url, notifier=redis_server.url) as locks:
            lease = locks.acquire(key, ttl=TTL)
            with waiter("sync", key, url, redis_server.url) as served:
                sits(locks, key, served)
                lease.release()
                assert served.wait(PATIENCE)
        heard = ear.get_message(timeout=PATIENCE)
        assert heard["type"] == "pmessage"
        assert key.encode() not in heard["data"] + heard["channel"]


@pytest.mark.parametrize(
    ("store", "notifier", "why"),
    [
        ("memory://", "memory://", "cannot carry notices"),
        ("sqlite:////tmp/x.db", "sqlite:////tmp/x.db", "cannot carry notices"),
    ],
)
@pytest.mark.parametrize("client", [JobLocks, AsyncJobLocks])
def test_what_cannot_be_a_notifier_is_refused_at_once(client, store, notifier, why):
    with pytest.raises(TypeError, match=why):
        client(store, notifier=notifier)


def test_a_lease_is_guarded_all_the_same(place, key):
    with (
        JobLocks(place("pg"), notifier=place("redis")) as locks,
        psycopg.connect(place("pg")) as connection,
    ):
        with locks.lock(key) as lease:
            lease.guard(connection)
            connection.commit()
        with pytest.raises(LockLost):
            lease.guard(connection)


class TestPostgresNotifiedByRedis(Claims, Notices, Drivers):
    @pytest.fixture
    def harness(self, pg, redis_server):
        def make():
            return notified(open_store(pg.url), open_store(redis_server.url))

        return PostgresHarness(make)


class NotifiedRedis(RedisHarness):
    """Leases in one server, notices by another."""

    def __init__(self, url: str, notifier: str) -> None:
        super().__init__(url)
        self._notifier = notifier

    def make_store(self):
        return notified(super().make_store(), open_store(self._notifier))


class TestRedisNotifiedByAnother(Claims, Notices, Drivers, Joining, Occurrences):
    @pytest.fixture
    def harness(self, redis_server, other_redis):
        return NotifiedRedis(redis_server.url, other_redis.url)


class TestRedisNotifiedByPostgres(Notices):
    @pytest.fixture
    def harness(self, redis_server, pg):
        return NotifiedRedis(redis_server.url, pg.url)


class TestRedisNotifiedByAnotherIsTheMachine(ModelContract):
    """Whatever is handed back with a reply, the reply is the same."""

    examples = 15
    steps = 30

    @pytest.fixture
    def harness(self, redis_server, other_redis):
        return NotifiedRedis(redis_server.url, other_redis.url)


def test_redis_publishes_nothing_for_those_that_another_notifies(own_redis, other_redis, key):
    with JobLocks(own_redis.url, notifier=other_redis.url) as locks:
        lease = locks.acquire(key, ttl=TTL)
        with waiter("sync", key, own_redis.url, other_redis.url) as served:
            sits(locks, key, served)
            lease.release()
            assert served.wait(PATIENCE)
    assert own_redis.calls("publish") == own_redis.calls("spublish") == 0
    assert own_redis.calls("subscribe") == 0


def test_a_user_of_redis_without_channels_is_woken_by_another(
    own_redis, other_redis, key, no_checks
):
    rights = ("resetchannels", "-publish", "-subscribe", "-spublish", "-ssubscribe")
    own_redis.ask("ACL", "SETUSER", "plain", "on", ">secret", "~joblock:*", "+@all", *rights)
    url = own_redis.url.replace("redis://", "redis://plain:secret@")
    with JobLocks(url, notifier=other_redis.url) as locks:
        lease = locks.acquire(key, ttl=TTL)
        with waiter("sync", key, url, other_redis.url) as served:
            sits(locks, key, served)
            lease.release()
            assert served.wait(PATIENCE)


def test_a_release_whose_task_is_cancelled_in_redis_tells_all_the_same(
    redis_server, other_redis, key, no_checks
):
    with waiting_behind_a_lease(redis_server, other_redis, key) as (token, served):

        async def release_and_be_cancelled() -> None:
            store = notified(open_store(redis_server.url), open_store(other_redis.url))
            driver = store.async_driver()
            # So that it is connected, and the server knows the script: one request then does it.
            await driver.call(Release(key, "nobody"))
            task = asyncio.create_task(driver.call(Release(key, "A", token)))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await driver.aclose()
            await asyncio.to_thread(store.close)

        asyncio.run(release_and_be_cancelled())
        assert served.wait(PATIENCE)


@contextmanager
def waiting_behind_a_lease(server, notifier, key):
    """The token of A's lease on that key, and what says that the waiter behind it was served."""
    with JobLocks(server.url, notifier=notifier.url) as locks:
        lease = locks.acquire(key, ttl=TTL, holder="A")
        with waiter("sync", key, server.url, notifier.url) as served:
            sits(locks, key, served)
            yield lease.token, served


def test_a_grant_that_tells_others_counts_only_when_replicas_have_it(
    redis_server, other_redis, key
):
    """It is told from its reply, which has the notices beside it."""
    store = notified(open_store(f"{redis_server.url}?min_replicas=1"), open_store(other_redis.url))
    plain = open_store(redis_server.url)
    driver, free = store.driver(), plain.driver()
    heard: SimpleQueue[Notice] = SimpleQueue()
    ready = threading.Event()
    ear = store.subscribe("client of W", heard.put, ready.set)
    assert ready.wait(PATIENCE)
    for holder in "AB":
        free.call(Acquire(key, holder, 60_000, 1, 2))
    for holder in "VW":
        driver.call(Acquire(key, holder, 60_000, 1, 2, queue=Queueing(f"client of {holder}")))
    for holder in "AB":
        free.call(Refresh((Renewal(key, holder, 0, 1),), extend_only=False))
    wait_until(lambda: all(lease.state == "expired" for lease in free.call(Holders(key))))
    with pytest.raises(StoreUnavailable, match="min_replicas=1"):
        driver.call(Acquire(key, "V", 60_000, 1, 2, queue=Queueing("client of V")))
    assert heard.get(timeout=PATIENCE).holder == "W"
    ear.close()
    store.close()
    plain.close()


def test_a_store_that_hands_its_notices_to_nobody_takes_no_notifier():
    store = TurnedStore(RedisStore.from_url("redis://127.0.0.1/0"), None)
    with pytest.raises(TypeError, match="takes no notifier"):
        notified(store, open_store("redis://127.0.0.1/1"))
