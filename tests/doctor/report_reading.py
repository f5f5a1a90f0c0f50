"""Reading a report in a test."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from joblock.doctor import Finding, Report


def only(report: Report, check: str) -> Finding:
    """The one finding of that check."""
    found = [finding for finding in report.findings if finding.check == check]
    assert len(found) == 1, report.findings
    return found[0]


def severities(report: Report) -> dict[str, str]:
    """The severity of each check."""
    return {finding.check: finding.severity for finding in report.findings}
