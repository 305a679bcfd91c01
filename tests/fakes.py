"""Deterministic fakes, one for each protocol of the engine and one for the engine itself."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.deadline import SECONDS
from voxtui.dialogue.components.components import Models
from voxtui.dialogue.components.sound_devices import Devices
from voxtui.dialogue.data import (
    FRAME_SAMPLES,
    FRAME_SECONDS,
    Frame,
    SpeechChunk,
    Token,
    ToolCall,
    UserTranscript,
    Utterance,
)
from voxtui.dialogue.dialogue import FrontEnd
from voxtui.dialogue.engine import Engine
from voxtui.dialogue.engine_commands import (
    Attach,
    Cancel,
    Command,
    Mute,
    NewConversation,
    NewTurn,
    RecallConversation,
    Redo,
    Release,
    ReplaceComponents,
    RescanDevices,
    SendText,
    Silence,
    Speak,
    Talk,
    Typing,
)
from voxtui.dialogue.events import (
    Died,
    Event,
    Loaded,
    State,
    StateChanged,
    TurnFinished,
    TurnStarted,
)
from voxtui.dialogue.protocols import (
    DEFAULT_OPTIONS,
    Microphone,
    OnWords,
    Past,
    Progress,
    ReplyOptions,
    Speaker,
    StopFlag,
    TurnRequest,
)
from voxtui.dialogue.recording import Recording
from voxtui.dialogue.timestamps import Milestone, Outcome, Timestamps, Turn
from voxtui.errors import DeviceError, ModelError
from voxtui.settings.schema import Config

Flag = threading.Event

LONG_AGO = time.monotonic() - 10.0
"""For times that the engine compares with its clock: the machine may have been started just now."""


def frames(pattern: str, start: float = 10.0, source: str = "microphone") -> list[Frame]:
    """Return a frame per character: `x` is speech for LoudIsSpeech, anything else is silence."""
    return [
        Frame(
            np.full(FRAME_SAMPLES, 0.5 if c == "x" else 0.0, np.float32),
            start + (i + 1) * FRAME_SECONDS,
            source,
        )
        for i, c in enumerate(pattern)
    ]


def record(pattern: str) -> Recording:
    """Return a recording of the frames of `pattern`."""
    recording = Recording()
    for frame, c in zip(frames(pattern), pattern, strict=True):
        recording.append(frame, c == "x")
    return recording


class LoudIsSpeech:
    """FakeDetector: a loud frame is speech."""

    def reset(self) -> None: ...

    def probability(self, frame: Frame) -> float:
        return 1.0 if float(np.abs(frame.samples).max()) > 0.1 else 0.0


class ScriptedBrain:
    """FakeBrain: each reply is the next script. A str is a token, an Event is waited for, an
    exception is raised, a ToolCall is yielded; `heard` is reported first."""

    name = "scripted"
    description = "scripted brain"
    sends_to = ""

    def __init__(
        self,
        *scripts: list[str | Flag | Exception | ToolCall],
        heard: str | None = "what was said",
        transcript: list[str | Flag | Exception] | None = None,
    ) -> None:
        self.scripts = list(scripts)
        self._heard = heard
        self._transcript = transcript or []
        self.transcribing = Flag()
        self.pasts: list[Past] = []
        self.said: list[Utterance | str] = []
        self.listened: list[tuple[Past, Flag, ReplyOptions]] = []
        self.manners: list[ReplyOptions] = []
        self.requests: list[TurnRequest] = []
        self.flags: list[Flag] = []
        """which cancel the replies"""
        self.clocks: list[str] = []
        """the line with the time, of each call but `read`"""
        self.recordings: list[Recording] = []
        self.frames: list[tuple[Frame, bool]] = []
        self.typed: list[tuple[Past, str, Flag]] = []
        self.read_pasts: list[tuple[Past, Callable[[int, int], object]]] = []
        self.on_words: OnWords | None = None
        """passed to the latest `listen`"""
        self.spoken = "en"
        """the language of the replies"""
        self.inferences = 0
        self.warmed = False
        self.warmed_for: ReplyOptions | None = None
        self.closed = False

    def warm_up(self, progress: Progress, options: ReplyOptions = DEFAULT_OPTIONS) -> None:
        progress("model", 0.5)
        self.warmed = True
        self.warmed_for = options

    def listen(
        self, request: TurnRequest, recording: Recording, on_words: OnWords | None = None
    ) -> None:
        self.clocks.append(request.options.clock)
        self.on_words = on_words
        self.listened.append((request.past, request.cancelled, request.options))
        self.recordings.append(recording)

    def wake(self) -> None:
        recording = self.recordings[-1]
        self.frames.append((recording.frames[-1], recording.verdicts[-1]))

    def read(self, request: TurnRequest, progress: Callable[[int, int], object]) -> None:
        self.read_pasts.append((request.past, progress))

    def read_ahead(self, request: TurnRequest) -> None:
        self.clocks.append(request.options.clock)
        self.typed.append((request.past, request.user_input, request.cancelled))

    def reply(self, request: TurnRequest) -> Iterator[UserTranscript | Token]:
        self.inferences += 1
        self.pasts.append(request.past)
        self.said.append(request.user_input)
        self.clocks.append(request.options.clock)
        self.manners.append(request.options)
        self.requests.append(request)
        self.flags.append(request.cancelled)
        if isinstance(request.user_input, str):
            yield UserTranscript(request.user_input)
        elif self._heard is not None:
            yield UserTranscript(self._heard)
        yield from self._play(self.scripts.pop(0) if self.scripts else ["Yes."], request.cancelled)

    def _play(self, script: list[str | Flag | Exception], cancelled: Flag) -> Iterator[Token]:
        for step in script:
            match step:
                case str():
                    if cancelled.is_set():
                        return
                    yield Token(step)
                case ToolCall():
                    yield step
                case threading.Event():
                    assert step.wait(SECONDS)
                case _:
                    raise step

    def language(self, reply: str, timestamps: Timestamps) -> str:
        return self.spoken

    def transcribe(self, said: Utterance, cancelled: Flag) -> Iterator[Token]:
        self.inferences += 1
        self.transcribing.set()
        yield from self._play(self._transcript or [self._heard or ""], cancelled)

    def close(self) -> None:
        self.closed = True


class BeepVoice:
    """FakeVoice: 10 ms of tone for each character; `before` is called with each clause first."""

    name = "beep"

    def __init__(self, before: Callable[[str], object] = lambda clause: None) -> None:
        self.clauses: list[str] = []
        self.languages: list[str] = []
        self.speeds: list[float | None] = []
        """of each clause"""
        self._before = before
        self.closed = False

    def warm_up(self, progress: Progress) -> None: ...

    def speak(
        self, clause: str, speed: float | None = None, language: str = "en"
    ) -> Iterator[SpeechChunk]:
        self.clauses.append(clause)
        self.languages.append(language)
        self.speeds.append(speed)
        self._before(clause)
        yield SpeechChunk(np.full(240 * len(clause), 0.3, np.float32), 24_000, clause)

    def close(self) -> None:
        self.closed = True


class FakeSpeaker:
    """Plays at once; `held` makes `finish` wait for a cancel, as if it were still playing.

    `heard` overrides the seconds that `finish` reports after a cancel.
    """

    name = "fake speaker"

    def __init__(self, held: bool = False, heard: float | None = None) -> None:
        self.chunks: list[SpeechChunk] = []
        self.playing = Flag()
        self.finishing = Flag()
        self.held = held
        self._heard = heard
        self._queued = 0.0
        self.fails: Exception | None = None
        self.closed = False
        self.chimes: list[float | None] = []

    def open(self) -> None:
        if self.fails:
            raise self.fails

    def play(self, chunk: SpeechChunk, timestamps: Timestamps, stopped: StopFlag) -> None:
        if self.fails:
            raise self.fails
        if stopped.is_set():
            return
        self.chunks.append(chunk)
        self._queued += chunk.seconds
        timestamps.record(Milestone.FIRST_SOUND)
        self.playing.set()

    def finish(self, timestamps: Timestamps, stopped: StopFlag) -> float:
        self.finishing.set()
        poll = Flag()
        while self.held and not stopped.is_set():
            poll.wait(0.001)
        timestamps.record(Milestone.LAST_SOUND)
        heard = self._heard if stopped.is_set() and self._heard is not None else self._queued
        self._queued = 0.0
        return heard

    def chime(self, at: float | None) -> None:
        self.chimes.append(at)

    def close(self) -> None:
        self.closed = True


class FakeMicrophone:
    """Delivers the frames a test pushes."""

    name = "fake microphone"

    def __init__(self, fails: DeviceError | None = None) -> None:
        self.level = 0.0
        self.fails = fails
        self.opened = 0
        self.closed = False
        self.attended: list[bool] = []
        """each change, by the engine"""
        self._sink: Callable[[Frame], None] | None = None
        self._lost: Callable[[str], None] | None = None

    def open(self, sink: Callable[[Frame], None], lost: Callable[[str], None]) -> None:
        if self.fails:
            raise self.fails
        self._sink, self._lost = sink, lost
        self.opened += 1
        self.closed = False

    def push(self, items: list[Frame]) -> None:
        for frame in items:
            if self._sink:
                self._sink(frame)

    def attend(self, attended: bool) -> None:
        if self.attended[-1:] != [attended]:
            self.attended.append(attended)

    def unplug(self) -> None:
        if self._lost:
            self._lost("The microphone was unplugged.")

    def close(self) -> None:
        self.closed = True
        self._sink = None


@dataclass
class FakeSoundSystem:
    """Implements SoundSystem by two functions."""

    fallback_devices: Callable[[], tuple[Microphone, Speaker]] | None = None
    sound_system: Callable[[], object] = lambda: None

    def default_devices(self) -> tuple[Microphone, Speaker]:
        assert self.fallback_devices is not None
        return self.fallback_devices()

    def version(self) -> object:
        return self.sound_system()


class Events:
    """Collects what an engine emits, and waits for it."""

    def __init__(self) -> None:
        self.seen: list[Event] = []
        self._queue: queue.SimpleQueue[Event] = queue.SimpleQueue()

    def __call__(self, event: Event) -> None:
        self._queue.put(event)

    def until(self, kind: type, where: Callable[[Event], bool] = lambda event: True) -> Event:
        """Return the next event of `kind`. Raises the exception that ended the engine."""
        while True:
            event = self._queue.get(timeout=SECONDS)
            self.seen.append(event)
            if isinstance(event, Died):
                raise event.error
            if isinstance(event, kind) and where(event):
                return event

    def drain(self) -> None:
        """All that was emitted counts as seen."""
        while not self._queue.empty():
            self.seen.append(self._queue.get())

    def of(self, kind: type) -> list[Event]:
        """Those that were seen, by `until` or `drain`."""
        return [event for event in self.seen if isinstance(event, kind)]


OUT_OF_MEMORY = ModelError("Out of memory.")


def engine_on_fakes(emit: Callable[[Event], object], **components: Any) -> Engine:
    """Return the real engine with these `components`; by default without any device.

    They have the names of Models, Devices and the arguments of Engine; `fallback_devices` and
    `sound_system` are the functions of a FakeSoundSystem.
    """

    def pick(*names: str) -> dict[str, Any]:
        return {name: components.pop(name) for name in names if name in components}

    fakes = {"detector": LoudIsSpeech(), "brain": ScriptedBrain()}
    names = ("detector", "brain", "voice", "overhearing", "owned", "name_detector")
    models = Models(**{**fakes, **pick(*names)})
    system = FakeSoundSystem(**pick("fallback_devices", "sound_system"))
    devices = Devices(
        **pick("microphone", "speaker"), system=system if system.fallback_devices else None
    )
    config = components.pop("config", None) or Config()
    front_end = FrontEnd(**pick("captions", "confirms"))
    return Engine(models, config, emit, devices, front_end=front_end, **components)


def noted(command: Command) -> tuple[object, ...]:
    """Return what a test compares of a command."""
    match command:
        case Talk(at):
            return ("talk", at)
        case Release(at):
            return ("release", at)
        case Cancel():
            return ("cancel",)
        case SendText(text):
            return ("say", text)
        case Attach(given):
            return ("give", given)
        case ReplaceComponents():
            return ("change", command)
        case Redo(turn, text):
            return ("redo", turn, text)
        case Speak(text):
            return ("speak", text)
        case Mute(muted):
            return ("mute", muted)
        case RescanDevices():
            return ("rescan_devices",)
        case RecallConversation():
            return ("recall_conversation",)
        case NewConversation(past):
            return ("new_conversation", past) if past else ("new_conversation",)
        case _:
            return (command,)


class ScriptedEngine:
    """Replaces the Engine under a front end: notes every command, and reports scripted events.

    `report(*events)` is what a test lets happen; nothing happens by itself.
    """

    def __init__(self, emit: Callable[[Event], object]) -> None:
        self.report_one = emit
        self.calls: list[tuple[object, ...]] = []
        self.typed: list[str] = []
        self.level = 0.002
        self.seconds_left: float | None = None
        self.state = State.LOADING
        self.turns = 0
        self.past: Past = ()
        self.ringing = False

    def report(self, *events: Event) -> None:
        for event in events:
            if isinstance(event, StateChanged):
                self.state = event.state
            self.report_one(event)

    def load(self, microphone: str | None = "a microphone", changed: bool = False) -> None:
        """Report the parts as at the start or after a loss; `changed`: as after a choice."""
        loaded = Loaded(
            "scripted brain",
            "a voice",
            microphone,
            "a speaker",
            brain_name="voxtral",
            changed=changed,
        )
        self.report(loaded, StateChanged(State.READY))

    def begin(self, source: str = "microphone", at: float = 100.0) -> Timestamps:
        """Start the next turn, which was released at `at`."""
        self.turns += 1
        timestamps = Timestamps()
        timestamps.record(Milestone.RELEASED, at)
        self.report(TurnStarted(self.turns, source, timestamps))
        return timestamps

    def finish(self, outcome: Outcome = Outcome.ANSWERED, **fields: Any) -> None:
        """End the turn; `fields` are those of Turn."""
        turn = Turn(self.turns, "scripted", outcome, **{"timestamps": {"released": 0.0}, **fields})
        self.report(TurnFinished(turn), StateChanged(State.READY))

    def start(self, past: Past = ()) -> None:
        self.past = past
        self.calls.append(("start",))
        self.report(StateChanged(State.LOADING))

    def push(self, frame: Frame) -> None:
        self.calls.append(("hear", frame))

    def post(self, command: Command) -> int:
        match command:
            case Silence():
                rings, self.ringing = self.ringing, False
                return -1 if rings else 0
            case Typing(text):
                self.typed.append(text)
                return 0
            case _:
                self.calls.append(noted(command))
        return self.turns + 1 if isinstance(command, NewTurn) else 0

    def close(self, seconds: float | None = None) -> None:
        self.calls.append(("close",))


@dataclass(frozen=True)
class ListedDevice:
    """A device as `list_devices` names it, as far as a palette shows it."""

    name: str
    inputs: int
    outputs: int
    host: str = "ALSA"


DEVICES = [ListedDevice("USB Microphone", 1, 0), ListedDevice("Headphones", 0, 2)]


def make_factories(**given: Any) -> Any:
    """Makers of fakes, but for those that are `given`."""
    made = {
        "microphone": lambda config: FakeMicrophone(),
        "speaker": lambda config: FakeSpeaker(),
        "brain": lambda config, notify: ScriptedBrain(),
        "voice": lambda config: None if config.voice.engine == "none" else BeepVoice(),
        "reload": lambda config, notify, may_download: ReplaceComponents(
            config, brain=ScriptedBrain(), voice=BeepVoice()
        ),
        "devices": lambda: DEVICES,
        "cancels_echo": lambda config: False,
    }
    return SimpleNamespace(**{**made, **given})
