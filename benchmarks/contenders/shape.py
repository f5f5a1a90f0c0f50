"""What a contender returns where its library has no context manager: two calls, as cheap as can be.

And the statements that the floors of several drivers share.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

TTL = 30
"""Seconds of a lease, the same for all."""

PATIENCE = 60
"""Seconds of waiting, for those who need to be told."""

MANY = 20_000
"""Connections that a pool may open: a library that needs one for each waiter gets it."""

DELETE = (
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"
)
"""Frees a Redis key, if it is still the caller's."""

POSTGRES_TABLE = """
create table if not exists bench_leases (
    key text primary key, holder text, token bigint, expires_at timestamptz
) with (fillfactor = 50)
"""
POSTGRES_TAKE = """
insert into bench_leases (key, holder, token, expires_at)
values ({0}, {1}, 1, now() + interval '30 seconds')
on conflict (key) do update set holder = excluded.holder, token = bench_leases.token + 1,
expires_at = excluded.expires_at
where bench_leases.holder is null or bench_leases.expires_at <= now() returning token
"""
POSTGRES_FREE = "update bench_leases set holder = null where key = {0} and holder = {1} returning 1"


class Held:
    """Two calls as a context manager."""

    __slots__ = ("free", "take")

    def __init__(self, take: Callable[[], object], free: Callable[[], object]) -> None:
        self.take = take
        self.free = free

    def __enter__(self) -> None:
        self.take()

    def __exit__(self, *error: object) -> None:
        self.free()


class AsyncHeld:
    """The same with two coroutine functions."""

    __slots__ = ("free", "take")

    def __init__(
        self, take: Callable[[], Awaitable[object]], free: Callable[[], Awaitable[object]]
    ) -> None:
        self.take = take
        self.free = free

    async def __aenter__(self) -> None:
        await self.take()

    async def __aexit__(self, *error: object) -> None:
        await self.free()
