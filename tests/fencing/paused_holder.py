"""A process that holds a lock, is stopped between its last look at the lease and its write."""

from __future__ import annotations

import os
import select
import sqlite3
import subprocess
import sys
from pathlib import Path

import joblock
from joblock import JobLocks, LockLost, StaleToken, fencing

PATIENCE = 30.0
SOURCE = str(Path(joblock.__file__).parent.parent)


def write_sqlite(path, key, lease, guarded):
    with sqlite3.connect(path) as data:
        if not guarded:
            fencing.check(data, key, lease.token)
        data.execute("UPDATE report SET body = 'by A'")
        if guarded:
            lease.guard(data)


def write_postgres(url, key, lease, guarded):
    import psycopg

    with psycopg.connect(url) as data:
        if not guarded:
            fencing.check(data, key, lease.token)
        data.execute("UPDATE report SET body = 'by A' WHERE key = %s", (key,))
        if guarded:
            lease.guard(data)


def write_redis(url, key, lease, guarded):
    assert not guarded
    import redis

    with redis.Redis.from_url(url) as client:
        fencing.redis_write(client, key, lease.token, ("SET", key, "by A"))


WRITERS = {"sqlite": write_sqlite, "postgres": write_postgres, "redis": write_redis}


def say(word):
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def main(kind, leases, data, key, guarded):
    with JobLocks(leases) as locks:
        locks.model.peek(key)  # whatever the store needs at first is not part of the lease's time
        lease = locks.acquire(key, ttl="2s", on_lost="warn")
        lease.check()
        say(lease.token)
        sys.stdin.readline()  # the pause falls here
        try:
            WRITERS[kind](data, key, lease, guarded == "guarded")
        except (StaleToken, LockLost) as error:
            say(type(error).__name__)
        else:
            say("written")


class Holder:
    """That process, as the test sees it."""

    def __init__(self, kind, leases, data, key, *, guarded=False):
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-W", "error", __file__),
                *(kind, leases, str(data), key, "guarded" if guarded else "fenced"),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": SOURCE},
        )

    def next(self):
        """The next line it says."""
        ready, _, _ = select.select([self._process.stdout], [], [], PATIENCE)
        assert ready, "the holder says nothing"
        return self._process.stdout.readline().decode().strip()

    def signal(self, number):
        self._process.send_signal(number)

    def go_on(self):
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()

    def end(self):
        if self._process.poll() is None:
            self._process.kill()
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(PATIENCE)


if __name__ == "__main__":
    main(*sys.argv[1:])
