"""The SQLite store beside the bare sqlite3 module doing the same two statements, and its peers."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from importlib.util import find_spec
from pathlib import Path

from benchmarks.measure import Candidate, Figure, compare
from joblock import AsyncJobLocks, JobLocks

_TAKE = """
insert into leases (key, holder, token, expires_at) values (?1, ?2, ?3, ?4)
on conflict (key) do update set holder = ?2, token = max(token + 1, ?3), expires_at = ?4
where holder is null or expires_at <= ?5 returning token
"""
_FREE = "update leases set holder = null where key = ?1 and holder = ?2 and token = ?3 returning 1"


def figures() -> list[Figure]:
    """An uncontended acquire and release in WAL mode with synchronous NORMAL."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        return [
            *compare(
                "SQLite, acquire + release, threads",
                {"sqlite3": _floor(place), "joblock": _ours(place), **_peers(place)},
                turns=2_000,
                goals={"joblock": "1.3"},
            ),
            *compare(
                "SQLite, acquire + release, tasks",
                {"sqlite3": _floor(place), "joblock": _ours_async(place)},
                turns=2_000,
            ),
        ]


def _floor(place: Path) -> Candidate:
    connection = sqlite3.connect(place / "floor.db", isolation_level=None)
    connection.execute("pragma journal_mode = wal")
    connection.execute("pragma synchronous = normal")
    connection.execute(
        "create table if not exists leases (key text primary key, holder text, token integer, "
        "expires_at integer) without rowid"
    )

    def run(turns: int) -> None:
        for _ in range(turns):
            ((token,),) = connection.execute(_TAKE, ("reindex", "me", 1, 30_000, 0)).fetchall()
            connection.execute(_FREE, ("reindex", "me", token)).fetchall()

    return run


def _ours(place: Path) -> Candidate:
    locks = JobLocks(f"sqlite:///{place / 'ours.db'}")

    def run(turns: int) -> None:
        for _ in range(turns):
            with locks.lock("reindex"):
                pass

    return run


def _ours_async(place: Path) -> Candidate:
    async def cycles(turns: int) -> None:
        async with AsyncJobLocks(f"sqlite:///{place / 'ours.db'}") as locks:
            for _ in range(turns):
                async with locks.lock("reindex"):
                    pass

    return lambda turns: asyncio.run(cycles(turns))


def _peers(place: Path) -> dict[str, Candidate]:
    """Those of the lock files' libraries that are installed: they have no leases and no tokens."""
    peers: dict[str, Candidate] = {}
    if find_spec("filelock"):
        from filelock import FileLock

        file_lock = FileLock(place / "filelock")

        def with_filelock(turns: int) -> None:
            for _ in range(turns):
                with file_lock:
                    pass

        peers["filelock (no lease)"] = with_filelock
    if find_spec("fasteners"):
        from fasteners import InterProcessLock

        process_lock = InterProcessLock(place / "fasteners")

        def with_fasteners(turns: int) -> None:
            for _ in range(turns):
                with process_lock:
                    pass

        peers["fasteners (no lease)"] = with_fasteners
    return peers
