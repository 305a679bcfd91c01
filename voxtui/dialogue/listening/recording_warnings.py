"""Tell the user what is wrong with a recording, while it runs and afterwards."""

from __future__ import annotations

from collections.abc import Callable

from voxtui.dialogue.components.components import Components
from voxtui.dialogue.data import MICROPHONE, Frame
from voxtui.dialogue.events import Event, Notice
from voxtui.dialogue.listening.level import Clipping, describe_overflows, diagnose_level
from voxtui.dialogue.listening.listener import ENDING_SECONDS, Finished, Listener, TooQuiet


class RecordingWarnings:
    """Reports a level, an end or a loss of sound that the user can do something about.

    Used on the engine's thread.
    """

    def __init__(
        self, components: Components, listener: Listener, emit: Callable[[Event], object]
    ) -> None:
        self._components = components
        self._listener = listener
        self._emit = emit
        self._clipping = Clipping()
        self._warned_of_end: int | None = None
        """the turn whose end was announced"""

    def during(self, frame: Frame, turn: int) -> None:
        """Report an overdriven microphone, and the end of the recording if it is close."""
        if frame.source != MICROPHONE:
            return
        microphone, left = self._components.devices.microphone, self._listener.seconds_left
        if microphone and (sentence := self._clipping.push(microphone.name, frame.samples)):
            self._emit(Notice(sentence))
        limit = self._components.config.audio.max_utterance_s
        near = left is not None and left <= min(ENDING_SECONDS, limit / 2)
        if near and turn != self._warned_of_end:
            self._warned_of_end = turn
            end = f"a recording ends after {limit:g} s (audio.max_utterance_s)"
            self._emit(Notice(f"{left:.0f} s are left: {end}."))

    def after(self, found: Finished | TooQuiet) -> None:
        """Report why speech is missing in a recording that has ended."""
        if found.too_long:
            limit = f"{self._components.config.audio.max_utterance_s:g} s (audio.max_utterance_s)"
            self._emit(Notice(f"Stopped listening after {limit}. Later speech was not recorded."))
        if found.overflows:
            self._emit(Notice(describe_overflows(found.overflows)))
        microphone = self._components.devices.microphone
        if isinstance(found, Finished) or found.tap or microphone is None or found.peak is None:
            return
        if why := diagnose_level(microphone.name, found.peak):
            self._emit(Notice(why))
