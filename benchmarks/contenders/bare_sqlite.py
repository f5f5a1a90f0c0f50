"""Floor: the sqlite3 module doing the two statements of a lease. Needs nothing."""

from __future__ import annotations

import sqlite3
from functools import cache

from benchmarks.contenders.shape import AsyncHeld, Held

NAME = "sqlite3, two statements"
KIND = "floor"
STORE = "files"
GIVES = "lease, token; tries once"
BLOCKING = False

_TAKE = """
insert into leases (key, holder, token, expires_at) values (?1, ?2, ?3, ?4)
on conflict (key) do update set holder = ?2, token = max(token + 1, ?3), expires_at = ?4
where holder is null or expires_at <= ?5 returning token
"""
_FREE = "update leases set holder = null where key = ?1 and holder = ?2 and token = ?3 returning 1"


@cache
def _connection(url: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        url.removeprefix("sqlite:///") + "-bare", isolation_level=None, check_same_thread=False
    )
    connection.execute("pragma journal_mode = wal")
    connection.execute("pragma synchronous = normal")
    connection.execute(
        "create table if not exists leases (key text primary key, holder text, token integer, "
        "expires_at integer) without rowid"
    )
    return connection


def _calls(url, key):
    run = _connection(url).execute
    token = 0

    def take():
        nonlocal token
        ((token,),) = run(_TAKE, (key, "me", 1, 30_000, 0)).fetchall()

    def free():
        run(_FREE, (key, "me", token)).fetchall()

    return take, free


def make(url, key):
    held = Held(*_calls(url, key))
    return lambda: held


def make_async(url, key):
    take, free = _calls(url, key)

    async def take_here():
        take()

    async def free_here():
        free()

    held = AsyncHeld(take_here, free_here)
    return lambda: held
