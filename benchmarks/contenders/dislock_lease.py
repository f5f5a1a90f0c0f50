"""Peer: dislock's lease, a row and a thread that renews it; tries once. pip: dislock."""

from __future__ import annotations

import uuid

from benchmarks.contenders.shape import TTL

NAME = "dislock"
KIND = "peer"
STORE = "postgres"
REQUIRES = ("dislock==0.1.0", "psycopg[binary]==3.3.9")
GIVES = "lease, renewed; tries once"
BLOCKING = False

_TABLE = """
create table if not exists key_value (
    key text primary key, value text not null, expire_at timestamptz not null
)
"""


def make(url, key):
    import psycopg
    from dislock import LeaseLock, LockContext

    with psycopg.connect(url) as connection:
        connection.execute(_TABLE)
    context = LockContext(
        url=url,
        table_parts=["key_value"],
        lock_key=key,
        owner=uuid.uuid4().hex,
        run_ttl_seconds=TTL,
        lease_interval_seconds=TTL / 3,
    )
    return lambda: LeaseLock(context)
