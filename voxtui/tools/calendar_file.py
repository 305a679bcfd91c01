"""Read a calendar file (ICS), in a process of its own: python -m ... FILE FIRST_DAY DAY_AFTER"""

from __future__ import annotations

import sys
from datetime import date, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from voxtui.errors import InputError, how_to_install, one_line
from voxtui.settings.files import file_errors, read_file

FILE_BYTES = 10_000_000

MOST_EVENTS = 1000

MOST_BYTES = 1_000_000
"""Bytes of an answer; a title has 200 characters at most."""

UNREADABLE = "is not a calendar that can be read."


class Answer(msgspec.Struct):
    events: list[tuple[str, str]] = []
    """the start, a date or a local time in ISO 8601, and the title"""
    unreadable: int = 0
    """the number of events that are left out, such as one without a start"""
    problem: str = ""
    hint: str = ""


def events_in(path: Path, first: date, after: date) -> Answer:
    """Return the first events between two days by their start. Raises InputError."""
    try:
        icalendar: Any = import_module("icalendar")
        recurring: Any = import_module("recurring_ical_events")
    except ImportError as error:
        raise InputError("The calendar needs icalendar.", how_to_install("calendar")) from error
    with file_errors(path, "read"):
        data = read_file(path, FILE_BYTES + 1)
    if len(data) > FILE_BYTES:
        raise InputError(f"{path}: is larger than {FILE_BYTES // 10**6} MB.")
    try:
        calendar = icalendar.Calendar.from_ical(data)
        parts: list[Any] = calendar.subcomponents
        bad = [p for p in parts if p.errors or ("DTSTART" not in p and p.name == "VEVENT")]
        calendar.subcomponents = [part for part in parts if part not in bad]
        found: list[Any] = recurring.of(calendar).between(first, after)
    except Exception as error:  # each library of a file format raises its own
        raise InputError(f"{path}: {UNREADABLE}") from error
    events: list[tuple[str, str]] = []
    for event in found:
        if event.get("STATUS") == "CANCELLED":
            continue
        start = event["DTSTART"].dt
        if isinstance(start, datetime) and start.tzinfo is not None:
            start = start.astimezone().replace(tzinfo=None)
        title = one_line(str(event.get("SUMMARY", "without a title")))[:200]
        events.append((start.isoformat(), title))
    return Answer(sorted(events)[:MOST_EVENTS], len(bad))


def main(path: str, first: str, after: str) -> None:
    try:
        days = date.fromisoformat(first), date.fromisoformat(after)
        answer = events_in(Path(path), *days)
    except InputError as error:
        answer = Answer(problem=error.message, hint=error.hint)
    sys.stdout.buffer.write(msgspec.json.encode(answer))


if __name__ == "__main__":
    main(*sys.argv[1:])
