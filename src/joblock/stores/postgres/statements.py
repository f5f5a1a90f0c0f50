"""Each operation as one statement with its parameters, and its reply read: for every driver.

Every statement returns one row of one text, so that a driver only has to send and fetch. The
uncontended mutex is a plain UPDATE each way whose row says everything it must know; where that
does not apply, the same statement goes on to the function, which has all the rules.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

from joblock.store import machine
from joblock.store.contract import digest
from joblock.store.ops import (
    Acquire,
    AcquireReply,
    Busy,
    Check,
    Checked,
    Count,
    Force,
    Forced,
    Granted,
    Holders,
    Joined,
    KeyState,
    Leave,
    Notice,
    Operation,
    Page,
    Purge,
    Refresh,
    Refreshed,
    Release,
    Released,
    Renewal,
    Strike,
    Waiters,
)
from joblock.values.records import JobLock, Waiting

if TYPE_CHECKING:
    from typing import TypeAlias

Value: TypeAlias = "str | int"

_US = "floor(date_part('epoch', clock_timestamp()) * 1000000)::bigint"
_MS = "floor(date_part('epoch', clock_timestamp()) * 1000)::bigint"
# Under another isolation level the UPDATE finds nothing, and the function says why.
_READ_COMMITTED = "current_setting('transaction_isolation') = 'read committed'"

_ACQUIRE_CALL = (
    "{schema}.joblock_1_acquire($1::text, $2::text, $3::bigint, $4::integer, $5::integer,"
    " $6::bigint, $7::text::boolean, $8::text, $9::text, $10::bigint, $11::text::boolean,"
    " $12::bigint, $13::text)"
)
_ACQUIRE_ONCE_CALL = (
    _ACQUIRE_CALL.replace("_acquire(", "_acquire_once(").removesuffix(")") + ", $14::bigint)"
)
_ACQUIRE_MUTEX = f"""
with fast as (
    update {{schema}}.job_locks j set
        (token, acquired_at, expires_at, opens_at) = (
            select greatest(j.token + 1, c.us), c.us / 1000, c.us / 1000 + $3::bigint,
                case when $6::bigint > 0 then c.us / 1000 + $6::bigint else 0 end
            from (select {_US} as us) c),
        holder = $2::text, weight = $4::integer, worker = $8::text, ended_at = 0, claimant = ''
    where j.key = $1::text and $4::integer >= $5::integer
        and (j.holder = '' or j.ended_at <> 0 and j.expires_at <= {_MS})
        and not j.waited and not j.shared and {_READ_COMMITTED}
    returning 'G ' || j.token || ' ' || j.acquired_at || ' ' || j.expires_at || ' 0 0 ' as reply
)
select coalesce((select reply from fast), {_ACQUIRE_CALL})"""

_RELEASE_CALL = (
    "{schema}.joblock_1_release($1::text, $2::text, $3::bigint, $4::bigint, $5::text::boolean)"
)
_RELEASE_ONCE_CALL = (
    _RELEASE_CALL.replace("_release(", "_release_once(").removesuffix(")")
    + ", $6::bigint, $7::bigint)"
)
# The row is locked FOR UPDATE first, so that a transaction that guards the lease keeps it.
_RELEASE_MUTEX = f"""
with fast as (
    update {{schema}}.job_locks j set
        holder = '', worker = '', opens_at = 0, expires_at = {_MS},
        ok_token = case when $5::text::boolean then greatest(j.ok_token, j.token)
                        else j.ok_token end
    where j.key = (select l.key from {{schema}}.job_locks l
                   where l.key = $1::text and l.holder = $2::text for update)
        and j.holder = $2::text and ($3::bigint = 0 or j.token = $3::bigint)
        and $4::bigint = 0 and j.ended_at = 0 and j.claimant = '' and j.opens_at <= {_MS}
        and not j.waited and {_READ_COMMITTED}
    returning case when set_config('synchronous_commit', 'off', true) is not null then '1' end
        as reply
)
select coalesce((select reply from fast), {_RELEASE_CALL})"""

_REFRESH = (
    "select {schema}.joblock_1_refresh($1::text::text[], $2::text::text[], $3::text::bigint[],"
    " $4::text::bigint[], $5::text::boolean, $6::text::boolean)"
)

# In a transaction of somebody else's, with parameters of another form. As strong as it takes to
# keep the lease from ending before that commits, and no stronger: it is renewed meanwhile.
GUARD = f"""
select j.token from {{place}}.job_locks j
where j.key = :key and j.holder = :holder and j.token = :token
    and j.claimant = '' and j.ended_at = 0 and j.expires_at > {_MS}
for key share"""

# A lease is shown unless its grace is over; a claim only while it runs.
_SHOWN = (
    "(l.ended_at = 0 or greatest(l.expires_at, l.opens_at) > n.t)"
    " and (l.claimant = '' or l.ended_at = 0 and l.expires_at > n.t)"
)
_NOW = f"(select {_MS} as t offset 0) n"
_LEASES = (
    "select coalesce(json_agg(json_build_array(l.key, l.holder, l.token, l.weight, l.capacity,"
    " l.acquired_at, l.expires_at, l.opens_at, l.ended_at, l.worker, n.t)"
    " order by l.key, l.token), '[]')::text"
)
_WITHIN = (
    "l.key >= $1::text and ($2::text = '' or l.key < $2::text) and starts_with(l.key, $1::text)"
)
_HOLDERS = (
    f"{_LEASES} from {{schema}}.job_lock_leases l, {_NOW} where l.key = $1::text and {_SHOWN}"
)
_PAGE = f"""
with hit as (
    select l.key from {{schema}}.job_lock_leases l, {_NOW}
    where {_WITHIN} and l.key > $3::text and {_SHOWN} order by l.key limit $4::bigint
)
{_LEASES} from {{schema}}.job_lock_leases l, {_NOW}
where l.key in (select h.key from hit h) and {_SHOWN}"""
_COUNT = (
    f"select count(*)::text from {{schema}}.job_lock_leases l, {_NOW} where {_WITHIN} and {_SHOWN}"
)
_WAITERS = f"""
select coalesce(json_agg(json_build_array(
        w.holder, w.client, w.arrival, w.ttl, w.weight, w.capacity, w.queued_at, w.worker,
        w.parked, coalesce(p.until > n.t, false)) order by w.arrival, w.holder), '[]')::text
from {{schema}}.job_lock_waiters w
cross join {_NOW}
left join {{schema}}.job_lock_presence p on p.key = w.key and p.client = w.client
where w.key = $1::text"""


class Statement:
    """Its text and the name it is prepared under, which no other text has.

    ``opened`` is what every reply goes through as soon as it has come.
    """

    __slots__ = ("name", "opened", "sql", "text")

    def __init__(self, sql: str, opened: Callable[[str], str] | None = None) -> None:
        self.text = sql
        self.sql = sql.encode()
        self.opened = opened
        self.name = b"joblock_" + blake2b(self.sql, digest_size=9).hexdigest().encode()


class Request(NamedTuple):
    """What to send, and how to read the text that comes back."""

    statement: Statement
    values: tuple[Value, ...]
    read: Callable[[str], Any]


class Tell(NamedTuple):
    """Notify clients, on their channels in this database; beside the operations of a store."""

    notices: Sequence[Notice]


class Where(NamedTuple):
    """Which database this is; beside the operations of a store."""


WHERE = "pg_postmaster_start_time()::text || ' ' || current_database()"
_TELL = (
    "select count(pg_notify(u.channel, u.payload))::text"
    " from unnest($1::text::text[], $2::text::text[]) u (channel, payload)"
)


class Statements:
    """All statements for the tables of one schema."""

    def __init__(self, schema: str) -> None:
        self._schema = schema
        self._make_telling(None)

        def statement(sql: str) -> Statement:
            return Statement(sql.replace("{schema}", schema))

        self._refresh = statement(_REFRESH)
        self._tell = statement(_TELL)
        self._where = statement(f"select {WHERE}")
        self._purge = statement("select {schema}.joblock_1_purge($1::integer, $2::bigint)")
        self._holders = statement(_HOLDERS)
        self._page = statement(_PAGE)
        self._count = statement(_COUNT)
        self._waiters = statement(_WAITERS)
        self._marks: dict[str, str] = {}
        self._others: dict[type, Callable[[Any], Request]] = {
            Tell: self._ask_tell,
            Where: lambda _: Request(self._where, (), str),
            Refresh: self._ask_refresh,
            Leave: lambda op: Request(self._leave, (op.key, op.holder), read_released),
            Strike: lambda op: Request(self._pass_over, (op.key, op.holder), read_released),
            Check: self._ask_check,
            Holders: lambda op: Request(self._holders, (op.key,), read_leases),
            Waiters: self._ask_waiters,
            Page: self._ask_page,
            Count: lambda op: Request(self._count, (op.prefix, after(op.prefix)), int),
            Force: lambda op: Request(self._force, (op.key, op.by, op.why), read_forced),
            Purge: lambda op: Request(self._purge, (op.batch, op.idle), int),
        }

    def hand_notices_to(self, post: Callable[[Sequence[Notice]], None]) -> None:
        """Let the replies bring what is for clients that are notified by others."""

        def opened(text: str) -> str:
            reply, *notices = json.loads(text)
            if notices:
                post([Notice(*notice) for notice in notices])
            return reply

        self._make_telling(opened)

    def _make_telling(self, opened: Callable[[str], str] | None) -> None:
        """Make the statements that may have somebody to tell."""

        def statement(sql: str) -> Statement:
            if opened is not None:
                sql = _REPLY.sub(r"select {schema}.joblock_1_told(\1)", sql)
            return Statement(sql.replace("{schema}", self._schema), opened)

        self._acquire_mutex = statement(_ACQUIRE_MUTEX)
        self._acquire = statement("select " + _ACQUIRE_CALL)
        self._acquire_once = statement("select " + _ACQUIRE_ONCE_CALL)
        self._release_once = statement("select " + _RELEASE_ONCE_CALL)
        self._release_mutex = statement(_RELEASE_MUTEX)
        self._release = statement("select " + _RELEASE_CALL)
        self._leave = statement("select {schema}.joblock_1_leave($1::text, $2::text)")
        self._pass_over = statement("select {schema}.joblock_1_pass_over($1::text, $2::text)")
        self._check = statement("select {schema}.joblock_1_check($1::text, $2::text::text[])")
        self._force = statement("select {schema}.joblock_1_force($1::text, $2::text, $3::text)")

    def request(self, op: Operation | Tell | Where) -> Request:
        """How ``op`` is asked for."""
        kind = type(op)
        if kind is Acquire:
            return self._ask_acquire(op)  # pyright: ignore[reportArgumentType]
        if kind is Release:
            return self._ask_release(op)  # pyright: ignore[reportArgumentType]
        return self._others[kind](op)

    def key_behind(self, mark: str) -> str:
        """The key that this process queued for under that mark, or the mark itself."""
        return self._marks.get(mark, mark)

    def _ask_acquire(self, op: Acquire) -> Request:
        if op.occurrence is not None:
            plain = self._ask_acquire(op._replace(occurrence=None))
            return Request(self._acquire_once, (*plain.values, op.occurrence), read_acquired)
        queue = op.queue
        extend = "t" if op.extend_only else "f"
        if queue is None:
            values = (
                op.key, op.holder, op.ttl, op.weight, op.limit, op.at_least, extend, op.worker,
                "", 0, "f", -1, "",
            )  # fmt: skip
            fast = op.weight >= op.limit
            return Request(self._acquire_mutex if fast else self._acquire, values, read_acquired)
        values = (
            op.key, op.holder, op.ttl, op.weight, op.limit, op.at_least, extend, op.worker,
            ear(queue.client), queue.arrival, "t" if queue.skip_grace else "f",
            -1 if queue.join is None else queue.join, self._mark(op.key),
        )  # fmt: skip
        # A waiter that asks again confirms a claim or is still queued: never the plain way.
        fast = op.weight >= op.limit and not queue.arrival and queue.join is None
        return Request(self._acquire_mutex if fast else self._acquire, values, read_acquired)

    def _ask_release(self, op: Release) -> Request:
        values = (op.key, op.holder, op.token, op.grace, "t" if op.ok else "f")
        if op.done is not None:
            return Request(self._release_once, (*values, *op.done), read_released)
        slow = op.contended or op.grace
        return Request(self._release if slow else self._release_mutex, values, read_released)

    def _ask_refresh(self, op: Refresh) -> Request:
        one_by_one = len(op.renewals) > 1
        return self._refreshing(op, op.renewals, patient=not one_by_one)

    def refresh_locked(self, op: Refresh, places: Iterable[int]) -> Request:
        """Ask again for those whose rows were locked, this time waiting for them."""
        return self._refreshing(op, [op.renewals[place] for place in places], patient=True)

    def _refreshing(self, op: Refresh, renewals: Sequence[Renewal], *, patient: bool) -> Request:
        values = (
            texts(renewal.key for renewal in renewals),
            texts(renewal.holder for renewal in renewals),
            numbers(renewal.token for renewal in renewals),
            numbers(renewal.ttl for renewal in renewals),
            "t" if op.extend_only else "f",
            "t" if patient else "f",
        )
        return Request(self._refresh, values, read_refreshed)

    def _ask_tell(self, op: Tell) -> Request:
        values = (
            texts(f"joblock:{ear(notice.client)}" for notice in op.notices),
            texts(f"{notice.after} {notice.key} {notice.holder}" for notice in op.notices),
        )
        return Request(self._tell, values, int)

    def _ask_check(self, op: Check) -> Request:
        def read(reply: str) -> Checked:
            states = {
                key: KeyState(epoch, lapses_in, tuple(claimed), ok_token, grace)
                for key, epoch, lapses_in, claimed, ok_token, grace in json.loads(reply)
            }
            return Checked(tuple(states[key] for key in op.keys))

        return Request(self._check, (ear(op.client), texts(op.keys)), read)

    def _ask_waiters(self, op: Waiters) -> Request:
        def read(reply: str) -> tuple[Waiting, ...]:
            return tuple(
                machine.describe_waiter(
                    op.key,
                    machine.Waiter(
                        holder, client, arrival, ttl, weight, capacity, 0, None, queued_at, worker,
                        parked=parked,
                    ),
                    live,
                )
                for holder, client, arrival, ttl, weight, capacity, queued_at, worker, parked, live
                in json.loads(reply)
            )  # fmt: skip

        return Request(self._waiters, (op.key,), read)

    def _ask_page(self, op: Page) -> Request:
        return Request(self._page, (op.prefix, after(op.prefix), op.after, op.size), read_leases)

    def _mark(self, key: str) -> str:
        mark = digest(key)
        marks = self._marks
        if mark not in marks:
            if len(marks) >= _MARKS:
                del marks[next(iter(marks))]
            marks[mark] = key
        return mark


_MARKS = 20_000
_REPLY = re.compile("(?m)^select (.*)$")
_EAR_LENGTH = 55


def ear(client: str) -> str:
    """A client's name as part of a channel's, which has at most 63 bytes."""
    if client.isascii() and len(client) <= _EAR_LENGTH:
        return client
    return digest(client)


def after(prefix: str) -> str:
    """The first text that sorts behind all that begin with ``prefix``; empty if there is none."""
    while prefix:
        prefix, last = prefix[:-1], ord(prefix[-1]) + 1
        if last <= 0x10FFFF:  # noqa: PLR2004 - the last character there is
            return prefix + ("\ue000" if last == 0xD800 else chr(last))  # noqa: PLR2004
    return ""


def texts(values: Iterable[str]) -> str:
    """A PostgreSQL array of texts."""
    quoted = ",".join(
        '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"' for value in values
    )
    return "{" + quoted + "}"


def numbers(values: Iterable[int]) -> str:
    """A PostgreSQL array of whole numbers."""
    return "{" + ",".join(map(str, values)) + "}"


def read_acquired(reply: str) -> AcquireReply:
    """Granted, Busy or Joined."""
    kind, *rest = reply.split(" ", 6)
    if kind == "G":
        token, acquired_at, expires_at, again, waiting, replaced = rest
        return Granted(
            int(token), int(acquired_at), int(expires_at), again == "1", waiting == "1", replaced
        )
    if kind == "B":
        remaining, why, token, arrival, epoch, holder = rest
        return Busy(
            holder,
            int(remaining),
            why,  # pyright: ignore[reportArgumentType]
            int(token),
            int(arrival),
            int(epoch),
        )
    return Joined(int(rest[0]))


def read_released(reply: str) -> Released:
    """Freed or not."""
    return Released(reply == "1")


def read_refreshed(reply: str) -> tuple[Refreshed, list[int]]:
    """What was renewed, and the places whose rows were locked."""
    renewed, waiting = reply[::2], reply[1::2]
    return (
        Refreshed(tuple(x == "1" for x in renewed), tuple(x == "w" for x in waiting)),
        [place for place, x in enumerate(renewed) if x == "L"],
    )


def merge_refreshed(first: Refreshed, places: list[int], second: Refreshed) -> Refreshed:
    """The first reply, with what was found out later about those places."""
    renewed, waiting = list(first.renewed), list(first.waiting)
    for place, yes, waits in zip(places, second.renewed, second.waiting, strict=True):
        renewed[place], waiting[place] = yes, waits
    return Refreshed(tuple(renewed), tuple(waiting))


def read_leases(reply: str) -> tuple[JobLock, ...]:
    """Leases as a reader sees them."""
    return tuple(
        machine.describe(
            key,
            machine.Lease(
                holder, token, weight, capacity, acquired_at, expires_at, opens_at, ended_at, worker
            ),
            now,
        )
        for key, holder, token, weight, capacity, acquired_at, expires_at, opens_at, ended_at,
        worker, now in json.loads(reply)
    )  # fmt: skip


def read_forced(reply: str) -> Forced:
    """The leases that were broken."""
    return Forced(read_leases(reply))
