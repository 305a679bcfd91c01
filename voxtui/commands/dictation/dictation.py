"""Turn the speech at a microphone into text while the user speaks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from voxtui.commands.segmentation import Segmenter
from voxtui.dialogue.components.sound_devices import Devices, SoundDevices
from voxtui.dialogue.data import FRAME_SECONDS, Frame, Utterance
from voxtui.dialogue.events import Event, Notice
from voxtui.dialogue.listening.endpointing import QUIET_FRAMES, TAIL_SECONDS
from voxtui.dialogue.listening.level import diagnose_level
from voxtui.dialogue.protocols import SpeechDetector
from voxtui.errors import DeviceError, ModelError, one_line
from voxtui.settings.schema import VadConfig
from voxtui.wiring import SpeechToText

LEAST_SECONDS = 12.0
"""Minimum length of a segment that a pause ends, because context helps the recogniser."""

PASS_SECONDS = 0.4
"""Length of new speech after which the caption of the segment in progress is renewed."""

NO_SPEECH_SECONDS = 15.0
"""Silence at the beginning that ends a dictation, unless `silence_s` is 0."""

POLL_SECONDS = 0.1
"""Interval at which `ended` is called while no frame arrives."""

SOURCE_SECONDS = 0.5
"""Maximum wait for the last frames after the end."""

SILENT_SECONDS = 15.0
"""Time without any sample that ends a dictation. Until then the microphone is reopened."""

Ended = Callable[[], float | None]
"""Returns the monotonic time at which the user ended the dictation, or None."""


@dataclass(frozen=True, slots=True)
class Dictated:
    text: str
    problem: str
    """a sentence about the microphone, or why speech is left out; may be empty"""


class DictationView:
    """The display and sounds of a dictation. This one shows nothing."""

    def listening(self) -> None:
        """Show that the microphone delivers, so that speech is recorded from now on. Any thread."""

    def caption(self, text: str) -> None:
        """Show the words so far, whose end may still change."""

    def notice(self, sentence: str) -> None:
        pass


class Dictation:
    """Listens to a microphone until the user ends it, and recognises the words meanwhile.

    It also ends after `silence_s` of silence after speech, unless that is 0. Used by one thread.
    """

    def __init__(self, devices: Devices, silence_s: float, view: DictationView) -> None:
        self._devices = SoundDevices(devices, self._take_frame, self._take_loss)
        self._silence_s = silence_s
        self._view = view
        self._arrived: SimpleQueue[Frame | tuple[object, str]] = SimpleQueue()
        """frames, and losses of the microphone as `_take_loss` gets them"""
        self._listening = False
        """whether the microphone has delivered a frame since it was last opened"""
        self._last_at = 0.0
        self._texts: list[str] = []
        self._partial: tuple[Utterance, str | None] | None = None
        """the segment in progress at its last recognition, and its words unless that failed"""
        self._problem = ""
        self._failure: ModelError | None = None
        self._pass_s = 0.0
        self._quiet_s = 0.0
        self._heard = False
        self._peak = 0.0

    def open(self) -> None:
        """Open the microphone, and record from its first frame on. Raises DeviceError."""
        events = self._devices.open()
        if self._devices.microphone is None:
            raise DeviceError(*(event.message for event in events[:1] if isinstance(event, Notice)))
        self._show(events)

    def close(self) -> None:
        self._devices.close()

    def listen(
        self, vad: VadConfig, detector: SpeechDetector, to_text: SpeechToText, ended: Ended
    ) -> Dictated:
        """Return the words from `open` to the end. Closes the microphone. Raises ModelError."""
        segmenter = Segmenter(vad, detector, LEAST_SECONDS)
        name = self._devices.microphone.name if self._devices.microphone else ""
        try:
            end: float | None = None
            waited = 0.0
            while not self._is_over(segmenter, end, waited):
                try:
                    item = self._arrived.get(timeout=POLL_SECONDS)
                except Empty:
                    item = None
                    waited += POLL_SECONDS
                if isinstance(item, Frame):
                    waited = 0.0
                    self._push(item, segmenter, to_text)
                elif item is not None:
                    self._replace(*item)
                elif self._devices.missing:
                    self._show(self._devices.look())
                end = ended() if end is None else end
                if end is None and self._arrived.empty() and to_text.repeats:
                    self._recognise_partial(segmenter, to_text)
        finally:
            self._devices.close()
        self._add(segmenter.finish(), to_text)
        if self._failure and not self._text():
            raise self._failure
        if not self._last_at:
            self._problem = self._problem or f"The microphone {name!r} has delivered no sound."
        elif not self._heard:
            self._problem = self._problem or diagnose_level(name, self._peak) or ""
        return Dictated(self._text(), self._problem)

    # On the microphone's thread.

    def _take_frame(self, frame: Frame) -> None:
        if not self._listening:
            self._listening = True
            self._view.listening()
        self._arrived.put(frame)

    def _take_loss(self, opening: object, message: str) -> None:
        self._arrived.put((opening, message))

    # On the thread of `listen`.

    def _replace(self, opening: object, message: str) -> None:
        if self._devices.is_in_use(opening):
            self._problem = message
            self._view.notice(message)
            self._listening = False
            self._show(self._devices.replace_microphone())

    def _show(self, events: Iterable[Event]) -> None:
        for event in events:
            if isinstance(event, Notice):
                self._view.notice(event.message)

    def _is_over(self, segmenter: Segmenter, end: float | None, waited: float) -> bool:
        if end is not None:
            recording = segmenter.recording
            speaking = (
                recording.extent.speech_seconds and recording.extent.quiet_frames < QUIET_FRAMES
            )
            complete = self._last_at >= end + (TAIL_SECONDS if speaking else 0.0)
            return complete or waited >= SOURCE_SECONDS
        if waited >= SILENT_SECONDS:
            return True
        limit = self._silence_s if self._heard else max(self._silence_s, NO_SPEECH_SECONDS)
        return self._silence_s > 0 and self._quiet_s >= limit

    def _push(self, frame: Frame, segmenter: Segmenter, to_text: SpeechToText) -> None:
        self._show(self._devices.delivered())
        self._last_at = frame.captured_at
        self._peak = max(self._peak, float(abs(frame.samples).max()))
        over = segmenter.push(frame)
        quiet = over is not None or segmenter.recording.extent.quiet_frames > 0
        self._quiet_s = self._quiet_s + FRAME_SECONDS if quiet else 0.0
        self._heard = self._heard or over is not None or segmenter.has_speech
        if over is not None:
            self._add(over, to_text)
            self._view.caption(self._text())

    def _recognise_partial(self, segmenter: Segmenter, to_text: SpeechToText) -> None:
        recording, extent = segmenter.recording, segmenter.recording.extent
        origin = recording.origin(extent)
        if origin is None or not segmenter.has_speech:
            return
        known = self._partial[0].origin if self._partial else None
        same = known is not None and known.recording == origin.recording
        new = origin.end - (known.end if known and same else origin.start)
        least = 0.0 if extent.quiet_frames else max(PASS_SECONDS, 1.5 * self._pass_s)
        if not new or new * FRAME_SECONDS < least or not (part := recording.utterance(extent)):
            return
        started = time.monotonic()
        text = None
        with suppress(ModelError):  # which `_add` says, if it comes again
            text = (to_text.draft or to_text.recognise)(part.samples)
        self._pass_s = time.monotonic() - started
        self._partial = (part, text)
        if text is not None:
            self._view.caption(self._text(text))

    def _add(self, utterance: Utterance | None, to_text: SpeechToText) -> None:
        if utterance is None:
            return
        known, self._partial = self._partial, None
        same = known is not None and known[0].is_same(utterance)
        last = to_text.draft is None  # else the words of the caption are only a draft
        text = known[1] if known and same and last else None
        try:
            self._texts.append(to_text.recognise(utterance.samples) if text is None else text)
        except ModelError as error:  # the words before and after it are kept
            self._failure, self._problem = error, str(error)

    def _text(self, partial: str = "") -> str:
        return one_line(" ".join(" ".join((*self._texts, partial)).split()))
