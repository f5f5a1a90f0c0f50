"""Every kind of connection that a fence or a guard takes, opened on one database."""

from __future__ import annotations

import sqlite3
from contextlib import asynccontextmanager, contextmanager

import asyncpg
import psycopg
import sqlalchemy
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session


@contextmanager
def sqlite_connection(url):
    connection = sqlite3.connect(url.removeprefix("sqlite:///"), timeout=10)
    try:
        yield connection
    finally:
        connection.close()


@contextmanager
def psycopg_connection(url):
    with psycopg.connect(url) as connection:
        yield connection


@contextmanager
def psycopg_connection_of_odd_cursors(url):
    with psycopg.connect(url, row_factory=dict_row, cursor_factory=psycopg.RawCursor) as connection:
        yield connection


@contextmanager
def _alchemy(url, kind):
    engine = sqlalchemy.create_engine(url)
    try:
        with kind(engine) as connection:
            yield connection
    finally:
        engine.dispose()


def alchemy_on_sqlite(url):
    return _alchemy(url, lambda engine: engine.connect())


def alchemy_on_psycopg(url):
    return _alchemy(url.replace(":", "+psycopg:", 1), lambda engine: engine.connect())


def alchemy_on_psycopg2(url):
    return _alchemy(url.replace(":", "+psycopg2:", 1), lambda engine: engine.connect())


def alchemy_session(url):
    return _alchemy(url.replace(":", "+psycopg:", 1), Session)


ON_SQLITE = (sqlite_connection, alchemy_on_sqlite)
ON_POSTGRES = (
    psycopg_connection,
    psycopg_connection_of_odd_cursors,
    alchemy_on_psycopg,
    alchemy_on_psycopg2,
    alchemy_session,
)


@asynccontextmanager
async def async_psycopg(url):
    async with await psycopg.AsyncConnection.connect(url) as connection:
        yield connection


@asynccontextmanager
async def asyncpg_connection(url):
    connection = await asyncpg.connect(url)
    try:
        await connection.transaction().start()
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def asyncpg_pooled(url):
    async with (
        asyncpg.create_pool(url, min_size=1, max_size=1) as pool,
        pool.acquire() as connection,
        connection.transaction(),
    ):
        yield connection


@asynccontextmanager
async def _async_alchemy(url, kind):
    engine = create_async_engine(url)
    try:
        async with kind(engine) as connection:
            yield connection
    finally:
        await engine.dispose()


def async_alchemy_on_asyncpg(url):
    return _async_alchemy(url.replace(":", "+asyncpg:", 1), lambda engine: engine.connect())


def async_alchemy_on_psycopg(url):
    return _async_alchemy(url.replace(":", "+psycopg:", 1), lambda engine: engine.connect())


def async_alchemy_session(url):
    return _async_alchemy(url.replace(":", "+asyncpg:", 1), AsyncSession)


ASYNC_ON_POSTGRES = (
    async_psycopg,
    asyncpg_connection,
    asyncpg_pooled,
    async_alchemy_on_asyncpg,
    async_alchemy_on_psycopg,
    async_alchemy_session,
)
