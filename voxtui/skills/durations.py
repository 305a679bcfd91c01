"""Read and say spans of time: `an hour and a half` is 5,400 s."""

from __future__ import annotations

import re

from voxtui.skills.normalise import spoken_list

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}

_UNIT = r"(?:seconds?|secs?|minutes?|mins?|hours?|hrs?|h|days?|weeks?)\b"
_NUMBER = r"\d+(?:\.\d+)?"
_ITEM = (
    rf"(?:(?:{_NUMBER}|an?) and a half {_UNIT}|(?:{_NUMBER}|an?) {_UNIT}(?: and a half)?"
    rf"|half (?:an? )?{_UNIT}|a half {_UNIT}"
    rf"|(?:a |1 )?quarter(?: of)? an hour\b|3 quarters of an hour\b)"
)

SPAN = rf"(?:(?:(?<=\w) (?:and )?)?{_ITEM})+"
"""A pattern without groups: one span, in the words of `normalise`."""

VAGUE = r"(?:a few|some|several|a couple of|a bit|a while|a moment)(?: \w+)?"
"""A pattern without groups: a span of no certain length."""

_PART = re.compile(
    rf"(?P<quarters>(?:a |1 )?quarter(?: of)? an hour|3 quarters of an hour)"
    rf"|(?P<half>a half|half(?: an?)?) (?P<half_unit>{_UNIT})"
    rf"|(?:(?P<number>{_NUMBER})|an?)(?P<and_half> and a half)? (?P<unit>{_UNIT})"
    rf"(?P<half_more> and a half)?",
    re.IGNORECASE,
)


def seconds_in(span: str) -> float:
    """Return the seconds of a text that matches SPAN."""
    total = 0.0
    for part in _PART.finditer(span):
        if part["quarters"]:
            total += 2700 if part["quarters"].startswith("3") else 900
        elif part["half"]:
            total += _unit(part["half_unit"]) / 2
        else:
            halves = 0.5 if part["and_half"] or part["half_more"] else 0.0
            total += (float(part["number"] or 1) + halves) * _unit(part["unit"])
    return total


def _unit(name: str) -> int:
    return _SECONDS[name[0].lower()]


def say_span(seconds: float, parts: int = 2) -> str:
    """Return `1 hour and 5 minutes`: the largest units, `parts` at most, rounded down.

    Less than a second is `0 seconds`.
    """
    rest, said = int(seconds), list[str]()
    for name, size in (("day", 86_400), ("hour", 3600), ("minute", 60), ("second", 1)):
        count, rest = divmod(rest, size)
        if count:
            said.append(f"{count} {name}" + ("s" if count > 1 else ""))
    return spoken_list(said[:parts]) or "0 seconds"
