"""Fences: data that refuses the writes of a holder that was paused and has been replaced.

The fence of a resource is the greatest token that was ever checked there. Checking it and writing
are one transaction (SQL) or one script (Redis) of the database that holds the data, whatever store
the leases are in.
"""

from __future__ import annotations

from joblock.fencing.in_redis import aredis_write, redis_write
from joblock.fencing.in_sql import DDL, acheck, acreate, check, create
from joblock.values.errors import StaleToken

__all__ = [
    "DDL",
    "StaleToken",
    "acheck",
    "acreate",
    "aredis_write",
    "check",
    "create",
    "redis_write",
]
