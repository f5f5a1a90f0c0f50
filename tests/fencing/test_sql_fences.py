"""A fence in a table: what passes, what is refused, and that it is part of the transaction."""

from __future__ import annotations

import copy
import pickle
import sqlite3
import subprocess
import sys
import threading

import psycopg
import pytest
from connections import ASYNC_ON_POSTGRES, ON_POSTGRES, ON_SQLITE
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine

from joblock import JobLockError, JobLocks, StaleToken, fencing

TOKEN = 1_790_000_000_000_000
"""As large as real ones."""

PATIENCE = 20.0


@pytest.fixture(scope="module")
def sqlite_url(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "data.db"
    data = sqlite3.connect(path)
    fencing.create(data)
    data.commit()
    data.close()
    return f"sqlite:///{path}"


@pytest.fixture(scope="module")
def pg_url(pg):
    with psycopg.connect(pg.url) as data:
        fencing.create(data)
        fencing.create(data)  # again does no harm
    return pg.url


@pytest.fixture(params=[*ON_SQLITE, *ON_POSTGRES], ids=lambda kind: kind.__name__)
def opened(request, sqlite_url, pg_url):
    """Opens connections of one kind."""
    kind = request.param
    return lambda: kind(sqlite_url if kind in ON_SQLITE else pg_url)


def test_equal_and_newer_tokens_pass_and_an_older_one_is_refused(opened, key):
    with opened() as data:
        fencing.check(data, key, TOKEN)
        fencing.check(data, key, TOKEN)
        fencing.check(data, key, TOKEN + 1)
        data.commit()
        fencing.check(data, key, TOKEN + 1)
        with pytest.raises(StaleToken) as refused:
            fencing.check(data, key, TOKEN)
        error = refused.value
        assert (error.resource, error.token, error.newest) == (key, TOKEN, TOKEN + 1)
        data.rollback()


def test_resources_have_fences_of_their_own_whatever_they_are_called(opened, key):
    with opened() as data:
        for resource in (key, key.upper(), f"{key} ", f"'{key}' :token %s $1 🔒", key + "x" * 468):
            for token in (TOKEN, TOKEN + 1):
                fencing.check(data, resource, token)
            with pytest.raises(StaleToken):
                fencing.check(data, resource, TOKEN)
        data.rollback()


def test_a_rollback_takes_the_fence_back(opened, key):
    with opened() as data:
        fencing.check(data, key, TOKEN + 1)
        data.rollback()
        fencing.check(data, key, TOKEN)
        data.commit()
        fencing.check(data, key, TOKEN)
        data.rollback()


def test_an_older_writer_waits_for_the_newer_one_and_is_then_refused(opened, key):
    outcome, begun = [], threading.Event()

    def write_late():
        with opened() as data:
            begun.set()
            try:
                fencing.check(data, key, TOKEN)
                outcome.append("passed")
            except StaleToken as error:
                outcome.append(error.newest)
            data.rollback()

    with opened() as data:
        fencing.check(data, key, TOKEN + 1)
        late = threading.Thread(target=write_late)
        late.start()
        assert begun.wait(PATIENCE)
        late.join(0.2)  # it would be through by then if it did not wait
        assert outcome == []
        data.commit()
    late.join(PATIENCE)
    assert outcome == [TOKEN + 1]


def test_of_many_concurrent_writers_none_commits_behind_a_newer_one(pg_url, key):
    with psycopg.connect(pg_url) as data:
        data.execute("CREATE TABLE IF NOT EXISTS history (n bigserial, key text, token bigint)")
    gate = threading.Barrier(8)

    def write(number):
        with psycopg.connect(pg_url) as data:
            gate.wait(PATIENCE)
            for step in range(20):
                token = TOKEN + (number + step * 3) % 50
                try:
                    fencing.check(data, key, token)
                    data.execute("INSERT INTO history (key, token) VALUES (%s, %s)", (key, token))
                    data.commit()
                except StaleToken:
                    data.rollback()

    writers = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(PATIENCE)
    with psycopg.connect(pg_url) as data:
        rows = data.execute("SELECT token FROM history WHERE key = %s ORDER BY n", (key,))
        written = [token for (token,) in rows]
    assert written == sorted(written)
    assert len(written) > 1


def test_a_lease_may_stand_for_its_token(sqlite_url, tmp_path, key):
    with (
        JobLocks(f"sqlite:///{tmp_path}/leases.db") as locks,
        ON_SQLITE[0](sqlite_url) as data,
    ):
        with locks.lock(key) as lease:
            fencing.check(data, key, lease)
        with locks.lock(key) as newer:
            fencing.check(data, key, newer)
        with pytest.raises(StaleToken) as refused:
            fencing.check(data, key, lease)
        assert (refused.value.token, refused.value.newest) == (lease.token, newer.token)


def test_a_permit_and_a_shared_lock_are_refused(sqlite_url, tmp_path, key):
    with JobLocks(f"sqlite:///{tmp_path}/leases.db") as locks, ON_SQLITE[0](sqlite_url) as data:
        for options in ({"limit": 2}, {"shared": True}):
            with locks.lock(key, **options) as lease, pytest.raises(ValueError, match="exclusive"):
                fencing.check(data, key, lease)
        with locks.lock(key, limit=2, weight=2) as lease:  # all of it
            fencing.check(data, key, lease)
        with locks.lock([key]) as leases, pytest.raises(TypeError, match=r"lease\.tokens\[key\]"):
            fencing.check(data, key, leases)


@pytest.mark.parametrize("token", [0, -1, 2**53])
def test_a_number_that_is_no_token_is_refused(sqlite_url, key, token):
    with ON_SQLITE[0](sqlite_url) as data, pytest.raises(ValueError, match=r"lease\.token"):
        fencing.check(data, key, token)


@pytest.mark.parametrize("token", ["12", None, True, 1.5])
def test_what_is_no_number_is_refused(sqlite_url, key, token):
    with ON_SQLITE[0](sqlite_url) as data, pytest.raises(TypeError, match=r"lease\.token"):
        fencing.check(data, key, token)


@pytest.mark.parametrize(
    ("resource", "error"),
    [("", ValueError), ("a\0", ValueError), ("x" * 501, ValueError), (7, TypeError)],
)
def test_what_can_name_no_resource_is_refused(sqlite_url, resource, error):
    with ON_SQLITE[0](sqlite_url) as data, pytest.raises(error, match="resource"):
        fencing.check(data, resource, TOKEN)


def test_outside_a_transaction_a_check_is_refused(sqlite_url, pg_url, key):
    path = sqlite_url.removeprefix("sqlite:///")
    engine = create_engine(pg_url.replace(":", "+psycopg:", 1), isolation_level="AUTOCOMMIT")
    plain = sqlite3.connect(path, isolation_level=None)
    with psycopg.connect(pg_url, autocommit=True) as data, engine.connect() as alchemy:
        for connection in (plain, data, alchemy):
            with pytest.raises(RuntimeError, match="transaction"):
                fencing.check(connection, key, TOKEN)
        with data.transaction():
            fencing.check(data, key, TOKEN)
        plain.execute("BEGIN IMMEDIATE")
        fencing.check(plain, key, TOKEN)
    plain.close()
    engine.dispose()


@pytest.mark.parametrize("connection", [None, "postgresql://db/app", object()])
def test_what_is_no_connection_is_refused(connection, key):
    with pytest.raises(TypeError, match="takes an open connection"):
        fencing.check(connection, key, TOKEN)


async def test_each_twin_refuses_the_connections_of_the_other(pg_url, key):
    with psycopg.connect(pg_url) as data, pytest.raises(TypeError, match="that are awaited"):
        await fencing.acheck(data, key, TOKEN)
    async with await psycopg.AsyncConnection.connect(pg_url) as data:
        with pytest.raises(TypeError, match="not awaited"):
            fencing.check(data, key, TOKEN)


@pytest.mark.parametrize("kind", ASYNC_ON_POSTGRES, ids=lambda kind: kind.__name__)
async def test_awaited_connections_are_fenced_alike(kind, pg_url, key):
    async with kind(pg_url) as data:
        await fencing.acreate(data)
        await fencing.acheck(data, key, TOKEN)
        await fencing.acheck(data, key, TOKEN + 1)
        with pytest.raises(StaleToken) as refused:
            await fencing.acheck(data, key, TOKEN)
        assert refused.value.newest == TOKEN + 1


async def test_outside_a_transaction_an_awaited_check_is_refused(pg_url, key):
    import asyncpg

    data = await asyncpg.connect(pg_url)
    with pytest.raises(RuntimeError, match="transaction"):
        await fencing.acheck(data, key, TOKEN)
    await data.close()
    engine = create_async_engine(pg_url.replace(":", "+asyncpg:", 1), isolation_level="AUTOCOMMIT")
    async with engine.connect() as alchemy:
        with pytest.raises(RuntimeError, match="transaction"):
            await fencing.acheck(alchemy, key, TOKEN)
    await engine.dispose()


async def test_a_connection_of_sqlite3_will_do_in_asyncio_too(sqlite_url, key):
    with ON_SQLITE[0](sqlite_url) as data:
        await fencing.acheck(data, key, TOKEN + 1)
        with pytest.raises(StaleToken):
            await fencing.acheck(data, key, TOKEN)


def test_the_refusal_says_what_to_do_and_crosses_a_process_boundary():
    error = StaleToken("stock:7", 12, 13)
    for part in ("'stock:7'", "token 12", "13", "roll back", "acquire the lock again"):
        assert part in str(error)
    assert isinstance(error, JobLockError)
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert (str(other), other.__dict__) == (str(error), error.__dict__)
    assert "token is" not in str(StaleToken("stock:7", 12))


def test_importing_it_loads_no_driver():
    program = (
        "import sys, joblock.fencing; "
        "print(sorted({'psycopg', 'asyncpg', 'sqlalchemy', 'redis', 'sqlite3', 'asyncio'}"
        " & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "[]\n"
