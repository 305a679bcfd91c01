"""The seams. Everything the engine drives is one of these five, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from threading import Event as Flag
from typing import Protocol

from voxtui.dialogue.data import Frame, SpeechChunk, Token, UserTranscript, Utterance
from voxtui.dialogue.marks import Marks
from voxtui.dialogue.recording import Recording

Progress = Callable[[str, float | None], None]
"""Reports a step of start-up in words, and how much of it is done (0..1) where that is known.

A long step calls it again and again. It raises when nobody waits any more; that is let through.
"""


@dataclass(frozen=True, slots=True, eq=False)
class PastTurn:
    """A turn the conversation remembers: what was said, and what was heard of the reply."""

    said: Utterance | str
    """the audio while it is within `history.turns`, then the placeholder text; or typed text"""
    words: str | None
    """what the user said in words, where that is known"""
    reply: tuple[Token, ...]
    """the tokens of the part of the reply that was heard"""

    @property
    def user_text(self) -> str:
        if self.words is not None:
            return self.words
        return self.said if isinstance(self.said, str) else placeholder(self.said)

    @property
    def reply_text(self) -> str:
        return "".join(token.text for token in self.reply)


Past = Sequence[PastTurn]


def placeholder(said: Utterance) -> str:
    """What stands in the history for audio that was never put into words."""
    return f"[User audio input - {len(said.samples)} samples, {said.seconds:.2f}s]"


class Microphone(Protocol):
    """Where frames come from. The hardware pushes; everything else is pulled."""

    @property
    def name(self) -> str: ...

    @property
    def level(self) -> float:
        """Peak of the latest block, 0..1. Cheap; any thread."""
        ...

    def open(self, sink: Callable[[Frame], None], lost: Callable[[str], None]) -> None:
        """Call `sink` with every frame from now on; `lost(sentence)` once if the device goes away.

        Both are called on the audio thread. Raises DeviceError.
        """
        ...

    def close(self) -> None:
        """Stop; no call to `sink` after this returns. May be called twice."""
        ...


class Speaker(Protocol):
    """One long-lived output stream, used by the engine's thread alone."""

    @property
    def name(self) -> str: ...

    def open(self) -> None:
        """Raises DeviceError."""
        ...

    def play(self, chunk: SpeechChunk, marks: Marks, stopped: Callable[[], bool]) -> None:
        """Queue `chunk` behind what is playing, without a gap; blocks while enough is queued.

        Writes FIRST_SOUND. Returns early, and the speaker is silent within 50 ms, once `stopped`
        turns true. Raises DeviceError when the device is lost.
        """
        ...

    def finish(self, marks: Marks, stopped: Callable[[], bool]) -> float:
        """Block until all that was queued has been heard, or `stopped`. Writes LAST_SOUND.

        Returns the seconds of speech that were heard since the last `finish`.
        """
        ...

    def close(self) -> None:
        """Stop. May be called twice; `open` may follow."""
        ...


class SpeechDetector(Protocol):
    """Voice activity detection, frame by frame.

    May load at the first call of either, and then raises ModelError where it cannot.
    """

    def reset(self) -> None:
        """Forget the frames so far."""
        ...

    def probability(self, frame: Frame) -> float:
        """How likely this frame holds speech, 0..1, given the frames since `reset`."""
        ...


class Brain(Protocol):
    """Turns what was said into tokens. Called from the engine thread, except as noted."""

    @property
    def name(self) -> str:
        """The short name of the config: `embedded`, `voxtral`, `remote`."""
        ...

    @property
    def description(self) -> str:
        """In words, for the screen."""
        ...

    @property
    def sends_to(self) -> str:
        """Where the user's voice and words go; empty: they stay on this machine."""
        ...

    def warm_up(self, progress: Progress) -> None:
        """Load and warm everything, so that the first turn is as fast as the tenth.

        Called once. Raises ModelError.
        """
        ...

    def listen(self, past: Past, recording: Recording, cancelled: Flag) -> None:
        """Prepare for an utterance, which the engine appends to `recording`. Returns at once.

        Called when the key goes down. The brain may work ahead on its own thread until `cancelled`.
        """
        ...

    def wake(self) -> None:
        """Notice that the recording has a new frame. Called for each one. Returns within 1 ms."""
        ...

    def reply(
        self, past: Past, said: Utterance | str, marks: Marks, cancelled: Flag
    ) -> Iterator[UserTranscript | Token]:
        """Answer. Pulled on a worker thread; ends within one step of `cancelled`.

        A brain that knows the user's words yields one UserTranscript before its first Token.
        The answer is the same whether or not anything was worked out ahead. Writes ENCODED or
        TRANSCRIBED, PREFILLED and `marks.speculative_s`. Raises ModelError.
        """
        ...

    def transcribe(self, said: Utterance, cancelled: Flag) -> Iterator[Token]:
        """The words of `said`. Raises ModelError."""
        ...

    def close(self) -> None:
        """End what it started. May be called twice, and where `warm_up` has failed."""
        ...


class Voice(Protocol):
    """Turns clauses into speech. All calls come from one thread, which is the voice's own."""

    @property
    def name(self) -> str: ...

    def warm_up(self, progress: Progress) -> None:
        """Load and warm everything. Raises ModelError."""
        ...

    def speak(self, clause: str) -> Iterator[SpeechChunk]:
        """Yield the speech of one clause of plain text, the first chunk as early as possible.

        May yield nothing. Raises ModelError.
        """
        ...

    def close(self) -> None:
        """Release what `warm_up` loaded. May be called twice, and if `warm_up` failed."""
        ...
