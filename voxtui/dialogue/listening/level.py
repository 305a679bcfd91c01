"""Describe the level of a microphone, and the likely cause of a level that is too low."""

from __future__ import annotations

import math
import sys

from voxtui.dialogue.data import AUDIBLE

SILENT = 10 ** (-120 / 20)
"""Amplitude of -120 dBFS; less is digital silence, because resampled zeros are not exact."""

CLIPPED = 0.99
"""Amplitude from which a sample counts as clipped. Resampling changes full scale a little."""

NO_PERMISSION = "this terminal has no permission to use it"
if sys.platform == "darwin":
    NO_PERMISSION += " (System Settings, Privacy & Security, Microphone)"

SHOWS_LEVEL = " `voxtui devices` shows its level."

MONITOR = "monitor"
"""Part of the name of a sound server's source that records a speaker's output."""


def decibels(peak: float) -> str:
    if peak < SILENT:
        return "digital silence"
    return f"{20 * math.log10(peak):.0f} dBFS".replace("-", "−")


def diagnose_level(name: str, peak: float) -> str | None:
    """Return why `peak`, the loudest sample from `name`, is too low; None if it is not."""
    if peak >= AUDIBLE:
        return None
    if MONITOR in name.lower():
        return (
            f"{name!r} is not a microphone: it records what a speaker plays. "
            "`voxtui devices` lists the others."
        )
    if peak < SILENT:  # a quiet room never delivers exact zeros
        return (
            f"Only digital silence comes from {name!r}: it is muted, or {NO_PERMISSION}."
            f"{SHOWS_LEVEL}"
        )
    return (
        f"No more than {decibels(peak)} came from {name!r}: it is turned down, or the wrong "
        "microphone. `voxtui devices` lists the others."
    )


def describe_overflows(count: int) -> str:
    times = "once" if count == 1 else f"{count} times"
    return (
        f"Part of what you said was lost: the microphone was not read in time ({times}). "
        "The computer may be too busy."
    )
