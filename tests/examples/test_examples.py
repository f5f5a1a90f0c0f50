"""The example programs, each as several processes at once, do what they are examples of."""

from __future__ import annotations

import collections
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

EXAMPLES = Path(__file__).parents[2] / "examples"
PATIENCE = 60.0
"""Seconds for all of them, on a busy machine."""

Run: TypeAlias = "Callable[..., list[list[str]]]"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Start a program once for each list of arguments, at once; what each printed, by lines."""
    url = f"sqlite:///{tmp_path}/leases.db"

    def run(program: str, *arguments: list[object]) -> list[list[str]]:
        command = [sys.executable, "-W", "error", str(EXAMPLES / program), "--url", url]
        processes = [
            subprocess.Popen([*command, *map(str, each)], stdout=subprocess.PIPE, text=True)
            for each in arguments
        ]
        try:
            printed = [each.communicate(timeout=PATIENCE)[0] for each in processes]
        finally:
            for each in processes:
                each.kill()
        assert [each.returncode for each in processes] == [0] * len(processes)
        return [lines.splitlines() for lines in printed]

    return run


def test_a_migration_runs_once_and_everyone_serves_only_after_it(run: Run, tmp_path: Path) -> None:
    said = run("migration.py", *[[tmp_path / "shop.db"]] * 5)
    assert [lines[1] for lines in said] == ["serving 0"] * 5
    first = collections.Counter(lines[0] for lines in said)
    assert first["migrated ran"] == 1
    assert set(first) <= {"migrated ran", "nothing to migrate joined", "nothing to migrate ran"}


def test_a_cache_is_warmed_once_and_everyone_finds_it_warm(run: Run, tmp_path: Path) -> None:
    said = run("cache_warming.py", *[[tmp_path / "cache"]] * 5)
    assert [lines[1] for lines in said] == ["5"] * 5
    reasons = collections.Counter(lines[0] for lines in said)
    assert reasons["ran"] == 1
    assert set(reasons) <= {"ran", "joined", "grace"}
    assert (tmp_path / "cache" / "warmed.log").read_text() == "warmed\n"


def test_no_file_is_processed_twice_and_none_is_left(run: Run, tmp_path: Path) -> None:
    inbox, done = tmp_path / "inbox", tmp_path / "done"
    for folder in (inbox, done):
        folder.mkdir()
    names = [f"{number}.txt" for number in range(20)]
    for name in names:
        (inbox / name).write_text("two words")
    said = run("file_processing.py", *[[inbox, done]] * 4)
    processed = (done / "processed.log").read_text().splitlines()
    assert sorted(processed) == sorted(f"{name} 2" for name in names)
    assert sum(int(lines[0].split()[0]) for lines in said) == len(names)
    assert list(inbox.iterdir()) == []


def test_no_change_of_the_stock_is_lost_or_dropped(run: Run, tmp_path: Path) -> None:
    stock = tmp_path / "stock"
    changes = [[stock, "pear", "--times", 10]] * 3 + [[stock, "plum", "--by", 2, "--times", 5]] * 2
    said = run("inventory.py", *changes)
    assert (stock / "pear.txt").read_text() == "30\n"
    assert (stock / "plum.txt").read_text() == "20\n"
    pears = sorted(int(line) for lines in said[:3] for line in lines)
    assert pears == list(range(1, 31))


def test_a_report_is_made_once_a_night_with_clocks_three_minutes_apart(
    run: Run, tmp_path: Path
) -> None:
    reports = tmp_path / "reports"
    for day in (30, 31):
        woken = datetime(2027, 1, day, 2, 0, tzinfo=UTC)
        for late in (0, 1, 2, 3):
            now = woken + timedelta(minutes=late)
            reasons = [lines[0] for lines in run("nightly_report.py", [reports, "--now", now])]
            assert reasons == (["done"] if late else ["ran"])
    together = datetime(2027, 2, 1, 2, 0, tzinfo=UTC)
    clocks = [[reports, "--now", together + timedelta(minutes=late)] for late in range(4)]
    reasons = [lines[0] for lines in run("nightly_report.py", *clocks)]
    assert reasons.count("ran") == 1
    assert set(reasons) <= {"ran", "done", "held"}
    made = {file.name: file.read_text() for file in reports.iterdir()}
    assert made == dict.fromkeys(
        ("2027-01-30.txt", "2027-01-31.txt", "2027-02-01.txt"), "all is well\n"
    )
