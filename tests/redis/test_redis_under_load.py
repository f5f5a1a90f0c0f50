"""Servers that are killed, and connections that are cut, while many take locks in turn."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import pytest
from redis_servers import LASTING, PATIENCE, CutOff, Server, binary, wait_until
from slow_proxy import SlowProxy

from joblock import AsyncJobLocks, JobLocks, LockLost
from joblock.store.ops import Acquire, Busy, Check, Force, Granted, Leave, Queueing, Release
from joblock.stores.redis import RedisStore
from joblock.values.errors import StoreMisconfigured, StoreUnavailable

TTL = 4.0
"""Seconds: longer than a body is ever paused here, and soon over where a release was lost."""


class Load:
    """Workers with clients of their own that take the same keys in turn, and look who is inside."""

    def __init__(self, url, keys=("a", "b"), workers=4, exclusive=True):
        self.url, self.keys, self.exclusive = url, keys, exclusive
        self.inside = dict.fromkeys(keys, 0)
        self.tokens = {key: [] for key in keys}
        self.tolerated = []
        self.faults = []
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._guarded, args=(self._sync if n % 2 else self._async,))
            for n in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    def go_on(self, turns=20):
        """Return when each key was held so many more times."""
        goals = {key: len(tokens) + turns for key, tokens in self.tokens.items()}
        wait_until(
            lambda: self.faults or all(len(self.tokens[key]) >= goals[key] for key in self.keys),
            "the workers go on",
            60,
        )
        assert self.faults == []

    def end(self):
        self._over.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()
        assert self.faults == []

    def _guarded(self, work):
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - told to the test
            self.faults.append(error)

    def _sync(self):
        with JobLocks(self.url) as locks:
            while not self._over.is_set():
                for key in self.keys:
                    with self._tolerated(), locks.lock(key, ttl=TTL, wait=30) as lease:
                        self._enter(key, lease)
                        self._leave(key)

    def _async(self):
        async def work():
            async with AsyncJobLocks(self.url) as locks:
                while not self._over.is_set():
                    for key in self.keys:
                        with self._tolerated():
                            async with locks.lock(key, ttl=TTL, wait=30) as lease:
                                self._enter(key, lease)
                                try:
                                    await asyncio.sleep(0)
                                finally:
                                    self._leave(key)

        asyncio.run(work())

    @contextmanager
    def _tolerated(self):
        """What an outage may do to a caller: it is told that the store is away, or the lease."""
        try:
            yield
        except (StoreUnavailable, LockLost) as error:
            self.tolerated.append(str(error))
            time.sleep(0.01)

    def _enter(self, key, lease):
        self.inside[key] += 1
        if self.exclusive and self.inside[key] != 1:
            self.faults.append(f"two hold {key}")
        self.tokens[key].append(lease.token)

    def _leave(self, key):
        self.inside[key] -= 1

    def check_tokens(self):
        for tokens in self.tokens.values():
            assert tokens == sorted(set(tokens))


@pytest.fixture
def lasting(tmp_path):
    server = Server(binary("redis-server"), tmp_path / "lasting", memory=LASTING)
    yield server
    server.stop()


def test_a_server_that_is_killed_under_load_loses_nothing_that_it_wrote_first(lasting):
    load = Load(lasting.url)
    for _ in range(3):
        load.go_on()
        lasting.kill()
        lasting.start()
    load.go_on()
    load.end()
    load.check_tokens()


def test_a_lease_and_the_queue_outlive_a_kill_of_a_server_that_writes_first(lasting):
    with JobLocks(lasting.url) as locks, JobLocks(lasting.url) as others:
        lease, tokens = locks.acquire("k", ttl=60), []

        def wait(number):
            with others.lock("k", wait=60) as mine:
                tokens.append((mine.token, number))

        waiters = []
        for number in range(3):
            waiters.append(threading.Thread(target=wait, args=(number,)))
            waiters[-1].start()
            wait_until(
                lambda number=number: len(locks.model.waiters("k")) == number + 1, "it is queued"
            )
        lasting.kill()
        lasting.start()
        # Until it listens again, a waiter that is handed the key is taken for dead.
        wait_until(lambda: lasting.ask("PUBSUB", "CHANNELS"), "the waiters listen again")
        lease.refresh("60s")
        assert lease.held
        assert locks.model.peek("k").token == lease.token
        assert lease.release()
        for waiter in waiters:
            waiter.join(60)
        assert [number for _, number in sorted(tokens)] == [0, 1, 2]
        assert min(tokens)[0] > lease.token


def test_tokens_grow_though_the_server_forgets_everything_under_load(own_server):
    """Then two may hold a key, as the page says; the newer one has the greater token."""
    load = Load(own_server.url, exclusive=False)
    for _ in range(3):
        load.go_on()
        own_server.kill()
        newest = {key: max(tokens) for key, tokens in load.tokens.items()}
        seen = {key: len(tokens) for key, tokens in load.tokens.items()}
        own_server.start()
        load.go_on()
        for key, tokens in load.tokens.items():
            assert min(tokens[seen[key] + 4 :]) > newest[key]
    load.end()


def test_scripts_may_be_forgotten_at_any_moment(own_server):
    load = Load(own_server.url)
    for _ in range(50):
        load.go_on(1)
        own_server.ask("SCRIPT", "FLUSH")
    load.end()
    load.check_tokens()
    assert [error for error in load.tolerated if "script" in error.lower()] == []


def test_connections_may_be_killed_at_any_moment(own_server):
    load = Load(own_server.url)
    for _ in range(20):
        load.go_on(2)
        own_server.ask("CLIENT", "KILL", "TYPE", "normal")
        own_server.ask("CLIENT", "KILL", "TYPE", "pubsub")
    load.go_on()
    load.end()
    load.check_tokens()
    with JobLocks(own_server.url) as locks:
        wait_until(
            lambda: all(locks.model.peek(key) is None for key in load.keys),
            "what was lost on the way lapses",
        )
        assert not any(locks.model.waiters(key) for key in load.keys)


def test_a_primary_that_is_killed_under_load_takes_no_acknowledged_grant_with_it(failing):
    """With min_replicas a grant counts when the replica has it, which then is the primary."""
    load = Load(f"{failing.url}?min_replicas=1")
    load.go_on()
    failing.primary.kill()
    wait_until(lambda: _role(failing.replica) == b"master", "the replica has taken over", 60)
    failing.primary.start()
    wait_until(lambda: _role(failing.primary) == b"slave", "and has a replica of its own", 60)
    load.go_on()
    load.end()
    load.check_tokens()


def _role(server):
    """What a server is; None where the sentinels cut all its connections, as they do to tell it."""
    try:
        return server.ask("ROLE")[0]
    except (CutOff, OSError):
        return None


# A connection that ends in the middle of a request.


@pytest.fixture
def proxy(own_server):
    proxy = SlowProxy(own_server.port)
    yield proxy
    proxy.close()


@pytest.fixture(params=["sync", "async"])
def call(request, proxy):
    """What sends an operation through the proxy, by the one or the other driver."""
    store = RedisStore.from_url(proxy.url)
    if request.param == "sync":
        yield store.driver().call
    else:
        with asyncio.Runner() as runner:

            async def opened():
                return store.async_driver()

            driver = runner.run(opened())

            async def called(op):
                return await driver.call(op)

            yield lambda op: runner.run(called(op))
            runner.run(driver.aclose())
    store.close()


@pytest.mark.parametrize("cut", ["request", "reply"])
def test_a_request_is_sent_again_when_its_connection_was_cut(call, proxy, cut):
    """Whether it was done or not: the answer is the same."""
    queue = Queueing("client")
    assert isinstance(call(Acquire("k", "warm", 60_000)), Granted)
    assert call(Release("k", "warm")).freed
    proxy.cut = cut
    granted = call(Acquire("k", "A", 60_000))
    assert isinstance(granted, Granted)
    proxy.cut = cut
    busy = call(Acquire("k", "B", 60_000, queue=queue))
    assert isinstance(busy, Busy)
    assert busy.arrival
    again = call(Acquire("k", "B", 60_000, queue=queue))
    assert (again.arrival, again.epoch) == (busy.arrival, busy.epoch)
    proxy.cut = cut
    assert call(Release("k", "A", granted.token)).freed
    proxy.cut = cut
    later = call(Acquire("k", "B", 60_000, queue=queue))
    assert isinstance(later, Granted)
    assert later.token > granted.token
    proxy.cut = cut
    assert call(Leave("k", "B")).freed
    proxy.cut = cut
    assert call(Check("client", ("k",))).states[0].lapses_in == 0
    assert proxy.cuts == 6


@pytest.mark.parametrize("cut", ["request", "reply"])
def test_a_key_is_not_forced_twice(call, proxy, cut):
    """Who had it in between would lose it: so the caller is told, and looks."""
    call(Acquire("k", "A", 60_000))
    proxy.cut = cut
    with pytest.raises(StoreUnavailable):
        call(Force("k", "ops", "it hangs"))


# Forks.

FORKED = """
import asyncio, os, sys, threading
from joblock import AsyncJobLocks, JobLocks
url = sys.argv[1]

def wait(locks):
    with locks.lock("waited", wait=90):
        pass

locks, others = JobLocks(url), JobLocks(url)
lease = locks.acquire("mine", ttl=30)
blocking = others.acquire("waited", ttl=60)
waiter = threading.Thread(target=wait, args=(locks,))
waiter.start()
while not others.model.waiters("waited"):
    pass
children = []
for number in range(3):
    child = os.fork()
    if not child:
        assert not lease.held
        assert locks.acquire("mine") is None
        own = locks.acquire(f"child {number}", ttl=30)
        with locks.lock("taken in turn", wait=90):
            pass
        async def work():
            async with AsyncJobLocks(url) as tasks, tasks.lock("taken in turn", wait=90):
                pass
        asyncio.run(work())
        assert own.held
        own.release()
        sys.exit(0)
    children.append(child)
for child in children:
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
for number in range(50):
    with locks.lock("still in order"):
        pass
assert lease.held
blocking.release()
waiter.join(30)
assert not waiter.is_alive()
assert lease.release()
print("well")
"""


def test_children_that_are_forked_with_open_connections_use_their_own(own_server):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", FORKED, own_server.url],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert (done.returncode, done.stdout) == (0, "well\n"), done.stderr
    # Nothing more: on a busy machine the library may warn that its keeper was kept waiting.
    assert "Traceback" not in done.stderr
    with JobLocks(own_server.url) as locks:
        assert locks.model.count() == 0


# A server that is not what it should be.


def test_a_server_that_still_loads_its_data_is_away_and_grants_nothing(lasting):
    # It looks at its connections after each 1,024 of them, which take half a second; all of them
    # would take longer than a busy machine keeps anybody from asking.
    lasting.ask("EVAL", "for i = 1, 60000 do redis.call('SET', 'other ' .. i, i) end", 0)
    with JobLocks(lasting.url) as locks, JobLocks(lasting.url) as others:
        lease = locks.acquire("k", ttl=60)
        lasting.kill()
        lasting.options = ("--key-load-delay", "500")  # microseconds
        starting = threading.Thread(target=lasting.start)
        starting.start()
        with pytest.raises(StoreUnavailable, match="still loads its data"):
            _ask_until_it_is_there(others)
        lasting.ask("CONFIG", "SET", "key-load-delay", "0")
        starting.join(PATIENCE)
        lease.refresh("60s")
        assert lease.held


def _ask_until_it_is_there(locks):
    while True:
        try:
            assert locks.acquire("k") is None
            return
        except StoreUnavailable as error:
            if "still loads" in str(error):
                raise


def test_what_is_no_redis_at_all_is_an_error_in_bounded_time(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer():
            connection, _ = listener.accept()
            with connection:
                connection.recv(1_000)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        url = f"redis://127.0.0.1:{listener.getsockname()[1]}/0"
        with JobLocks(url) as locks, pytest.raises((StoreUnavailable, StoreMisconfigured)):
            locks.acquire("k")
        thread.join(PATIENCE)
