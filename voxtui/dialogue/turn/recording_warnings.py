"""Tell the user what is wrong with a recording, while it runs and afterwards."""

from __future__ import annotations

from collections import Counter

from voxtui.dialogue.data import MICROPHONE, Frame
from voxtui.dialogue.dialogue import Dialogue
from voxtui.dialogue.events import Notice
from voxtui.dialogue.listening.level import CLIPPED, describe_overflows, diagnose_level
from voxtui.dialogue.listening.listener import ENDING_SECONDS, Finished, TooQuiet

CLIPPED_SAMPLES, CLIPPED_FRAMES = 8, 4
"""Numbers of clipped samples, and of frames with them, that are more than a knock."""


class RecordingWarnings:
    """Reports what the user can change, on the engine's thread."""

    def __init__(self, dialogue: Dialogue) -> None:
        self._dialogue = dialogue
        self._clipped_frames = Counter[str]()
        """the number of frames with clipped samples, by microphone, which is reported once"""
        self._warned_of_end: int | None = None
        """the number of the turn whose end was announced"""

    def during(self, frame: Frame, turn: int) -> None:
        """Report an overdriven microphone, and the end of the recording if it is near."""
        if frame.source != MICROPHONE:
            return
        microphone = self._dialogue.components.devices.microphone
        left = self._dialogue.listener.seconds_left
        if microphone and int((abs(frame.samples) >= CLIPPED).sum()) >= CLIPPED_SAMPLES:
            self._clipped_frames[microphone.name] += 1
            if self._clipped_frames[microphone.name] == CLIPPED_FRAMES:
                cut_off = f"{microphone.name!r} is overdriven: your voice is cut off at full level."
                lower = "Turn the microphone down in the system's sound settings"
                self._dialogue.emit(Notice(f"{cut_off} {lower}, or speak from further away."))
        limit = self._dialogue.config.current.audio.max_utterance_s
        near = left is not None and left <= min(ENDING_SECONDS, limit / 2)
        if near and turn != self._warned_of_end:
            self._warned_of_end = turn
            end = f"a recording ends after {limit:g} s (audio.max_utterance_s)"
            self._dialogue.emit(Notice(f"{left:.0f} s are left: {end}."))

    def after(self, finding: Finished | TooQuiet) -> None:
        """Report gaps, a missing end or missing speech of a finished recording."""
        if finding.too_long:
            limit = self._dialogue.config.current.audio.max_utterance_s
            stopped = f"Stopped listening after {limit:g} s (audio.max_utterance_s)."
            self._dialogue.emit(Notice(f"{stopped} Later speech was not recorded."))
        if finding.overflows:
            self._dialogue.emit(Notice(describe_overflows(finding.overflows)))
        microphone = self._dialogue.components.devices.microphone
        if (
            isinstance(finding, Finished)
            or finding.tap
            or microphone is None
            or finding.peak is None
        ):
            return
        if why := diagnose_level(microphone.name, finding.peak):
            self._dialogue.emit(Notice(why))
