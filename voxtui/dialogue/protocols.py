"""The protocols of the parts that the engine drives."""

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
"""Reports a step of loading as text, and its fraction done (0..1) if that is known.

A long step calls it repeatedly. It may raise to abort the step; let the exception propagate.
"""

OnWords = Callable[[str, int], object]
"""Takes the words so far of an utterance, and how many characters of them are settled.

Called on a thread of the brain. Returns at once.
"""


@dataclass(frozen=True, slots=True, eq=False)
class PastTurn:
    """A past turn: the user's part, and the heard part of the reply. One of them may be empty."""

    user_input: Utterance | str
    """the audio of the latest `history.turns` turns; else the words, or a placeholder"""
    words: str | None
    """the user's words, where they are known"""
    reply: tuple[Token, ...]
    """the tokens of the heard part of the reply"""
    attached: bool = False
    """a text to talk about, which stays until the conversation ends"""
    number: int = 0
    """number of the turn; negative: a text that a client put into the history; 0: unknown"""
    clock: str = ""
    """the line with the time before the user's part; empty: none"""
    calls: tuple[FinishedCall, ...] = ()
    """the calls between the user's part and the reply, where the client runs the tools"""
    private: bool = False
    """the reply holds the result of a tool that must not leave this machine"""

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
    """The style of an answer, where it differs from the configuration. Part of every cache key."""

    instruction: str | None = None
    """the instructions; None: those of the configuration, with its examples"""
    max_new_tokens: int | None = None
    """most tokens of the reply, within those of the configuration"""
    voice: str = ""
    """name of the voice; empty: the loaded one; `none`: the reply is text only"""
    speed: float | None = None
    """speed of the speech; None: that of the configuration"""
    clock: str = ""
    """the line with the time before the user's part; empty: none"""
    json_schema: str = ""
    """the JSON schema that the reply keeps to; empty: any text"""
    tools: tuple[Tool, ...] = ()
    tool_choice: str = "auto"
    """`auto`; `required`: a call, not words; or the name of the tool to call"""
    name: str = ""
    """The name with which the user's words must begin; empty: none. A brain works ahead only on
    words that do, writes the name so where it was heard as similar words, and answers the rest."""

    def with_clock(self, clock: str) -> ReplyOptions:
        return replace(self, clock=clock)

    def limit(self, most: int) -> int:
        return min(self.max_new_tokens or most, most)


DEFAULT_OPTIONS = ReplyOptions()

AUDIO_INPUT = "[User audio input - "
"""The beginning of the text that replaces audio without a transcript in the history."""


def placeholder(utterance: Utterance) -> str:
    return f"{AUDIO_INPUT}{len(utterance.samples)} samples, {utterance.seconds:.2f}s]"


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """What a brain is asked: the conversation so far, and the user's part of the turn."""

    past: Past = ()
    user_input: Utterance | str = ""
    """The user's part. Empty while it is not known; while it is typed, the text so far."""
    timestamps: Timestamps = field(default_factory=Timestamps)
    cancelled: Flag = field(default_factory=Flag)
    """Set by any thread to end the work on the request."""
    options: ReplyOptions = DEFAULT_OPTIONS
    calls: tuple[FinishedCall, ...] = ()
    """The calls of this turn that ran. The brain words their results, and calls no more."""


class StopFlag(Protocol):
    """Says that no more is to be heard: a threading.Event, or the state of a turn."""

    def is_set(self) -> bool: ...


class Microphone(Protocol):
    """A source of frames, which it pushes."""

    @property
    def name(self) -> str: ...

    @property
    def level(self) -> float:
        """Peak of the latest sound, 0..1. Cheap. Any thread."""
        ...

    def attend(self, attended: bool) -> None:
        """Deliver frames, as after `open`; False: only measure the level. Any thread.

        When it is attended again, it first delivers what it heard in the last half second. This
        saves power while frames are only kept in case a key press wants them.
        """

    def open(self, sink: Callable[[Frame], None], lost: Callable[[str], None]) -> None:
        """Call `sink` with every frame from now on, and `lost(message)` once if the device is lost.

        Both are called on the audio thread. Raises DeviceError.
        """

    def close(self) -> None:
        """Stop. `sink` is not called after this returns. May be called twice."""


class Speaker(Protocol):
    """One long-lived output stream. Only the engine's thread uses it, except for `chime`."""

    @property
    def name(self) -> str: ...

    def open(self) -> None:
        """Open the stream. Raises DeviceError."""

    def play(self, chunk: SpeechChunk, timestamps: Timestamps, stopped: StopFlag) -> None:
        """Queue `chunk` without a gap; block while enough is queued.

        Writes FIRST_SOUND. Once `stopped` is true, it returns, and the speaker is silent within
        50 ms. Raises DeviceError when the device is lost.
        """

    def finish(self, timestamps: Timestamps, stopped: StopFlag) -> float:
        """Block until everything queued was played, or `stopped`. Writes LAST_SOUND.

        Returns the seconds of speech that were audible since the last `finish`.
        """
        ...

    def chime(self, at: float | None) -> None:
        """Sound a chime at the monotonic time `at`, with the voice lowered; None: end it.

        A second ahead it is on time to some milliseconds. Returns at once. Any thread.
        """

    def close(self) -> None:
        """Stop. May be called twice; `open` may follow."""


class SoundSystem(Protocol):
    """Makes the devices that replace lost ones, and notices that devices come or go."""

    def default_devices(self) -> tuple[Microphone, Speaker | None]:
        """Make the system's default devices. Called while neither is open."""
        ...

    def version(self) -> object:
        """Return a value that changes when devices come or go, as far as the system tells."""
        ...


class SpeechDetector(Protocol):
    """Voice activity detection, frame by frame.

    May load at the first call. Raises ModelError if that fails.
    """

    def reset(self) -> None:
        """Discard the state from earlier frames."""

    def probability(self, frame: Frame) -> float:
        """Return the probability of speech in this frame, 0..1, given the frames since `reset`."""
        ...


class Brain(Protocol):
    """Turns an utterance or a text into tokens. Called on the engine's thread, except as noted."""

    @property
    def name(self) -> str:
        """The value of `brain.name`: `embedded`, `voxtral` or `remote`."""
        ...

    @property
    def description(self) -> str:
        """The description of the brain for the screen, such as `voxtral: MODEL on cuda`."""
        ...

    @property
    def sends_to(self) -> str:
        """The host that gets the user's voice and words; empty: they stay on this machine."""
        ...

    def warm_up(self, progress: Progress, options: ReplyOptions = DEFAULT_OPTIONS) -> None:
        """Load and warm everything, so that the first turn is as fast as the tenth.

        A conversation that begins now is answered in `options`, so what stands before its first
        words may be read already. Called once. Raises ModelError.
        """

    def listen(
        self, request: TurnRequest, recording: Recording, on_words: OnWords | None = None
    ) -> None:
        """Prepare for an utterance, which the engine appends to `recording`. Returns at once.

        Called when the key goes down, and when a session changes its options. The brain may work
        ahead on its own thread until the request is cancelled. A brain that recognises words
        meanwhile passes them to `on_words`, each time all of them.
        """

    def wake(self) -> None:
        """Notice that the recording has a new frame. Called for each one. Returns within 1 ms."""

    def read(self, request: TurnRequest, progress: Callable[[int, int], object]) -> None:
        """Read the past, before the user's next words are known. Returns at once.

        The brain may do so on its own thread until the request is cancelled, or do nothing. From
        now on it calls `progress`, on one of its threads, with the tokens of a prompt that it has
        evaluated, and with all tokens of that prompt. It sends nothing to another machine.
        """

    def read_ahead(self, request: TurnRequest) -> None:
        """Prepare for the text of `request`, which is being typed and may change. Returns at once.

        Called after each key. The brain may work ahead on its own thread until cancelled, but
        sends nothing to another machine. It may do nothing.
        """

    def reply(self, request: TurnRequest) -> Generator[UserTranscript | Token | ToolCall]:
        """Yield the answer, pulled on a worker thread. Ends within one step of a cancel.

        A ToolCall of one of the options' tools may stand in the place of the tokens. It is the last
        item. Work ahead may have made it, but only the engine runs it.

        A brain that knows the user's words yields one UserTranscript before its first Token. If
        the generator is closed there, a skill answers: the brain stops its work on the reply.
        Speculative work does not change the answer. Writes ENCODED or
        TRANSCRIBED, PREFILLED and `speculative_s` to the marks. Raises ModelError.
        """
        ...

    def language(self, reply: str, timestamps: Timestamps) -> str:
        """Return the language (ISO 639-1) of a reply that begins with the clause `reply`.

        Called once a reply, on the engine's thread; takes 5 ms at most. Writes LANGUAGE if it has
        to find out.
        """
        ...

    def transcribe(self, utterance: Utterance, cancelled: Flag) -> Iterator[Token]:
        """Yield the words of `utterance`. Raises ModelError."""
        ...

    def close(self) -> None:
        """Release what `warm_up` loaded. May be called twice, and if `warm_up` failed."""


class Voice(Protocol):
    """Turns clauses into speech. All calls come from one thread, which is the voice's own."""

    @property
    def name(self) -> str: ...

    def warm_up(self, progress: Progress) -> None:
        """Load and warm everything. Raises ModelError."""

    def speak(
        self, clause: str, speed: float | None = None, language: str = "en"
    ) -> Iterator[SpeechChunk]:
        """Yield the speech of one clause of plain text, the first chunk as early as possible.

        Without a `speed`, that of the configuration applies. `language` is a code of ISO 639-1.

        May yield nothing. Raises ModelError, such as UnspokenLanguage.
        """
        ...

    def close(self) -> None:
        """Release what `warm_up` loaded. May be called twice, and if `warm_up` failed."""


@dataclass(frozen=True, slots=True)
class SkillRequest:
    """What a skill may know of a turn."""

    words: str
    again: bool = False
    """True if the same utterance was answered before, so nothing is done twice"""
    past: Past = ()
    """the turns before, also those that no brain gets any more"""
    sends_to: str = ""
    """the host that gets the user's voice and words; empty: none"""
    config: Config = field(default_factory=Config)
    called: bool = True
    """False: the words do not begin with the name, so only what rings may be stopped by them"""


@dataclass(frozen=True, slots=True)
class SkillAnswer:
    """The answer of a skill, and how the voice says it."""

    text: str
    language: str = "en"
    """code of ISO 639-1; empty: unknown, because the answer repeats words of the brain"""
    pace: float = 1.0
    """factor of the configured speed of the voice"""

    def tokens(self) -> Generator[Token]:
        for word in re.findall(r"\S+\s*", self.text):
            yield Token(word)


class Skills(Protocol):
    """Answers what needs no model: the clock, sums, timers, questions about the program itself.

    An engine may have none.
    The rules belong to the person at this machine, so the engine of a server has none.
    """

    def start(self, emit: Callable[[Event], object]) -> None:
        """Prepare, and report what becomes due, on a thread of their own.

        Called once; returns at once.
        """

    def now(self) -> datetime:
        """Return the local time. A brain is told the same. Any thread."""
        ...

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools that a brain may call, and those that rules call."""
        ...

    def answer(self, request: SkillRequest) -> SkillAnswer | ToolCall | None:
        """Return the answer to the user's final words, or None if the brain is to answer.

        The engine runs a ToolCall. What else was asked for has then been done. Called on a worker
        thread; takes about a millisecond.
        """
        ...

    def stop_ringing(self, snooze: bool = False, missed: bool = False) -> bool:
        """Stop what rings, and return False if nothing does. Returns at once. Any thread.

        `snooze`: it rings again in a few minutes. `missed`: also forget what nobody stopped.
        """
        ...

    def doubt(self, reply: str) -> str | None:
        """Return a sentence if a brain's reply claims a deed that only a skill can do, else None.

        Called on the engine's thread.
        """
        ...

    def close(self) -> None:
        """End the thread. May be called twice, and without a start."""
