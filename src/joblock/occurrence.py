"""The tick of a cron schedule that is current: what a scheduled job is an occurrence of.

Every machine that wakes for the same line of a crontab, a little early or late by its own clock,
gets the same moment from `tick`, and a job that is given it runs once. It needs cronsim: the extra
``cron``.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from joblock.values.shown import shown

if TYPE_CHECKING:
    from collections.abc import Iterator


def tick(expression: str, tz: str | tzinfo, *, now: datetime | None = None) -> datetime:
    """The newest moment, not after ``now``, at which a cron schedule in that time zone is due.

    ``expression`` has the five fields of a crontab; ``tz`` is a name such as ``"Europe/Berlin"``.
    Where the clocks of the zone change, cron's own rules hold: a fixed time that is skipped is due
    as the gap ends, one that comes twice is due the first time, and ``*`` goes by real time.
    Raises ValueError for a schedule that is none, or is never due; for a naive ``now``.
    """
    if now is None:
        now = datetime.now(UTC)
    elif now.utcoffset() is None:
        raise ValueError(f"now is an aware datetime; got {shown(now)}, without a time zone")
    zone = ZoneInfo(tz) if isinstance(tz, str) else tz
    # Counted in UTC: a second later by the zone's own clock may be an hour off.
    after = now.astimezone(UTC).replace(microsecond=0) + timedelta(seconds=1)
    found = next(_backwards(expression, after.astimezone(zone)), None)
    if found is None:
        raise ValueError(f"the cron expression {shown(expression)} was never due before {now}")
    return found


def _backwards(expression: str, start: datetime) -> Iterator[datetime]:
    try:
        from cronsim import CronSim, CronSimError
    except ImportError as error:
        raise ImportError("cron schedules need cronsim: pip install 'joblock[cron]'") from error
    try:
        return CronSim(expression, start, reverse=True)
    except CronSimError as error:
        raise ValueError(
            f"{shown(expression)} is no cron expression, such as '0 3 * * mon-fri': {error}"
        ) from error
