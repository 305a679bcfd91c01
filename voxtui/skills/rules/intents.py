"""The meanings that the rules find in a sentence."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Fact:
    kind: str
    """`time`, `date`, `year`, `month`, `days`, `seconds`, `number` or `unit`"""
    value: object
    """the result, as the tests compare it"""
    sentence: str
    language: str = "en"
    """the language of `sentence`, as in SkillAnswer"""
    pace: float = 1.0
    """the speed of the voice, as in SkillAnswer"""


@dataclass(frozen=True, slots=True)
class Question:
    sentence: str
    retry: str = ""
    """the request with `{}` where the user's next words belong; empty: nothing to complete"""


@dataclass(frozen=True, slots=True)
class Which:
    """The timer that is meant. All fields empty: the only one."""

    name: str = ""
    seconds: float = 0.0
    """the length of the timer"""
    every: bool = False


Do = StrEnum("Do", "START CANCEL PAUSE RESUME STATUS ADD REMOVE")
"""The things that can be done to a timer."""


@dataclass(frozen=True, slots=True)
class TimerRequest:
    do: Do
    which: Which = Which()
    """the timer that is meant; of START: the name of the new one"""
    seconds: float = 0.0
    """the length of a new timer, or the change"""


@dataclass(frozen=True, slots=True)
class NewReminder:
    at: datetime
    """local time"""
    about: str
    """the subject of the reminder; empty: an alarm"""


@dataclass(frozen=True, slots=True)
class ListReminders:
    pass


@dataclass(frozen=True, slots=True)
class CancelReminder:
    about: str = ""
    """the subject of a reminder; empty: the only one"""
    every: bool = False


Request: TypeAlias = TimerRequest | NewReminder | ListReminders | CancelReminder
Meaning: TypeAlias = Fact | Question | Request
