"""Read a calendar file (ICS). It is never written."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import msgspec

from voxtui.dialogue.tool_interface import Tool, ToolResult
from voxtui.errors import InputError, how_to_install, one_line
from voxtui.settings.files import read_file
from voxtui.tools.words import plain, request, tool

FILE_BYTES = 10_000_000
MOST_EVENTS = 6

DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")

Day = Literal[
    "today", "tomorrow", "this week", "next week", "the weekend",
    "monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday",
]  # fmt: skip


class Query(msgspec.Struct, forbid_unknown_fields=True):
    when: Day = "today"


def calendar_tool(path: Path) -> Tool:
    days = list(Day.__args__)  # type: ignore[attr-defined]
    schema = {"type": "object", "properties": {"when": {"enum": days}}, "required": ["when"]}
    return tool(
        "calendar",
        lambda arguments, cancelled: _read(path, arguments, datetime.now()),
        query_in,
        schema=msgspec.json.encode(schema).decode(),
        timeout_s=10,
    )


def query_in(words: str) -> str | None:
    if (found := request("calendar", plain(words))) is None:
        return None
    when = found["when"].lower().replace("tonight", "today")
    when = "the weekend" if "weekend" in when else when
    return msgspec.json.encode({"when": when}).decode()


def span(when: Day, now: datetime) -> tuple[date, date]:
    """Return the first day that `when` means, and the day after the last one."""
    today = now.date()
    monday = today - timedelta(days=today.weekday())
    match when:
        case "today":
            first, days = today, 1
        case "tomorrow":
            first, days = today + timedelta(days=1), 1
        case "this week":
            first, days = today, 7 - today.weekday()
        case "next week":
            first, days = monday + timedelta(days=7), 7
        case "the weekend":
            first, days = max(today, monday + timedelta(days=5)), 2 - (today.weekday() == 6)
        case day:
            first, days = today + timedelta(days=(DAYS.index(day) - today.weekday()) % 7), 1
    return first, first + timedelta(days=days)


def _read(path: Path, arguments: str, now: datetime) -> ToolResult:
    when = msgspec.json.decode(arguments, type=Query).when
    first, after = span(when, now)
    events = _events(path, first, after)
    named = when.capitalize() if when in DAYS else when
    named = f"on {named}" if when in DAYS else named
    if not events:
        return ToolResult("", f"There is nothing in your calendar {named}.")
    alone = (after - first).days == 1
    parts = [_said(start, title, alone) for start, title in events]
    more = len(parts) - MOST_EVENTS
    said = ". ".join(parts[:MOST_EVENTS]) + (f", and {more} more" if more > 0 else "")
    return ToolResult("\n".join(parts), f"{named[0].upper()}{named[1:]}: {said}.")


def _said(start: date, title: str, alone: bool) -> str:
    day = "" if alone else f"{start:%A} "
    if isinstance(start, datetime):
        return f"{day}{start:%H:%M}, {title}"
    return f"{day}all day, {title}"


def _events(path: Path, first: date, after: date) -> list[tuple[date, str]]:
    """Return the events between two days by their start, in local time. Raises InputError."""
    try:
        icalendar: Any = import_module("icalendar")
        recurring: Any = import_module("recurring_ical_events")
    except ImportError as error:
        raise InputError("The calendar needs icalendar.", how_to_install("calendar")) from error
    try:
        text = read_file(path, FILE_BYTES)
        found: list[Any] = recurring.of(icalendar.Calendar.from_ical(text)).between(first, after)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}.") from error
    except Exception as error:  # each library of a file format raises its own
        raise InputError(f"{path}: is not a calendar that can be read.") from error
    events: list[tuple[date, str]] = []
    for event in found:
        start = event["DTSTART"].dt
        if isinstance(start, datetime) and start.tzinfo is not None:
            start = start.astimezone().replace(tzinfo=None)
        events.append((start, one_line(str(event.get("SUMMARY", "without a title")))[:200]))
    return sorted(events, key=lambda event: event[0].isoformat())
