"""What was found, as data: for people, for programs, and for the checks to write it down."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from joblock.store.contract import Store

Severity = Literal["broken", "risk", "unchecked", "note", "good"]


class Finding(NamedTuple):
    """One thing that was looked at.

    ``severity``: ``"broken"`` (a promise cannot hold), ``"risk"`` (it holds until something
    happens), ``"unchecked"`` (it could not be looked at), ``"note"`` (good to know), ``"good"``.
    ``risk`` is what may come of it, ``change`` what to do about it; both are empty if nothing is
    amiss.
    """

    severity: Severity
    check: str
    found: str
    risk: str = ""
    change: str = ""


class Report(NamedTuple):
    """All findings about the store that is called ``store``, which has no password in it."""

    store: str
    findings: tuple[Finding, ...]

    @property
    def holds(self) -> bool:
        """Whether nothing was found that keeps a promise from holding."""
        return not self.of("broken")

    def of(self, severity: Severity) -> tuple[Finding, ...]:
        """The findings of one severity."""
        return tuple(finding for finding in self.findings if finding.severity == severity)


class Look(NamedTuple):
    """What a look at the set-up of a store has shown, and what may be done next.

    ``trial`` is the store to try operations on, or None if nothing is to be tried. ``reached``: the
    store has answered already, so that an operation that fails is a finding. ``clean_up`` is called
    at the end.
    """

    findings: list[Finding]
    trial: Store | None
    reached: bool = False
    clean_up: Callable[[], None] = lambda: None


def broken(check: str, found: str, risk: str, change: str) -> Finding:
    """A promise cannot hold."""
    return Finding("broken", check, found, risk, change)


def risk(check: str, found: str, risk: str, change: str) -> Finding:
    """A promise holds until something happens."""
    return Finding("risk", check, found, risk, change)


def unchecked(check: str, found: str, change: str = "") -> Finding:
    """Something could not be looked at, which nobody should take for good."""
    return Finding("unchecked", check, found, "", change)


def untried(why: str = "of what was found above") -> Finding:
    """No operation was tried."""
    return unchecked("leases", f"none was taken, because {why}")


def note(check: str, found: str, risk: str = "") -> Finding:
    """Good to know."""
    return Finding("note", check, found, risk)


def good(check: str, found: str) -> Finding:
    """As it should be."""
    return Finding("good", check, found)
