"""Peer: tooz on PostgreSQL, an advisory lock on a connection of its own. pip: tooz[postgresql]."""

from __future__ import annotations

from benchmarks.contenders.tooz_redis import make

__all__ = ["make"]

NAME = "tooz"
KIND = "peer"
STORE = "postgres"
REQUIRES = ("tooz[postgresql]==9.1.0", "psycopg2-binary")
GIVES = "no lease: a connection each"
BLOCKING = True
