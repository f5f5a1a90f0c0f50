"""Every operation as one transaction on the lease file: the way that can decide anything.

Those that write run under SQLite's write lock from their first statement on (BEGIN IMMEDIATE), and
read the clock once they have it. What they mean is `joblock.store.machine`. Those that read see one
snapshot and block nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from joblock.store import machine
from joblock.store.machine import Now
from joblock.store.ops import (
    Acquire,
    AcquireReply,
    Check,
    Checked,
    Count,
    Force,
    Forced,
    Holders,
    Leave,
    Notice,
    Operation,
    Page,
    Purge,
    Refresh,
    Refreshed,
    Release,
    Released,
    Strike,
    Waiters,
)
from joblock.stores.sqlite import fast
from joblock.stores.sqlite.rows import KeyRows, Work
from joblock.values.records import JOB_LOCKS_TABLE, JobLock, Waiting

if TYPE_CHECKING:
    import sqlite3

Clock = Callable[[], Now]


class Letter(NamedTuple):
    """A notice to send once the transaction is committed.

    ``strike``: what to do if it reaches nobody, because the client said that it listens.
    """

    notice: Notice
    strike: Strike | None


def run(con: sqlite3.Connection, clock: Clock, op: Operation) -> tuple[Any, list[Letter]]:
    """Do an operation; its reply, and what is to be sent.

    Raises sqlite3.Error, having done nothing. The connection is its own context manager, in C:
    whatever interrupts this, the transaction is over as a whole when it is left.
    """
    kind = type(op)
    if kind is Purge:
        return _purge(con, clock, cast("Purge", op)), []
    write = _WRITES.get(kind)
    cursor = con.cursor()
    with con:
        if write is None:
            cursor.execute("BEGIN")
            return _READS[kind](con, clock().ms, op), []
        cursor.execute("BEGIN IMMEDIATE")
        work = Work(cursor, clock())
        reply = write(work, op)
        letters = [_letter(work, notice) for notice in work.notices]
        cursor.execute("COMMIT")  # from the statement cache, which the connection's own is not
    return reply, letters


def _letter(work: Work, notice: Notice) -> Letter:
    handed = bool(notice.holder) and not notice.after
    strike = Strike(notice.key, notice.holder) if handed and work.can_hear(notice.client) else None
    return Letter(notice, strike)


def _acquire(work: Work, op: Acquire) -> AcquireReply:
    rows = KeyRows(work, op.key)
    reply = machine.acquire(rows, work.now, op)
    rows.save()
    return reply


def _release(work: Work, op: Release) -> Released:
    rows = KeyRows(work, op.key)
    freed = machine.release(rows, work.now, op)
    rows.save()
    return Released(freed)


def _leave(work: Work, op: Leave) -> Released:
    rows = KeyRows(work, op.key)
    left = machine.leave(rows, work.now, op)
    rows.save()
    return Released(left)


def _strike(work: Work, op: Strike) -> Released:
    rows = KeyRows(work, op.key)
    struck = machine.strike(rows, work.now, op)
    rows.save()
    return Released(struck)


def _refresh(work: Work, op: Refresh) -> Refreshed:
    now, count = work.now.ms, len(op.renewals)
    # Nearly always there is nothing to say of any. Where there is, all are done once more, one by
    # one, which changes nothing for those that are renewed already.
    if fast.renew_all(work.executemany, now, op) == count:
        return Refreshed((True,) * count, (False,) * count)
    renewed: list[bool] = []
    waiting: list[bool] = []
    for renewal in op.renewals:
        if fast.renew(work.execute, now, renewal, extend_only=op.extend_only):
            renewed.append(True)
            waiting.append(False)
            continue
        rows = KeyRows(work, renewal.key)
        renewed.append(machine.refresh(rows, now, renewal, op.extend_only))
        waiting.append(next(rows.queue(), None) is not None)
        rows.save()
    return Refreshed(tuple(renewed), tuple(waiting))


def _check(work: Work, op: Check) -> Checked:
    states: list[machine.KeyState] = []
    for key in op.keys:
        rows = KeyRows(work, key)
        states.append(machine.check(rows, work.now, op.client, op.listening))
        rows.save()
    return Checked(tuple(states))


def _force(work: Work, op: Force) -> Forced:
    rows = KeyRows(work, op.key)
    broken = machine.force(rows, work.now)
    rows.save()
    work.execute(
        f"UPDATE {JOB_LOCKS_TABLE} SET forced_at = ?, forced_by = ?, forced_why = ? WHERE key = ?",
        (work.now.ms, op.by, op.why, op.key),
    )
    return Forced(broken)


# Readers.


def _holders(con: sqlite3.Connection, now: int, op: Holders) -> tuple[JobLock, ...]:
    return tuple(_describe(KeyRows(Work(con.cursor(), Now(now, 0)), op.key), now))


def _describe(rows: KeyRows, now: int) -> Iterator[JobLock]:
    for lease in machine.visible(rows.leases(), now):
        if not lease.claim or lease.running(now):
            yield machine.describe(rows.key, lease, now)


def _waiters(con: sqlite3.Connection, now: int, op: Waiters) -> tuple[Waiting, ...]:
    rows = KeyRows(Work(con.cursor(), Now(now, 0)), op.key)
    return tuple(
        machine.describe_waiter(op.key, waiter, rows.present(waiter.client, now))
        for waiter in rows.everyone()
    )


def _page(con: sqlite3.Connection, now: int, op: Page) -> tuple[JobLock, ...]:
    work, found = Work(con.cursor(), Now(now, 0)), list[JobLock]()
    first, past = (">", op.after) if op.after >= op.prefix else (">=", op.prefix)
    keys = con.execute(
        f"SELECT key FROM {JOB_LOCKS_TABLE} WHERE key {first} ? AND key < ? "
        "AND (holder IS NOT NULL OR permits > 0) ORDER BY key",
        (past, _end_of(op.prefix)),
    )
    for (key,) in keys:
        if len(found) >= op.size:
            break
        found += _describe(KeyRows(work, key), now)
    return tuple(found)


def _count(con: sqlite3.Connection, now: int, op: Count) -> int:
    shown = (
        "key >= :first AND key < :end AND (ended_at = 0 OR max(expires_at, opens_at) > :now) "
        "AND (client IS NULL OR expires_at > :now)"
    )
    [(count,)] = con.execute(
        f"SELECT (SELECT count(*) FROM {JOB_LOCKS_TABLE} WHERE {shown} AND holder IS NOT NULL) "
        f"+ (SELECT count(*) FROM permits WHERE {shown})",
        {"first": op.prefix, "end": _end_of(op.prefix), "now": now},
    )
    return count


def _end_of(prefix: str) -> str | bytes:
    """What sorts right after every text with that prefix."""
    while prefix:
        following = ord(prefix[-1]) + 1
        if following <= _LAST:
            # Half characters are no text: after the last whole one before them comes U+E000.
            return prefix[:-1] + chr(0xE000 if following == _HALF else following)
        prefix = prefix[:-1]
    return b""  # SQLite sorts it after every text


_HALF, _LAST = 0xD800, 0x10FFFF


# Housekeeping. What is over is looked for without the write lock, and looked at again with it.

_WAITED = """
CASE parked_at WHEN 0 THEN
    max(queued_at, coalesce(
        (SELECT present_until FROM presence WHERE presence.client = waiters.client), 0))
ELSE parked_at END <= :over"""

_VACATED = f"""
waiters = 0 AND done_until <= :over AND CASE
    WHEN holder IS NOT NULL THEN max(expires_at, opens_at) WHEN permits = 0 THEN vacated_at ELSE 0
END <= :over AND (permits = 0 OR NOT EXISTS (
    SELECT 1 FROM permits AS permit WHERE permit.key = {JOB_LOCKS_TABLE}.key
    AND max(permit.expires_at, permit.opens_at) > :over))"""


def _purge(con: sqlite3.Connection, clock: Clock, op: Purge) -> int:
    over = {"over": clock().ms - op.idle, "batch": op.batch}
    waiters = con.execute(
        f"SELECT key, holder FROM waiters WHERE {_WAITED} LIMIT :batch", over
    ).fetchall()
    with con:
        con.execute("BEGIN IMMEDIATE")
        con.execute("DELETE FROM presence WHERE present_until <= :over", over)
        for key, holder in waiters:
            _purge_waiter(con, {**over, "key": key, "holder": holder})
    keys = con.execute(
        f"SELECT key FROM {JOB_LOCKS_TABLE} WHERE {_VACATED} LIMIT :batch", over
    ).fetchall()
    with con:
        con.execute("BEGIN IMMEDIATE")
        return sum(_purge_key(con, {**over, "key": key}) for (key,) in keys)


def _purge_waiter(con: sqlite3.Connection, values: dict[str, Any]) -> None:
    one = f"DELETE FROM waiters WHERE key = :key AND holder = :holder AND {_WAITED}"
    if con.execute(one, values).rowcount:
        con.execute(f"UPDATE {JOB_LOCKS_TABLE} SET waiters = waiters - 1 WHERE key = :key", values)


def _purge_key(con: sqlite3.Connection, values: dict[str, Any]) -> bool:
    gone = con.execute(
        f"DELETE FROM {JOB_LOCKS_TABLE} WHERE key = :key AND {_VACATED} RETURNING token, permits",
        values,
    ).fetchone()
    if gone is None:
        return False
    token, permits = gone
    # The key begins anew above every token it was ever granted.
    con.execute("UPDATE meta SET token_floor = max(token_floor, ?)", (token,))
    if permits:
        con.execute("DELETE FROM permits WHERE key = :key", values)
    return True


_WRITES = cast(
    "dict[type[Operation], Callable[[Work, Any], Any]]",
    {
        Acquire: _acquire,
        Release: _release,
        Leave: _leave,
        Strike: _strike,
        Refresh: _refresh,
        Check: _check,
        Force: _force,
    },
)

_READS = cast(
    "dict[type[Operation], Callable[[sqlite3.Connection, int, Any], Any]]",
    {Holders: _holders, Waiters: _waiters, Page: _page, Count: _count},
)
