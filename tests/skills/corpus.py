"""The sentences that judge the skills, and the form in which they say a meaning."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path

from voxtui.skills.rules.intents import (
    CancelReminder,
    Do,
    Fact,
    ListReminders,
    Meaning,
    NewReminder,
    Question,
    TimerRequest,
    Which,
)
from voxtui.skills.rules.understand import understand

FOLDER = Path(__file__).parents[1] / "data" / "skills"
NOW = datetime(2026, 11, 22, 13, 4)


def describe(meaning: Meaning | None) -> str:
    """Return a meaning in the form of the TSV files."""
    match meaning:
        case None:
            return "none"
        case Question():
            return "ask"
        case Fact("time"):
            return "time"
        case Fact("unit", (float(value), str(unit))):
            return f"unit {value} {unit}"
        case Fact(kind, date() as day):
            return f"{kind} {day.isoformat()}"
        case Fact("number", value):
            return f"number {float(value)}"  # pyright: ignore[reportArgumentType]
        case Fact(kind, value):
            return f"{kind} {value}"
        case TimerRequest(do, which, seconds):
            amount = f" {seconds:g}" if do in (Do.START, Do.ADD, Do.REMOVE) else ""
            return f"{do.value}{amount}{_which(which)}"
        case NewReminder(at, about):
            return f"remind {at:%Y-%m-%dT%H:%M}{' ' if about else ''}{about}"
        case ListReminders():
            return "reminders"
        case CancelReminder(about, every, alarm):
            kind = "unalarm" if alarm else "unremind"
            return f"{kind}{' *' if every else ''}{' ' if about else ''}{about}"


def _which(which: Which) -> str:
    length = f" ={which.seconds:g}" if which.seconds else ""
    return f"{' *' if which.every else ''}{length}{' ' if which.name else ''}{which.name}"


def same(expected: str, found: str) -> bool:
    """Compare two meanings; numbers within a ten-thousandth."""
    a, b = expected.split(), found.split()
    return len(a) == len(b) and all(map(_same_word, a, b))


def _same_word(a: str, b: str) -> bool:
    try:
        return math.isclose(float(a), float(b), rel_tol=1e-4)
    except ValueError:
        return a == b


def sentences(file: str) -> Iterator[tuple[str, str]]:
    """Yield (expected meaning, sentence) of a TSV file."""
    for line in (FOLDER / file).read_text().splitlines():
        expected, _, sentence = line.partition("\t")
        yield expected, sentence


@dataclass
class Score:
    """The result of the rules on one file."""

    right: int = 0
    missed: list[str] = field(default_factory=list)
    """left to the brain, or answered with a question"""
    wrong: list[str] = field(default_factory=list)
    """taken with another meaning"""

    @property
    def total(self) -> int:
        return self.right + len(self.missed) + len(self.wrong)


def judge(file: str) -> Score:
    score = Score()
    for expected, sentence in sentences(file):
        found = describe(understand(sentence, NOW))
        if same(expected, found):
            score.right += 1
        elif found in ("none", "ask"):
            score.missed.append(f"{sentence} -> {found}, not {expected}")
        else:
            score.wrong.append(f"{sentence} -> {found}, not {expected}")
    return score


def taken(file: str) -> list[str]:
    """Return the lines of a file of plain sentences that a skill takes."""
    lines = (FOLDER / file).read_text().splitlines()
    return [line for line in lines if understand(line, NOW) is not None]
