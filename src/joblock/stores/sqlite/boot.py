"""The store's clock: the machine's time since boot, on a base that is kept in the file.

So no step of the wall clock moves an expiry, and all processes agree. A lease cannot outlive the
boot it was granted in: its holder died with the machine. At the first use in another boot the base
is set anew and what was running then is void. Tokens stay, and so does what keeps a key closed
after its run (grace, `at_least`).
"""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING

from joblock.store.ops import PRESENCE_MS
from joblock.values.clock import SYSTEM_CLOCK, Clock
from joblock.values.imports import importing

if TYPE_CHECKING:
    import sqlite3

MANUAL = "manual"
UNKNOWN = "unknown"

_LATEST = f"""
SELECT coalesce(max(moment), 0) FROM (
    SELECT max(acquired_at, ended_at, vacated_at, forced_at) AS moment FROM job_locks
    UNION ALL SELECT max(acquired_at, ended_at) FROM permits
    UNION ALL SELECT max(queued_at, parked_at) FROM waiters
    UNION ALL SELECT present_until - {PRESENCE_MS} FROM presence)"""

_RUNNING = "ended_at = 0 AND (client IS NOT NULL OR opens_at <= :now)"
_CLOSED = "ended_at = :now, expires_at = opens_at, opens_at = 0"

_VOID = (
    "DELETE FROM presence",
    "DELETE FROM waiters",
    f"DELETE FROM permits WHERE {_RUNNING}",
    f"UPDATE permits SET {_CLOSED} WHERE ended_at = 0",
    """UPDATE job_locks SET waiters = 0, vacated_at = :now,
    permits = (SELECT count(*) FROM permits WHERE permits.key = job_locks.key)
    WHERE waiters > 0 OR permits > 0""",
    f"""UPDATE job_locks SET holder = NULL, client = NULL, vacated_at = :now
    WHERE holder IS NOT NULL AND {_RUNNING}""",
    f"UPDATE job_locks SET {_CLOSED} WHERE holder IS NOT NULL AND ended_at = 0",
)


def clock_base(con: sqlite3.Connection, clock: Clock) -> float:
    """Seconds to add to ``clock.monotonic()``, having begun another boot if this is one."""
    boot = boot_id(clock)
    base = _base(con, clock, boot)
    if base is None:
        with con:
            con.execute("BEGIN IMMEDIATE")
            base = _base(con, clock, boot)
            if base is None:
                base = _begin(con, clock, boot)
    return base / 1_000_000


def _base(con: sqlite3.Connection, clock: Clock, boot: str) -> int | None:
    [(known, base)] = con.execute("SELECT boot_id, clock_base FROM meta")
    if known != boot:
        return None
    if boot in (MANUAL, UNKNOWN) and _microseconds(clock.monotonic()) + base < _latest(con):
        # It says nothing about the boot, but a clock that is back behind what was written does.
        return None
    return base


def _begin(con: sqlite3.Connection, clock: Clock, boot: str) -> int:
    now = max(_microseconds(clock.wall()), _latest(con) + 1_000)
    base = now - _microseconds(clock.monotonic())
    for statement in _VOID:
        con.execute(statement, {"now": now // 1_000})
    con.execute("UPDATE meta SET boot_id = ?, clock_base = ?", (boot, base))
    return base


def _latest(con: sqlite3.Connection) -> int:
    [(latest,)] = con.execute(_LATEST)
    return latest * 1_000


def _microseconds(seconds: float) -> int:
    return int(seconds * 1_000_000)


def boot_id(clock: Clock) -> str:
    """What names this run of the machine; a clock of a test has no machine."""
    return _system_boot_id() if clock is SYSTEM_CLOCK else MANUAL


@cache
def _system_boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as line:  # noqa: PTH123
            text = line.read()
    except (OSError, UnicodeDecodeError):
        text = _sysctl("kern.bootsessionuuid") if sys.platform == "darwin" else ""
    return text.strip() or UNKNOWN


def _sysctl(name: str) -> str:
    with importing():
        import subprocess

    try:
        done = subprocess.run(  # noqa: S603 - a fixed command
            ["/usr/sbin/sysctl", "-n", name],
            capture_output=True,
            text=True,
            check=True,
            timeout=5,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout
