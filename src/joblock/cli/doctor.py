"""`joblock doctor`: whether this store can keep what joblock promises."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from typing import TYPE_CHECKING

import click

from joblock.cli.exits import OTHERWISE
from joblock.cli.options import Command, url_option
from joblock.cli.text import brief, visible

if TYPE_CHECKING:
    from joblock.doctor import Finding, Report, Severity


@click.command(
    cls=Command,
    example="joblock doctor redis://cache:6379/0",
    short_help="See whether a store can keep what joblock promises.",
    epilog="""\b
What is found is one of these:
  broken     a promise cannot hold
  risk       it holds until something happens
  unchecked  it could not be looked at
  note       good to know
  good       as it should be

\b
Exit codes:
  0   every promise holds, risks and what is unchecked apart
  1   something is broken
  69  the store cannot be reached
  64  bad usage
""",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object: store, holds, findings.")
@url_option
@click.argument("store", metavar="[URL]", required=False)
def command(store: str | None, as_json: bool, url: str | None) -> int:
    """Examine a store: how it is set up, and whether it does what joblock needs.

    It is the one at URL, or else the one that every other command would use. Run it as the user
    and on the machine that the jobs run on. It takes a lease under a key of its own and gives it
    back; no table and no lease file is made that was not there.
    """
    if store and url:
        raise click.UsageError(f"two stores: {brief(visible(store), 80)} goes without --url")
    from joblock.doctor import examine

    # An interrupt has to let it clean up.
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # What the library would warn of is among the findings.
    logging.getLogger("joblock").setLevel(logging.ERROR)
    try:
        report = examine(url or store)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if as_json:
        click.echo(json.dumps(_as_data(report), indent=2))
    else:
        click.echo("\n".join(_lines(report)))
    return 0 if report.holds else OTHERWISE


def _as_data(report: Report) -> dict[str, object]:
    findings = [finding._asdict() for finding in report.findings]
    return {"store": report.store, "holds": report.holds, "findings": findings}


def _lines(report: Report) -> list[str]:
    colours = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    lines = [visible(report.store)]
    for finding in report.findings:
        lines += _finding(finding, colours=colours)
    return [*lines, _conclusion(report)]


def _finding(finding: Finding, *, colours: bool) -> list[str]:
    severity = f"{finding.severity:<9}"
    if colours:
        bold = finding.severity == "broken"
        severity = click.style(severity, fg=_COLOURS[finding.severity], bold=bold)
    lines = [f"{severity}  {finding.check}: {visible(finding.found)}"]
    lines += [
        f"           {name}: {visible(text)}"
        for name, text in (("risk", finding.risk), ("change", finding.change))
        if text
    ]
    return lines


def _conclusion(report: Report) -> str:
    counted = [
        f"{len(found)} {word}" for severity, word in _WORDS if (found := report.of(severity))
    ]
    holds = "The promises hold" if report.holds else "The promises do not hold"
    return f"{holds}: {', '.join(counted)}." if counted else f"{holds}."


_WORDS: tuple[tuple[Severity, str], ...] = (
    ("broken", "broken"),
    ("risk", "at risk"),
    ("unchecked", "unchecked"),
)
_COLOURS: dict[Severity, str] = {
    "broken": "red",
    "risk": "yellow",
    "unchecked": "magenta",
    "note": "cyan",
    "good": "green",
}
