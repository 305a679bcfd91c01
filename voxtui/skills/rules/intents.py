"""The meanings that the rules recognise in a sentence."""

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
    """the result, in a form that tests can compare"""
    sentence: str
    language: str = "en"
    """the language of `sentence`, as in SkillAnswer"""
    pace: float = 1.0
    """the factor on the speed of the voice, as in SkillAnswer"""


@dataclass(frozen=True, slots=True)
class Question:
    sentence: str
    retry: str = ""
    """the request with `{}` for the user's next words; empty if there is nothing to complete"""


@dataclass(frozen=True, slots=True)
class Which:
    """The timer that is meant; the only one if all fields are empty."""

    name: str = ""
    seconds: float = 0.0
    """the length of the timer in seconds"""
    every: bool = False


Do = StrEnum("Do", "START CANCEL PAUSE RESUME STATUS ADD REMOVE")
"""The actions on a timer."""


@dataclass(frozen=True, slots=True)
class TimerRequest:
    do: Do
    which: Which = Which()
    """the timer that is meant; for START, the name of the new one"""
    seconds: float = 0.0
    """the length in seconds of a new timer, or the change"""


@dataclass(frozen=True, slots=True)
class NewReminder:
    at: datetime
    """the local time"""
    about: str
    alarm: bool = False


@dataclass(frozen=True, slots=True)
class ListReminders:
    pass


@dataclass(frozen=True, slots=True)
class CancelReminder:
    about: str = ""
    every: bool = False
    alarm: bool = False
    time: str = ""
    """the beginning of the time of day, as `say_time` returns it"""


Request: TypeAlias = TimerRequest | NewReminder | ListReminders | CancelReminder
Meaning: TypeAlias = Fact | Question | Request
