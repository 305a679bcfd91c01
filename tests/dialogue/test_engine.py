"""The real engine on small fakes at its seams."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pytest

from tests.fakes import (
    LONG_AGO,
    OUT_OF_MEMORY,
    SECONDS,
    BeepVoice,
    Events,
    FakeMicrophone,
    FakeSpeaker,
    Flag,
    LoudIsSpeech,
    ScriptedBrain,
    engine_on_fakes,
    frames,
)
from voxtui.dialogue.commands import ReplaceParts
from voxtui.dialogue.data import FRAME_SECONDS, Frame, Token, Utterance
from voxtui.dialogue.engine import Engine
from voxtui.dialogue.events import (
    Captured,
    ChangeFailed,
    Died,
    Loaded,
    LoadFailed,
    Loading,
    MicrophoneLost,
    MicrophoneOpened,
    Notice,
    ReplyText,
    SpokenUpTo,
    State,
    StateChanged,
    TurnFinished,
    TurnStarted,
    UserWords,
)
from voxtui.dialogue.interfaces import Progress
from voxtui.dialogue.marks import Mark, Outcome, Turn
from voxtui.errors import DeviceError, ModelError, RemoteError, VoxtuiError
from voxtui.settings.schema import (
    BrainConfig,
    Config,
    HistoryConfig,
    StreamingConfig,
    VadConfig,
    VoiceConfig,
    VoxtralBrainConfig,
)

SPEECH = "..xxxxxxxxxx..."

WITHOUT_TRANSCRIPTS = BrainConfig(voxtral=VoxtralBrainConfig(idle_transcript=False))


@dataclass
class Talk:
    """An engine, its parts and its events."""

    engine: Engine
    brain: ScriptedBrain
    voice: BeepVoice
    speaker: FakeSpeaker
    microphone: FakeMicrophone
    events: Events

    def speak(self, pattern: str = SPEECH, at: float = 1000.0) -> None:
        """Hold the key from `at` while `pattern` is heard, and let go at its end."""
        self.engine.talk(at)
        self.microphone.push(frames(pattern, at))
        self.engine.release(at + len(pattern) * FRAME_SECONDS)

    def turn(self) -> Turn:
        event = self.events.until(TurnFinished)
        assert isinstance(event, TurnFinished)
        return event.turn

    def ask(self, pattern: str = SPEECH, at: float = 1000.0) -> Turn:
        self.speak(pattern, at)
        return self.turn()


@contextmanager
def talking(
    brain: ScriptedBrain | None = None,
    *,
    voice: BeepVoice | None = None,
    silent: bool = False,
    speaker: FakeSpeaker | None = None,
    microphone: FakeMicrophone | None = None,
    config: Config | None = None,
    fallback_devices: Callable[[], tuple[FakeMicrophone, FakeSpeaker]] | None = None,
    overhearing: LoudIsSpeech | None = None,
    detector: LoudIsSpeech | None = None,
    loaded: bool = True,
) -> Iterator[Talk]:
    """`silent`: the engine has no voice. `loaded` False: begins before the models are."""
    brain = brain or ScriptedBrain()
    voice = voice or BeepVoice()
    speaker = speaker or FakeSpeaker()
    microphone = microphone or FakeMicrophone()
    events = Events()
    engine = Engine(
        microphone=microphone,
        speaker=speaker,
        detector=detector or LoudIsSpeech(),
        brain=brain,
        voice=None if silent else voice,
        config=config or Config(),
        emit=events,
        fallback_devices=fallback_devices,
        overhearing=overhearing,
    )
    engine.start()
    try:
        if loaded:
            events.until(StateChanged, lambda e: e == StateChanged(State.READY))
        yield Talk(engine, brain, voice, speaker, microphone, events)
    finally:
        engine.close()
        join_stragglers()
        left = [t.name for t in threading.enumerate() if t.name.startswith("voxtui")]
        assert left == []


def join_stragglers() -> None:
    """Voices at a clause that nobody wants any more and cancelled timers end by themselves."""
    for thread in threading.enumerate():
        if thread.name in ("voxtui-voice", "voxtui-flush"):
            thread.join(SECONDS)


def text(events: Events) -> str:
    return "".join(e.text for e in events.of(ReplyText) if isinstance(e, ReplyText))


def notices(events: Events) -> str:
    return " ".join(str(event) for event in events.of(Notice))


def test_a_spoken_turn_is_answered_in_text_and_speech() -> None:
    with talking(ScriptedBrain(["Hello", " there", "."])) as talk:
        turn = talk.ask()
        assert (turn.outcome, turn.heard, turn.reply, turn.tokens) == (
            Outcome.ANSWERED,
            "what was said",
            "Hello there.",
            3,
        )
        assert text(talk.events) == "Hello there."
        assert talk.voice.clauses == ["Hello there."]
        assert [type(e) for e in talk.events.seen if not isinstance(e, ReplyText | StateChanged)][
            -4:
        ] == [TurnStarted, Captured, UserWords, TurnFinished]


def test_states_follow_the_turn() -> None:
    with talking() as talk:
        talk.ask()
        talk.events.until(StateChanged)
        states = [e.state for e in talk.events.of(StateChanged) if isinstance(e, StateChanged)]
        assert states == [
            State.LOADING,
            State.READY,
            State.LISTENING,
            State.THINKING,
            State.SPEAKING,
            State.READY,
        ]


def test_marks_come_in_order_and_are_relative_to_the_release() -> None:
    with talking() as talk:
        marks = talk.ask().marks
        assert marks["released"] == 0.0
        assert marks["speech_ended"] == pytest.approx(-3 * FRAME_SECONDS)
        order = [
            Mark.CAPTURED,
            Mark.FIRST_TOKEN,
            Mark.FIRST_CLAUSE,
            Mark.FIRST_AUDIO,
            Mark.FIRST_SOUND,
        ]
        times = [marks[mark] for mark in order]
        assert times == sorted(times)
        assert "cancelled" not in marks


def test_every_token_is_shown_before_the_next_exists() -> None:
    """L1: nothing is collected before it is shown."""
    more = Flag()
    with talking(ScriptedBrain(["One", more, " two"])) as talk:
        talk.speak()
        shown = talk.events.until(ReplyText)
        assert isinstance(shown, ReplyText) and shown.text == "One"
        more.set()
        assert talk.turn().reply == "One two"


def test_a_slow_voice_delays_no_token_and_loses_none() -> None:
    """L1: the text is complete while the voice is still busy with its first clause."""
    speaking, go_on = Flag(), Flag()

    def slow(clause: str) -> None:
        speaking.set()
        assert go_on.wait(SECONDS)

    words = ["First", " clause", ". ", *[f"word{i} " for i in range(100)]]
    with talking(ScriptedBrain(words), voice=BeepVoice(slow)) as talk:
        talk.speak()
        assert speaking.wait(SECONDS)
        talk.events.until(ReplyText, lambda e: "word99" in text(talk.events))
        go_on.set()
        assert talk.turn().reply == "".join(words)


def test_chunk_settings_are_obeyed() -> None:
    """L2: min_words gathers on the screen, and never delays the first token's mark."""
    more = Flag()
    config = Config(streaming=StreamingConfig(min_words=3, max_words=3, flush_ms=5000))
    with talking(ScriptedBrain(["one", " two", more, " three", " four"]), config=config) as talk:
        talk.speak()
        started = talk.events.until(TurnStarted)
        assert isinstance(started, TurnStarted)
        poll = Flag()
        while started.marks.at(Mark.FIRST_TOKEN) is None:
            assert not poll.wait(0.001)
        assert text(talk.events) == ""
        more.set()
        talk.turn()
        assert [e.text for e in talk.events.of(ReplyText)] == ["one two three", " four"]  # type: ignore[attr-defined]


def test_first_token_first_shown_and_first_sound_are_three_marks() -> None:
    """L3: the engine marks the token, the speaker the sound, and a front end the screen."""
    with talking() as talk:
        marks = talk.ask().marks
        assert "first_token" in marks and "first_sound" in marks and "first_shown" not in marks


def test_a_turn_is_one_inference() -> None:
    """L5: the user's words are not bought with a second run of the model."""
    with talking() as talk:
        talk.ask()
        talk.ask(at=2000.0)
        assert talk.brain.inferences == 2


def test_history_holds_audio_then_a_placeholder() -> None:
    """L5: past history.turns a user's turn is text, without asking the model for it."""
    config = Config(history=HistoryConfig(turns=1), brain=WITHOUT_TRANSCRIPTS)
    with talking(ScriptedBrain(heard=None), config=config) as talk:
        for i in range(3):
            talk.ask(at=1000.0 + 100 * i)
        oldest, newest = talk.brain.pasts[-1]
        assert isinstance(newest.said, Utterance)
        samples = len(newest.said.samples)
        assert oldest.said == f"[User audio input - {samples} samples, {samples / 16000:.2f}s]"
        assert talk.brain.inferences == 3


def test_a_new_conversation_remembers_nothing() -> None:
    with talking() as talk:
        talk.ask()
        talk.engine.new_conversation()
        talk.ask(at=2000.0)
        assert list(talk.brain.pasts[-1]) == []


def test_a_failing_voice_costs_the_sound_and_nothing_else() -> None:
    """L6, with the very error it is named after."""

    def broken(clause: str) -> None:
        raise NameError("name 'tts_manager' is not defined")

    with talking(
        ScriptedBrain(["One. ", "Two. ", "Three."], ["Next."]), voice=BeepVoice(broken)
    ) as talk:
        turn = talk.ask()
        assert (turn.outcome, turn.reply) == (Outcome.ANSWERED, "One. Two. Three.")
        notices = [e.message for e in talk.events.of(Notice)]  # type: ignore[attr-defined]
        assert len(notices) == 1 and "tts_manager" in notices[0]
        assert talk.ask(at=2000.0).reply == "Next."
        assert len(talk.brain.pasts[-1]) == 1


def test_a_voice_that_hangs_is_given_up_after_its_timeout_until_another_is_chosen() -> None:
    """L6: its thread cannot be stopped, so it is left alone and the next answer is silent too."""
    release = Flag()
    config = Config(voice=VoiceConfig(timeout_s=0.05))

    def hang(clause: str) -> None:
        release.wait(SECONDS)

    with talking(ScriptedBrain(["One."], ["Two."]), voice=BeepVoice(hang), config=config) as talk:
        turn = talk.ask()
        assert (turn.outcome, turn.reply) == (Outcome.ANSWERED, "One.")
        assert "0.05 s" in str(talk.events.of(Notice)[0])
        assert talk.ask(at=2000.0).reply == "Two."
        assert talk.voice.clauses == ["One."]
        another = BeepVoice()
        talk.engine.replace_parts(ReplaceParts(Config(), voice=another))
        talk.engine.send_text("hello")
        assert talk.turn().reply == "Yes."
        assert another.clauses == ["Yes."]
        release.set()


def test_a_lost_speaker_costs_the_sound_and_nothing_else() -> None:
    speaker = FakeSpeaker()
    with talking(speaker=speaker) as talk:
        speaker.fails = DeviceError("The speaker was unplugged.")
        assert talk.ask().outcome is Outcome.ANSWERED
        assert "unplugged" in str(talk.events.of(Notice)[0])


def test_models_are_warm_before_ready() -> None:
    """L7: READY is only reached after the brain has warmed up."""
    with talking() as talk:
        assert talk.brain.warmed
        parts = Loaded(
            "scripted brain", "beep", "fake microphone", "fake speaker", brain_name="scripted"
        )
        assert talk.events.seen[-2:] == [parts, StateChanged(State.READY)]


@pytest.mark.parametrize("pattern", ["..............", "..xxx........."])
def test_silence_is_not_sent_to_the_model(pattern: str) -> None:
    """L8: less than 200 ms of speech is no utterance."""
    with talking() as talk:
        turn = talk.ask(pattern)
        assert turn.outcome is Outcome.NO_SPEECH
        assert talk.brain.inferences == 0


@pytest.mark.parametrize("pattern", [".......", "..xx...", "", "xxxxxxx"])
def test_a_tap_sends_nothing_unless_something_was_said(pattern: str) -> None:
    with talking() as talk:
        said = pattern.count("x") == 7
        assert talk.ask(pattern).outcome is (Outcome.ANSWERED if said else Outcome.CANCELLED)
        assert talk.brain.inferences == said
        assert talk.events.of(Notice) == []


def test_a_tap_stops_the_answer_and_what_was_heard_of_it_is_kept() -> None:
    speaker, third = FakeSpeaker(held=True, heard=0.14 + 0.1), Flag()
    brain = ScriptedBrain(["One two three. ", "Four five six. ", "Seven."])
    voice = BeepVoice(lambda clause: third.set() if clause == "Seven." else None)
    with talking(brain, voice=voice, speaker=speaker) as talk:
        talk.engine.send_text("tell me")
        assert speaker.playing.wait(SECONDS) and third.wait(SECONDS)
        turn = talk.engine.talk(1000.0)
        talk.engine.release(1000.1, turn)
        assert [talk.turn().outcome for _ in "ab"] == [Outcome.CANCELLED] * 2
        speaker._held = False
        talk.ask(at=2000.0)
        assert talk.brain.pasts[-1][0].reply_text == "One two three. "


def test_sound_that_was_lost_while_somebody_spoke_is_reported() -> None:
    with talking() as talk:
        talk.engine.talk(1000.0)
        for count, frame in enumerate(frames(SPEECH)):
            talk.microphone.push([replace(frame, overflow=count in (2, 5))])
        talk.engine.release(1000.0 + len(SPEECH) * FRAME_SECONDS)
        assert talk.turn().outcome is Outcome.ANSWERED
        assert "was lost: the microphone was not read in time (2 times)" in notices(talk.events)
        talk.ask(at=2000.0)
        assert notices(talk.events).count("was lost") == 1


def test_a_muted_microphone_is_named_as_the_cause() -> None:
    with talking() as talk:
        assert talk.ask("............").outcome is Outcome.NO_SPEECH
        assert "digital silence" in str(talk.events.of(Notice)[0])
        assert talk.ask("....x.......", at=2000.0).outcome is Outcome.NO_SPEECH
        assert len(talk.events.of(Notice)) == 1


@pytest.mark.parametrize("reply", ["!", "5", " 5\n"])
def test_replies_under_two_characters_are_not_spoken(reply: str) -> None:
    """L9."""
    with talking(ScriptedBrain([reply])) as talk:
        assert talk.ask().reply == reply
        assert talk.voice.clauses == []


@pytest.mark.parametrize("reply", [["7\n", "Three and four."], ["One, two.", "\n", "3"]])
def test_one_character_of_a_longer_reply_is_spoken(reply: list[str]) -> None:
    with talking(ScriptedBrain(reply)) as talk:
        talk.ask()
        assert re.sub(r"\W", "", "".join(talk.voice.clauses)) == re.sub(r"\W", "", "".join(reply))


def test_the_brain_gets_the_trimmed_utterance_and_the_same_frames_ahead() -> None:
    with talking() as talk:
        talk.ask("....................xxxxxxxxxx...")
        said = talk.brain.said[0]
        assert isinstance(said, Utterance)
        assert len(said.samples) == (6 + 10) * 512 + 3200
        assert not said.samples[-3200:].any() and said.samples[-3201] != 0
        assert len(talk.brain.frames) == 33
        assert [speech for _, speech in talk.brain.frames].count(True) == 10


def test_sound_from_before_the_key_is_kept() -> None:
    with talking() as talk:
        early = frames("....................xxxxxxxxx", 1000.0)
        talk.microphone.push(early)
        pressed = early[-1].captured_at
        talk.engine.talk(pressed)
        talk.microphone.push(frames("xxx...", pressed))
        talk.engine.release(pressed + 6 * FRAME_SECONDS)
        talk.turn()
        said = talk.brain.said[0]
        assert isinstance(said, Utterance)
        assert len(said.samples) - 3200 >= (0.3 + 3 * FRAME_SECONDS) * 16000


def test_a_release_that_is_older_than_the_talk_does_not_end_it() -> None:
    with talking() as talk:
        talk.engine.talk(1000.0)
        talk.engine.release(999.9)
        spoken = frames(SPEECH, 1000.0)
        talk.microphone.push(spoken)
        talk.engine.release(spoken[-1].captured_at)
        assert talk.turn().outcome is Outcome.ANSWERED
        said = talk.brain.said[0]
        assert isinstance(said, Utterance)
        assert said.ended_at == spoken[11].captured_at


def test_a_release_that_is_meant_for_the_clip_before_does_not_end_the_talk() -> None:
    with talking() as talk:
        clip = talk.engine.talk(1000.0, source="clip.wav")
        spoken = talk.engine.talk(1000.5)
        talk.engine.release(1000.6, clip)
        talk.microphone.push(frames(SPEECH, 1000.5))
        talk.engine.release(1000.5 + len(SPEECH) * FRAME_SECONDS, spoken)
        assert [talk.turn().outcome for _ in "ab"] == [Outcome.CANCELLED, Outcome.ANSWERED]
        assert len(talk.brain.frames) >= len(SPEECH) - 1


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The frames after a release come from the test, which may be kept waiting."""
    monkeypatch.setattr("voxtui.dialogue.listening.RELEASED_SOURCE_SECONDS", SECONDS)


@pytest.mark.usefixtures("patient")
def test_speech_that_goes_on_past_the_release_is_heard() -> None:
    with talking() as talk:
        talk.engine.talk(1000.0)
        spoken = frames("xxxxxxxxxxxx.....", 1000.0)
        talk.microphone.push(spoken[:8])
        talk.engine.release(1000.0 + 8 * FRAME_SECONDS)
        talk.microphone.push(spoken[8:])
        talk.turn()
        said = talk.brain.said[0]
        assert isinstance(said, Utterance)
        assert said.ended_at == spoken[11].captured_at


@pytest.mark.usefixtures("patient")
def test_listening_past_the_release_ends_after_200_ms() -> None:
    with talking() as talk:
        talk.engine.talk(1000.0)
        spoken = frames("x" * 40, 1000.0)
        released = spoken[9].captured_at
        talk.microphone.push(spoken[:10])
        talk.engine.release(released)
        talk.microphone.push(spoken[10:])
        talk.turn()
        said = talk.brain.said[0]
        assert isinstance(said, Utterance)
        assert released + 0.2 <= said.ended_at <= released + 0.2 + FRAME_SECONDS


def test_nothing_captured_while_it_speaks_enters_the_next_utterance() -> None:
    with talking() as talk:
        talk.ask()
        ended = last_sound(talk.events)
        echo = [Frame(f.samples, ended + 0.12, f.source) for f in frames("xxxxx")]
        talk.microphone.push(echo)
        early = frames("xx", ended + 0.11)
        talk.microphone.push(early)
        talk.speak("xxxxxxxxxx...", early[-1].captured_at)
        talk.turn()
        said = talk.brain.said[1]
        assert isinstance(said, Utterance)
        assert len(said.samples) - 3200 == (2 + 10) * 512


def test_a_key_that_goes_down_as_the_answer_ends_hears_none_of_its_echo() -> None:
    with talking() as talk:
        talk.ask()
        talk.events.until(StateChanged, lambda e: e == StateChanged(State.READY))
        talk.speak("xx" + "...." + "xxxxxxxxxx" + "...", last_sound(talk.events))
        talk.turn()
        said = talk.brain.said[1]
        assert isinstance(said, Utterance)
        assert len(said.samples) - 3200 == (4 + 10) * 512


def last_sound(events: Events) -> float:
    started = events.of(TurnStarted)[0]
    assert isinstance(started, TurnStarted)
    at = started.marks.at(Mark.LAST_SOUND)
    assert at is not None
    return at


def test_a_key_press_cuts_the_answer_off_and_history_keeps_what_was_heard() -> None:
    reply = ["One two three. ", "Four five six. ", "Seven."]
    brain = ScriptedBrain(reply, ["Next."])
    speaker, third = FakeSpeaker(held=True, heard=0.14 + 0.1), Flag()
    voice = BeepVoice(lambda clause: third.set() if clause == "Seven." else None)
    with talking(brain, voice=voice, speaker=speaker) as talk:
        talk.speak()
        assert speaker.playing.wait(SECONDS) and third.wait(SECONDS)
        talk.engine.cancel()
        turn = talk.turn()
        assert turn.outcome is Outcome.CANCELLED and "cancelled" in turn.marks
        spoken = talk.events.of(SpokenUpTo)[0]
        assert isinstance(spoken, SpokenUpTo) and spoken.text == "One two three. Four five"
        speaker._held = False
        talk.ask(at=2000.0)
        assert talk.brain.pasts[-1][0].reply_text == "One two three. "


def test_an_answer_nobody_heard_leaves_no_trace() -> None:
    go_on = Flag()
    with talking(ScriptedBrain([go_on, "One."])) as talk:
        talk.speak()
        talk.events.until(UserWords)
        talk.engine.cancel()
        go_on.set()
        assert talk.turn().outcome is Outcome.CANCELLED
        talk.ask(at=2000.0)
        assert talk.brain.pasts == [(), ()]


def test_what_a_brain_still_says_after_the_key_press_is_not_shown() -> None:
    go_on = Flag()

    class Heedless(ScriptedBrain):
        def reply(self, past, said, marks, cancelled):  # type: ignore[no-untyped-def]
            yield from super().reply(past, said, marks, Flag())

    with talking(Heedless(["One", go_on, " two", " three"]), silent=True) as talk:
        talk.speak()
        talk.events.until(ReplyText)
        talk.engine.cancel()
        go_on.set()
        assert talk.turn().reply == text(talk.events) == "One"


def test_talking_over_the_answer_starts_the_next_turn_at_once() -> None:
    speaker = FakeSpeaker(held=True, heard=0.05)
    with talking(ScriptedBrain(["A long story."], ["Yes."]), speaker=speaker) as talk:
        talk.speak()
        assert speaker.playing.wait(SECONDS)
        talk.speak(at=2000.0)
        assert talk.turn().outcome is Outcome.CANCELLED
        speaker._held = False
        assert talk.turn().reply == "Yes."


def test_a_discarded_utterance_is_not_answered() -> None:
    with talking() as talk:
        talk.engine.talk(1000.0)
        talk.microphone.push(frames(SPEECH))
        talk.engine.cancel()
        assert talk.turn().outcome is Outcome.CANCELLED
        assert talk.brain.inferences == 0
        assert talk.brain.listened[0][1].is_set()


def test_a_typed_turn_is_answered_aloud() -> None:
    with talking(ScriptedBrain(["Hi there."])) as talk:
        talk.engine.send_text("hello")
        turn = talk.turn()
        assert (turn.heard, turn.reply) == ("hello", "Hi there.")
        assert turn.ttft_ms is not None and turn.first_sound_ms is not None
        assert talk.voice.clauses == ["Hi there."]


def test_muted_also_in_the_middle_of_a_sentence_the_text_goes_on_without_sound() -> None:
    speaker = FakeSpeaker(held=True)
    with talking(ScriptedBrain(["One."], ["Two."], ["Three."]), speaker=speaker) as talk:
        talk.engine.send_text("first")
        assert speaker.playing.wait(SECONDS)
        talk.engine.mute(True)
        assert talk.turn().outcome is Outcome.ANSWERED
        speaker._held = False
        talk.engine.send_text("second")
        assert talk.turn().reply == "Two."
        assert talk.voice.clauses == ["One."]
        talk.engine.mute(False)
        talk.ask(at=2000.0)
        assert [c.text for c in speaker.chunks] == ["One.", "Three."]


def test_typed_words_are_told_once_and_even_if_the_brain_fails_at_once() -> None:
    class Unreachable(ScriptedBrain):
        def reply(self, *_: object) -> Iterator[Token]:
            raise ModelError("Nobody is there.")

    for brain, outcome in ((ScriptedBrain(), Outcome.ANSWERED), (Unreachable(), Outcome.FAILED)):
        with talking(brain) as talk:
            talk.engine.send_text(" hello ")
            assert talk.turn().outcome is outcome
            assert talk.events.of(UserWords) == [UserWords(1, "hello")]


def test_a_failed_turn_says_why_and_the_next_one_works() -> None:
    with talking(ScriptedBrain(["Well"], heard="x")) as talk:
        talk.brain._scripts[:] = [["Well", OUT_OF_MEMORY], ["Fine."]]  # type: ignore[list-item]
        turn = talk.ask()
        assert (turn.outcome, turn.error) == (Outcome.FAILED, "Out of memory.")
        assert talk.ask(at=2000.0).reply == "Fine."


def test_a_held_key_is_let_go_at_the_longest_utterance() -> None:
    from voxtui.settings.schema import AudioConfig

    with talking(config=Config(audio=AudioConfig(max_utterance_s=1.0))) as talk:
        talk.engine.talk(1000.0)
        talk.microphone.push(frames("x" * 60))
        assert talk.turn().outcome is Outcome.ANSWERED
        assert "1 s" in str(talk.events.of(Notice)[0])


def test_an_unplugged_microphone_keeps_what_was_captured() -> None:
    with talking() as talk:
        talk.engine.talk(LONG_AGO)
        talk.microphone.push(frames(SPEECH, LONG_AGO))
        talk.microphone.unplug()
        assert talk.events.until(MicrophoneLost)
        assert talk.turn().outcome is Outcome.ANSWERED
        talk.engine.talk(LONG_AGO + 500)
        notice = talk.events.until(Notice, lambda e: "no microphone" in str(e))
        assert notice
        talk.engine.send_text("still there?")
        assert talk.turn().outcome is Outcome.ANSWERED


def test_a_lost_microphone_gives_way_to_another_and_the_speaker_stays() -> None:
    spare, last = FakeMicrophone(), FakeMicrophone()
    fallback_devices = iter((spare, last))
    with talking(fallback_devices=lambda: (next(fallback_devices), FakeSpeaker())) as talk:
        talk.engine.talk(LONG_AGO)
        talk.microphone.push(frames(SPEECH, LONG_AGO))
        talk.microphone.unplug()
        assert talk.turn().outcome is Outcome.ANSWERED
        assert talk.microphone.closed and talk.speaker.chunks
        assert "Listening to fake microphone now." in str(talk.events.of(Notice)[1])
        talk.engine.talk(LONG_AGO + 500)
        spare.push(frames(SPEECH, LONG_AGO + 500))
        talk.engine.release(LONG_AGO + 500 + len(SPEECH) * FRAME_SECONDS)
        spare.push(frames("....", LONG_AGO + 500 + len(SPEECH) * FRAME_SECONDS))
        assert talk.turn().outcome is Outcome.ANSWERED
        spare.unplug()  # it has been heard, so it may be replaced too
        talk.events.until(Notice, lambda e: "Listening to" in str(e))
        assert last.opened and not talk.events.of(MicrophoneLost)


def test_a_headset_that_is_unplugged_while_it_speaks_gives_way_to_the_other_devices() -> None:
    """The microphone's loss waits behind the answer; by then the speaker's has replaced both."""
    spare, loud, go = FakeMicrophone(), FakeSpeaker(), Flag()
    with talking(ScriptedBrain([go, "One."]), fallback_devices=lambda: (spare, loud)) as talk:
        talk.engine.send_text("tell me")
        talk.events.until(StateChanged, lambda e: e == StateChanged(State.THINKING))
        talk.microphone.fails = talk.speaker.fails = DeviceError("It is not there.")
        talk.microphone.unplug()
        go.set()
        assert talk.turn().outcome is Outcome.ANSWERED
        talk.engine.talk(LONG_AGO)
        talk.events.until(TurnStarted)
        spare.push(frames(SPEECH, LONG_AGO))
        talk.engine.release(LONG_AGO + len(SPEECH) * FRAME_SECONDS)
        assert talk.turn().outcome is Outcome.ANSWERED
        assert loud.chunks and not spare.closed and not talk.events.of(MicrophoneLost)


def test_a_microphone_that_is_opened_anew_is_not_lost_by_what_happened_before() -> None:
    go = Flag()
    with talking(
        ScriptedBrain([go, "One."]), fallback_devices=lambda: (FakeMicrophone(), FakeSpeaker())
    ) as talk:
        talk.engine.send_text("tell me")
        talk.events.until(StateChanged, lambda e: e == StateChanged(State.THINKING))
        talk.speaker.fails = DeviceError("The sound server has gone.")
        talk.microphone.unplug()  # and the server is back once the answer is over
        go.set()
        assert talk.turn().outcome is Outcome.ANSWERED
        assert talk.ask(at=LONG_AGO).outcome is Outcome.ANSWERED
        assert talk.microphone.opened == 2 and not talk.microphone.closed


def test_one_that_never_delivered_anything_is_not_replaced_for_ever() -> None:
    made: list[FakeMicrophone] = []

    def fallback_devices() -> tuple[FakeMicrophone, FakeSpeaker]:
        made.append(FakeMicrophone())
        return made[-1], FakeSpeaker()

    with talking(fallback_devices=fallback_devices) as talk:
        talk.microphone.unplug()
        talk.events.until(Notice, lambda e: "Listening to" in str(e))
        talk.engine.talk(1000.0, source="clip.wav")
        talk.engine.push_frame(*frames("x", source="clip.wav"))  # which proves nothing
        made[0].unplug()
        assert talk.events.until(MicrophoneLost)
        assert len(made) == 1


def test_a_voice_that_fails_and_a_speaker_that_is_lost_meanwhile_cost_the_sound_only() -> None:
    class Unplugged(FakeSpeaker):
        def finish(self, marks, stopped):  # type: ignore[no-untyped-def]
            raise DeviceError("The speaker was unplugged.")

    def broken(clause: str) -> None:
        raise ValueError

    brain, speaker = ScriptedBrain(["One."], ["Two."]), FakeSpeaker()
    fallback_devices = (FakeMicrophone(), speaker)
    with talking(
        brain,
        voice=BeepVoice(broken),
        speaker=Unplugged(),
        fallback_devices=lambda: fallback_devices,
    ) as talk:
        assert talk.ask().reply == "One."
        talk.events.until(Notice, lambda e: "Speaking through fake speaker" in str(e))
        assert talk.ask(at=2000.0).reply == "Two."


def test_a_lost_speaker_gives_way_once_to_another_for_the_answers_after_it() -> None:
    spare, made = FakeSpeaker(), list[FakeMicrophone]()

    def fallback_devices() -> tuple[FakeMicrophone, FakeSpeaker]:
        made.append(FakeMicrophone())
        return made[-1], spare

    with talking(fallback_devices=fallback_devices) as talk:
        talk.speaker.fails = DeviceError("The speaker was unplugged.")
        assert talk.ask().outcome is Outcome.ANSWERED
        assert talk.events.until(Notice, lambda e: "Speaking through fake speaker now" in str(e))
        for text in ("once more", "and again"):
            talk.engine.send_text(text)
            assert talk.turn().outcome is Outcome.ANSWERED
        assert [chunk.text for chunk in spare.chunks] == ["Yes.", "Yes."] and len(made) == 1


def test_a_microphone_that_does_not_open_leaves_text_working() -> None:
    with talking(
        microphone=FakeMicrophone(DeviceError("Busy.", "Close the other program."))
    ) as talk:
        talk.engine.send_text("hello")
        assert talk.turn().outcome is Outcome.ANSWERED
        assert "Busy. Close the other program." in str(talk.events.of(Notice)[0])


def test_a_speaker_that_does_not_open_leaves_text_working() -> None:
    speaker = FakeSpeaker()
    speaker.fails = DeviceError("Busy.", "Close the other program.")
    with talking(speaker=speaker) as talk:
        assert talk.ask().outcome is Outcome.ANSWERED
        assert [str(e) for e in talk.events.of(Notice)] == [str(Notice(str(speaker.fails)))]


def test_a_new_speaker_is_heard_by_a_tone_and_then_by_the_next_answer() -> None:
    new = FakeSpeaker()
    with talking() as talk:
        talk.engine.replace_parts(ReplaceParts(Config(), speaker=new))
        assert talk.events.until(Loaded, lambda loaded: loaded.changed)
        talk.engine.send_text("hello")
        assert talk.turn().outcome is Outcome.ANSWERED
        assert [chunk.text for chunk in new.chunks] == ["", "Yes."]
        assert talk.speaker.closed and not talk.speaker.chunks


def test_without_a_voice_the_next_answer_is_text_alone() -> None:
    with talking() as talk:
        talk.engine.replace_parts(ReplaceParts(Config(), voice="none"))
        talk.engine.send_text("hello")
        assert talk.turn().outcome is Outcome.ANSWERED
        assert talk.voice.closed and not talk.voice.clauses


def test_devices_that_were_looked_for_again_are_the_ones_that_were_there() -> None:
    with talking(fallback_devices=lambda: (FakeMicrophone(), FakeSpeaker())) as talk:
        talk.engine.rescan_devices()
        talk.events.until(StateChanged, lambda e: e == StateChanged(State.READY))
        assert talk.ask().outcome is Outcome.ANSWERED
        assert talk.speaker.chunks
        assert talk.microphone.opened == 2
        assert not talk.events.of(Notice)


def test_a_microphone_that_came_back_is_used_again_once_it_was_looked_for() -> None:
    def none() -> tuple[FakeMicrophone, FakeSpeaker]:
        return FakeMicrophone(DeviceError("There is no microphone.")), FakeSpeaker()

    with talking(fallback_devices=none) as talk:
        talk.microphone.fails = DeviceError("It is not there.")
        talk.microphone.unplug()
        talk.events.until(MicrophoneLost)
        talk.engine.rescan_devices()
        talk.events.until(MicrophoneLost)
        talk.microphone.fails = None
        talk.engine.rescan_devices()
        talk.events.until(Notice, lambda e: "Listening to fake microphone now." in str(e))
        assert talk.ask().outcome is Outcome.ANSWERED


def test_a_microphone_that_was_not_there_at_the_start_gives_way_to_the_default_until_it_is() -> (
    None
):
    absent, spare = FakeMicrophone(DeviceError("It is not there.")), FakeMicrophone()
    with talking(microphone=absent, fallback_devices=lambda: (spare, FakeSpeaker())) as talk:
        said = [str(notice) for notice in talk.events.of(Notice)]
        assert "It is not there." in said[0] and "Listening to fake microphone now." in said[1]
        assert spare.opened and not absent.opened and not talk.events.of(MicrophoneLost)
        absent.fails = None
        talk.engine.rescan_devices()
        assert talk.events.until(Loaded)
        assert absent.opened and spare.closed


def test_a_speaker_that_was_not_there_at_the_start_gives_way_to_the_default() -> None:
    absent, spare = FakeSpeaker(), FakeSpeaker()
    absent.fails = DeviceError("It is not there.")
    with talking(speaker=absent, fallback_devices=lambda: (FakeMicrophone(), spare)) as talk:
        said = [str(notice) for notice in talk.events.of(Notice)]
        assert "It is not there." in said[0] and "Speaking through" in said[1] and len(said) == 2
        assert talk.ask().outcome is Outcome.ANSWERED
        assert spare.chunks and not absent.chunks


def test_hands_free_speech_starts_a_turn_and_silence_ends_it() -> None:
    config = Config(vad=VadConfig(hands_free=True))
    with talking(config=config) as talk:
        talk.microphone.push(frames("......xxxxxxxxxxxx" + "." * 26, LONG_AGO))
        turn = talk.turn()
        assert turn.outcome is Outcome.ANSWERED
        said = talk.brain.said[0]
        assert isinstance(said, Utterance)
        assert len(said.samples) == (6 + 12) * 512 + 3200


def test_hands_free_a_click_starts_nothing() -> None:
    config = Config(vad=VadConfig(hands_free=True))
    with talking(config=config) as talk:
        talk.microphone.push(frames("..xx....xxx......" * 3, LONG_AGO))
        talk.engine.send_text("done")
        assert talk.turn().heard == "done"
        assert talk.brain.inferences == 1


def test_a_clip_is_heard_instead_of_the_microphone() -> None:
    with talking() as talk:
        talk.engine.talk(1000.0, source="clip.wav", paced=False)
        talk.microphone.push(frames("xxxxxxxxxxxx", 1000.0))
        for frame in frames(SPEECH, 1000.0, source="clip.wav"):
            talk.engine.push_frame(frame)
        talk.engine.release(1000.0 + len(SPEECH) * FRAME_SECONDS)
        turn = talk.turn()
        assert (turn.clip, turn.paced) == ("clip.wav", False)
        said = talk.brain.said[0]
        assert isinstance(said, Utterance) and len(said.samples) == 12 * 512 + 3200


def test_a_short_silent_clip_is_no_slip_of_the_key() -> None:
    with talking() as talk:
        talk.engine.talk(1000.0, source="clip.wav")
        for frame in frames("....", 1000.0, source="clip.wav"):
            talk.engine.push_frame(frame)
        talk.engine.release(1000.0 + 4 * FRAME_SECONDS)
        assert talk.turn().outcome is Outcome.NO_SPEECH


@pytest.mark.parametrize("end", ["conversation", "change"])
def test_a_new_conversation_or_part_ends_the_answer(end: str) -> None:
    speaker = FakeSpeaker(held=True, heard=0.0)
    with talking(speaker=speaker) as talk:
        talk.engine.send_text("tell me")
        assert speaker.playing.wait(SECONDS)
        if end == "change":
            talk.engine.replace_parts(ReplaceParts(Config(), voice="none"))
        else:
            talk.engine.new_conversation()
        assert talk.turn().outcome is Outcome.CANCELLED


def test_a_brain_that_does_not_load_is_explained_and_nothing_dies() -> None:
    class Missing(ScriptedBrain):
        def warm_up(self, progress):  # type: ignore[no-untyped-def]
            raise ModelError("The chat model is not here.", "voxtui models fetch")

    with talking(Missing(), loaded=False) as talk:
        failed = talk.events.until(LoadFailed)
        assert isinstance(failed, LoadFailed) and failed.error.hint == "voxtui models fetch"
        talk.engine.send_text("anybody?")
        assert talk.turn().outcome is Outcome.FAILED
        assert talk.events.until(StateChanged) == StateChanged(State.LOADING)


def test_a_server_that_is_not_there_at_the_start_may_answer_later() -> None:
    down = RemoteError("Nothing listens there.")

    class Remote(ScriptedBrain):
        def warm_up(self, progress):  # type: ignore[no-untyped-def]
            raise down

    with talking(Remote([down], ["Yes."])) as talk:
        assert talk.events.of(Notice) == [Notice("Nothing listens there.", "error")]
        assert not talk.microphone.closed
        failed = talk.ask()
        assert (failed.outcome, failed.error) == (Outcome.FAILED, "Nothing listens there.")
        assert talk.ask(at=2000.0).reply == "Yes."


def test_of_a_change_that_fails_nothing_stays_open() -> None:
    class Failing(ScriptedBrain):
        def warm_up(self, progress: Progress) -> None:
            raise OUT_OF_MEMORY

    new = FakeMicrophone(), FakeSpeaker(), BeepVoice(), Failing()
    microphone, speaker, voice, brain = new
    with talking() as talk:
        talk.engine.replace_parts(ReplaceParts(Config(), microphone, speaker, brain, voice))
        assert talk.events.until(ChangeFailed) == ChangeFailed(OUT_OF_MEMORY)
        talk.events.until(StateChanged, lambda e: e == StateChanged(State.READY))
        assert not any(loaded.changed for loaded in talk.events.of(Loaded))
        assert all(part.closed for part in new)
        assert talk.ask().outcome is Outcome.ANSWERED


def test_a_bug_on_the_engine_thread_reaches_the_front_end() -> None:
    class Broken(LoudIsSpeech):
        def reset(self) -> None:
            raise ZeroDivisionError

    with talking(detector=Broken()) as talk:
        talk.engine.talk()
        with pytest.raises(ZeroDivisionError):
            talk.turn()


def test_a_bug_on_any_thread_of_ours_reaches_the_front_end() -> None:
    before = threading.excepthook
    with talking() as talk:
        converter = threading.Thread(target=lambda: 1 / 0, name="voxtui-converter")
        converter.start()
        converter.join()
        with pytest.raises(ZeroDivisionError):
            talk.events.until(TurnFinished)
    assert threading.excepthook is before


def test_a_bug_on_a_library_s_thread_does_not_end_the_conversation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    passed_on: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", passed_on.append)
    with talking() as talk:
        helper = threading.Thread(target=lambda: 1 / 0, name="library helper")
        helper.start()
        helper.join()
        assert talk.ask().outcome is Outcome.ANSWERED
        assert not talk.events.of(Died)
    assert [bug.exc_type for bug in passed_on] == [ZeroDivisionError]


def test_an_engine_that_gets_no_thread_says_so_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_thread(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_thread)
    with pytest.raises(VoxtuiError, match="refused to start a thread"):
        engine_on_fakes(Events()).start()


class LoadsWhenTold(ScriptedBrain):
    def __init__(self, error: ModelError | None = None) -> None:
        super().__init__()
        self.told, self._error = Flag(), error

    def warm_up(self, progress: Progress) -> None:
        progress("a model", None)
        assert self.told.wait(SECONDS)
        if self._error:
            raise self._error


def test_the_microphone_is_heard_while_models_load_and_nothing_of_it_is_kept() -> None:
    brain, config = LoadsWhenTold(), Config(vad=VadConfig(hands_free=True))
    with talking(brain, config=config, loaded=False) as talk:
        talk.events.until(Loading)
        assert talk.events.of(MicrophoneOpened) == [MicrophoneOpened("fake microphone")]
        talk.microphone.level = 0.3
        assert talk.engine.level == 0.3
        talk.microphone.push(frames("xxxxxxxxxxxx" + "." * 26))
        brain.told.set()
        talk.events.until(StateChanged, lambda e: e == StateChanged(State.READY))
        talk.engine.send_text("hello")
        talk.turn()
        assert len(talk.events.of(TurnStarted)) == 1


def test_the_microphone_is_closed_where_no_model_could_be_loaded() -> None:
    brain = LoadsWhenTold(OUT_OF_MEMORY)
    with talking(
        brain, fallback_devices=lambda: (FakeMicrophone(), FakeSpeaker()), loaded=False
    ) as talk:
        talk.events.until(Loading)
        talk.microphone.unplug()
        brain.told.set()
        talk.events.until(LoadFailed)
        talk.engine.rescan_devices()
        talk.events.until(Notice, lambda e: "No model is loaded" in str(e))
        assert talk.microphone.closed
        assert not talk.events.of(Loaded)


def test_what_could_not_be_loaded_gives_way_to_other_parts_without_a_restart() -> None:
    class Failing(ScriptedBrain):
        def warm_up(self, progress: Progress) -> None:
            raise OUT_OF_MEMORY

    failing, voice, microphone = Failing(), BeepVoice(), FakeMicrophone()
    speaker, events = FakeSpeaker(), Events()
    engine = Engine(
        microphone=microphone,
        speaker=speaker,
        detector=LoudIsSpeech(),
        brain=failing,
        voice=voice,
        config=Config(),
        emit=events,
    )
    engine.start()
    events.until(LoadFailed)
    assert microphone.closed and speaker.closed
    microphone.fails = DeviceError("Busy.")
    engine.replace_parts(ReplaceParts(Config(), brain=Failing(), voice=BeepVoice()))
    events.until(LoadFailed)  # the second time too; and without its microphone
    assert Notice("Busy.") in events.seen
    assert failing.closed and voice.closed
    microphone.fails = None
    engine.replace_parts(ReplaceParts(Config(), brain=ScriptedBrain(["Yes."]), voice=BeepVoice()))
    loaded = events.until(Loaded)
    assert isinstance(loaded, Loaded) and loaded.microphone == "fake microphone"
    events.until(StateChanged, lambda e: e == StateChanged(State.READY))
    engine.send_text("anybody?")
    finished = events.until(TurnFinished)
    assert isinstance(finished, TurnFinished) and finished.turn.reply == "Yes."
    assert microphone.opened == 2 and not microphone.closed and speaker.chunks
    engine.close()


class LoadsForever(ScriptedBrain):
    def warm_up(self, progress: Progress) -> None:
        while True:
            progress("a large model", None)


def test_closing_while_a_model_loads_does_not_wait_for_it() -> None:
    with talking(LoadsForever(), loaded=False) as talk:
        talk.events.until(Loading)
        talk.engine.close()
        assert talk.brain.closed and talk.microphone.closed
        talk.events.drain()
        assert not talk.events.of(Died) and not talk.events.of(Loaded)


def test_who_leaves_does_not_wait_for_what_cannot_be_hurried() -> None:
    brain = LoadsWhenTold()
    with talking(brain, loaded=False) as talk:
        talk.events.until(Loading)
        talk.engine.close(0.01)
        assert not brain.closed
        brain.told.set()
    assert brain.closed


def test_what_was_said_is_put_into_words_once_the_answer_is_over() -> None:
    brain = ScriptedBrain(heard=None, transcript=["What is", " said."])
    with talking(brain) as talk:
        turn = talk.ask()
        assert turn.heard is None
        words = talk.events.until(UserWords)
        assert words == UserWords(turn.number, "What is said.")
        talk.ask(at=2000.0)
        assert [past.words for past in brain.pasts[1]] == ["What is said."]


def test_a_key_press_ends_the_writing_down_within_one_step() -> None:
    going_on = Flag()
    brain = ScriptedBrain(["One."], ["Two."], heard=None, transcript=["What", going_on, " is"])
    with talking(brain) as talk:
        talk.ask()
        assert brain.transcribing.wait(SECONDS)
        talk.speak(at=2000.0)
        going_on.set()
        assert talk.turn().reply == "Two."
        assert talk.events.of(UserWords) == []
        assert [past.words for past in brain.pasts[1]] == [None]


def test_the_writing_down_can_be_turned_off() -> None:
    with talking(ScriptedBrain(heard=None), config=Config(brain=WITHOUT_TRANSCRIPTS)) as talk:
        talk.ask()
        talk.ask(at=2000.0)
        assert talk.brain.inferences == 2


@pytest.mark.parametrize("end", ["change", "close"])
def test_the_writing_down_ends_before_its_brain_is_closed(end: str) -> None:
    class Writing(ScriptedBrain):
        closed_first: bool | None = None

        def transcribe(self, said, cancelled):  # type: ignore[no-untyped-def]
            self.transcribing.set()
            try:
                while True:
                    yield Token("")
            finally:
                self.closed_first = self.closed

    brain = Writing(heard=None)
    with talking(brain) as talk:
        talk.ask()
        assert brain.transcribing.wait(SECONDS)
        if end == "change":
            talk.engine.replace_parts(ReplaceParts(Config(), brain=ScriptedBrain()))
            talk.engine.send_text("hello")
            talk.turn()
    assert brain.closed and brain.closed_first is False


def test_a_writing_down_that_fails_costs_the_words_only() -> None:
    brain = ScriptedBrain(heard=None, transcript=["What", OUT_OF_MEMORY])
    with talking(brain) as talk:
        talk.ask()
        notice = talk.events.until(Notice)
        assert isinstance(notice, Notice) and "Out of memory." in notice.message
        assert talk.ask(at=2000.0).outcome is Outcome.ANSWERED
