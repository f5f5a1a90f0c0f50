"""The data that leases protect: a counter with a fence and one without, in a file of its own.

Each update reads the counter, thinks, and writes one more; so an update that is written over is
one that the counter lacks in the end. Where the fence is asked both before reading and with the
write, whoever was replaced in between cannot write.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from typing import TYPE_CHECKING

from joblock import fencing

if TYPE_CHECKING:
    from joblock.client.lease import BaseLease
    from joblock.verify.history import Recorder

PATIENCE = 60.0
"""Seconds to wait for the file: whoever has it may be stopped for a while."""


def create(path: str) -> None:
    """Make the counters, at zero."""
    with closing(_connect(path)) as data:
        data.execute("PRAGMA journal_mode = WAL")
        data.execute("CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL)")
        data.execute("INSERT INTO counters VALUES ('fenced', 0), ('unfenced', 0)")
        data.execute("BEGIN IMMEDIATE")
        fencing.create(data)
        data.execute("COMMIT")


def count(path: str, recorder: Recorder, lease: BaseLease, name: str, thinking: float) -> None:
    """One update; raises StaleToken if the fence has seen a later holder."""
    fenced = name == "fenced"
    with closing(_connect(path)) as data:
        data.execute("BEGIN IMMEDIATE")
        if fenced:
            fencing.check(data, name, lease.token)
        (value,) = data.execute("SELECT value FROM counters WHERE name = ?", (name,)).fetchone()
        data.execute("COMMIT")
        time.sleep(thinking)
        data.execute("BEGIN IMMEDIATE")
        if fenced:
            fencing.check(data, name, lease.token)
        data.execute("UPDATE counters SET value = ? WHERE name = ?", (value + 1, name))
        data.execute("COMMIT")
    recorder.put("wrote", name=name, token=lease.token)


def values(path: str) -> dict[str, int]:
    """What the counters have come to."""
    with closing(_connect(path)) as data:
        return dict(data.execute("SELECT name, value FROM counters").fetchall())


def _connect(path: str) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=PATIENCE, isolation_level=None)
