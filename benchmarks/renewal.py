"""Renewing ten thousand leases in one go, beside the bare statement on the same rows."""

from __future__ import annotations

import sqlite3
import tempfile
from pathlib import Path

from benchmarks.measure import Candidate, Figure, compare
from joblock import JobLocks
from joblock.protocol.renew import batch, confirm
from joblock.store.ops import Refreshed

LEASES = 10_000


def figures() -> list[Figure]:
    """One round of the keeper's: build the batch, send it, take the reply in."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        found = compare(
            f"renewing {LEASES:,} leases once (us for each thousandth)",
            {"sqlite3": _floor(place), "joblock, SQLite": _ours(f"sqlite:///{place / 'ours.db'}")},
            turns=1_000,
            goals={"joblock, SQLite": "2"},
        )
        return [
            *found,
            *compare(
                f"renewing {LEASES:,} leases once (us for each thousandth)",
                {"joblock, memory": _ours("memory://")},
                turns=1_000,
            ),
        ]


def _floor(place: Path) -> Candidate:
    connection = sqlite3.connect(place / "floor.db", isolation_level=None)
    connection.execute("pragma journal_mode = wal")
    connection.execute("pragma synchronous = normal")
    connection.execute(
        "create table leases (key text primary key, holder text, token integer, "
        "expires_at integer) without rowid"
    )
    rows = [(f"key-{number:05}", f"holder-{number}", number, 1) for number in range(LEASES)]
    connection.execute("begin")
    connection.executemany("insert into leases values (?, ?, ?, ?)", rows)
    connection.execute("commit")

    def run(turns: int) -> None:
        if turns < 1_000:
            return
        connection.execute("begin immediate")
        connection.executemany(
            "update leases set expires_at = ?4 where key = ?1 and holder = ?2 and token = ?3",
            rows,
        )
        connection.execute("commit")

    return run


def _ours(url: str) -> Candidate:
    locks = JobLocks(url)
    leases = [locks.acquire(f"key-{number:05}", "1h") for number in range(LEASES)]
    hub = locks._hub  # noqa: SLF001 - what the keeper does, without waiting for its turn

    def run(turns: int) -> None:
        if turns < 1_000:
            return
        holds = hub.kept()
        now = hub.clock.monotonic()
        reply: Refreshed = hub.call(batch(holds, now))
        if confirm(holds, reply, now) or len(leases) != LEASES:
            raise AssertionError("a lease was lost")

    return run
