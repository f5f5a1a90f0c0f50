"""A cluster: where a key is, how it is found while that changes, and who hears of it where."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import pytest
from redis_servers import Cluster, Move, binary, valkey_binary, wait_until

from joblock import AsyncJobLocks, JobLocks
from joblock.store.ops import Acquire, Busy, Check, Granted, Queueing, Refresh, Release, Renewal
from joblock.stores.redis import RedisStore, shards
from joblock.stores.redis.route import slot_of
from joblock.stores.redis.scripts import row_name, shard_channel

PATIENCE = 60.0


@pytest.fixture
def store(cluster):
    store = RedisStore.from_url(cluster.url)
    yield store
    store.close()


@pytest.fixture(scope="module", params=["redis", "valkey"])
def own_cluster(request, tmp_path_factory):
    """A cluster of this module's own, whose slots may be moved and whose counters are its own."""
    program = binary("redis-server") if request.param == "redis" else valkey_binary()
    cluster = Cluster(program, tmp_path_factory.mktemp(f"cluster-{request.param}"))
    yield cluster
    cluster.stop()


@pytest.fixture
def locks(own_cluster):
    with JobLocks(own_cluster.url) as locks:
        yield locks


def key_at(cluster, number, name="k"):
    """A key that the node of that number is in charge of."""
    keys = (f"{name}{count}" for count in range(10_000))
    return next(key for key in keys if cluster.node_of(slot_of(key)) is cluster.nodes[number])


def listens_for(cluster, key, client):
    """Whether that client hears of the key at the key's own node."""
    node = cluster.node_of(slot_of(key))
    return node.ask("PUBSUB", "SHARDNUMSUB", shard_channel(key, client))[1] == 1


class Ear:
    """What a client hears of a key that it waits for at the key's own node."""

    def __init__(self, cluster, store, key, client="client"):
        self.store, self.key, self.client = store, key, client
        self.notices = SimpleQueue()
        connected = threading.Event()
        self.subscription = store.subscribe(client, self.notices.put, connected.set)
        assert connected.wait(PATIENCE)
        self.queue = Queueing(client, listening=True)
        self.until_at_the_node(cluster)

    def until_at_the_node(self, cluster):
        def reached():
            self.store.driver().call(Check(self.client, (self.key,), listening=True))
            return listens_for(cluster, self.key, self.client)

        wait_until(reached, "it listens at the node")

    def hand_off(self):
        """Hand the key over to a waiter of this client, which hears of it and gives it back."""
        driver, key = self.store.driver(), self.key
        assert isinstance(driver.call(Acquire(key, "holder", 60_000)), Granted)
        assert isinstance(driver.call(Acquire(key, "waiter", 60_000, queue=self.queue)), Busy)
        driver.call(Release(key, "holder"))
        notice = self.notices.get(timeout=PATIENCE)
        assert (notice.client, notice.key, notice.holder) == (self.client, key, "waiter")
        assert isinstance(
            driver.call(Acquire(key, "waiter", 60_000, queue=self.queue)),
            Granted,
        )
        driver.call(Release(key, "waiter"))

    def close(self):
        self.subscription.close()


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_hand_off_is_told_at_the_keys_own_node_and_to_no_other(own_cluster, locks, number):
    store, key = locks.store, key_at(own_cluster, number, "own")
    ear = Ear(own_cluster, store, key)
    for node in own_cluster.nodes:
        node.ask("CONFIG", "RESETSTAT")
    for _ in range(10):
        ear.hand_off()
    assert [node.calls("publish") for node in own_cluster.nodes] == [0, 0, 0]
    told = [node.calls("spublish") for node in own_cluster.nodes]
    assert told == [10 if other == number else 0 for other in range(3)]
    ear.close()


def test_two_clients_hand_keys_of_all_nodes_to_and_fro_without_a_broadcast(own_cluster):
    keys = [key_at(own_cluster, number, "fro") for number in range(3)]

    def turns(locks, rounds):
        for _ in range(rounds):
            for key in keys:
                with locks.lock(key, wait=60):
                    pass

    with JobLocks(own_cluster.url) as a, JobLocks(own_cluster.url) as b, ThreadPoolExecutor() as ex:
        # So long that both have waited for each of them, and the nodes know.
        wait_until(
            lambda: (
                list(ex.map(turns, [a, b], [20, 20])) == [None, None]
                and all(listeners(own_cluster, key) == 2 for key in keys)
            ),
            "both clients listen at all nodes",
            60,
        )
        for node in own_cluster.nodes:
            node.ask("CONFIG", "RESETSTAT")
        begun = time.monotonic()
        list(ex.map(turns, [a, b], [50, 50]))
        checks = 2 * 3 * int(time.monotonic() - begun)  # at most: of each client, at each node
        assert [node.calls("publish") for node in own_cluster.nodes] == [0, 0, 0]
        assert sum(node.calls("evalsha") for node in own_cluster.nodes) <= 300 * 3 + 30 + checks


def listeners(cluster, key):
    node = cluster.node_of(slot_of(key))
    return len(node.ask("PUBSUB", "SHARDCHANNELS", shard_channel(key, "*")))


def test_whoever_may_not_listen_at_the_nodes_is_told_through_all_of_them(own_cluster, caplog):
    for node in own_cluster.nodes:
        node.ask("ACL", "SETUSER", "plain", "on", ">p", "~*", "&*", "+@all", "-ssubscribe")
    url = own_cluster.url.replace("://", "://plain:p@")
    store, heard, connected = RedisStore.from_url(url), SimpleQueue(), threading.Event()
    subscription = store.subscribe("client", heard.put, connected.set)
    assert connected.wait(PATIENCE)
    driver = store.driver()
    for number in range(3):
        key = key_at(own_cluster, number, "plain")
        driver.call(Acquire(key, "holder", 60_000))
        driver.call(Acquire(key, "waiter", 60_000, queue=Queueing("client", listening=True)))
        driver.call(Release(key, "holder"))
        assert heard.get(timeout=PATIENCE).key == key
    wait_until(lambda: "go through all of its nodes" in caplog.text, "a warning says so")
    assert "ssubscribe" in caplog.text
    subscription.close()
    store.close()


def test_an_ear_that_was_cut_off_at_a_node_is_there_again(own_cluster, locks):
    anywhere = own_cluster.node_of(slot_of(""))
    number = next(n for n in range(3) if own_cluster.nodes[n] is not anywhere)
    key = key_at(own_cluster, number, "cut")
    ear = Ear(own_cluster, locks.store, key)
    own_cluster.nodes[number].ask("CLIENT", "KILL", "TYPE", "pubsub")
    ear.hand_off()  # what the node cannot tell goes through all of them
    ear.until_at_the_node(own_cluster)
    ear.hand_off()
    ear.close()


def test_an_ear_follows_a_slot_to_its_new_node(own_cluster, locks):
    key = key_at(own_cluster, 2, "follow")
    ear = Ear(own_cluster, locks.store, key)
    move = Move(own_cluster, slot_of(key))
    move.begin()
    move.carry()
    move.end()
    ear.hand_off()
    ear.until_at_the_node(own_cluster)
    move.target.ask("CONFIG", "RESETSTAT")
    ear.hand_off()
    assert (move.target.calls("spublish"), move.target.calls("publish")) == (1, 0)
    ear.close()


def test_a_key_that_nobody_waits_for_any_more_is_listened_to_no_longer(
    own_cluster, locks, monkeypatch
):
    monkeypatch.setattr(shards, "KEPT", 0.2)
    monkeypatch.setattr(shards, "PAUSE", 0.1)
    monkeypatch.setattr(shards, "QUIET", 0.1)
    key = key_at(own_cluster, 0, "once")
    ear = Ear(own_cluster, locks.store, key)
    wait_until(lambda: not listens_for(own_cluster, key, ear.client), "the channel is given up")
    ear.hand_off()  # through all nodes, and from then on at its own again
    ear.until_at_the_node(own_cluster)
    ear.close()


def test_closing_gives_back_the_connections_to_all_nodes(own_cluster):
    store = RedisStore.from_url(own_cluster.url)
    ears = [Ear(own_cluster, store, key_at(own_cluster, n, "close"), f"c{n}") for n in range(3)]
    for ear in ears:
        ear.close()
    store.close()

    def connections():
        return [
            line
            for node in own_cluster.nodes
            for line in node.ask("CLIENT", "LIST").decode().splitlines()
            if "name=joblock" in line
        ]

    wait_until(lambda: connections() == [], f"no connection is left of {connections()}")


# While a slot is being moved.


def both_ways(url, ops):
    """The replies to operations by the blocking driver, then by the asyncio one."""
    store = RedisStore.from_url(url)
    yield [store.driver().call(op) for op in ops]
    store.close()

    async def replies():
        store = RedisStore.from_url(url)
        driver = store.async_driver()
        try:
            return [await driver.call(op) for op in ops]
        finally:
            await driver.aclose()
            store.close()

    yield asyncio.run(replies())


@pytest.mark.parametrize("carried", [False, True], ids=["not yet carried", "carried"])
def test_a_lock_works_wherever_its_slot_is(own_cluster, carried):
    """Free and held keys, before and behind the move, also by who has an old map."""
    held, free = "on-the-way}held", "on-the-way}free"
    assert slot_of(held) == slot_of(free)
    with JobLocks(own_cluster.url) as locks:
        lease = locks.acquire(held, ttl=60)
        move = Move(own_cluster, slot_of(held))
        move.begin()
        if carried:
            move.carry(row_name(held))
        ops = [
            Acquire(held, "other", 60_000),
            Refresh((Renewal(held, lease.holder, lease.token, 60_000),)),
            Acquire(free, "h", 60_000),
            Acquire(free, "other", 60_000),
            Release(free, "h"),
        ]
        for replies in both_ways(own_cluster.url, ops):
            busy, renewed, granted, refused, released = replies
            assert (busy.holder, renewed.renewed) == (lease.holder, (True,))
            assert isinstance(granted, Granted)
            assert (refused.holder, released.freed) == ("h", True)
        move.carry()
        move.end()
        later = JobLocks(own_cluster.url)
        assert later.acquire(held) is None
        assert lease.release()
        token = lease.token
        with later.lock(held) as lease:
            assert lease.token > token
        later.close()


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_key_with_waiters_waits_until_its_slot_has_moved(own_cluster, kind):
    """A script's names must all be at one node: what needs several of them tries again."""
    key = f"crowd {kind}"
    with JobLocks(own_cluster.url) as locks, ThreadPoolExecutor() as pool:
        lease = locks.acquire(key, ttl=60)
        waiting = pool.submit(_wait_sync if kind == "sync" else _wait_async, own_cluster.url, key)
        wait_until(lambda: locks.model.waiters(key), "it is queued")
        move = Move(own_cluster, slot_of(key))
        move.begin()
        move.carry(row_name(key))
        releasing = pool.submit(lease.release)
        tried = move.target.ask("INFO", "errorstats")
        wait_until(
            lambda: move.target.ask("INFO", "errorstats") != tried, "the release was asked to wait"
        )
        move.carry()
        move.end()
        assert releasing.result(PATIENCE)
        assert waiting.result(PATIENCE) > lease.token


def _wait_sync(url, key):
    with JobLocks(url) as locks, locks.lock(key, wait=60) as lease:
        return lease.token


def _wait_async(url, key):
    async def wait():
        async with AsyncJobLocks(url) as locks, locks.lock(key, wait=60) as lease:
            return lease.token

    return asyncio.run(wait())


def test_slots_move_to_and_fro_under_load_and_exclusion_holds(own_cluster):
    """Three clients take a key in turn while its slot changes nodes."""
    key, inside, tokens, over = "load", [], [], threading.Event()

    def work():
        with JobLocks(own_cluster.url) as locks:
            while not over.is_set():
                with locks.lock(key, ttl=30, wait=60) as lease:
                    inside.append(lease.token)
                    assert len(inside) == 1
                    tokens.append(lease.token)
                    inside.remove(lease.token)

    with ThreadPoolExecutor() as pool:
        workers = [pool.submit(work) for _ in range(3)]
        for _ in range(6):
            before = len(tokens)
            wait_until(lambda before=before: len(tokens) > before + 20, "they go on")
            move = Move(own_cluster, slot_of(key))
            move.begin()
            move.carry()
            move.end()
        over.set()
        for worker in workers:
            worker.result(60)
    assert tokens == sorted(set(tokens))


def test_a_node_that_fails_is_replaced_by_its_replica_and_nobody_is_forgotten(tmp_path):
    cluster = Cluster(binary("redis-server"), tmp_path, replicas=1)
    try:
        key = "failing"
        node = cluster.node_of(slot_of(key))
        with JobLocks(cluster.url) as locks, ThreadPoolExecutor() as pool:
            lease = locks.acquire(key, ttl=60)
            waiting = pool.submit(_wait_sync, cluster.url, key)
            wait_until(lambda: locks.model.waiters(key), "it is queued")
            wait_until(
                # A node that was made just now may not know of its replica yet.
                lambda: (
                    [
                        replica.ask("CLUSTER", "COUNTKEYSINSLOT", slot_of(key))
                        for replica in cluster.replicas_of(node)
                    ]
                    == [node.ask("CLUSTER", "COUNTKEYSINSLOT", slot_of(key))]
                ),
                "its replica has it all",
            )
            node.process.kill()
            wait_until(lambda: _released(lease), "the replica has taken over", 60)
            assert waiting.result(60) > lease.token
    finally:
        cluster.stop()


def _released(lease):
    return lease.release()


def test_an_unknown_node_of_the_url_does_not_matter_while_another_is_there(cluster):
    url = f"redis+cluster://127.0.0.1:1,127.0.0.1:{cluster.nodes[0].port}"
    with JobLocks(url) as locks, locks.lock("k") as lease:
        assert lease.held


def test_what_belongs_to_several_slots_is_renewed_and_checked_at_once(store):
    driver, keys = store.driver(), [f"many{number}" for number in range(40)]
    for key in keys:
        driver.call(Acquire(key, "h", 60_000))
    renewals = tuple(Renewal(key, "h", 0, 60_000) for key in keys)
    assert driver.call(Refresh(renewals)).renewed == (True,) * 40
    states = driver.call(Check("client", tuple(keys))).states
    assert all(0 < state.lapses_in <= 60_000 for state in states)
