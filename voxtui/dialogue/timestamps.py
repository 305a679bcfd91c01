"""The milestones of a turn, and the result of a finished turn, in `time.monotonic()` seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from voxtui.dialogue.data import SKILL
from voxtui.dialogue.tool_interface import CallReport

FEWEST_DECODED = 5
"""Minimum number of tokens for a speed; with fewer its error would exceed a quarter."""


class Milestone(StrEnum):
    """A moment of a turn, written where it happens. Listed in the order of a usual turn."""

    SPEECH_ENDED = "speech_ended"
    RELEASED = "released"
    CAPTURED = "captured"
    SENT = "sent"
    TRANSCRIBED = "transcribed"
    ENCODED = "encoded"
    SKILL = "skill"
    PREFILLED = "prefilled"
    CALLED = "called"
    CONFIRMED = "confirmed"
    TOOL_ENDED = "tool_ended"
    RESULT_READ = "result_read"
    FIRST_TOKEN = "first_token"
    FIRST_SHOWN = "first_shown"
    FIRST_CLAUSE = "first_sentence"
    LANGUAGE = "language"
    FIRST_AUDIO = "first_audio"
    FIRST_SOUND = "first_sound"
    LAST_TOKEN = "last_token"
    LAST_SOUND = "last_sound"
    CANCELLED = "cancelled"


class Timestamps:
    """The times of one turn's milestones. Any thread may write; the first write wins."""

    def __init__(self) -> None:
        self._times: dict[Milestone, float] = {}
        self._lock = threading.Lock()
        self.speculative_s = 0.0
        """seconds of used work from before the release"""
        self.speech_s = 0.0
        """seconds of synthesised speech so far"""
        self.spoken: list[tuple[int, float]] = [(0, 0.0)]
        """pairs of characters of the reply and seconds of speech, up to the end of each clause

        The turn's thread appends; the last pair grows while its clause is made."""
        self.gpu_bytes: int | None = None
        self.stalls = False
        """whether the speaker has stopped taking sound, for now"""
        self.network_s: float | None = None
        """the network's share of the time to the first token of a remote brain, in seconds"""
        self.tokens: int | None = None
        """the tokens of the reply as the brain's server counts them; None: one per Token"""
        self.prompt_tokens = 0
        self.path = ""
        """the brain's way of computing, such as `captured`; empty for the plain one"""
        self.drafted = 0

    def record(self, name: Milestone, at: float | None = None) -> None:
        """Write the milestone `name` at `at` (monotonic seconds; None: now), unless written."""
        at = time.monotonic() if at is None else float(at)  # a numpy float is not JSON
        with self._lock:
            self._times.setdefault(name, at)

    def at(self, name: Milestone) -> float | None:
        """Return the monotonic seconds of a milestone, or None if it was not reached."""
        return self._times.get(name)

    def since_release(self) -> dict[str, float]:
        """Return milestone -> seconds since `released`, without those that were not reached."""
        with self._lock:
            times = dict(self._times)
        released = times.get(Milestone.RELEASED)
        if released is None:
            return {}
        return {m.value: times[m] - released for m in Milestone if m in times}


class Outcome(StrEnum):
    ANSWERED = "answered"
    NO_SPEECH = "no_speech"
    CANCELLED = "cancelled"
    FAILED = "failed"


NO_WORDS = "No answer: the model ended without a word. Ask again."
"""The reason why an answered turn has no reply."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The result of a turn. Durations are derived from its timestamps, never stored."""

    number: int
    brain: str
    outcome: Outcome
    timestamps: Mapping[str, float]
    """the milestones, in seconds relative to `released`"""
    clip: str | None = None
    """the name of the clip that replaced the microphone"""
    heard: str | None = None
    reply: str = ""
    tokens: int = 0
    prompt_tokens: int = 0
    drafted: int | None = None
    """the tokens of the reply that existed at `first_token`; None in old files, which lack it"""
    typed: bool = False
    """whether the words were typed, so the turn has targets of its own"""
    speculative_s: float = 0.0
    gpu_bytes: int | None = None
    network_s: float | None = None
    path: str = ""
    """the brain's way of computing (see Timestamps); statistics never mix two of them"""
    paced: bool = True
    """whether it happened in real time, so that its times are comparable"""
    error: str | None = None
    calls: tuple[CallReport, ...] = ()

    def ms(self, mark: Milestone, since: Milestone = Milestone.RELEASED) -> float | None:
        """Return the milliseconds from `since` to `mark`; None if either was not reached."""
        if mark.value not in self.timestamps or since.value not in self.timestamps:
            return None
        return (self.timestamps[mark.value] - self.timestamps[since.value]) * 1000

    @property
    def ttft_ms(self) -> float | None:
        return self.ms(Milestone.FIRST_TOKEN)

    @property
    def processing_ms(self) -> float | None:
        return self.ms(Milestone.FIRST_TOKEN, since=Milestone.CAPTURED)

    @property
    def first_sound_ms(self) -> float | None:
        return self.ms(Milestone.FIRST_SOUND)

    @property
    def total_ms(self) -> float | None:
        return self.ms(Milestone.LAST_TOKEN)

    @property
    def network_ms(self) -> float | None:
        """The network's share of the time to first token, in milliseconds: a lower bound."""
        return None if self.network_s is None else self.network_s * 1000

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens per second between the first and the last token, without drafted tokens.

        If the first one came before the prompt was read, the speed is that of the model's own.
        None for fewer than FEWEST_DECODED tokens, because the first was partly computed before, and
        for a turn that no model answered.
        """
        if self.brain == SKILL or (self.drafted is None and self.speculative_s):
            return None
        opened = (self.ms(Milestone.PREFILLED, since=Milestone.FIRST_TOKEN) or 0.0) > 0
        since = Milestone.PREFILLED if opened else Milestone.FIRST_TOKEN
        span = self.ms(Milestone.LAST_TOKEN, since)
        decoded = self.tokens - max(self.drafted or 0, 1) - opened
        return decoded / (span / 1000) if span and decoded >= FEWEST_DECODED else None

    def as_json(self) -> dict[str, Any]:
        """Return the JSON form of a turn, the same everywhere. Its field names are stable."""

        def rounded(value: float | None) -> float | None:
            return None if value is None else round(value, 1)

        return {
            "clip": self.clip,
            "brain": self.brain,
            "path": self.path,
            "heard": self.heard,
            "reply": self.reply,
            "tokens": self.tokens,
            "drafted": self.drafted,
            "marks": {name: round(at, 4) for name, at in self.timestamps.items()},
            "ttft_ms": rounded(self.ttft_ms),
            "first_sound_ms": rounded(self.first_sound_ms),
            "total_ms": rounded(self.total_ms),
            "hidden_ms": round(self.speculative_s * 1000, 1),
            "network_ms": rounded(self.network_ms),
            "paced": self.paced,
            "outcome": self.outcome.value,
            "error": self.error,
            "calls": [
                {
                    "name": report.call.name,
                    "arguments": report.call.arguments,
                    "outcome": report.outcome.value,
                    "ms": rounded(report.seconds * 1000),
                }
                for report in self.calls
            ],
        }
