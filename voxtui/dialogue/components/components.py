"""Load, replace and close the brain, the voice and the devices of an engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from voxtui.dialogue.components.sound_devices import SoundDevices
from voxtui.dialogue.data import SpeechChunk
from voxtui.dialogue.engine_commands import ReplaceComponents
from voxtui.dialogue.events import Event, Loaded, Loading, Notice
from voxtui.dialogue.fallbacks import Fallbacks, fallbacks_of
from voxtui.dialogue.live_config import LiveConfig
from voxtui.dialogue.protocols import (
    Brain,
    NameDetector,
    ReplyOptions,
    Speaker,
    SpeechDetector,
    StopFlag,
    Voice,
)
from voxtui.dialogue.speech.reply_speech import VoiceWorker, voice_workers
from voxtui.dialogue.timestamps import Timestamps
from voxtui.errors import ModelError, ModelLost, NoGpu, RemoteError, VoxtuiError
from voxtui.settings.schema import Config

CHECK_RATE, CHECK_SECONDS = 48_000, 0.25
"""The tone that a newly chosen speaker plays, so that the user recognises it."""


@dataclass(frozen=True, slots=True)
class Models:
    detector: SpeechDetector
    brain: Brain | Fallbacks[Brain]
    voice: Voice | Fallbacks[Voice] | None = None
    """the voice, or its fallbacks; None for text answers only"""
    overhearing: SpeechDetector | None = None
    """the detector of speech over an answer, which runs on the microphone's thread: with
    headphones, or in frames without an echo"""
    owned: bool = True
    """whether the engine loads and closes the models, which engines of a server share"""
    name_detector: NameDetector | None = None
    """the detector of `vad.name`; None: a brain recognises the name in the words"""


class Components:
    """The brain, the voice and the devices in use.

    Only the engine's thread loads, replaces and closes them. It leaves a brain and a voice that are
    not `owned` warm for the next engine.
    """

    def __init__(
        self,
        devices: SoundDevices,
        models: Models,
        config: LiveConfig,
        emit: Callable[[Event], object],
    ) -> None:
        self.devices = devices
        self._owned = models.owned
        self._config = config
        self.closing = False
        """whether the program is closing, so that loading stops; any thread may set it"""
        self.muted = False
        """whether answers are not spoken; any thread may set it"""
        self.voice: VoiceWorker | None = None
        self._brain: Brain | None = None
        self._brains = fallbacks_of(models.brain)
        self._voices = None if models.voice is None else fallbacks_of(models.voice)
        self._emit = emit

    @property
    def brain(self) -> Brain:
        if self._brain is None:
            raise ModelError("No model is loaded.")
        return self._brain

    @property
    def sends_to(self) -> str:
        """The hosts that receive the user's words; empty if the words stay here."""
        return self._brain.sends_to if self._brain else ""

    @property
    def has_next_brain(self) -> bool:
        return len(self._brains.makers) > 1

    def load(self, options: ReplyOptions) -> None:
        """Load the brain and the voice if they are missing, for `options`. Raises ModelError."""
        if self._voices is not None and self.voice is None:
            self.voice = self._load_voice(self._voices, self._config.current)
        if self._brain is None:
            self._use_brain(self._brains, options, patient=True)

    def loaded(self, changed: bool = False) -> Loaded:
        microphone, speaker = self.devices.microphone, self.devices.speaker
        return Loaded(
            brain=self.brain.description,
            voice=self.voice.voice.name if self.voice else "none",
            microphone=microphone.name if microphone else None,
            speaker=speaker.name if speaker else None,
            sends_to=self.brain.sends_to,
            brain_name=self.brain.name,
            changed=changed,
        )

    def report(self, events: list[Event]) -> None:
        self._emit(self.loaded())
        for event in events:
            self._emit(event)

    def replace(
        self, change: ReplaceComponents, options: ReplyOptions, stopped: StopFlag
    ) -> Timestamps:
        """Use the components of `change` once all are ready for `options`; close what they replace.

        A brain is closed first, because two may exceed the memory, and loaded again on a failure.
        Returns the timestamps of the tone that a new speaker plays until `stopped` is set. On a
        VoxtuiError it closes the components of `change` and keeps those in use.
        """
        timestamps, worker = Timestamps(), None
        voices = _voices(change)
        try:
            if change.microphone is not None:
                self.devices.listen(change.microphone)
            if change.speaker is not None:
                change.speaker.open()
                play_check_tone(change.speaker, timestamps, stopped)
            if voices is not None:
                worker = self._load_voice(voices, change.config)
            if change.brain is not None:
                self._replace_brain(fallbacks_of(change.brain), options)
        except BaseException:
            for part in (change.microphone, change.speaker, change.voice, change.brain):
                if not isinstance(part, str | Fallbacks | None):
                    part.close()
            if worker is not None:
                worker.close()
            raise
        if change.voice is not None:
            self._use_voice(voices, worker)
        self.devices.use(change.microphone, change.speaker)
        self._config.current = change.config
        return timestamps

    def adopt(self, change: ReplaceComponents) -> None:
        """After a failed load: close what `change` replaces, so that `load` loads the new ones."""
        self._config.current = change.config
        self.devices.use(change.microphone, change.speaker)
        if change.voice is not None:
            self._use_voice(_voices(change), None)
        if change.brain is not None:
            self._close_brain()
            self._brains = fallbacks_of(change.brain)

    def replace_lost_brain(self, reason: ModelLost, options: ReplyOptions) -> None:
        """Load the next brain for `options`; the lost one stays if no other can be loaded."""
        try:
            self._use_brain(Fallbacks(self._brains.makers[1:]), options)
        except ModelError as error:
            self._emit(Notice(f"No other brain can be loaded. {error}", "error"))
            return
        self._emit(Notice(f"The {self.brain.name} brain answers from now on. {reason}"))

    def can_speak(self) -> bool:
        """Return True if answers can be spoken now. Tries to open a missing speaker."""
        for event in self.devices.try_speaker():
            self._emit(event)
        if self.voice is None or self.devices.speaker is None or self.muted:
            return False
        if self.voice.stuck:
            self._emit(Notice("The voice is still stuck, so this answer is silent."))
        return not self.voice.stuck

    def close(self) -> None:
        self.devices.close()
        if self.voice is not None:
            self.voice.close()
        if self._brain is not None and self._owned:
            self._brain.close()

    def _progress(self, step: str, fraction: float | None) -> None:
        if self.closing:
            raise Closing
        self._emit(Loading(step, fraction))

    def _load_voice(self, voices: Fallbacks[Voice], config: Config) -> VoiceWorker:
        workers = voice_workers(voices, config.voice.timeout_s, self._owned)
        loaded = workers.load(lambda worker: worker.warm_up(self._progress))
        if loaded.was_made:  # not reported if it could not even be made
            self._notify(f"The voice is {loaded.part.voice.name}. {loaded.passed_over}")
        return loaded.part

    def _use_voice(self, voices: Fallbacks[Voice] | None, worker: VoiceWorker | None) -> None:
        if self.voice is not None:
            self.voice.close()
        self._voices, self.voice = voices, worker

    def _close_brain(self) -> None:
        if self._brain is not None:
            self._brain.close()
        self._brain, self._config.loaded_brain = None, ""

    def _replace_brain(self, brains: Fallbacks[Brain], options: ReplyOptions) -> None:
        self._close_brain()
        try:
            self._use_brain(brains, options)
        except VoxtuiError:
            self._use_brain(self._brains, options, patient=True)
            raise

    def _use_brain(
        self, brains: Fallbacks[Brain], options: ReplyOptions, patient: bool = False
    ) -> None:
        """Load one of `brains` for answers in `options`, and close the brain in use.

        Keep a remote brain whose server does not answer yet if `patient`.
        """

        def warm_up(brain: Brain) -> None:
            if not self._owned:
                return
            try:
                brain.warm_up(self._progress, options)
            except RemoteError as error:
                if not patient:
                    raise
                self._emit(Notice(str(error), "error"))

        loaded = brains.load(warm_up)
        if self._brain is not None:
            self._brain.close()
        self._brain = loaded.part
        self._config.loaded_brain = loaded.part.name
        self._brains = Fallbacks(brains.makers[loaded.number :])
        if loaded.passed_over is not None and not isinstance(loaded.passed_over, NoGpu):
            self._notify(f"The {self._brain.name} brain answers. {loaded.passed_over}")

    def _notify(self, sentence: str) -> None:
        self._emit(Notice(sentence, "information"))


def _voices(change: ReplaceComponents) -> Fallbacks[Voice] | None:
    if change.voice is None or change.voice == "none":
        return None
    return fallbacks_of(change.voice)


class Closing(Exception):
    """Raised by the progress callback to abort loading when the program ends."""


def play_check_tone(speaker: Speaker, timestamps: Timestamps, stopped: StopFlag) -> None:
    import numpy as np

    at = np.arange(round(CHECK_RATE * CHECK_SECONDS)) / CHECK_RATE
    tone = 0.1 * np.sin(2 * np.pi * 660 * at) * np.hanning(len(at))
    speaker.play(SpeechChunk(tone.astype(np.float32), CHECK_RATE, ""), timestamps, stopped)
    speaker.finish(timestamps, stopped)
