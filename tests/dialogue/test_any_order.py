"""Invariants of the engine's turns under random commands in random order."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.fakes import (
    OUT_OF_MEMORY,
    SECONDS,
    BeepVoice,
    Events,
    FakeMicrophone,
    FakeSpeaker,
    Flag,
    ScriptedBrain,
    engine_on_fakes,
)
from voxtui.dialogue.components import sound_devices
from voxtui.dialogue.data import (
    FRAME_SAMPLES,
    FRAME_SECONDS,
    Frame,
    SpeechChunk,
    Token,
    UserTranscript,
)
from voxtui.dialogue.engine_commands import (
    Cancel,
    Mute,
    NewConversation,
    Redo,
    Release,
    ReplaceComponents,
    SendText,
    Speak,
    Talk,
)
from voxtui.dialogue.events import (
    Captured,
    Event,
    Loaded,
    Notice,
    ReplyText,
    SpokenUpTo,
    State,
    StateChanged,
    TurnFinished,
    TurnStarted,
    UserWords,
)
from voxtui.dialogue.history.history import History
from voxtui.dialogue.protocols import Past, StopFlag, TurnRequest
from voxtui.dialogue.timestamps import Milestone, Outcome, Timestamps, Turn
from voxtui.settings.schema import Config, HistoryConfig, VadConfig

REPLY = ("One", " two", " three.", " Four", " five", " six.", " Seven.")
BEEP = 0.01
"""seconds that BeepVoice takes for a character"""

NUMBERED = 2**17
"""Frames bear their number in their first sample, in parts of this."""

FORGOTTEN = Notice("the history is empty now")

FLOWS = (
    Milestone.CAPTURED,
    Milestone.FIRST_TOKEN,
    Milestone.FIRST_CLAUSE,
    Milestone.FIRST_AUDIO,
    Milestone.FIRST_SOUND,
    Milestone.LAST_SOUND,
)
"""Each is the cause of the next."""


@dataclass
class Gate:
    """Lets replies and their sound through, or holds them in their middle."""

    held: bool = False
    fails: Exception | None = None
    go_on: threading.Condition = field(default_factory=threading.Condition)

    def pass_through(self, stopped: StopFlag) -> None:
        with self.go_on:
            while self.held and not stopped.is_set():
                self.go_on.wait(0.001)

    def hold(self, held: bool) -> None:
        with self.go_on:
            self.held = held
            self.go_on.notify_all()


class GatedBrain(ScriptedBrain):
    """Answers each turn with REPLY; fails in its middle where the gate says so."""

    def __init__(self, gate: Gate, asked: list[tuple[int, Past]], told: Callable[[], int]) -> None:
        super().__init__()
        self._gate = gate
        self._asked = asked
        self._told = told

    def reply(self, request: TurnRequest) -> Iterator[UserTranscript | Token]:
        self._asked.append((self._told(), request.past))
        yield UserTranscript(
            request.user_input if isinstance(request.user_input, str) else "what was said"
        )
        for number, text in enumerate(REPLY):
            if number == 4:
                self._gate.pass_through(request.cancelled)
                fails, self._gate.fails = self._gate.fails, None
                if fails:
                    raise fails
            if request.cancelled.is_set():
                return
            yield Token(text)


class HalfHeard(FakeSpeaker):
    """Belongs to one reply until it is finished; of one that is stopped, half is heard."""

    def __init__(self, gate: Gate) -> None:
        super().__init__()
        self._gate = gate
        self._reply: Timestamps | None = None
        self.heard_of: dict[int, float] = {}

    def play(self, chunk: SpeechChunk, timestamps: Timestamps, stopped: StopFlag) -> None:
        assert self._reply in (None, timestamps), "the reply before was never finished"
        self._reply = timestamps
        super().play(chunk, timestamps, stopped)

    def finish(self, timestamps: Timestamps, stopped: StopFlag) -> float:
        self._gate.pass_through(stopped)
        self._reply = None
        self._heard = self._queued / 2
        heard = super().finish(timestamps, stopped)
        self.heard_of[id(timestamps)] = heard
        return heard


class AnyOrder(RuleBasedStateMachine):
    """Random presses, frames, texts, losses and changes."""

    @initialize(hands_free=st.booleans(), turns=st.integers(0, 2))
    def start(self, hands_free: bool, turns: int) -> None:
        self.gate = Gate()
        self.now = time.monotonic() - 7200.0
        self.frame = 0
        self.turn: int | None = None
        """being talked"""
        self.source = "microphone"
        self.reads = False
        """a text was read aloud"""
        self.asked: list[tuple[int, Past]] = []
        self.microphones = [FakeMicrophone()]
        self.brains = [self.brain()]
        self.speaker = HalfHeard(self.gate)
        self.events = Events()
        self.log: list[Event] = []
        self.config = Config(
            vad=VadConfig(hands_free=hands_free),
            history=HistoryConfig(turns=turns, max_tokens=32_000),
        )
        self.engine = engine_on_fakes(
            self.emit,
            microphone=self.microphones[0],
            speaker=self.speaker,
            brain=self.brains[0],
            voice=BeepVoice(),
            config=self.config,
            fallback_devices=self.fallback_devices,
        )
        log, forget = self.log, History.forget

        def forget_and_note(history: History) -> None:
            log.append(FORGOTTEN)
            forget(history)

        self.patches = (
            patch.object(History, "forget", forget_and_note),
            # Devices come back by the clock: this would depend on how fast the machine is.
            patch.object(sound_devices, "LOOK_SECONDS", math.inf),
        )
        for each in self.patches:
            each.start()
        self.engine.start()
        self.events.until(StateChanged, lambda event: event == StateChanged(State.READY))

    def brain(self) -> GatedBrain:
        return GatedBrain(self.gate, self.asked, lambda: len(self.log))

    def fallback_devices(self) -> tuple[FakeMicrophone, HalfHeard]:
        self.microphones.append(FakeMicrophone())
        return self.microphones[-1], self.speaker

    def emit(self, event: Event) -> None:
        self.log.append(event)
        self.events(event)

    def until(self, so: Callable[[], bool]) -> None:
        poll, end = Flag(), time.monotonic() + SECONDS
        while not so():
            assert not poll.wait(0.001) and time.monotonic() < end

    # What a person does.

    @rule()
    def press(self) -> None:
        self.turn, self.source = self.engine.post(Talk(self.now)), "microphone"

    @rule()
    def begin_a_clip(self) -> None:
        self.source = f"{self.frame}.wav"
        self.turn = self.engine.post(Talk(self.now, source=self.source))

    @rule(loud=st.booleans(), count=st.sampled_from([1, 3, 8]))
    def hear(self, loud: bool, count: int) -> None:
        """Push frames; while a clip plays, the microphone is silent."""
        for _ in range(count):
            self.frame += 1
            self.now += FRAME_SECONDS
            clip = self.source != "microphone"
            self.microphones[-1].push([self.sound(loud and not clip, "microphone")])
            if clip:
                self.engine.push(self.sound(loud, self.source))

    def sound(self, loud: bool, source: str) -> Frame:
        samples = np.full(FRAME_SAMPLES, 0.5 if loud else 0.0, np.float32)
        samples[0] = self.frame / NUMBERED
        return Frame(samples, self.now, source)

    @precondition(lambda self: self.turn is not None)
    @rule(late=st.sampled_from([0.0, 0.1, 0.5]))
    def release(self, late: float) -> None:
        self.engine.post(Release(self.now - late, self.turn))
        self.turn, self.source = None, "microphone"

    @rule(clip=st.booleans(), words=st.integers(8, 20), late=st.sampled_from([0.0, 0.1]))
    def talk(self, clip: bool, words: int, late: float) -> None:
        """Press the key, speak, release."""
        if clip:
            self.begin_a_clip()
        else:
            self.press()
        self.hear(True, words)
        self.hear(False, round(late / FRAME_SECONDS))
        self.release(late)
        self.hear(False, 4)

    @rule(words=st.integers(8, 20))
    def speak(self, words: int) -> None:
        """Speak without a key."""
        self.hear(True, words)
        self.hear(False, 30)

    @rule()
    def talk_and_listen(self) -> None:
        self.gate.hold(False)
        self.talk(clip=False, words=10, late=0.0)
        self.listen()

    @rule(seconds=st.sampled_from([0.002, 0.01]))
    def listen(self, seconds: float = 0.01) -> None:
        """Let the engine go on for a moment."""
        Flag().wait(seconds)

    @rule()
    def drop(self) -> None:
        self.engine.post(Cancel())
        self.turn, self.source = None, "microphone"

    @rule()
    def interrupt(self) -> None:
        self.engine.post(Cancel())

    @rule()
    def type(self) -> None:
        self.turn, self.source = None, "microphone"
        self.engine.post(SendText("typed"))

    @rule(back=st.integers(0, 2), text=st.none() | st.just("corrected"))
    def again(self, back: int, text: str | None) -> None:
        self.turn, self.source = None, "microphone"
        turns = [event.turn for event in self.log if isinstance(event, TurnStarted)]
        self.engine.post(Redo(turns[-1 - back] if back < len(turns) else 0, text))

    @rule()
    def forget(self) -> None:
        self.turn, self.source = None, "microphone"
        self.engine.post(NewConversation())

    @rule()
    def read_aloud(self) -> None:
        self.turn, self.source = None, "microphone"
        self.reads = True
        assert self.engine.post(Speak("Read this aloud.")) < 0

    @rule(muted=st.booleans())
    def mute(self, muted: bool) -> None:
        self.engine.post(Mute(muted))

    @rule()
    def unplug(self) -> None:
        lost = self.microphones[-1]
        if lost.closed:
            return
        self.gate.hold(False)
        self.turn, self.source = None, "microphone"
        before = self.loaded()
        lost.unplug()
        # Frames between the two microphones are lost, and may be.
        self.until(lambda: lost.closed and self.loaded() > before)

    @rule(brain=st.booleans())
    def choose(self, brain: bool) -> None:
        self.turn, self.source = None, "microphone"
        self.gate.hold(False)
        before = self.changes()
        if brain:
            self.brains.append(self.brain())
            self.engine.post(ReplaceComponents(self.config, brain=self.brains[-1]))
        else:
            self.engine.post(ReplaceComponents(self.config, voice=BeepVoice()))
        # What is heard meanwhile is lost, and may be.
        self.until(lambda: self.changes() > before)
        self.until(lambda: self.engine.state is not State.LOADING)

    def loaded(self) -> int:
        return sum(isinstance(event, Loaded) for event in self.log)

    def changes(self) -> int:
        return sum(isinstance(event, Loaded) and event.changed for event in self.log)

    @rule(held=st.booleans())
    def hold_answers(self, held: bool) -> None:
        self.gate.hold(held)

    @rule()
    def run_out_of_memory(self) -> None:
        self.gate.fails = OUT_OF_MEMORY

    @rule()
    def wait_until_nothing_is_going_on(self) -> None:
        """One last question, which is answered; all that was before is over then."""
        self.turn, self.source = None, "microphone"
        self.gate.fails = None
        self.gate.hold(False)
        self.engine.post(Mute(False))
        last = self.engine.post(SendText("last"))
        while True:
            finished = self.events.until(TurnFinished)
            assert isinstance(finished, TurnFinished)
            if finished.turn.number == last:  # "last" may also be asked again
                break
        self.events.until(StateChanged, lambda event: event == StateChanged(State.READY))
        self.check(finished.turn)

    def teardown(self) -> None:
        if not hasattr(self, "engine"):
            return
        try:
            self.wait_until_nothing_is_going_on()
        finally:
            self.gate.hold(False)
            self.engine.close()
            for each in self.patches:
                each.stop()
        assert all(brain.closed for brain in self.brains[:-1]) and self.brains[-1].closed

    # What always holds.

    def check(self, last: Turn) -> None:
        assert last.outcome is Outcome.ANSWERED and last.reply == "".join(REPLY)
        log = list(self.log)
        self.check_events(log)
        self.check_history(log)
        self.check_frames(log)
        busy = [t for t in threading.enumerate() if t.name.startswith("voxtui")]
        lasting = sorted(t.name for t in busy if t.name != "voxtui-flush")
        assert lasting == ["voxtui-engine", "voxtui-voice"]

    def check_events(self, log: list[Event]) -> None:
        """One turn at a time, and everything of it while it lasts."""
        started: TurnStarted | None = None
        cut: str | None = None
        shown: dict[int, str] = {}
        numbers = [event.turn for event in log if isinstance(event, TurnStarted)]
        assert numbers == sorted(set(numbers))
        finished: set[int] = set()
        for event in log:
            match event:
                case TurnStarted():
                    assert started is None
                    started = event
                case TurnFinished(turn) if turn.number not in numbers:  # it could not begin
                    assert started is None and turn.number not in finished
                    assert (turn.outcome, turn.reply) == (Outcome.CANCELLED, "")
                    finished.add(turn.number)
                case TurnFinished(turn):
                    assert started is not None and started.turn == turn.number
                    finished.add(turn.number)
                    assert shown.get(turn.number, "") == turn.reply
                    self.check_marks(started, turn)
                    if cut is not None:
                        self.check_heard(started, turn, cut)
                    started = cut = None
                case ReplyText(number, text):
                    assert started is not None and started.turn == number
                    shown[number] = shown.get(number, "") + text
                case SpokenUpTo(number, text):
                    assert started is not None and started.turn == number
                    cut = text
                case Captured(number) | UserWords(number):
                    assert started is not None and started.turn == number
                case StateChanged(State.READY):
                    assert started is None
                case StateChanged(State.LISTENING | State.THINKING):
                    assert started is not None
                case StateChanged(State.SPEAKING):
                    assert started is not None or self.reads
                case _:
                    pass
        assert started is None

    def check_marks(self, started: TurnStarted, turn: Turn) -> None:
        times = [turn.timestamps[mark] for mark in FLOWS if mark in turn.timestamps]
        assert times == sorted(times)
        assert set(turn.timestamps) <= {mark.value for mark in Milestone}
        if turn.tokens:
            assert turn.timestamps["first_token"] >= turn.timestamps["released"]
        assert ("last_token" in turn.timestamps) >= (turn.outcome is Outcome.ANSWERED)
        if turn.outcome is Outcome.ANSWERED:
            assert turn.reply == "".join(REPLY)
        if turn.outcome is Outcome.FAILED:
            assert turn.error == "Out of memory."

    def check_history(self, log: list[Event]) -> None:
        """Check that the past of each reply is what had been heard until then."""
        for at, past in self.asked:
            assert [turn.reply_text for turn in past] == past_of_the_last_turn(log[:at])

    def check_heard(self, started: TurnStarted, turn: Turn, heard: str) -> None:
        """By the speaker's own account, to a word."""
        seconds = self.speaker.heard_of[id(started.timestamps)]
        assert heard == turn.reply[: len(heard)]
        assert seconds - 8 * BEEP < len(heard) * BEEP < seconds + 4 * BEEP

    def check_frames(self, log: list[Event]) -> None:
        """No frame is lost inside an utterance, none is in two, and none came after its end."""
        seen: set[tuple[str, int]] = set()
        started = {event.turn: event for event in log if isinstance(event, TurnStarted)}
        sources = {number: event.source for number, event in started.items()}
        for event in log:
            if not isinstance(event, Captured) or sources[event.turn] == "replay":
                continue
            released = started[event.turn].timestamps.at(Milestone.RELEASED)
            assert released is not None
            assert event.utterance.ended_at < released + 0.2 + 2 * FRAME_SECONDS
            sound = event.utterance.samples[: -3200 or None].reshape(-1, FRAME_SAMPLES)
            numbers = [round(float(frame[0]) * NUMBERED) for frame in sound]
            assert numbers == [*range(numbers[0], numbers[0] + len(numbers))]
            named = {(sources[event.turn], number) for number in numbers}
            assert not seen & named
            seen |= named


def past_of_the_last_turn(log: list[Event]) -> list[str]:
    """Return the heard replies that the last turn of `log` may know."""
    past: list[tuple[int, str]] = []
    replaces, heard = None, None
    for event in log:
        match event:
            case Notice(FORGOTTEN.message):
                past = []
            case TurnStarted(_, _, _, replaces):
                assert replaces is None or past[-1][0] == replaces
                heard = None
            case SpokenUpTo(_, heard):
                pass
            case TurnFinished(turn):
                kept = kept_of(turn, heard)
                if kept and replaces:
                    past.pop()
                if kept:
                    past.append((turn.number, kept))
                replaces = None
            case _:
                pass
    if replaces:
        past.pop()
    return [reply for _, reply in past]


def kept_of(turn: Turn, heard: str | None) -> str:
    """Return the whole tokens of its reply that were heard."""
    if turn.outcome not in (Outcome.ANSWERED, Outcome.CANCELLED):
        return ""
    whole = ""
    for text in REPLY[: turn.tokens]:
        if heard is not None and len(whole + text) > len(heard):
            break
        whole += text
    return whole


def explore(examples: int, steps: int, *, afresh: bool = True) -> None:
    run_state_machine_as_test(
        AnyOrder,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            derandomize=not afresh,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )


def test_each_turn_ends_once_and_the_history_holds_the_heard_parts() -> None:
    explore(examples=30, steps=25, afresh=False)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_each_turn_ends_once_over_long_random_conversations() -> None:
    explore(examples=1000, steps=50)
