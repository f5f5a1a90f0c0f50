"""The uncontended lock: one statement each way, in a transaction of its own.

Each statement names every condition under which the machine would do just this, all of them in the
key's own row: nobody waits, no permits, no claim, nothing in grace, the next token is plainly the
clock's. Where one does not hold the statement changes nothing, and `operations` decides.

This is the hot path, and what Python does here shows beside what SQLite does: that a statement did
something is told by ``rowcount`` (RETURNING would cost a seventh of the cycle), the cursor is used
again and again, and replies are made without their class's own ``__new__``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from joblock.store.ops import Acquire, Granted, Refresh, Refreshed, Release, Released, Renewal
from joblock.stores.sqlite.file import uses_turn

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

    from joblock.stores.sqlite.file import LeaseFile

    Execute = Callable[[str, tuple[Any, ...]], sqlite3.Cursor]
    ExecuteMany = Callable[[str, list[tuple[Any, ...]]], sqlite3.Cursor]

ACQUIRE = """
INSERT INTO job_locks (
    key, holder, token, weight, "limit", acquired_at, expires_at, opens_at, worker)
SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9 FROM meta WHERE token_floor < ?3
ON CONFLICT (key) DO UPDATE SET
    holder = ?2, token = ?3, weight = ?4, "limit" = ?5, acquired_at = ?6, expires_at = ?7,
    opens_at = ?8, worker = ?9
WHERE holder IS NULL AND token < ?3 AND waiters = 0 AND permits = 0"""

# A lease that was let lapse may still be ended by its holder while nobody has taken the key.
_MINE = """
WHERE key = ?1 AND holder = ?2 AND (?3 = 0 OR token = ?3) AND ended_at = 0 AND client IS NULL
AND waiters = 0"""

RELEASE = f"UPDATE job_locks SET holder = NULL, vacated_at = ?4 {_MINE} AND opens_at <= ?4"
RELEASE_OK = RELEASE.replace("SET", "SET ok_token = token,")

_RENEW = f"""
UPDATE job_locks SET expires_at = ?5 {_MINE} AND (expires_at > ?4 OR opens_at <= ?4)"""
_EXTEND = _RENEW.replace("= ?5", "= max(expires_at, ?5)")

_FREED = Released(freed=True)
_RENEWED = Refreshed((True,), (False,))
_make: Any = tuple.__new__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


def attempt(file: LeaseFile, op: object) -> Any:
    """Do ``op`` in one statement, or nothing: then the reply is None.

    Raises sqlite3.Error, having done nothing, if the file is busy (and for much else).
    """
    if type(op) is Acquire:
        return _acquire(file, op)
    if type(op) is Release:
        return _release(file, op)
    if type(op) is Refresh and len(op.renewals) == 1:
        return _refresh(file, op)
    return None


@uses_turn
def _acquire(file: LeaseFile, op: Acquire) -> Granted | None:
    """Grant an exclusive lease on a key that is free."""
    key, holder, ttl, weight, limit, at_least, _, worker, queue, occurrence = op
    if weight < limit or (queue is not None and (queue.arrival or queue.join)):
        return None
    if file.wanted or occurrence is not None:
        return None
    try:
        turn = file.turns.pop()
    except IndexError:
        return None
    try:
        now = int((file.monotonic() + file.base) * 1000)
        if now >= file.look_at:
            return None
        token = int(file.wall() * 1_000_000)
        end = now + ttl
        opens_at = now + at_least if at_least else 0
        values = (key, holder, token, weight, limit, now, end, opens_at, worker)
        if file.cursor.execute(ACQUIRE, values).rowcount != 1:
            return None
        return _make(Granted, (token, now, end, False, False, ""))
    finally:
        file.turns.append(turn)


@uses_turn
def _release(file: LeaseFile, op: Release) -> Released | None:
    """End a lease behind which nobody waits."""
    key, holder, token, grace, ok, contended, done = op
    if grace or contended or done is not None:
        return None
    if file.wanted:
        return None
    try:
        turn = file.turns.pop()
    except IndexError:
        return None
    try:
        now = int((file.monotonic() + file.base) * 1000)
        if now >= file.look_at:
            return None
        sql = RELEASE_OK if ok else RELEASE
        if file.cursor.execute(sql, (key, holder, token, now)).rowcount != 1:
            return None
        return _FREED
    finally:
        file.turns.append(turn)


@uses_turn
def _refresh(file: LeaseFile, op: Refresh) -> Refreshed | None:
    """Renew one lease."""
    if file.wanted:
        return None
    try:
        turn = file.turns.pop()
    except IndexError:
        return None
    try:
        now = int((file.monotonic() + file.base) * 1000)
        if now >= file.look_at:
            return None
        if not renew(file.cursor.execute, now, op.renewals[0], extend_only=op.extend_only):
            return None
        return _RENEWED
    finally:
        file.turns.append(turn)


def renew(execute: Execute, now: int, renewal: Renewal, *, extend_only: bool) -> bool:
    """Renew an exclusive lease for which nobody waits."""
    key, holder, token, ttl = renewal
    values = (key, holder, token, now, now + ttl)
    return execute(_EXTEND if extend_only else _RENEW, values).rowcount == 1


def renew_all(execute: ExecuteMany, now: int, op: Refresh) -> int:
    """Renew the exclusive leases for which nobody waits; how many of them there were."""
    values = [(key, holder, token, now, now + ttl) for key, holder, token, ttl in op.renewals]
    return execute(_EXTEND if op.extend_only else _RENEW, values).rowcount
