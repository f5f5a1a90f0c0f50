"""Each line of the tables "coming from a Redis lock" holds: both do the same, free and held."""

from __future__ import annotations

import sys
import threading
from contextlib import ExitStack
from pathlib import Path

import psycopg
import psycopg.errors
import pytest
import redis
import redis_lock
from doc_pages import ROOT, Page

from joblock import JobLocks, LockNotAcquired

_TESTS = Path(__file__).parents[1]
sys.path += [str(_TESTS / "postgres"), str(_TESTS / "redis")]

import postgres_servers  # noqa: E402
import redis_servers  # noqa: E402

PAGE = Page(ROOT / "docs" / "from-redis-lock.md")
KINDS = ("redis.lock.Lock", "python-redis-lock", "advisory lock")
ROWS = [(kind, *map(str, row)) for kind in KINDS for row in PAGE.table(kind)]
REFUSALS = (
    redis.exceptions.LockError,
    LockNotAcquired,
    psycopg.errors.LockNotAvailable,
)
PATIENCE = 30.0


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = redis_servers.Server(
        redis_servers.binary("redis-server"), tmp_path_factory.mktemp("redis")
    )
    yield server
    server.stop()


@pytest.fixture(scope="module")
def pg():
    server = postgres_servers.Server()
    yield server
    server.remove()


@pytest.fixture
def stack():
    with ExitStack() as stack:
        yield stack


class Old:
    """The lock that somebody comes from; `new` makes one as another process would have it."""

    def __init__(self, kind, server, pg, stack):
        self.kind, self.pg = kind, pg
        self.client = stack.enter_context(redis.Redis(port=server.port))
        self.stack = stack

    def new(self):
        if self.kind == "advisory lock":
            connection = psycopg.connect(self.pg.url, autocommit=True)
            return self.stack.enter_context(connection)
        if self.kind == "python-redis-lock":
            return redis_lock.Lock(self.client, "k", expire=30, auto_renewal=True)
        return self.client.lock("k", timeout=30)

    def hold(self):
        """Take it, and return what gives it back."""
        lock = self.new()
        if self.kind == "advisory lock":
            lock.execute("SELECT pg_advisory_lock(42)")
            return lock.close
        assert lock.acquire(blocking=False)
        return lock.release

    def run(self, code):
        """Do what the page shows, and give the lock back: whether it was had."""
        lock = self.new()
        if self.kind != "advisory lock":
            return _run(code, {"lock": lock, "client": self.client})
        for statement in code.split("; "):
            cursor = lock.execute(statement)
        (had,) = cursor.fetchone()
        lock.close()
        return had is not False


class New:
    """joblock, on the same server."""

    def __init__(self, kind, server, pg, stack):
        self.locks, self.others = (
            stack.enter_context(JobLocks(pg.url if kind == "advisory lock" else server.url))
            for _ in range(2)
        )

    def hold(self):
        return self.others.acquire("k").release

    def run(self, code):
        return _run(code, {"lock": self.locks.lock("k", ttl=30), "locks": self.locks})


def _run(code, names):
    if code.startswith("with "):
        exec(code, names)  # noqa: S102
        return True
    had = eval(code, names)  # noqa: S307
    if had:
        (had if had is not True else names["lock"]).release()
    return bool(had)


@pytest.fixture(params=[Old, New], ids=["before", "after"])
def side(request, kind, server, pg, stack):
    server.ask("FLUSHALL")
    return request.param(kind, server, pg, stack)


def code_of(side, old, new):
    return (old if isinstance(side, Old) else new).strip("`")


@pytest.mark.parametrize(("kind", "old", "new", "held"), ROWS)
def test_a_line_of_the_tables_holds(side, kind, old, new, held):
    code = code_of(side, old, new)
    assert side.run(code), "it is had while it is free"
    give_back = side.hold()
    if held == "refused":
        assert not side.run(code)
    elif held == "raises":
        with pytest.raises(REFUSALS):
            side.run(code)
    else:
        assert held == "waits"
        _waits(side, code, give_back)
        return
    give_back()


def _waits(side, code, give_back):
    had = []
    waiting = threading.Thread(target=lambda: had.append(side.run(code)))
    waiting.start()
    waiting.join(0.3)  # the subject: it is still there when the tries and timeouts are over
    assert waiting.is_alive()
    give_back()
    waiting.join(PATIENCE)
    assert had == [True]


def test_each_kind_of_lock_has_lines():
    assert {row[0] for row in ROWS} == set(KINDS)
    assert {row[3] for row in ROWS} == {"refused", "raises", "waits"}


def test_the_examples_that_need_a_server_run(server, capsys):
    names = {"__name__": "example"}
    for block in PAGE.blocks:
        if block.language == "python":
            code = block.text.replace('Redis(host="cache")', f"Redis(port={server.port})")
            code = code.replace("JobLocks()", "JobLocks(client)")
            exec(compile(code, f"{block.page}:{block.line}", "exec"), names)  # noqa: S102
    names["client"].close()
    names["locks"].close()
    assert capsys.readouterr().out.splitlines() == [
        *("reindexing", "still reindexing"),
        *("reindexing", "still reindexing"),
        "reindexing",
    ]


# What the page says of the others, so that it is fair.


def test_a_waiter_of_python_redis_lock_that_is_killed_takes_the_signal_with_it(server, stack):
    """Its successor sleeps until the key would have expired, though nobody has it."""
    server.ask("FLUSHALL")
    client = stack.enter_context(redis.Redis(port=server.port))
    holder, successor = (redis_lock.Lock(client, "k", expire=2) for _ in range(2))
    assert holder.acquire()
    killed = threading.Thread(target=lambda: client.blpop(["lock-signal:k"], 30))
    waiting = threading.Thread(target=successor.acquire)
    for number, thread in enumerate((killed, waiting)):
        thread.start()
        redis_servers.wait_until(
            lambda number=number: (
                f"blocked_clients:{number + 1}".encode() in server.ask("INFO", "clients")
            ),
            "it waits",
        )
    holder.release()
    killed.join(PATIENCE)
    assert client.exists("lock:k") == 0
    assert waiting.is_alive()
    waiting.join(PATIENCE)
    assert client.get("lock:k").decode() == successor.id
    successor.release()


def test_extending_adds_there_and_sets_here(server):
    client = redis.Redis(port=server.port)
    server.ask("FLUSHALL")
    lock = client.lock("k", timeout=100)
    assert lock.acquire()
    lock.extend(60)
    assert 150_000 < client.pttl("k") <= 160_000
    lock.extend(60, replace_ttl=True)
    assert 50_000 < client.pttl("k") <= 60_000
    lock.release()
    with JobLocks(client) as locks, locks.lock("k", ttl=100) as lease:
        lease.refresh(60)
        assert 50 < lease.remaining <= 60
    client.close()


def test_the_two_are_different_names_in_redis(server):
    client = redis.Redis(port=server.port)
    server.ask("FLUSHALL")
    with client.lock("k", timeout=30), JobLocks(client) as locks, locks.lock("k"):
        assert sorted(client.keys()) == [b"joblock:{.k}", b"k"]
    client.close()
