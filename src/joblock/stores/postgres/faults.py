"""What an error of the server means: try again, first do something, or tell the caller.

The rules are the same for every driver library. A driver turns what it catches into a `Trouble`
and asks `Recovery.after` what to do; all operations may be sent twice.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from joblock.values.errors import StoreError, StoreMisconfigured, StoreUnavailable

PATIENCE = 5.0
"""Seconds after which the caller is told that the store does not answer."""

_PASSING = {
    "40001",  # serialization_failure
    "40P01",  # deadlock_detected
    "23505",  # unique_violation
    "55P03",  # lock_not_available: a lock_timeout of the role or the database
    "57014",  # query_canceled: a statement_timeout, or somebody
    "0A000",  # cached plan must not change result type
}
_MISSING = {
    "3F000",  # invalid_schema_name
    "42P01",  # undefined_table
    "42883",  # undefined_function
}
PREPARED = {
    "26000",  # invalid_sql_statement_name
    "42P05",  # duplicate_prepared_statement
    "08P01",  # protocol_violation: what a pooler makes of it
}
# Raised by joblock's own functions.
_OTHER_ISOLATION = "JB001"
_NEWER_FORMAT = "JB002"
_READ_ONLY = "25006"
_REFUSED = ("28", "3D", "22021", "22P05", _NEWER_FORMAT)
_GONE = ("08", "57P")


class Trouble(Exception):
    """One request failed: the server's code and message, or a connection that is gone.

    ``fresh``: the connection was made for this very request. ``unsent``: the server has certainly
    not seen the request.
    """

    def __init__(
        self,
        message: str,
        code: str = "",
        *,
        gone: bool = False,
        fresh: bool = False,
        unsent: bool = False,
    ) -> None:
        super().__init__(" ".join(message.split()))
        self.code = code
        self.gone = gone or code.startswith(_GONE)
        self.fresh = fresh
        self.unsent = unsent

    def saying(self, message: str) -> Trouble:
        """The same in other words."""
        return Trouble(message, self.code, gone=self.gone, fresh=self.fresh, unsent=self.unsent)


class Manner:
    """How the server, or the pooler before it, wants to be spoken to; learned from its errors.

    ``prepared``: prepared statements survive. ``stated``: the default isolation level is another
    one, so each request is a transaction that states its own.
    """

    __slots__ = ("place", "prepared", "schema", "stated")

    def __init__(self, place: str, schema: str) -> None:
        self.place = place
        self.schema = schema
        self.prepared = True
        self.stated = False


class Recovery:
    """What was tried for one request so far."""

    __slots__ = ("_end", "_gone", "_learned", "_manner", "_pause", "create", "resent")

    def __init__(self, manner: Manner, clock: Callable[[], float] = time.monotonic) -> None:
        self._manner = manner
        self._end = clock() + PATIENCE
        self._pause = 0.001
        self._gone = 0
        self._learned: set[str] = set()
        self.create = False
        self.resent = False

    def after(self, trouble: Trouble, clock: Callable[[], float] = time.monotonic) -> float:
        """Seconds to pause before the next try; raises StoreError if there is none.

        ``create`` says that the tables have to be made first. ``resent`` becomes true once the
        request may have been done without an answer.
        """
        self.create = False
        code, manner = trouble.code, self._manner
        # Each once for each request: another thread may have learned the same meanwhile.
        if code in (_OTHER_ISOLATION, *PREPARED, *_MISSING) and code not in self._learned:
            self._learned.add(code)
            manner.stated = manner.stated or code == _OTHER_ISOLATION
            manner.prepared = manner.prepared and code not in PREPARED
            self.create = code in _MISSING
            return 0.0
        if code in PREPARED and clock() < self._end:
            # Any number of connections may have been made before it was learned what to prepare.
            return self._next_pause()
        if trouble.gone:
            return self._after_loss(trouble)
        if code in _PASSING:
            if clock() < self._end:
                return self._next_pause()
            raise StoreUnavailable(
                f"{manner.place} keeps refusing the request, for {PATIENCE:g} s now: {trouble}"
            ) from trouble
        raise refusal(manner, trouble) from trouble

    def _next_pause(self) -> float:
        self._pause = min(0.1, self._pause * 2)
        return self._pause * random.random()

    def _after_loss(self, trouble: Trouble) -> float:
        # A connection that was idle may have been dead for long: the next one is a new one.
        self._gone += 1
        self.resent = self.resent or not trouble.unsent
        if trouble.fresh or self._gone > 1:
            raise refusal(self._manner, trouble) from trouble
        return 0.0


def refusal(manner: Manner, trouble: Trouble) -> StoreError:
    """The error for the person who is paged."""
    code, place = trouble.code, manner.place
    if code == _READ_ONLY:
        return StoreMisconfigured(
            f"{place} is read only: it is a standby (name all servers in the URL and add "
            "target_session_attrs=read-write), or default_transaction_read_only is on for this "
            f"role or database: {trouble}"
        )
    if code in ("42501", *_MISSING):
        schema = manner.schema
        return StoreMisconfigured(
            f"{place}: this role may not use joblock's tables, or not create them, in the schema "
            f"{schema}: {trouble}. Let an administrator run what `joblock schema postgresql` "
            f"prints, then: GRANT USAGE ON SCHEMA {schema} TO the_role; GRANT SELECT, INSERT, "
            f"UPDATE, DELETE ON {schema}.job_locks, {schema}.job_lock_permits, "
            f"{schema}.job_lock_waiters, {schema}.job_lock_presence, {schema}.job_lock_meta, "
            f"{schema}.job_lock_leases TO the_role"
        )
    if code.startswith(_REFUSED) or _names_a_mistake(str(trouble)):
        return StoreMisconfigured(f"{place} refuses: {trouble}")
    if trouble.gone or code[:2] in ("53", "58", "XX", "57"):
        return StoreUnavailable(f"{place} cannot be reached or does not answer: {trouble}")
    return StoreError(f"{place} failed with SQLSTATE {code}: {trouble}")


def _names_a_mistake(message: str) -> bool:
    """Whether a connection was refused for good; libpq gives no code, only the server's words."""
    return message_has(
        message,
        "authentication failed",
        "no pg_hba.conf entry",
        "does not exist",
        "no password supplied",
        "invalid connection option",
        "invalid URI",
        "invalid port number",
        "certificate verify failed",
    )


def message_has(message: str, *parts: str) -> bool:
    """Whether any of these is in it."""
    return any(part in message for part in parts)
