"""Every exception joblock raises, bad arguments apart (those are ValueError or TypeError)."""

from __future__ import annotations

from typing import Any


class JobLockError(Exception):
    """Base of all errors that are about locks and their store."""


class LockNotAcquired(JobLockError):
    """The lock was not obtained: held, in grace, or others wait for it.

    ``key`` is the lock asked for, ``holder`` who has it (``None`` if the store does not say),
    ``remaining`` the seconds until that lapses unless it is renewed, ``reason`` one of
    ``"held"``, ``"grace"``, ``"waiting"``, ``"timeout"``; from `joblock.require` ``"unheld"``, and
    from the ``call`` of a job also the reasons of an `joblock.Outcome`. ``prefix`` is what its
    client puts before the key.
    """

    def __init__(
        self,
        key: str,
        holder: str | None = None,
        remaining: float | None = None,
        reason: str = "held",
        prefix: str = "",
    ) -> None:
        super().__init__(key, holder, remaining, reason, prefix)
        self.key = key
        self.holder = holder
        self.remaining = remaining
        self.reason = reason
        self.prefix = prefix

    def __str__(self) -> str:
        if self.reason == "unheld":
            return (
                f"this code runs without the lock {self.key!r} that it requires: call it inside "
                f"`with locks.lock({self.key!r})` or a job of that name"
            )
        what = {
            "grace": "its last run ended and it stays closed for its grace period",
            "waiting": "others are queued for it",
            "closed": "its client was closed while it waited",
            "done": "this occurrence, or a later one, was run already and ended well",
            "joined": "the run in progress ended well and counts for this call too",
            "store_error": "the store is down",
        }.get(self.reason, "another holder has it")
        if self.reason == "timeout":
            what = "the wait for it timed out"
        who = f", held by {self.holder!r}" if self.holder else ""
        when = (
            "" if self.remaining is None else f", lapses in {self.remaining:.3f} s unless renewed"
        )
        return (
            f"lock {self.key!r} not acquired: {what}{who}{when}; "
            f"wait longer, or look at it with: {_peek(self.prefix, self.key)}"
        )


def _peek(prefix: str, key: str) -> str:
    """The command that shows the lock, whatever JOBLOCK_PREFIX is where it is typed."""
    from shlex import quote

    # In a terminal neither may do anything: what cannot be typed is shown as Python writes it.
    name = quote(key) if key.isprintable() else repr(key)
    begin = f"JOBLOCK_PREFIX={quote(prefix) if prefix.isprintable() else repr(prefix)} "
    return f"{begin if prefix else ''}joblock peek {'-- ' if key.startswith('-') else ''}{name}"


class LockLost(JobLockError):
    """A lease that was held is held no more, and its block or job may have run without it.

    ``key``, ``holder`` and ``token`` name the lease, ``reason`` says how it was lost
    (``"refused"``, ``"deadline"``, ``"max_duration"``, ``"closed"``, ``"forked"``, ``"guard"``
    if `guard` did not find it, and ``"released"`` if it was given back and is used after that).
    ``value`` is what the work returned if it finished all the same.
    """

    def __init__(self, key: str, holder: str, token: int, reason: str, value: Any = None) -> None:
        super().__init__(key, holder, token, reason, value)
        self.key = key
        self.holder = holder
        self.token = token
        self.reason = reason
        self.value = value

    def __str__(self) -> str:
        if self.reason == "released":
            return (
                f"the lease on {self.key!r} by {self.holder!r} (token {self.token}) is held no "
                "more: it was released before"
            )
        how = {
            "refused": "the store no longer knows it as the holder (it lapsed, was broken by "
            "somebody, or the store lost it)",
            "deadline": "no renewal was confirmed in time",
            "max_duration": "its max_duration is over",
            "closed": "its client was closed",
            "forked": "it belongs to the parent of this forked process",
            "guard": "the database of the guarded transaction does not have it as live (it lapsed, "
            "was broken by somebody, or the leases are kept elsewhere), so roll back",
        }.get(self.reason, self.reason)
        return (
            f"lease on {self.key!r} lost by {self.holder!r} (token {self.token}): {how}; "
            "what ran under it may have overlapped with another run, unless its writes were "
            "fenced with the token"
        )


class StaleToken(JobLockError):
    """A newer holder has written to a fenced resource, so an older one may not any more.

    ``token`` is the one that was refused, ``newest`` the fence (``None`` if it is not known).
    """

    def __init__(self, resource: str, token: int, newest: int | None = None) -> None:
        super().__init__(resource, token, newest)
        self.resource = resource
        self.token = token
        self.newest = newest

    def __str__(self) -> str:
        newest = "" if self.newest is None else f" (its token is {self.newest})"
        return (
            f"the write to {self.resource!r} with token {self.token} is refused: a newer holder "
            f"has written there{newest}, so this lease was lost, by a pause or an outage longer "
            "than its ttl; roll back, give up this run, and acquire the lock again to start over"
        )


class StoreError(JobLockError):
    """The store did not do what was asked of it."""


class StoreUnavailable(StoreError):
    """The store cannot be reached or does not answer; the same call may work later."""


class StoreMisconfigured(StoreError):
    """The store answers but cannot serve as it is set up; a person has to change something."""
