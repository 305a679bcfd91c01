"""Read a calendar file (ICS). It is never written."""

from __future__ import annotations

import sys
from datetime import date, datetime, timedelta
from pathlib import Path
from threading import Event as Flag
from typing import Literal

import msgspec

from voxtui.dialogue.tool_interface import Tool, ToolResult
from voxtui.errors import InputError
from voxtui.tools import calendar_file
from voxtui.tools.words import output_of, plain, request, tool

MOST_EVENTS = 6
"""events that are read aloud"""

READING_SECONDS = 10

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
        lambda arguments, cancelled: _read(path, arguments, datetime.now(), cancelled),
        query_in,
        schema=msgspec.json.encode(schema).decode(),
        timeout_s=READING_SECONDS + 1,
    )


def query_in(words: str) -> str | None:
    if (found := request("calendar", plain(words))) is None:
        return None
    when = found["when"].lower().replace("tonight", "today")
    when = "the weekend" if "weekend" in when else when
    return msgspec.json.encode({"when": when}).decode()


def span(when: Day, now: datetime) -> tuple[date, date]:
    """Return the first day that `when` means, and the day after the last one."""
    today = now.weekday()
    begin, days = {
        "today": (0, 1), "tomorrow": (1, 1), "this week": (0, 7 - today),
        "next week": (7 - today, 7), "the weekend": (max(0, 5 - today), 2 - (today == 6)),
    }.get(when) or ((DAYS.index(when) - today) % 7, 1)  # fmt: skip
    first = now.date() + timedelta(days=begin)
    return first, first + timedelta(days=days)


def _read(path: Path, arguments: str, now: datetime, cancelled: Flag) -> ToolResult:
    when = msgspec.json.decode(arguments, type=Query).when
    first, after = span(when, now)
    answer = _answer(path, first, after, cancelled)
    events = [
        ((datetime if "T" in start else date).fromisoformat(start), title)
        for start, title in answer.events
    ]
    bad = answer.unreadable
    left_out = f" {'One event' if bad == 1 else f'{bad} events'} cannot be read." if bad else ""
    named = f"on {when.capitalize()}" if when in DAYS else when
    if not events:
        return ToolResult("", f"There is nothing in your calendar {named}.{left_out}")
    alone = (after - first).days == 1
    parts = [_said(start, title, alone) for start, title in events]
    more = len(parts) - MOST_EVENTS
    said = ". ".join(parts[:MOST_EVENTS]) + (f", and {more} more" if more > 0 else "")
    return ToolResult("\n".join(parts), f"{named[0].upper()}{named[1:]}: {said}.{left_out}")


def _said(start: date, title: str, alone: bool) -> str:
    day = "" if alone else f"{start:%A} "
    if isinstance(start, datetime):
        return f"{day}{start:%H:%M}, {title}"
    return f"{day}all day, {title}"


def _answer(path: Path, first: date, after: date, cancelled: Flag) -> calendar_file.Answer:
    """Return the events between two days by their start, local time. Raises InputError.

    Another process reads the file, because a rule of a calendar may have no end, and a thread that
    looks for one could not be ended.
    """
    command = [sys.executable, "-P", "-W", "ignore", "-m", calendar_file.__name__]
    output = output_of([*command, str(path), str(first), str(after)], READING_SECONDS, cancelled,
                       calendar_file.MOST_BYTES)  # fmt: skip
    try:
        answer = msgspec.json.decode(output, type=calendar_file.Answer)
    except msgspec.MsgspecError as error:
        raise InputError(f"{path}: {calendar_file.UNREADABLE}") from error
    if answer.problem:
        raise InputError(answer.problem, answer.hint)
    return answer
