"""The current tick of a cron schedule is the same moment for everybody, at clock changes too."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim

from joblock import JobLocks
from joblock.occurrence import tick

BERLIN = ZoneInfo("Europe/Berlin")
SPRING = datetime(2027, 3, 28, 0, 0, tzinfo=UTC)  # at 01:00 UTC 02:00 becomes 03:00
AUTUMN = datetime(2027, 10, 31, 0, 0, tzinfo=UTC)  # at 01:00 UTC 03:00 becomes 02:00


def due(expression: str, now: datetime) -> str:
    """The tick as the wall clock in Berlin shows it, with its offset."""
    return tick(expression, "Europe/Berlin", now=now).strftime("%d. %H:%M %z")


def test_a_tick_is_the_newest_moment_that_is_not_after_now() -> None:
    at = datetime(2027, 1, 31, 2, tzinfo=UTC)
    assert tick("0 3 * * *", BERLIN, now=at) == at
    assert tick("0 3 * * *", BERLIN, now=at + timedelta(hours=23, minutes=59)) == at
    assert tick("0 3 * * *", BERLIN, now=at - timedelta(microseconds=1)) == at - timedelta(days=1)
    assert tick("0 3 * * *", BERLIN, now=at + timedelta(microseconds=1)) == at


def test_machines_whose_clocks_disagree_get_the_same_tick() -> None:
    woken = datetime(2027, 1, 31, 2, tzinfo=UTC)
    clocks = [woken + timedelta(seconds=late) for late in (0, 0.02, 59, 180)]
    assert {tick("0 3 * * *", "Europe/Berlin", now=clock) for clock in clocks} == {woken}


def test_the_zone_of_now_does_not_matter() -> None:
    now = datetime(2027, 7, 1, 12, 34, tzinfo=UTC)
    tokyo = now.astimezone(timezone(timedelta(hours=9)))
    assert tick("0 3 * * *", BERLIN, now=tokyo) == tick("0 3 * * *", BERLIN, now=now)


def test_a_fixed_time_that_spring_skips_is_due_as_the_gap_ends() -> None:
    assert due("30 2 * * *", SPRING + timedelta(minutes=59)) == "27. 02:30 +0100"
    assert due("30 2 * * *", SPRING + timedelta(minutes=60)) == "28. 03:00 +0200"
    assert due("30 2 * * *", SPRING + timedelta(hours=24)) == "28. 03:00 +0200"
    assert due("30 2 * * *", SPRING + timedelta(hours=24, minutes=30)) == "29. 02:30 +0200"


def test_a_fixed_time_that_comes_twice_in_autumn_is_due_the_first_time_only() -> None:
    assert due("30 2 * * *", AUTUMN + timedelta(minutes=29)) == "30. 02:30 +0200"
    assert due("30 2 * * *", AUTUMN + timedelta(minutes=30)) == "31. 02:30 +0200"
    assert due("30 2 * * *", AUTUMN + timedelta(minutes=90)) == "31. 02:30 +0200"
    assert due("30 2 * * *", AUTUMN + timedelta(hours=25, minutes=30)) == "01. 02:30 +0100"


def test_what_is_due_every_half_hour_is_so_by_real_time() -> None:
    for change in (SPRING, AUTUMN):
        times = [change + timedelta(minutes=minutes) for minutes in range(0, 300, 30)]
        # Compared as numbers: Python finds an hour that comes twice equal to none in another zone.
        assert [tick("*/30 * * * *", BERLIN, now=now).timestamp() for now in times] == [
            now.timestamp() for now in times
        ]
    assert due("*/30 * * * *", AUTUMN + timedelta(minutes=65)) == "31. 02:00 +0100"


@pytest.mark.parametrize("change", [SPRING, AUTUMN])
@pytest.mark.parametrize("expression", ["30 2 * * *", "0 3 * * *", "15 * * * *", "*/20 1-3 * * *"])
def test_the_ticks_that_were_are_those_that_cron_will_have(
    expression: str, change: datetime
) -> None:
    start = (change - timedelta(hours=30)).astimezone(BERLIN)
    ahead = CronSim(expression, start)
    for one, following in pairwise(next(ahead) for _ in range(50)):
        before = following.astimezone(UTC) - timedelta(microseconds=1)
        assert tick(expression, BERLIN, now=one).timestamp() == one.timestamp()
        assert tick(expression, BERLIN, now=before).timestamp() == one.timestamp()


def test_a_night_is_run_once_on_the_day_of_either_change() -> None:
    with JobLocks("memory://") as locks:
        woken: list[datetime] = []

        def report(now: datetime) -> str:
            return now.isoformat()

        job = locks.job(
            name="report", occurrence=lambda now: tick("30 2 * * *", "Europe/Berlin", now=now)
        )(report)
        for change in (SPRING, AUTUMN):
            for minutes in range(0, 180, 10):
                now = change + timedelta(minutes=minutes)
                if job(now).ran:
                    woken.append(now)
    # The night before was due when each began; then once more, whatever the clocks did.
    assert woken == [
        SPRING,
        SPRING + timedelta(minutes=60),
        AUTUMN,
        AUTUMN + timedelta(minutes=30),
    ]


@pytest.mark.parametrize("wrong", ["", "every day", "0 3 * *", "61 3 * * *", "0 3 31 2 *"])
def test_what_is_no_schedule_is_refused_and_shown(wrong: str) -> None:
    with pytest.raises(ValueError, match="cron expression") as refused:
        tick(wrong, "UTC")
    assert repr(wrong) in str(refused.value)


def test_a_naive_now_is_refused() -> None:
    with pytest.raises(ValueError, match="without a time zone"):
        tick("0 3 * * *", "UTC", now=datetime(2027, 1, 31))  # noqa: DTZ001


def test_without_now_it_is_the_machine_s() -> None:
    before = datetime.now(UTC)
    found = tick("* * * * *", "UTC")
    assert timedelta(0) <= before - found < timedelta(minutes=1) or found > before
