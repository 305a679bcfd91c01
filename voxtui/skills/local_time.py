from __future__ import annotations

import time
from datetime import UTC, datetime


def seconds_since_boot() -> float:
    """Return the seconds of a clock that nobody can set. It goes on while the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def utc(local: datetime) -> datetime:
    """Return a naive local time as an aware one; at the ends of the calendar without a zone."""
    try:
        return local.astimezone(UTC)
    except (OverflowError, ValueError):
        return local.replace(tzinfo=UTC)


def local(moment: datetime) -> datetime:
    """Return an aware time as a naive local one; at the ends of the calendar without a zone."""
    try:
        return datetime.fromtimestamp(moment.timestamp())  # which tells the two times of a night
    except (OverflowError, OSError, ValueError):
        return moment.replace(tzinfo=None)
