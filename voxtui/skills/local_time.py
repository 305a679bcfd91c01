from __future__ import annotations

from datetime import UTC, datetime


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
