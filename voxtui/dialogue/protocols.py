"""The protocols of the components that the engine drives."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from threading import Event as Flag
from typing import Protocol

from voxtui.dialogue.data import (
    FinishedCall,
    Frame,
    SpeechChunk,
    Token,
    ToolCall,
    UserTranscript,
    Utterance,
)
from voxtui.dialogue.events import Event
from voxtui.dialogue.recording import Recording
from voxtui.dialogue.timestamps import Timestamps
from voxtui.dialogue.tool_interface import Tool
from voxtui.settings.schema import Config

Progress = Callable[[str, float | None], None]
"""Reports a step of loading as text, and its fraction done (0 to 1, None if unknown).

A long step calls it repeatedly. It may raise to abort the step; the exception must propagate."""

OnWords = Callable[[str, int], object]
"""Receives the words so far of an utterance, and the number of their settled characters.

It is called on a thread of the brain and returns at once."""


@dataclass(frozen=True, slots=True, eq=False)
class PastTurn:
    """A past turn: the user's part, and the heard part of the reply. One of them may be empty."""

    user_input: Utterance | str
    """the audio for the newest `history.turns` turns; else the words, or a placeholder"""
    words: str | None
    """the user's words, or None if they are unknown"""
    reply: tuple[Token, ...]
    """the tokens of the heard part of the reply"""
    attached: bool = False
    """whether it is an attached text, which stays until the conversation ends"""
    number: int = 0
    """the number of the turn; negative for a text that a client inserted; 0 if unknown"""
    clock: str = ""
    """the line with the time before the user's part; empty: none"""
    calls: tuple[FinishedCall, ...] = ()
    """the calls between the user's part and the reply, if the client runs the tools"""
    private: bool = False
    """whether the reply holds the result of a tool that must not leave this machine"""

    @property
    def user_text(self) -> str:
        if self.words is not None:
            return self.words
        return self.user_input if isinstance(self.user_input, str) else placeholder(self.user_input)

    @property
    def reply_text(self) -> str:
        return "".join(token.text for token in self.reply)


Past = Sequence[PastTurn]


@dataclass(frozen=True, slots=True)
class ReplyOptions:
    """How an answer is made, where that differs from the configuration. Part of every cache key."""

    instruction: str | None = None
    """the instruction; None for the configured one with its examples"""
    max_new_tokens: int | None = None
    """the maximum number of tokens of the reply, if below the configured one"""
    voice: str = ""
    """the name of the voice; empty for the loaded one, `none` for a reply without sound"""
    speed: float | None = None
    """the speed of the speech; None for the configured one"""
    clock: str = ""
    """the line with the time before the user's part; empty: none"""
    json_schema: str = ""
    """the JSON schema of the reply; empty for any text"""
    tools: tuple[Tool, ...] = ()
    tool_choice: str = "auto"
    """`auto`; `required` for a call instead of words; or the name of the tool to call"""
    name: str = ""
    """The name with which the user's words must begin; empty for none. A brain works ahead only on
    words that begin with it. It corrects similar words to the name, and answers what follows."""

    def with_clock(self, clock: str) -> ReplyOptions:
        return replace(self, clock=clock)

    def limit(self, most: int) -> int:
        return min(self.max_new_tokens or most, most)

    def offered(self, sends_to: str = "") -> tuple[Tool, ...]:
        """Return the tools for a model that may answer before any words can match triggers.

        Results may go to the host `sends_to`.
        """
        return tuple(
            tool
            for tool in self.tools
            if tool.line
            and not tool.heard
            and self.tool_choice in ("auto", "required", tool.name)
            and (tool.shared or tool.run is None or not sends_to)
        )

    def allowed(self, call: ToolCall, sends_to: str = "") -> ToolCall:
        """Return `call`, or one without a name if its tool was not offered."""
        names = {tool.name for tool in self.offered(sends_to)}
        return call if call.name in names else ToolCall("")


DEFAULT_OPTIONS = ReplyOptions()

AUDIO_INPUT = "[User audio input - "
"""The beginning of the text that replaces audio without a transcript in the history."""


def placeholder(utterance: Utterance) -> str:
    return f"{AUDIO_INPUT}{len(utterance.samples)} samples, {utterance.seconds:.2f}s]"


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """The input of a brain: the conversation so far, and the user's part of the turn."""

    past: Past = ()
    user_input: Utterance | str = ""
    """the user's part; empty while unknown; while it is typed, the text so far"""
    timestamps: Timestamps = field(default_factory=Timestamps)
    cancelled: Flag = field(default_factory=Flag)
    """the flag that any thread sets to end the work on the request"""
    options: ReplyOptions = DEFAULT_OPTIONS
    calls: tuple[FinishedCall, ...] = ()
    """the finished calls of this turn; the brain puts their results into words and calls no more"""


class StopFlag(Protocol):
    """A flag that ends the speech: a threading.Event, or the state of a turn."""

    def is_set(self) -> bool: ...


class Microphone(Protocol):
    """A source of frames, which it pushes to a sink."""

    @property
    def name(self) -> str: ...

    @property
    def level(self) -> float:
        """The peak of the latest sound, 0 to 1. Cheap. Any thread."""
        ...

    def attend(self, attended: bool) -> None:
        """Deliver frames, as after `open`, or only measure the level to save power. Any thread.

        On its return to delivery it first delivers the last half second.
        """

    def open(self, sink: Callable[[Frame], None], lost: Callable[[str], None]) -> None:
        """Call `sink` with every frame from now on, and `lost(message)` once if the device is lost.

        Both are called on the audio thread. Raises DeviceError.
        """

    def close(self) -> None:
        """Stop. The sink is not called after this returns. May be called twice."""


class Speaker(Protocol):
    """One long-lived output stream. Only the engine's thread uses it, except for `chime`."""

    @property
    def name(self) -> str: ...

    def open(self) -> None:
        """Open the stream. Raises DeviceError."""

    def play(self, chunk: SpeechChunk, timestamps: Timestamps, stopped: StopFlag) -> None:
        """Queue `chunk` without a gap; block while enough sound is queued.

        Writes FIRST_SOUND. Once `stopped` is set it returns, and the speaker is silent within 50
        ms. Raises DeviceError if the device is lost.
        """

    def finish(self, timestamps: Timestamps, stopped: StopFlag) -> float:
        """Block until all queued sound was played, or `stopped` is set. Writes LAST_SOUND.

        Returns the seconds of audible speech since the last `finish`.
        """
        ...

    def chime(self, at: float | None) -> None:
        """Play a chime at the monotonic time `at`, with the voice lowered; None ends it.

        Requested a second ahead, it is accurate to some milliseconds. Returns at once. Any thread.
        """

    def close(self) -> None:
        """Stop. May be called twice; `open` may follow."""


class SoundSystem(Protocol):
    """Makes the devices that replace lost ones, and notices that devices come or go."""

    def default_devices(self) -> tuple[Microphone, Speaker | None]:
        """Make the system's default devices. Called while neither is open."""
        ...

    def version(self) -> object:
        """Return a value that changes when devices come or go, if the system reports that."""
        ...


class SpeechDetector(Protocol):
    """Voice activity detection. It may load at the first call, and then raise ModelError."""

    def reset(self) -> None:
        """Discard the state of earlier frames."""

    def probability(self, frame: Frame) -> float:
        """Return the probability of speech, 0 to 1, in this frame after those since `reset`."""
        ...


class NameDetector(Protocol):
    """Hears the name (`vad.name`) in sound. It may load at the first call, and raise ModelError."""

    def heard(self, frame: Frame) -> bool:
        """Return True if the name ends in this frame, or ended just before it."""
        ...


class Brain(Protocol):
    """Turns an utterance or a text into tokens. Called on the engine's thread, except as noted.

    `listen`, `read` and `read_ahead` return at once. The brain may work ahead on its own thread
    until the request is cancelled, or do nothing. It sends nothing to another machine before
    `reply`.
    """

    @property
    def name(self) -> str:
        """The value of `brain.name`: `embedded`, `voxtral` or `remote`."""
        ...

    @property
    def description(self) -> str:
        """The brain's description on the screen, such as `voxtral: MODEL on cuda`."""
        ...

    @property
    def sends_to(self) -> str:
        """The host that receives the user's voice and words; empty: they stay on this machine."""
        ...

    def warm_up(self, progress: Progress, options: ReplyOptions = DEFAULT_OPTIONS) -> None:
        """Load and warm up everything, so that the first turn is as fast as the tenth.

        The next conversation uses `options`, so the brain may already read its beginning. Called
        once. Raises ModelError.
        """

    def listen(
        self, request: TurnRequest, recording: Recording, on_words: OnWords | None = None
    ) -> None:
        """Prepare for an utterance, which the engine appends to `recording`.

        Called at the key press, and when a session changes its options. If the brain recognises
        words, it passes all words so far to `on_words`.
        """

    def wake(self) -> None:
        """Take note of a new frame in the recording. Called for each one. Returns within 1 ms."""

    def read(self, request: TurnRequest, progress: Callable[[int, int], object]) -> None:
        """Read the past before the user's next words are known.

        Calls `progress(done, total)` with counts of the prompt's tokens on one of the brain's
        threads, also for later prompts.
        """

    def read_ahead(self, request: TurnRequest) -> None:
        """Prepare for the text of `request`, which is being typed. Called after each key."""

    def reply(self, request: TurnRequest) -> Generator[UserTranscript | Token | ToolCall]:
        """Yield the answer, pulled on a worker thread. Ends within one step of a cancel.

        Instead of tokens, the last item may be a ToolCall of one of the options' tools. It may come
        from work ahead; only the engine runs it.

        A brain that knows the user's words yields one UserTranscript before its first Token. If the
        generator is closed at that point, because a skill answers, the brain stops its work on the
        reply. Speculation does not change the answer. Writes ENCODED or TRANSCRIBED, PREFILLED and
        `speculative_s` to the timestamps. Raises ModelError.
        """
        ...

    def language(self, reply: str, timestamps: Timestamps) -> str:
        """Return the language (ISO 639-1) of a reply, by its first clause `reply`.

        Called once per reply on the engine's thread; takes at most 5 ms. Writes LANGUAGE if it has
        to detect the language.
        """
        ...

    def transcribe(self, utterance: Utterance, cancelled: Flag) -> Iterator[Token]:
        """Yield the words of `utterance`. Raises ModelError."""
        ...

    def close(self) -> None:
        """Release what `warm_up` loaded. May be called twice, also after a failed `warm_up`."""


class Voice(Protocol):
    """Turns clauses into speech. All calls come from the voice's own thread."""

    @property
    def name(self) -> str: ...

    def warm_up(self, progress: Progress) -> None:
        """Load and warm up everything. Raises ModelError."""

    def speak(
        self, clause: str, speed: float | None = None, language: str = "en"
    ) -> Iterator[SpeechChunk]:
        """Yield the speech of one clause of plain text, the first chunk as early as possible.

        Without `speed` the configured one applies. `language` is an ISO 639-1 code. May yield
        nothing. Raises ModelError, such as UnspokenLanguage.
        """
        ...

    def close(self) -> None:
        """Release what `warm_up` loaded. May be called twice, also after a failed `warm_up`."""


@dataclass(frozen=True, slots=True)
class SkillRequest:
    """The part of a turn that a skill may know."""

    words: str
    again: bool = False
    """whether the same utterance was answered before, so that nothing is done twice"""
    past: Past = ()
    """the turns before, including those that no brain reads any more"""
    sends_to: str = ""
    """the host that receives the user's voice and words; empty: they stay here"""
    config: Config = field(default_factory=Config)
    called: bool = True
    """whether the words begin with the name; without it they can only stop what rings"""


@dataclass(frozen=True, slots=True)
class SkillAnswer:
    """The answer of a skill, and how the voice speaks it."""

    text: str
    language: str = "en"
    """the ISO 639-1 code; empty if unknown, because the answer repeats words of the brain"""
    pace: float = 1.0
    """the factor on the configured speed of the voice"""

    def tokens(self) -> Generator[Token]:
        for word in re.findall(r"\S+\s*", self.text):
            yield Token(word)


class Skills(Protocol):
    """Answers what needs no model: the clock, sums, timers, questions about the program itself.

    The rules belong to the person at this machine, so a server's engine has none.
    """

    def start(self, emit: Callable[[Event], object]) -> None:
        """Prepare, and report what becomes due, on the skills' own thread. Returns at once."""

    def now(self) -> datetime:
        """Return the local time, which the brain is told, too. Any thread."""
        ...

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools that a brain may call, and those that rules call."""
        ...

    def answer(self, request: SkillRequest) -> SkillAnswer | ToolCall | None:
        """Return the answer to the user's final words, or None if the brain should answer.

        The engine runs a returned ToolCall. Called on a worker thread; takes about a millisecond.
        """
        ...

    @property
    def rang(self) -> bool:
        """True while something rings, and for a short time after it."""
        ...

    def stop_ringing(self, snooze: bool = False, missed: bool = False) -> bool:
        """Stop what rings, and return False if nothing rings. Returns at once. Any thread.

        `snooze` makes it ring again in a few minutes. `missed` also removes what nobody stopped.
        """
        ...

    def doubt(self, reply: str) -> str | None:
        """Return a sentence if a reply claims a deed that only a skill can do, else None."""
        ...

    def close(self) -> None:
        """End the thread. May be called twice, and without a start."""
