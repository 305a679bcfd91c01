"""How loud a microphone is, in words, and what is probably wrong with one that is not."""

from __future__ import annotations

import math
import sys

SILENT = 10 ** (-120 / 20)
"""-120 dBFS: less is no sound, but what resampling makes of zeros."""

FAINT = 10 ** (-50 / 20)
"""-50 dBFS: a room may be quieter, somebody who speaks into the right microphone is not."""

NO_PERMISSION = "this terminal has no permission to use it"
if sys.platform == "darwin":
    NO_PERMISSION += " (System Settings, Privacy & Security, Microphone)"

MONITOR = "monitor"
"""What sound servers call a source that hears a speaker."""


def decibels(peak: float) -> str:
    """A peak of 0..1."""
    if peak < SILENT:
        return "digital silence"
    return f"{20 * math.log10(peak):.0f} dBFS".replace("-", "−")


def complaint(name: str, peak: float) -> str | None:
    """Why `name` hears so little, by the loudest that came from it; None where that is enough.

    A quiet room is never exactly zero; what is muted or forbidden is.
    """
    if peak >= FAINT:
        return None
    if MONITOR in name.lower():
        return f"{name!r} is no microphone: it hears what a speaker plays. Ctrl+P chooses another."
    if peak < SILENT:
        return (
            f"Only digital silence comes from {name!r}: it is muted, or {NO_PERMISSION}. "
            "`voxtui devices` shows its level."
        )
    return (
        f"No more than {decibels(peak)} came from {name!r}: it is turned down, or the wrong "
        "microphone. Ctrl+P chooses another."
    )
