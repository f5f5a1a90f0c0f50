"""Ours: joblock on a SQLAlchemy Engine, over psycopg for threads and over asyncpg for tasks."""

from __future__ import annotations

from functools import cache, partial

NAME = "joblock, SQLAlchemy engine"
KIND = "ours"
STORE = "postgres"
GIVES = "lease, renewed; fencing token; in order"
BLOCKING = True


@cache
def _locks(url: str):
    from sqlalchemy import create_engine

    from joblock import JobLocks

    return JobLocks(create_engine(url.replace("postgresql://", "postgresql+psycopg://")))


@cache
def _async_locks(url: str):
    from sqlalchemy.ext.asyncio import create_async_engine

    from joblock import AsyncJobLocks

    return AsyncJobLocks(create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://")))


def make(url, key):
    return partial(_locks(url).lock, key)


def make_async(url, key):
    return partial(_async_locks(url).lock, key)
