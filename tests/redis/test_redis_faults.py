"""What happens to servers and connections: restarts, lost scripts, cuts, floods, failovers."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from redis_servers import wait_until
from slow_proxy import SlowProxy

from joblock import AsyncJobLocks, AsyncLease, JobLocks
from joblock.client.keeper import Keeper
from joblock.store.ops import Acquire, Count
from joblock.stores.redis import RedisStore, flows
from joblock.stores.redis.sync import Connection, Pool
from joblock.stores.redis.target import Login, Place
from joblock.values.errors import StoreUnavailable


@pytest.fixture(autouse=True)
def patient_with_replicas(monkeypatch):
    """One that is to acknowledge a grant may be kept waiting by a busy machine."""
    monkeypatch.setattr(flows, "REPLICAS_MS", 3_000)


@pytest.fixture
def locks(own_server):
    with JobLocks(own_server.url) as locks:
        yield locks


class Waiter(threading.Thread):
    """Waits for a key in a thread, and says when it had it."""

    def __init__(self, locks, key="k", wait=100) -> None:
        super().__init__()
        self.locks, self.key, self.wait = locks, key, wait
        self.token = 0
        self.had = threading.Event()
        self.start()

    def run(self) -> None:
        with self.locks.lock(self.key, wait=self.wait) as lease:
            self.token = lease.token
            self.had.set()

    def queued(self) -> None:
        wait_until(lambda: any(self.locks.model.waiters(self.key)), "the waiter is queued")

    def ended(self) -> int:
        self.join(60)
        assert not self.is_alive()
        return self.token


def test_a_server_that_forgot_the_scripts_is_given_them_again(own_server, locks):
    with locks.lock("k"):
        own_server.ask("SCRIPT", "FLUSH")
        assert locks.model.peek("k").state == "held"
        own_server.ask("SCRIPT", "FLUSH")
    own_server.ask("SCRIPT", "FLUSH")
    assert locks.run_with_lock("k", "5s", lambda: None)


async def test_the_async_client_too_gives_the_scripts_again(own_server):
    async with AsyncJobLocks(own_server.url) as locks:
        async with locks.lock("k"):
            own_server.ask("SCRIPT", "FLUSH")
        own_server.ask("SCRIPT", "FLUSH")
        async with locks.lock("k", wait=False) as lease:
            assert lease.held


def test_a_restart_without_persistence_frees_the_key_and_tells_its_holder(own_server, locks):
    lease = locks.acquire("k", ttl=1.5)
    own_server.restart()
    wait_until(lease.lost.is_set, "the holder learns that its lease is gone")
    with JobLocks(own_server.url) as others:
        later = others.acquire("k")
        assert later.token > lease.token
        later.release()


def test_a_waiter_outlives_a_restart_of_the_server(own_server, locks):
    lease = locks.acquire("k", ttl=60)
    waiter = Waiter(locks)
    waiter.queued()
    own_server.restart()
    assert waiter.had.wait(60)
    assert waiter.ended() > lease.token
    lease.release()


def test_a_waiter_is_queued_again_when_everything_was_flushed(own_server, locks):
    lease = locks.acquire("k", ttl=60)
    waiter = Waiter(locks)
    waiter.queued()
    own_server.ask("FLUSHALL")
    assert waiter.ended() > lease.token
    lease.release()


def test_a_waiter_whose_ear_was_cut_off_is_served_and_hears_again(own_server, locks, monkeypatch):
    lease = locks.acquire("k", ttl=60)
    waiter = Waiter(locks)
    waiter.queued()
    wait_until(lambda: own_server.ask("PUBSUB", "CHANNELS", "joblock:to:*"), "it listens")
    (channel,) = own_server.ask("PUBSUB", "CHANNELS", "joblock:to:*")
    own_server.ask("CLIENT", "KILL", "TYPE", "pubsub")
    wait_until(
        lambda: own_server.ask("PUBSUB", "CHANNELS", "joblock:to:*") == [channel],
        "it listens again",
    )
    # From now on it is woken by what it hears, and by no check.
    monkeypatch.setattr(Keeper, "_tell_seats", lambda *_: None)
    lease.release()
    assert waiter.ended() > lease.token


def test_a_dead_waiter_is_passed_over_without_delay(own_server, locks):
    """It says that it listens, and nobody does: the next one has the key at once."""
    from joblock.store.ops import Acquire, Queueing

    lease = locks.acquire("k", ttl=60)
    locks.store.driver().call(
        Acquire("k", "dead", 60_000, queue=Queueing("dead-client", listening=True))
    )
    waiter = Waiter(locks)
    wait_until(lambda: len(locks.model.waiters("k")) == 2, "both are queued")
    wait_until(lambda: own_server.ask("PUBSUB", "CHANNELS", "joblock:to:*"), "one listens")
    lease.release()
    # The key was not kept for it, not even for as long as a claim lasts.
    assert "dead" not in [lease.holder for lease in locks.model.holders("k")]
    waiter.ended()
    assert locks.store.driver().call(Acquire("k", "other", 1_000)).token


def test_a_server_that_hangs_is_an_error_in_bounded_time(own_server, locks):
    assert locks.model.acquire("k", 60, "h")
    own_server.signal(signal.SIGSTOP)
    begin = time.monotonic()
    with pytest.raises(StoreUnavailable, match="no answer within"):
        locks.model.acquire("k", 60, "h")
    assert time.monotonic() - begin < 30  # 3.5, and what a busy machine takes
    own_server.signal(signal.SIGCONT)
    assert locks.model.acquire("k", 60, "h")


async def test_a_server_that_hangs_is_an_error_in_bounded_time_for_all_tasks(own_server):
    """They share the connection on which nothing comes."""
    async with AsyncJobLocks(own_server.url) as locks:
        assert await locks.model.acquire("k", 60, "h")
        own_server.signal(signal.SIGSTOP)
        begin = time.monotonic()
        asked = [locks.model.acquire("k", 60, "h"), locks.acquire("one"), locks.model.count()]
        errors = await asyncio.gather(*asked, return_exceptions=True)
        assert time.monotonic() - begin < 30
        for error in errors:
            assert isinstance(error, StoreUnavailable)
            assert "no answer within" in str(error)
        own_server.signal(signal.SIGCONT)
        assert await locks.model.acquire("k", 60, "h")


def test_a_connection_that_is_made_while_its_pool_is_closed_is_closed_when_given_back(own_server):
    """As by the thread that renews, for which a client that closes waits only so long."""
    making, go_on = threading.Event(), threading.Event()

    def connect():
        making.set()
        assert go_on.wait(60)
        return Connection("test", Place("127.0.0.1", own_server.port), Login())

    pool = Pool(connect)
    with ThreadPoolExecutor(1) as other:
        taking = other.submit(pool.take)
        assert making.wait(60)
        pool.close()
        go_on.set()
        late = taking.result(60)
    assert late.fileno() != -1
    pool.give(late)
    assert late.fileno() == -1


def test_a_driver_whose_store_was_closed_goes_on_and_keeps_no_connection(own_server):
    """It may be in the middle of something, and connect once more."""
    store = RedisStore.from_url(own_server.url)
    driver = store.driver()
    driver.call(Count())
    store.close()
    assert driver.call(Acquire("k", "h", 60_000)).token
    assert driver.call(Count()) == 1
    wait_until(lambda: connections(own_server) == 0, "none is left")
    assert store.driver().call(Count()) == 1
    assert connections(own_server) == 1
    store.close()
    wait_until(lambda: connections(own_server) == 0, "none is left")


async def test_a_driver_for_tasks_that_was_closed_goes_on_and_keeps_no_connection(own_server):
    driver = RedisStore.from_url(own_server.url).async_driver()
    await driver.call(Count())
    await driver.aclose()
    asked = (driver.call(Acquire(f"{number}", "h", 60_000)) for number in range(5))
    assert all(reply.token for reply in await asyncio.gather(*asked))
    assert await driver.call(Count()) == 5
    while connections(own_server):  # noqa: ASYNC110 - the server tells
        await asyncio.sleep(0.01)


def connections(server) -> int:
    """How many there are but the one that asks."""
    return len(server.ask("CLIENT", "LIST").splitlines()) - 1


def test_a_server_that_is_gone_is_an_error_that_says_where(own_server, locks):
    assert locks.model.acquire("k", 60, "h")
    own_server.stop()
    with pytest.raises(StoreUnavailable, match=f"127.0.0.1:{own_server.port}"):
        locks.model.acquire("k", 60, "h")


async def test_cancelled_acquires_leave_nothing_held_and_nobody_queued(own_server):
    """Free keys and held ones, tried and waited for, cancelled sooner and later."""
    proxy = SlowProxy(own_server.port, 0.05)
    free = [f"free{number}" for number in range(30)]
    held = [f"held{number}" for number in range(30)]
    async with AsyncJobLocks(own_server.url) as holder, AsyncJobLocks(proxy.url) as locks:
        leases = [await holder.acquire(key, ttl=60) for key in held]
        assert await locks.model.acquire("warm", 1, "h")
        queued = cancelled = 0
        for number, key in enumerate(free + held):
            wait = number % 3 != 0
            task = asyncio.create_task(locks.acquire(key, ttl=60, wait=wait))
            # From not yet sent, over sent and done, to long queued and asleep.
            await asyncio.sleep(0.01 * (number % 15))
            asleep = key in held and wait and number % 2
            while asleep and not await holder.model.waiters(key):  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.01)
            queued += len(await holder.model.waiters(key))
            cancelled += task.cancel()
            (lease,) = await asyncio.gather(task, return_exceptions=True)
            if isinstance(lease, AsyncLease):
                await lease.release()  # it was faster
        assert cancelled >= 20  # how many of the others were faster, nobody knows
        assert queued >= 10
        proxy.delay = 0

        async def left() -> list[str]:
            """The keys on which anything is left of a cancelled acquire."""
            return [
                key
                for key in free + held
                if len(await holder.model.holders(key)) != (key in held)
                or await holder.model.waiters(key)
            ]

        end = time.monotonic() + 60
        while found := await left():
            assert time.monotonic() < end, f"still held or queued: {found}"
            await asyncio.sleep(0.05)
        for lease in leases:
            assert await lease.release()
        assert [key for key in held if await holder.model.holders(key)] == []
    proxy.close()


def test_a_failover_loses_no_waiter_and_tokens_grow(failing):
    with JobLocks(failing.url) as locks:
        lease = locks.acquire("k", ttl=60)
        waiter = Waiter(locks)
        waiter.queued()
        wait_until(lambda: failing.replica.ask("DBSIZE") > 0, "the replica has it")
        failing.primary.stop()
        # The lease is held through the failover: whoever replicated it, knows it.
        wait_until(lambda: _released(lease), "the new primary answers")
        assert waiter.ended() > lease.token


def _released(lease) -> bool:
    return lease.release()


def test_a_grant_that_too_few_replicas_acknowledge_is_taken_back(own_server):
    store = RedisStore.from_url(f"{own_server.url}?min_replicas=1")
    with JobLocks(store) as locks:
        with pytest.raises(StoreUnavailable, match="min_replicas=1"):
            locks.acquire("k")
        assert locks.model.peek("k") is None


def test_a_grant_that_a_replica_acknowledges_counts(guarded):
    with JobLocks(f"{guarded.url}?min_replicas=1") as locks, locks.lock("k") as lease:
        assert lease.held
        assert guarded.replica.ask("EXISTS", "joblock:{.k}") == 1


MANY = [f"k{number}" for number in range(6)]


def test_no_grant_of_many_threads_counts_while_the_replica_does_not_answer(guarded):
    """Each waits for what its own connection has written, though others take connections, too."""
    over = threading.Event()
    with JobLocks(f"{guarded.url}?min_replicas=1") as locks, ThreadPoolExecutor(8) as pool:

        def acquire(key):
            try:
                return locks.acquire(key, ttl=60)
            except StoreUnavailable as error:
                return str(error)

        def read():
            while not over.is_set():
                locks.model.peek("another")

        for lease in pool.map(acquire, MANY):
            lease.release()
        wait_until(lambda: guarded.primary.ask("WAIT", 1, 100) == 1, "the replica has it all")
        guarded.replica.signal(signal.SIGSTOP)
        for _ in range(4):
            pool.submit(read)
        answers = list(pool.map(acquire, MANY))
        over.set()
        guarded.replica.signal(signal.SIGCONT)
        assert all("min_replicas=1" in str(answer) for answer in answers)
        wait_until(lambda: locks.model.count() == 0, "all are taken back")


async def test_no_grant_of_many_tasks_counts_while_the_replica_does_not_answer(guarded):
    async with AsyncJobLocks(f"{guarded.url}?min_replicas=1") as locks:

        async def acquire_all():
            acquiring = (locks.acquire(key, ttl=60) for key in MANY)
            return await asyncio.gather(*acquiring, return_exceptions=True)

        for lease in await acquire_all():
            await lease.release()
        guarded.replica.signal(signal.SIGSTOP)
        answers = await acquire_all()
        guarded.replica.signal(signal.SIGCONT)
        assert all("min_replicas=1" in str(answer) for answer in answers)
        while await locks.model.count():  # noqa: ASYNC110 - the store tells
            await asyncio.sleep(0.01)
