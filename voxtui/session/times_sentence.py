"""Say the times of an answer in a sentence."""

from __future__ import annotations

from voxtui.dialogue.timestamps import Turn
from voxtui.settings.schema import Targets
from voxtui.storage.derived_latencies import FIRST_SOUND, TOTAL, TTFT

SPOKEN_NAMES = {TTFT: "First token", FIRST_SOUND: "first sound", TOTAL: "total"}


def times_sentence(turn: Turn, targets: Targets, device_ms: float | None) -> str:
    """Return the headlines of `turn`, each with its verdict. `device_ms`: the speaker's delay."""
    known: list[str] = []
    for headline, name in SPOKEN_NAMES.items():
        value, target = headline.of(turn), headline.goal(turn, targets)
        if value is not None and (verdict := headline.verdict(turn, targets)):
            devices = ""
            if headline is FIRST_SOUND and device_ms is not None:
                devices = f" and {device_ms:.0f} in the devices"
            known.append(f"{name} {value:.0f} ms{devices}, {verdict} {target:.0f}")
    return f"{', '.join(known)}." if known else "No numbers."
