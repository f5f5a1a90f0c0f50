"""The operations a store does, and its replies, as data.

Each operation is decided and done by the store in one atomic step, on the store's own clock.
All durations are whole milliseconds; all moments are milliseconds since 1970 on the store's clock.
A holder names one lease or one waiter of a key: an acquisition keeps its holder from the first
request to the release.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

from joblock.values.records import JobLock, Waiting

Why = Literal["held", "grace", "waiting", "done"]

CLAIM_MS = 1_000
"""How long a waiter that was handed a key has to confirm, unless its own ttl is shorter."""

PRESENCE_MS = 15_000
"""How long a client that stopped reporting still counts as waiting."""

CHECK_MS = 4_000
"""How often a client that waits reports, and asks about the keys it waits for."""

LINGER_MS = 600_000
"""How long a permit that lapsed can still be refreshed, at least; then it may be forgotten."""


class Queueing(NamedTuple):
    """How the caller of an `Acquire` that is refused is to be queued.

    ``client`` is where it is notified. ``arrival`` is the number it was queued under before (0: it
    never was), for a store that no longer knows it. ``listening`` says that the client can be
    notified, so that a notification nobody receives means that it is dead. ``skip_grace`` makes a
    key in grace end the wait. ``join`` makes it a wait for the run in progress: ``None`` for no,
    0 for whichever run holds the key, else the token of the run it joined.
    """

    client: str
    arrival: int = 0
    listening: bool = False
    skip_grace: bool = False
    join: int | None = None


class Acquire(NamedTuple):
    """Grant the key, confirm a claim on it, re-enter it, or say who is in the way.

    Idempotent for a holder: it may be sent again whenever its reply was lost, and it is what a
    waiter sends to confirm. ``weight == limit`` asks for an exclusive lease. ``extend_only`` keeps
    a re-entered lease's end where it is if that is later. ``queue=None`` is never queued. An
    ``occurrence`` (not negative, below 2**53) is refused as done if it, or a later one, is `Done`.
    """

    key: str
    holder: str
    ttl: int
    weight: int = 1
    limit: int = 1
    at_least: int = 0
    extend_only: bool = False
    worker: str = ""
    queue: Queueing | None = None
    occurrence: int | None = None


class Granted(NamedTuple):
    """The lease is the holder's. ``waiting``: somebody is queued behind it.

    ``replaced`` is the holder whose expired lease was taken over, or the empty text.
    """

    token: int
    acquired_at: int
    expires_at: int
    reentered: bool = False
    waiting: bool = False
    replaced: str = ""


class Busy(NamedTuple):
    """Not granted: who is in the way, and for how many milliseconds unless that is renewed.

    ``arrival`` is 0 unless the caller is queued now. ``epoch`` names the client's presence as of
    this moment: the store has forgotten no waiter of a client whose epoch is still the same.
    ``token`` is the run in the way; to a joiner that names none yet (``join=0``) it is the run that
    it joins, which of a key in grace is the next one. Why ``"done"``: nobody may be in the way, but
    the occurrence is over, and the caller is queued no more.
    """

    holder: str
    remaining: int
    why: Why
    token: int = 0
    arrival: int = 0
    epoch: int = 0


class Joined(NamedTuple):
    """The run that the caller joined, or a later one, has ended well; it is queued no more."""

    token: int


class Renewal(NamedTuple):
    """One lease to renew; ``token=0`` is the raw model's "whatever token I hold it with"."""

    key: str
    holder: str
    token: int
    ttl: int


class Refresh(NamedTuple):
    """Renew a batch of leases; ``extend_only`` never brings an end forward."""

    renewals: tuple[Renewal, ...]
    extend_only: bool = True


class Refreshed(NamedTuple):
    """Per renewal, in order: was it renewed. ``waiting``: is somebody queued for its key."""

    renewed: tuple[bool, ...]
    waiting: tuple[bool, ...] = ()


class Done(NamedTuple):
    """An occurrence whose run ended well, to be remembered for ``ttl`` if no later one is."""

    occurrence: int
    ttl: int


class Release(NamedTuple):
    """End a lease: at once, or after ``grace``. ``ok``: the run ended well (joiners are done).

    ``contended`` hints that somebody is queued, so that a store tries the right path first.
    ``done`` is remembered, in the same step, if the lease was the holder's.
    """

    key: str
    holder: str
    token: int = 0
    grace: int = 0
    ok: bool = False
    contended: bool = False
    done: Done | None = None


class Released(NamedTuple):
    """``freed`` is false when the lease was not the holder's (any more)."""

    freed: bool


class Leave(NamedTuple):
    """Take the holder out of the queue of the key, and out of any lease or claim it has there."""

    key: str
    holder: str


class Check(NamedTuple):
    """A waiting client reports: it is alive, and asks how its keys stand."""

    client: str
    keys: tuple[str, ...]
    listening: bool = False


class KeyState(NamedTuple):
    """How one key stands for a client that waits for it.

    ``epoch``: see `Busy`; waiters that were queued under another one must ask again. ``lapses_in``:
    milliseconds until what is in the way lapses (0: nothing is). ``claimed``: the client's own
    waiters that were handed the key and have not confirmed. ``ok_token``: see `Joined`.
    """

    epoch: int
    lapses_in: int
    claimed: tuple[str, ...] = ()
    ok_token: int = 0
    grace: bool = False


class Checked(NamedTuple):
    """One state for each key of the `Check`, in its order."""

    states: tuple[KeyState, ...]


class Strike(NamedTuple):
    """A claim's notification reached nobody: its client is dead, pass the key on at once."""

    key: str
    holder: str


class Holders(NamedTuple):
    """All leases of a key, oldest first, expired ones and those in grace included."""

    key: str


class Waiters(NamedTuple):
    """The queue of a key, oldest first."""

    key: str


class Page(NamedTuple):
    """Leases of keys that begin with ``prefix`` and sort after ``after``, by key.

    The page ends with the key that fills ``size``, so one key's leases are never torn apart.
    """

    prefix: str = ""
    after: str = ""
    size: int = 200


class Count(NamedTuple):
    """How many leases `Page` would list for ``prefix``."""

    prefix: str = ""


class Force(NamedTuple):
    """Free a key whoever holds it; ``by`` and ``why`` are kept with the key."""

    key: str
    by: str
    why: str


class Forced(NamedTuple):
    """The leases that were broken."""

    broken: tuple[JobLock, ...]


class Purge(NamedTuple):
    """Delete up to ``batch`` keys that were vacated ``idle`` milliseconds ago or earlier.

    One with an occurrence that is done stays at least until that is to be forgotten.
    """

    batch: int = 500
    idle: int = 600_000


class Notice(NamedTuple):
    """A hint to a client that something changed for it; never a grant.

    ``holder`` is the waiter concerned, or empty for all of the client's waiters of ``key``. Some
    transports carry only a digest of the key: see `joblock.store.contract.digest`. ``after`` is
    how many milliseconds from now it is worth asking (0: at once).
    """

    client: str
    key: str
    holder: str = ""
    after: int = 0


AcquireReply: TypeAlias = Granted | Busy | Joined
Reading: TypeAlias = "tuple[JobLock, ...] | tuple[Waiting, ...] | int"
Operation: TypeAlias = (
    Acquire
    | Refresh
    | Release
    | Leave
    | Check
    | Strike
    | Holders
    | Waiters
    | Page
    | Count
    | Force
    | Purge
)
