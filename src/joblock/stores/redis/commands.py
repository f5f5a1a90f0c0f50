"""Each operation as one command, and the reply to it as a record."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, NamedTuple

from joblock.store.contract import digest
from joblock.store.machine import Lease, Waiter, describe, describe_waiter, visible
from joblock.store.ops import (
    Acquire,
    AcquireReply,
    Busy,
    Check,
    Checked,
    Force,
    Forced,
    Granted,
    Holders,
    Joined,
    KeyState,
    Leave,
    Refreshed,
    Release,
    Released,
    Renewal,
    Strike,
    Waiters,
)
from joblock.stores.redis.scripts import (
    Script,
    packed_keys,
    packed_part,
    packed_row,
    script,
)
from joblock.stores.redis.wire import Parser, pack_bulk
from joblock.values.records import JobLock, Waiting

KEYS = 6
"""How many names belong to one key; see the first lines of ``lua/rows.lua``."""


class Command(NamedTuple):
    """One call of a script; ``key`` says where it is to be sent."""

    key: str
    script: Script
    keys: int
    arguments: int
    rest: bytes

    def packed(self) -> bytes:
        """The bytes to send, with the script's hash."""
        return self.script.head(self.keys, self.arguments) + self.rest

    def packed_with_text(self) -> bytes:
        """The same with the script's text."""
        return self.script.head_with_text(self.keys, self.arguments) + self.rest

    def for_row(self) -> Command | None:
        """The same with no name but the row's, for a slot that is being moved; None: needs more.

        A cluster then refuses scripts whose names are not all at one node, and of most keys there
        is only the row. If that does not do, the script fails before it has changed anything.
        """
        if self.keys != KEYS:
            return None
        names_and_arguments = Parser().feed(self.rest)
        rest = b"".join(map(pack_bulk, (names_and_arguments[0], *names_and_arguments[KEYS:])))
        return self._replace(keys=1, rest=rest)


def _arguments(values: Iterable[str | int]) -> bytes:
    return b"".join(pack_bulk(str(value).encode()) for value in values)


@lru_cache(maxsize=1024)
def _terms(
    ttl: int, weight: int, limit: int, at_least: int, extend_only: bool, worker: str
) -> bytes:
    return _arguments((ttl, weight, limit, at_least, int(extend_only), worker))


@lru_cache(maxsize=128)
def _ending(grace: int, ok: bool) -> bytes:
    return _arguments((grace, int(ok)))


def acquire(op: Acquire, *, clustered: bool) -> Command:
    """Try, queue, confirm or re-enter."""
    holder = op.holder.encode()
    rest = b"%b$%d\r\n%b\r\n%b" % (
        packed_keys(op.key),
        len(holder),
        holder,
        _terms(op.ttl, op.weight, op.limit, op.at_least, op.extend_only, op.worker),
    )
    queue = op.queue
    if queue is None:
        return _acquiring(op, 7, rest)
    rest += _arguments(
        (
            queue.client,
            queue.arrival,
            _listening(queue.listening, clustered),
            int(queue.skip_grace),
            "-" if queue.join is None else queue.join,
            _mark(op.key),
        )
    )
    return _acquiring(op, 13, rest)


def packed_acquire(op: Acquire) -> bytes:
    """The bytes of `acquire` for a single server, most of which are kept for the next time."""
    queue = op.queue
    if queue is not None and queue.arrival:
        return acquire(op, clustered=False).packed()
    before, after = _acquire_form(script("acquire"), op.key, op[2:])
    holder = op.holder.encode()
    return b"%b$%d\r\n%b\r\n%b" % (before, len(holder), holder, after)


@lru_cache(maxsize=2048)
def _acquire_form(by: Script, key: str, terms: tuple[Any, ...]) -> tuple[bytes, bytes]:
    """What comes before the holder, and after it."""
    del by  # those with the hash of another script are no use
    op = Acquire(key, _NOBODY, *terms)
    before, _, after = acquire(op, clustered=False).packed().partition(_PACKED_NOBODY)
    return before, after


_NOBODY = "\0"
_PACKED_NOBODY = pack_bulk(_NOBODY.encode())
"""No holder, and nothing that a key or a label could contain."""


def _acquiring(op: Acquire, arguments: int, rest: bytes) -> Command:
    command = Command(op.key, script("acquire"), KEYS, arguments, rest)
    if op.occurrence is None:
        return command
    return _once(command, "acquire_once", op.occurrence)


def _once(command: Command, name: str, *values: int) -> Command:
    """The same where it matters which occurrences are done, which is kept under its own name."""
    keys = packed_keys(command.key)
    rest = b"%b%b%b%b" % (
        keys,
        packed_part(command.key, "done:"),
        command.rest[len(keys) :],
        _arguments(values),
    )
    arguments = command.arguments + len(values)
    return Command(command.key, script(name), KEYS + 1, arguments, rest)


def _listening(listening: bool, clustered: bool) -> int:
    """How a client listens; see the first lines of ``lua/rows.lua``."""
    return (2 if clustered else 1) if listening else 0


# Which key a mark in a notice means: those lately waited for. The client knows the others itself.
_marked: dict[str, str] = {}
_MARKED_AT_MOST = 20_000


@lru_cache(maxsize=10_000)
def _mark(key: str) -> str:
    mark = digest(key)
    if len(_marked) >= _MARKED_AT_MOST:
        _marked.clear()
        _mark.cache_clear()
        _acquire_form.cache_clear()
    _marked[mark] = key
    return mark


def key_marked(mark: str) -> str:
    """The key that a mark stands for, or the mark where that is not known."""
    return _marked.get(mark, mark)


def release(op: Release) -> Command:
    """End a lease."""
    holder, token = op.holder.encode(), b"%d" % op.token
    rest = b"%b$%d\r\n%b\r\n$%d\r\n%b\r\n%b" % (
        packed_keys(op.key),
        len(holder),
        holder,
        len(token),
        token,
        _ending(op.grace, op.ok),
    )
    command = Command(op.key, script("release"), KEYS, 4, rest)
    if op.done is None:
        return command
    return _once(command, "release_once", op.done.occurrence, op.done.ttl)


def packed_release(op: Release) -> bytes:
    """The bytes of `release`, most of which are kept for the next time."""
    before, after = _release_form(script("release"), op.key, op[3:])
    holder, token = op.holder.encode(), b"%d" % op.token
    return b"%b$%d\r\n%b\r\n$%d\r\n%b\r\n%b" % (
        before,
        len(holder),
        holder,
        len(token),
        token,
        after,
    )


@lru_cache(maxsize=2048)
def _release_form(by: Script, key: str, ending: tuple[Any, ...]) -> tuple[bytes, bytes]:
    """What comes before the holder, and after the token behind it."""
    del by
    op = Release(key, _NOBODY, 0, *ending)
    before, _, after = release(op).packed().partition(_PACKED_NOBODY + pack_bulk(b"0"))
    return before, after


def leave(op: Leave) -> Command:
    """Give everything back."""
    return Command(op.key, script("leave"), KEYS, 1, packed_keys(op.key) + _arguments((op.holder,)))


def strike(op: Strike) -> Command:
    """Pass over the dead."""
    return Command(
        op.key, script("strike"), KEYS, 1, packed_keys(op.key) + _arguments((op.holder,))
    )


def force(op: Force) -> Command:
    """Break the leases."""
    return Command(
        op.key, script("force"), KEYS, 2, packed_keys(op.key) + _arguments((op.by, op.why))
    )


def check(op: Check, keys: Iterable[str], *, clustered: bool) -> Command:
    """Ask about some keys of one slot."""
    keys = tuple(keys)
    how = _listening(op.listening, clustered)
    rest = b"".join(map(packed_keys, keys)) + _arguments((op.client, how))
    return Command(keys[0], script("check"), KEYS * len(keys), 2, rest)


def refresh(renewals: Iterable[Renewal], extend_only: bool) -> Command:
    """Renew leases of one slot."""
    renewals = tuple(renewals)
    rest = b"".join([packed_row(renewal.key) for renewal in renewals])
    rest += _renewal_arguments(renewals, extend_only)
    size = len(renewals)
    return Command(renewals[0].key, script("refresh"), size, 1 + 3 * size, rest)


def refresh_crowded(renewals: Iterable[Renewal], extend_only: bool) -> Command:
    """Renew leases of one slot whose keys are crowded."""
    renewals = tuple(renewals)
    rest = b"".join([packed_keys(renewal.key) for renewal in renewals])
    rest += _renewal_arguments(renewals, extend_only)
    size = len(renewals)
    return Command(renewals[0].key, script("refresh_crowded"), KEYS * size, 1 + 3 * size, rest)


def _renewal_arguments(renewals: tuple[Renewal, ...], extend_only: bool) -> bytes:
    parts = [_arguments((int(extend_only),))]
    for _, holder, token, ttl in renewals:
        name = holder.encode()
        token_text, ttl_text = b"%d" % token, b"%d" % ttl
        parts.append(
            b"$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n"
            % (len(name), name, len(token_text), token_text, len(ttl_text), ttl_text)
        )
    return b"".join(parts)


def holders(keys: Iterable[str]) -> Command:
    """Read the leases of some keys of one slot."""
    keys = tuple(keys)
    rest = b"".join(packed_part(key, "", "leases:") for key in keys)
    return Command(keys[0], script("holders"), 2 * len(keys), 0, rest)


def waiters(op: Waiters) -> Command:
    """Read a queue."""
    rest = packed_part(op.key, "", "waiters:", "present:")
    return Command(op.key, script("waiters"), 3, 0, rest)


# Replies.


def read_acquire(op: Acquire, reply: bytes) -> AcquireReply:
    """Granted, Busy or Joined."""
    del op
    kind = reply[:1]
    if kind == b"G":
        token, acquired, expires, reentered, waiting, replaced = reply.split(b" ", 5)
        return Granted(
            int(token[1:]),
            int(acquired),
            int(expires),
            reentered == b"1",
            waiting == b"1",
            replaced.decode(),
        )
    if kind == b"B":
        remaining, why, token, arrival, epoch, holder = reply[1:].split(b" ", 5)
        return Busy(
            holder.decode(),
            int(remaining),
            why.decode(),  # pyright: ignore[reportArgumentType]
            int(token),
            int(arrival),
            int(epoch),
        )
    return Joined(int(reply[1:]))


def read_released(op: Any, reply: int) -> Released:
    """Whether there was something to free."""
    del op
    return Released(reply == 1)


def read_checked(reply: list[list[bytes]]) -> Checked:
    """The state of each key."""
    return Checked(tuple(_read_state(state) for state in reply))


def _read_state(state: list[bytes]) -> KeyState:
    epoch, lapses_in, ok_token, grace = map(int, state[0].split())
    claimed = tuple(holder.decode() for holder in state[1:])
    return KeyState(epoch, lapses_in, claimed, ok_token, grace == 1)


def read_refreshed(reply: bytes) -> Refreshed:
    """From pairs of letters: renewed, somebody waits."""
    text = reply.decode()
    return Refreshed(
        tuple(letter == "1" for letter in text[::2]), tuple(letter == "1" for letter in text[1::2])
    )


def read_forced(op: Force, reply: list[bytes]) -> Forced:
    """What was broken."""
    now = int(reply[0])
    leases = sorted(map(_read_lease, reply[1:]), key=lambda lease: lease.token)
    return Forced(tuple(describe(op.key, lease, now) for lease in leases))


def read_holders(keys: Iterable[str], reply: list[Any]) -> list[tuple[JobLock, ...]]:
    """The leases of each key that a reader is shown, oldest first."""
    now = int(reply[0])
    found: list[tuple[JobLock, ...]] = []
    for key, rows in zip(keys, reply[1:], strict=True):
        leases = sorted(map(_read_lease, rows), key=lambda lease: lease.token)
        found.append(
            tuple(
                describe(key, lease, now)
                for lease in visible(leases, now)
                if not lease.claim or lease.running(now)
            )
        )
    return found


def read_held(op: Holders, reply: list[Any]) -> tuple[JobLock, ...]:
    """The leases of one key."""
    return read_holders((op.key,), reply)[0]


def read_waiting(op: Waiters, reply: list[Any]) -> tuple[Waiting, ...]:
    """The queue, oldest first."""
    now = int(reply[0])
    present = {
        client.decode(): int(seen.split()[1]) > now
        for client, seen in zip(reply[1][::2], reply[1][1::2], strict=True)
    }
    line = [_read_waiter(*pair) for pair in zip(reply[2][::2], reply[2][1::2], strict=True)]
    line.sort(key=lambda waiter: (waiter.arrival, waiter.holder))
    return tuple(
        describe_waiter(op.key, waiter, present.get(waiter.client, False)) for waiter in line
    )


def _read_lease(row: bytes) -> Lease:
    numbers, holder, client, worker = row.decode().split("\0", 3)
    token, acquired, expires, opens, ended, weight, limit, claim = map(int, numbers.split())
    return Lease(
        holder, token, weight, limit, acquired, expires, opens, ended, worker, claim == 1, client
    )


def _read_waiter(holder: bytes, row: bytes) -> Waiter:
    numbers, _mark, client, worker = row.decode().split("\0", 3)
    arrival, ttl, weight, limit, at_least, join, queued, lost, parked = numbers.split()
    return Waiter(
        holder.decode(),
        client,
        int(arrival),
        int(ttl),
        int(weight),
        int(limit),
        int(at_least),
        None if join == "-" else int(join),
        int(queued),
        worker,
        int(lost),
        parked != "0",
    )


SIMPLE: dict[type, tuple[Callable[[Any], Command], Callable[[Any, Any], Any]]] = {
    Release: (release, read_released),
    Leave: (leave, read_released),
    Strike: (strike, read_released),
    Force: (force, read_forced),
    Holders: (lambda op: holders((op.key,)), read_held),
    Waiters: (waiters, read_waiting),
}
"""Operations that are one command whatever the server: how to ask, how to read the answer."""
