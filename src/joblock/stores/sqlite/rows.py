"""One key's rows in the lease file, as `joblock.store.machine` wants them.

Only what an operation asks for is read: the key's own row says whether there is more. The queue is
read in small pieces, oldest first, so that ten thousand waiters cost what two cost. Waiters and
presence are written at once, the key's leases when the operation is over (`KeyRows.save`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from joblock.store.machine import Lease, Now, Waiter
from joblock.store.ops import Notice

if TYPE_CHECKING:
    import sqlite3

_LOAD = """
SELECT token, ok_token, done, done_until, permits, waiters, arrivals, vacated_at,
       holder, weight, "limit", acquired_at, expires_at, opens_at, ended_at, worker, client
FROM job_locks WHERE key = ?"""

_SAVE = """
INSERT INTO job_locks (
    key, token, ok_token, done, done_until, permits, waiters, arrivals, vacated_at,
    holder, weight, "limit", acquired_at, expires_at, opens_at, ended_at, worker, client
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE SET
    token = excluded.token, ok_token = excluded.ok_token,
    done = excluded.done, done_until = excluded.done_until, permits = excluded.permits,
    waiters = excluded.waiters, arrivals = excluded.arrivals, vacated_at = excluded.vacated_at,
    holder = excluded.holder, weight = excluded.weight, "limit" = excluded."limit",
    acquired_at = excluded.acquired_at, expires_at = excluded.expires_at,
    opens_at = excluded.opens_at, ended_at = excluded.ended_at, worker = excluded.worker,
    client = excluded.client"""

_VACANT = (None, 1, 1, 0, 0, 0, 0, "", None)

_PERMITS = """
SELECT holder, weight, "limit", acquired_at, expires_at, opens_at, ended_at, worker, client, token
FROM permits WHERE key = ? ORDER BY token"""

_SAVE_PERMIT = """
INSERT OR REPLACE INTO permits (
    key, holder, weight, "limit", acquired_at, expires_at, opens_at, ended_at, worker, client, token
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""

_DROP_PERMIT = "DELETE FROM permits WHERE key = ? AND holder = ?"

_WAITER = (
    'holder, client, arrival, ttl, weight, "limit", at_least, joined, queued_at, worker, lost, '
    "parked_at"
)
_WAITER_OF = f"SELECT {_WAITER} FROM waiters WHERE key = ? AND holder = ?"
_ALL_WAITERS = f"SELECT {_WAITER} FROM waiters WHERE key = ? ORDER BY arrival, holder"
_LINE = f"""
SELECT {_WAITER} FROM waiters
WHERE key = ? AND parked_at = 0 AND (arrival, holder) > (?, ?)
ORDER BY arrival, holder LIMIT ?"""
_JOINERS = f"""
SELECT {_WAITER} FROM waiters
WHERE key = ? AND joined IS NOT NULL AND joined BETWEEN 1 AND ?
ORDER BY arrival, holder"""
_NEXT_CLIENT = """
SELECT min(client) FROM waiters WHERE key = ? AND client > ? AND parked_at = 0"""
_SAVE_WAITER = f"""
INSERT OR REPLACE INTO waiters (key, {_WAITER}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_PARK_WAITER = "UPDATE waiters SET lost = ?, parked_at = ? WHERE key = ? AND holder = ?"
_DROP_WAITER = "DELETE FROM waiters WHERE key = ? AND holder = ?"

_PRESENCE = "SELECT epoch, present_until, listening FROM presence WHERE client = ?"
_REPORT = """
INSERT OR REPLACE INTO presence (client, epoch, present_until, listening) VALUES (?, ?, ?, ?)"""
_STRIKE = "DELETE FROM presence WHERE client = ?"
# By the clock, so that a file that takes the place of another never gives one of its epochs again:
# a waiter of the old one would pass as known.
_NEW_EPOCH = "UPDATE meta SET epochs = max(epochs + 1, ?) RETURNING epochs"

Row: TypeAlias = tuple[Any, ...]
Present: TypeAlias = tuple[int, int, int]
"""A client's epoch, until when it is present, and whether it can be notified."""


class Work:
    """What the rows of one transaction share: the cursor, the time, presence, the notices."""

    __slots__ = ("_presence", "execute", "executemany", "notices", "now")

    def __init__(self, cursor: sqlite3.Cursor, now: Now) -> None:
        self.execute = cursor.execute
        self.executemany = cursor.executemany
        self.now = now
        self.notices: list[Notice] = []
        self._presence: dict[str, Present | None] = {}

    def presence(self, client: str) -> Present | None:
        """What is known of a client's presence, be it over or not."""
        if client not in self._presence:
            self._presence[client] = self.execute(_PRESENCE, (client,)).fetchone()
        return self._presence[client]

    def report(self, client: str, until: int, listening: bool) -> int:
        """Count a client as present until then; its epoch."""
        known = self.presence(client)
        if known is not None and known[1] > self.now.ms:
            epoch = known[0]
        else:
            [(epoch,)] = self.execute(_NEW_EPOCH, (self.now.token,))
        present = (epoch, until, int(listening))
        if present != known:
            self._presence[client] = present
            self.execute(_REPORT, (client, *present))
        return epoch

    def strike(self, client: str) -> None:
        """Count a client as gone."""
        self.execute(_STRIKE, (client,))
        self._presence[client] = None

    def can_hear(self, client: str) -> bool:
        """Whether a client says that it can be notified, so that being unable to means death."""
        known = self.presence(client)
        return known is not None and bool(known[2])


class KeyRows:
    """See `joblock.store.machine.Rows`. An exclusive lease is kept in the key's own row."""

    __slots__ = (
        "_arrivals",
        "_changed",
        "_held",
        "_known",
        "_new",
        "_permits",
        "_touched",
        "_vacated_at",
        "_waiters",
        "_work",
        "done",
        "done_until",
        "key",
        "notices",
        "ok_token",
        "token",
    )

    def __init__(self, work: Work, key: str) -> None:
        self.key = key
        self.notices = work.notices
        self._work = work
        self._touched: set[str] = set()
        self._known: dict[str, Waiter | None] = {}
        self._held: dict[str, Lease] = {}
        self._permits: set[str] = set()
        row = work.execute(_LOAD, (key,)).fetchone()
        self._new = row is None
        self._changed = False
        if row is None:
            [(self.token,)] = work.execute("SELECT token_floor FROM meta")
            self.ok_token = self._waiters = self._arrivals = self._vacated_at = 0
            self.done = self.done_until = 0
            return
        self.token, self.ok_token, self.done, self.done_until, permits = row[:5]
        self._waiters, self._arrivals, self._vacated_at = row[5:8]
        if row[8] is not None:
            self._held[row[8]] = _lease(row[8:], self.token)
        if permits:
            for permit in work.execute(_PERMITS, (key,)):
                self._held[permit[0]] = _lease(permit, permit[9])
                self._permits.add(permit[0])

    def save(self) -> None:
        """Write what has changed of the leases and of the row that counts the rest."""
        if not self._touched and not self._changed:
            return
        execute = self._work.execute
        for holder in self._touched:
            lease = self._held.get(holder)
            if lease is not None and not lease.exclusive:
                self._permits.add(holder)
                execute(_SAVE_PERMIT, (self.key, *_values(lease), lease.token))
            elif holder in self._permits:
                self._permits.discard(holder)
                execute(_DROP_PERMIT, (self.key, holder))
        exclusive = next((lease for lease in self._held.values() if lease.exclusive), None)
        if not self._held and (self._touched or self._new):
            self._vacated_at = self._work.now.ms
        execute(
            _SAVE,
            (
                self.key,
                self.token,
                self.ok_token,
                self.done,
                self.done_until,
                len(self._permits),
                self._waiters,
                self._arrivals,
                self._vacated_at,
                *(_VACANT if exclusive is None else _values(exclusive)),
            ),
        )

    def leases(self) -> list[Lease]:
        return list(self._held.values())

    def put(self, lease: Lease) -> None:
        self._held[lease.holder] = lease
        self._touched.add(lease.holder)

    def drop(self, lease: Lease) -> None:
        del self._held[lease.holder]
        self._touched.add(lease.holder)

    def waiter(self, holder: str) -> Waiter | None:
        if holder in self._known:
            return self._known[holder]
        row = None
        if self._waiters:
            row = self._work.execute(_WAITER_OF, (self.key, holder)).fetchone()
        if row is not None:
            return self._meet(row)
        self._known[holder] = None
        return None

    def queue(self) -> Iterator[Waiter]:
        size, arrival, holder = 2, 0, ""
        more = self._waiters > 0
        while more:
            rows = self._work.execute(_LINE, (self.key, arrival, holder, size)).fetchall()
            for row in rows:
                holder, arrival = row[0], row[2]
                waiter = self._meet(row)
                if waiter is not None and not waiter.parked:
                    yield waiter
            more = len(rows) == size
            size = min(size * 4, 500)

    def joiners(self, token: int) -> list[Waiter]:
        if not self._waiters:
            return []
        rows = self._work.execute(_JOINERS, (self.key, token))
        return [waiter for row in rows if (waiter := self._meet(row)) is not None]

    def clients(self) -> list[str]:
        found: list[str] = []
        client = "" if self._waiters else None
        while client is not None:
            # From one client to the next, however many waiters each has.
            [(client,)] = self._work.execute(_NEXT_CLIENT, (self.key, client))
            if client is not None:
                found.append(client)
        return found

    def everyone(self) -> list[Waiter]:
        """The waiters in line and the parked ones, for a reader."""
        return [_waiter(row) for row in self._work.execute(_ALL_WAITERS, (self.key,))]

    def enqueue(self, waiter: Waiter) -> None:
        execute, now = self._work.execute, self._work.now.ms
        known = self.waiter(waiter.holder) is not None
        self._known[waiter.holder] = waiter
        if known and waiter.parked:
            execute(_PARK_WAITER, (waiter.lost, now, self.key, waiter.holder))
            return
        if not known:
            self._waiters += 1
        self._arrivals = max(self._arrivals, waiter.arrival)
        self._changed = True
        execute(
            _SAVE_WAITER,
            (
                self.key,
                waiter.holder,
                waiter.client,
                waiter.arrival,
                waiter.ttl,
                waiter.weight,
                waiter.limit,
                waiter.at_least,
                waiter.join,
                waiter.queued_at,
                waiter.worker,
                waiter.lost,
                now if waiter.parked else 0,
            ),
        )

    def dequeue(self, waiter: Waiter) -> None:
        self._known[waiter.holder] = None
        self._waiters -= self._work.execute(_DROP_WAITER, (self.key, waiter.holder)).rowcount
        self._changed = True

    def next_arrival(self) -> int:
        return self._arrivals + 1

    def present(self, client: str, now: int) -> bool:
        known = self._work.presence(client)
        return known is not None and known[1] > now

    def report(self, client: str, now: int, until: int, listening: bool) -> int:
        del now  # the transaction's own
        return self._work.report(client, until, listening)

    def strike(self, client: str) -> None:
        self._work.strike(client)

    def _meet(self, row: Row) -> Waiter | None:
        """One object for each waiter: what was done to it since the row was read is known of it."""
        if row[0] not in self._known:
            self._known[row[0]] = _waiter(row)
        return self._known[row[0]]


def _lease(row: Row, token: int) -> Lease:
    holder, weight, limit, acquired_at, expires_at, opens_at, ended_at, worker, client = row[:9]
    return Lease(
        holder,
        token,
        weight,
        limit,
        acquired_at,
        expires_at,
        opens_at,
        ended_at,
        worker,
        client is not None,
        client or "",
    )


def _values(lease: Lease) -> Row:
    return (
        lease.holder,
        lease.weight,
        lease.limit,
        lease.acquired_at,
        lease.expires_at,
        lease.opens_at,
        lease.ended_at,
        lease.worker,
        lease.client if lease.claim else None,
    )


def _waiter(row: Row) -> Waiter:
    holder, client, arrival, ttl, weight, limit = row[:6]
    at_least, join, queued_at, worker, lost, parked = row[6:]
    return Waiter(
        holder,
        client,
        arrival,
        ttl,
        weight,
        limit,
        at_least,
        join,
        queued_at,
        worker,
        lost,
        parked != 0,
    )
