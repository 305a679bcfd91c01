"""The engine: start, parts, cancel, close."""

from __future__ import annotations

import threading

import pytest

from tests.dialogue.talking import HANDS_FREE, SPEECH, notices, talking
from tests.fakes import (
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
from tests.ui.pseudo_terminal import until
from voxtui.dialogue.data import FRAME_SECONDS
from voxtui.dialogue.engine_commands import (
    Cancel,
    NewConversation,
    Redo,
    Release,
    ReplaceComponents,
    RescanDevices,
    SendText,
    Talk,
    Typing,
)
from voxtui.dialogue.events import (
    ChangeFailed,
    Died,
    Loaded,
    LoadFailed,
    Loading,
    MicrophoneOpened,
    Notice,
    ReplyText,
    State,
    StateChanged,
    TurnFinished,
    TurnStarted,
    UserWords,
)
from voxtui.dialogue.protocols import DEFAULT_OPTIONS, Progress, ReplyOptions
from voxtui.dialogue.timestamps import Milestone, Outcome
from voxtui.errors import DeviceError, ModelError, RemoteError, VoxtuiError
from voxtui.settings.schema import (
    Config,
    VadConfig,
)


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


def typed_ahead(brain: ScriptedBrain, count: int) -> list[str]:
    until(lambda: len(brain.typed) >= count)
    return [text for _, text, _ in brain.typed]


def test_the_brain_follows_a_text_that_is_typed_after_the_same_past() -> None:
    with talking() as talk:
        talk.engine.post(SendText("hello"))
        talk.turn()
        talk.engine.post(Typing("How"))
        assert typed_ahead(talk.brain, 1) == ["How"]
        talk.engine.post(Typing(" How are "))
        assert typed_ahead(talk.brain, 2) == ["How", "How are"]
        past, _, cancelled = talk.brain.typed[-1]
        assert [turn.user_text for turn in past] == ["hello"]
        talk.engine.post(SendText("How are you?"))
        talk.turn()
        assert not cancelled.is_set()  # the brain takes what it has worked ahead
        assert talk.brain.pasts[-1] == past


def test_a_deleted_text_and_the_talk_key_end_the_work_ahead_at_once() -> None:
    with talking() as talk:
        for number, end in enumerate(
            (Typing(""), Talk(), NewConversation()),
            1,
        ):
            talk.engine.post(Typing("How"))
            typed_ahead(talk.brain, number)
            assert not talk.brain.typed[-1][2].is_set()
            talk.engine.post(end)
            assert talk.brain.typed[-1][2].is_set()
            talk.engine.post(Cancel())
            talk.events.drain()


def test_the_history_is_read_on_after_a_text_is_deleted() -> None:
    """Else the progress of that text would stay on the screen."""
    with talking() as talk:
        talk.engine.post(Typing("How"))
        typed_ahead(talk.brain, 1)
        before = len(talk.brain.read_pasts)
        talk.engine.post(Typing(""))
        until(lambda: len(talk.brain.read_pasts) == before + 1)


def test_only_the_newest_of_the_texts_that_were_typed_over_an_answer_is_worked_on() -> None:
    waiting = Flag()
    with talking(ScriptedBrain(["Well.", waiting])) as talk:
        talk.engine.post(SendText("hello"))
        talk.events.until(ReplyText)
        for text in ("H", "Ho", "How"):
            talk.engine.post(Typing(text))
        waiting.set()
        assert typed_ahead(talk.brain, 1) == ["How"]
        assert len(talk.brain.typed[0][0]) == 1


def test_nothing_is_worked_on_for_a_text_while_one_talks() -> None:
    with talking() as talk:
        talk.engine.post(Talk(10.0))
        talk.events.until(StateChanged, lambda e: e == StateChanged(State.LISTENING))
        talk.engine.post(Typing("How"))
        talk.engine.post(SendText("How?"))
        talk.turn()
        talk.turn()
        assert talk.brain.typed == []


def test_models_are_warm_before_ready() -> None:
    """L7: READY is only reached after the brain has warmed up."""
    with talking() as talk:
        assert talk.brain.warmed
        parts = Loaded(
            "scripted brain", "beep", "fake microphone", "fake speaker", brain_name="scripted"
        )
        assert talk.events.seen[-2:] == [parts, StateChanged(State.READY)]


def test_without_a_voice_the_next_answer_is_text_alone() -> None:
    with talking() as talk:
        talk.engine.post(ReplaceComponents(Config(), voice="none"))
        talk.engine.post(SendText("hello"))
        assert talk.turn().outcome is Outcome.ANSWERED
        assert talk.voice.closed and not talk.voice.clauses


@pytest.mark.parametrize("end", ["conversation", "change"])
def test_a_new_conversation_or_part_ends_the_answer(end: str) -> None:
    speaker = FakeSpeaker(held=True, heard=0.0)
    with talking(speaker=speaker) as talk:
        talk.engine.post(SendText("tell me"))
        assert speaker.playing.wait(SECONDS)
        if end == "change":
            talk.engine.post(ReplaceComponents(Config(), voice="none"))
        else:
            talk.engine.post(NewConversation())
        assert talk.turn().outcome is Outcome.CANCELLED


def test_a_brain_that_does_not_load_fails_the_start_and_each_turn() -> None:
    class Missing(ScriptedBrain):
        def warm_up(self, progress, options):  # type: ignore[no-untyped-def]
            raise ModelError("The chat model is not here.", "voxtui models fetch")

    with talking(Missing(), loaded=False) as talk:
        failed = talk.events.until(LoadFailed)
        assert isinstance(failed, LoadFailed) and failed.error.hint == "voxtui models fetch"
        talk.engine.post(SendText("anybody?"))
        assert talk.turn().outcome is Outcome.FAILED
        assert talk.events.until(StateChanged) == StateChanged(State.LOADING)


def test_a_server_that_is_missing_at_the_start_may_answer_later() -> None:
    down = RemoteError("Nothing listens there.")

    class Remote(ScriptedBrain):
        def warm_up(self, progress, options):  # type: ignore[no-untyped-def]
            raise down

    with talking(Remote([down], ["Yes."])) as talk:
        assert talk.events.of(Notice) == [Notice("Nothing listens there.", "error")]
        assert not talk.microphone.closed
        failed = talk.ask()
        assert (failed.outcome, failed.error) == (Outcome.FAILED, "Nothing listens there.")
        assert talk.ask(at=2000.0).reply == "Yes."


def test_a_change_that_fails_closes_all_its_parts() -> None:
    class Failing(ScriptedBrain):
        def warm_up(self, progress: Progress, options: ReplyOptions = DEFAULT_OPTIONS) -> None:
            raise OUT_OF_MEMORY

    new = FakeMicrophone(), FakeSpeaker(), BeepVoice(), Failing()
    microphone, speaker, voice, brain = new
    with talking() as talk:
        talk.engine.post(ReplaceComponents(Config(), microphone, speaker, brain, voice))
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
        talk.engine.post(Talk())
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


def test_an_engine_that_gets_no_thread_fails_with_one_sentence(
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

    def warm_up(self, progress: Progress, options: ReplyOptions = DEFAULT_OPTIONS) -> None:
        progress("a model", None)
        assert self.told.wait(SECONDS)
        if self._error:
            raise self._error


def test_the_level_is_shown_while_models_load_and_no_frame_is_kept() -> None:
    brain, config = LoadsWhenTold(), Config(vad=VadConfig(hands_free=True))
    with talking(brain, config=config, loaded=False) as talk:
        talk.events.until(Loading)
        assert talk.events.of(MicrophoneOpened) == [MicrophoneOpened("fake microphone")]
        talk.microphone.level = 0.3
        assert talk.engine.level == 0.3
        talk.microphone.push(frames("xxxxxxxxxxxx" + "." * 26))
        brain.told.set()
        talk.events.until(StateChanged, lambda e: e == StateChanged(State.READY))
        talk.engine.post(SendText("hello"))
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
        talk.engine.post(RescanDevices())
        talk.events.until(Notice, lambda e: "No model is loaded" in str(e))
        assert talk.microphone.closed
        assert not talk.events.of(Loaded)


def test_other_parts_can_be_loaded_after_a_start_that_failed() -> None:
    class Failing(ScriptedBrain):
        def warm_up(self, progress: Progress, options: ReplyOptions = DEFAULT_OPTIONS) -> None:
            raise OUT_OF_MEMORY

    failing, voice, microphone = Failing(), BeepVoice(), FakeMicrophone()
    speaker, events = FakeSpeaker(), Events()
    engine = engine_on_fakes(
        events, brain=failing, voice=voice, microphone=microphone, speaker=speaker
    )
    engine.start()
    events.until(LoadFailed)
    assert microphone.closed and speaker.closed
    microphone.fails = DeviceError("Busy.")
    engine.post(ReplaceComponents(Config(), brain=Failing(), voice=BeepVoice()))
    events.until(LoadFailed)  # the second time too; and without its microphone
    assert Notice("Busy.", "error") in events.seen
    assert failing.closed and voice.closed
    microphone.fails = None
    engine.post(ReplaceComponents(Config(), brain=ScriptedBrain(["Yes."]), voice=BeepVoice()))
    loaded = events.until(Loaded)
    assert isinstance(loaded, Loaded) and loaded.microphone == "fake microphone"
    events.until(StateChanged, lambda e: e == StateChanged(State.READY))
    engine.post(SendText("anybody?"))
    finished = events.until(TurnFinished)
    assert isinstance(finished, TurnFinished) and finished.turn.reply == "Yes."
    assert microphone.opened == 2 and not microphone.closed and speaker.chunks
    engine.close()


class LoadsForever(ScriptedBrain):
    def warm_up(self, progress: Progress, options: ReplyOptions = DEFAULT_OPTIONS) -> None:
        while True:
            progress("a large model", None)


def test_closing_while_a_model_loads_does_not_wait_for_it() -> None:
    with talking(LoadsForever(), loaded=False) as talk:
        talk.events.until(Loading)
        talk.engine.close()
        assert talk.brain.closed and talk.microphone.closed
        talk.events.drain()
        assert not talk.events.of(Died) and not talk.events.of(Loaded)


def test_close_waits_no_longer_than_its_limit() -> None:
    brain = LoadsWhenTold()
    with talking(brain, loaded=False) as talk:
        talk.events.until(Loading)
        talk.engine.close(0.01)
        assert not brain.closed
        brain.told.set()
    assert brain.closed


def test_close_answers_nothing_that_is_still_in_the_inbox() -> None:
    speaker = FakeSpeaker(held=True)
    with talking(speaker=speaker, config=HANDS_FREE) as talk:
        talk.engine.post(SendText("first"))
        assert speaker.playing.wait(SECONDS)
        talk.microphone.push(frames("." + "x" * 10 + "." * 30, 10.0))
        talk.engine.close()
        assert talk.brain.said == ["first"]


def test_a_late_cancel_of_a_turn_that_is_over_changes_nothing() -> None:
    words = Flag()
    brain = ScriptedBrain(["One."], heard=None, transcript=["What", words, " is"])
    with talking(brain) as talk:
        number = talk.ask().number
        assert brain.transcribing.wait(SECONDS)
        talk.engine.post(Cancel(number))
        talk.engine.post(Cancel())
        words.set()
        assert talk.events.until(UserWords) == UserWords(number, "What is")
        started = talk.events.of(TurnStarted)[0]
        assert (
            isinstance(started, TurnStarted) and started.timestamps.at(Milestone.CANCELLED) is None
        )


def test_a_cancel_that_names_another_turn_ends_nothing() -> None:
    with talking() as talk:
        first = talk.ask().number
        turn = talk.engine.post(Talk(2000.0))
        talk.engine.post(Cancel(first))
        talk.microphone.push(frames(SPEECH, 2000.0))
        talk.engine.post(Release(2000.0 + len(SPEECH) * FRAME_SECONDS, turn))
        assert talk.turn().outcome is Outcome.ANSWERED


def test_send_text_returns_the_number_by_which_its_turn_is_cancelled() -> None:
    go_on = Flag()
    with talking(ScriptedBrain([go_on, "One."])) as talk:
        number = talk.engine.post(SendText("hello"))
        talk.events.until(UserWords)
        talk.engine.post(Cancel(number))
        go_on.set()
        turn = talk.turn()
        assert (turn.number, turn.outcome) == (number, Outcome.CANCELLED)


def test_the_state_of_the_engine_is_the_one_last_reported() -> None:
    with talking() as talk:
        assert talk.engine.state is State.READY
        talk.engine.post(Talk(10.0))
        talk.events.until(StateChanged, lambda e: e == StateChanged(State.LISTENING))
        assert talk.engine.state is State.LISTENING


def test_closing_waits_for_a_voice_that_is_still_at_a_clause() -> None:
    speaking, go_on = Flag(), Flag()

    class Deep(BeepVoice):
        def close(self) -> None:
            assert go_on.is_set()
            super().close()

    def deep(clause: str) -> None:
        speaking.set()
        assert go_on.wait(SECONDS)

    with talking(voice=Deep(deep)) as talk:
        talk.engine.post(SendText("first"))
        assert speaking.wait(SECONDS)
        talk.engine.post(Cancel())
        talk.turn()
        closing = threading.Thread(target=talk.engine.close)
        closing.start()
        go_on.set()
        closing.join(SECONDS)
        assert talk.voice.closed


def test_a_turn_that_cannot_begin_is_over() -> None:
    microphone = FakeMicrophone(DeviceError("The microphone is gone."))
    with talking(microphone=microphone) as talk:
        for begin in (Talk(), Redo(1)):
            turn = talk.engine.post(begin)
            over = talk.turn()
            assert (over.number, over.outcome) == (turn, Outcome.CANCELLED)
        assert talk.engine.state is State.READY
        assert "There is no microphone." in notices(talk.events)
        assert "is no longer in memory" in notices(talk.events)
