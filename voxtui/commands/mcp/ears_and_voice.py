"""Speak and listen for `voxtui mcp`.

The voice is in this process, because it is small. The microphone is in the daemon of `voxtui
dictate --start`, so that all assistants share one. The recogniser is there, too, unless a window
lends its own.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager

from voxtui.audio.chime import cue
from voxtui.commands.dictation.dictation_daemon import listening
from voxtui.commands.dictation.lent_recogniser import runtime_folder
from voxtui.commands.dictation.text_cleanup import passages
from voxtui.commands.say import load_voice, read_aloud
from voxtui.dialogue.protocols import Speaker, StopFlag
from voxtui.dialogue.speech.reply_speech import VoiceWorker
from voxtui.dialogue.timestamps import Timestamps
from voxtui.errors import InputError
from voxtui.settings.schema import Config
from voxtui.wiring import build_speaker

LONGEST_SECONDS = 60
"""Maximum time for which the microphone is open, whatever a program requests."""

ANSWER_SECONDS = 30.0
"""Maximum length of an answer to `converse`."""


class EarsAndVoice:
    """Speaks and listens for one program. Each call blocks; any thread, one call at a time."""

    def __init__(self, config: Config, resident: Sequence[str]) -> None:
        self._config = config
        self._resident = resident
        self._worker: VoiceWorker | None = None

    def speak(self, text: str, stopped: StopFlag) -> str:
        """Speak `text` to its end. Raises VoxtuiError."""
        with self._turn(stopped) as speaker:
            self._speak(text, speaker, stopped)
        return "Spoken."

    def listen(self, seconds: float, stopped: StopFlag) -> str:
        """Return the user's next utterance, after a cue. Raises VoxtuiError."""
        with self._turn(stopped) as speaker:
            return self._listen(seconds, speaker, stopped)

    def converse(self, text: str, stopped: StopFlag) -> str:
        """Speak `text`, and return the user's answer. Raises VoxtuiError."""
        with self._turn(stopped) as speaker:
            self._speak(text, speaker, stopped)
            return self._listen(ANSWER_SECONDS, speaker, stopped)

    def close(self) -> None:
        if self._worker is not None:
            self._worker.close()

    @contextmanager
    def _turn(self, stopped: StopFlag) -> Generator[Speaker]:
        """Yield the open speaker, once no other assistant of this user speaks or listens."""
        from filelock import FileLock, Timeout

        lock = FileLock(runtime_folder() / "mcp.lock", mode=0o600)
        try:
            acquired = lock.acquire(cancel_check=stopped.is_set)
        except Timeout:
            raise InputError("The call was cancelled.") from None
        with acquired, closing(build_speaker(self._config.audio.output)) as speaker:
            speaker.open()
            yield speaker

    def _speak(self, text: str, speaker: Speaker, stopped: StopFlag) -> None:
        if self._worker is None:
            self._worker = load_voice(self._config)
        language = self._config.brain.language or "en"
        if read_aloud(passages((text,)), self._worker, speaker, language, stopped):
            raise InputError("A part of the text could not be spoken.")

    def _listen(self, seconds: float, speaker: Speaker, stopped: StopFlag) -> str:
        seconds = min(max(seconds, 1.0), LONGEST_SECONDS)
        with listening(self._config, seconds, self._resident) as words:
            # After the microphone has opened, so that an answer to the cue loses no sound.
            speaker.play(cue(), Timestamps(), stopped)
            speaker.finish(Timestamps(), stopped)
            dictated = words(stopped)
        if not dictated.text:
            raise InputError(f"Nothing was heard. {dictated.problem}".strip())
        return dictated.text
