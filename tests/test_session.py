"""The verbs of the user without a screen: over the real engine, and over a scripted one."""

import queue
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.fakes import (
    LONG_AGO,
    SECONDS,
    Flag,
    ScriptedBrain,
    ScriptedEngine,
    engine_on_fakes,
    frames,
    make_factories,
)
from tests.ui.pseudo_terminal import until
from voxtui.dialogue.data import Token
from voxtui.dialogue.engine_commands import Cancel, NewConversation, Redo, Release, SendText, Talk
from voxtui.dialogue.events import (
    ChangeFailed,
    LoadFailed,
    ReplyText,
    State,
    StateChanged,
    TurnFinished,
    TurnStarted,
)
from voxtui.dialogue.protocols import PastTurn
from voxtui.dialogue.timestamps import Outcome, Timestamps
from voxtui.errors import InputError, ModelError
from voxtui.session.local_session import LocalSession
from voxtui.session.removed_turn import put_back, remove_turn
from voxtui.session.user_session import ClipEnded, NotAllowed, UserSession
from voxtui.settings.schema import Config, SessionConfig, ToolsConfig
from voxtui.settings.sources import load_config
from voxtui.storage.conversation_database import Conversations, history_file

SPOKEN = "..xxxxxxxxxxxxxxxxxxx......"


class Headless:
    """A front end without microphone, clips and screen: frames are supplied by call."""

    def __init__(self, brain: ScriptedBrain) -> None:
        self.events = queue.SimpleQueue()
        self.session = UserSession(lambda emit: engine_on_fakes(emit, brain=brain), self.events.put)

    def until(self, kind):
        """Take events until one of `kind`."""
        while True:
            event = self.events.get(timeout=SECONDS)
            self.session.take(event)
            if isinstance(event, kind):
                return event

    def until_ready(self) -> None:
        while self.until(StateChanged).state is not State.READY:
            pass

    def speak(self, release: bool = True) -> int:
        turn = self.session.post(Talk(LONG_AGO, source="phone"))
        spoken = frames(SPOKEN, start=LONG_AGO, source="phone")
        for frame in spoken:
            self.session.push(frame)
        if release:
            self.session.post(Release(spoken[-1].captured_at, turn))
            for frame in frames("..........", start=spoken[-1].captured_at, source="phone"):
                self.session.push(frame)
        return turn


@contextmanager
def headless(*scripts):
    front_end = Headless(brain := ScriptedBrain(*scripts))
    try:
        with pytest.raises(NotAllowed, match="still loading"):
            front_end.session.post(Talk())
        front_end.session.start()
        front_end.until_ready()
        yield front_end, brain
    finally:
        front_end.session.close()


def test_frames_from_any_source_are_an_utterance_that_is_answered_and_replayed():
    with headless(["Paris."], ["Lyon."], ["Typed."], ["New."]) as (there, brain):
        turn = there.speak()
        assert there.session.busy
        result = there.until(TurnFinished).turn
        assert (result.number, result.outcome, result.reply) == (turn, Outcome.ANSWERED, "Paris.")
        assert not there.session.busy
        again = there.session.post(Redo(turn))
        assert there.until(TurnFinished).turn.number == again
        assert brain.said[0] is brain.said[1]
        there.session.post(SendText("hello"))
        assert there.until(TurnFinished).turn.reply == "Typed."
        there.session.post(NewConversation())
        there.session.post(SendText("hello"))
        assert there.until(TurnFinished).turn.reply == "New."
        assert [len(past) for past in brain.pasts] == [0, 0, 1, 0]


def test_a_named_turn_is_cancelled_and_no_newer_one():
    with headless(["Yes."]) as (there, _):
        first = there.speak(release=False)
        there.until(TurnStarted)
        there.session.post(Cancel(first))
        assert there.until(TurnFinished).turn.outcome is Outcome.CANCELLED
        second = there.speak()
        there.session.post(Cancel(first))
        result = there.until(TurnFinished).turn
        assert (result.number, result.outcome) == (second, Outcome.ANSWERED)


def test_the_shown_state_is_that_of_the_engine():
    waiting = Flag()
    with headless([waiting, "Yes."]) as (there, _):
        there.session.post(SendText("hello"))
        until(lambda: there.session.state is State.THINKING)
        waiting.set()
        until(lambda: there.session.state is State.READY)


# The session of this machine.


class Local:
    """LocalSession over a scripted engine whose events are taken at once."""

    def __init__(self, **given) -> None:
        self.events = []
        made = {"factories": make_factories(), **given}
        self.session = LocalSession(ScriptedEngine, self._deliver, Config(), **made)
        self.engine = self.session.engine

    def _deliver(self, event) -> None:
        self.events.append(event)
        self.session.take(event)


def test_a_clip_that_cannot_be_read_leaves_the_one_before_it_playing(monkeypatch):
    flags, readable = [], [True]

    def open_clip(path, max_seconds):
        if not readable[0]:
            raise InputError("It is too long.")

        def speak(listener, stopped):
            flags.append(stopped)
            stopped.wait(SECONDS)

        return speak

    monkeypatch.setattr("voxtui.session.clip_player.open_clip", open_clip)
    local = Local(clips=[("a question", Path("question.wav"))])
    local.engine.load()
    local.session.play_clip(1)
    until(lambda: flags)
    readable[0] = False
    local.session.play_clip(1)
    until(lambda: any(isinstance(event, ClipEnded) for event in local.events))
    assert local.events[-1].error == "It is too long."
    assert not flags[0].is_set() and local.session.busy
    assert local.session.stop()
    until(lambda: not local.session.busy)


# The conversation in a file.


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """Return the conversations that are stored on this machine of the test."""
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    return Conversations(history_file())


def answered(local, *turns):
    """Let the engine answer a turn, after which its history is `turns`."""
    local.engine.begin()
    local.engine.past = turns
    local.engine.finish()


def said(words, number, reply="Yes."):
    return PastTurn(words, words, (Token(reply),), number=number)


def words_in(stored):
    """Return the user's words of each conversation, the newest first."""
    return [[e.you for e in stored.read(one.id).values()] for one in stored.newest()]


def test_a_conversation_is_kept_only_if_that_was_chosen(stored):
    local = Local()
    local.engine.load()
    answered(local, said("I am Ann.", 1))
    local.session.close()
    assert not stored.file.exists()


def test_the_choice_to_keep_is_saved_and_covers_what_was_said_before_it(stored):
    local = Local()
    local.engine.load()
    answered(local, said("I am Ann.", 1))
    local.session.choose("session.keep", True)
    until(stored.newest)
    assert load_config(None, (), {}).config.session.keep is True
    answered(local, said("I am Ann.", 1), said("And you?", 2))
    local.session.new_conversation()
    answered(local, said("Hello.", 3))
    local.session.choose("session.keep", False)
    assert load_config(None, (), {}).config.session.keep is False
    answered(local, said("Hello.", 3), said("Secret.", 4))
    local.session.close()
    assert sorted(words_in(stored)) == [["Hello."], ["I am Ann.", "And you?"]]


def test_a_stored_conversation_goes_on_where_it_was(stored):
    local = Local()
    local.engine.load()
    local.session.choose("session.keep", True)
    answered(local, said("I am Ann.", 1), said("Old.", 2))
    local.session.new_conversation()
    answered(local, said("Between.", 3))
    until(lambda: len(stored.newest()) == 2)
    past, resumed = local.session.conversation.read(stored.newest("ann")[0].id)
    local.session.conversation.resume(past, resumed)
    assert [turn.user_text for turn in past] == ["I am Ann.", "Old."]
    local.engine.finish()  # of a turn that was cut off, while the engine has the other history
    answered(local, past[1], said("New.", 4))  # the oldest turn was dropped from the history
    local.session.close()
    assert words_in(stored) == [["I am Ann.", "Old.", "New."], ["Between."]]


def test_a_corrected_turn_replaces_the_one_that_was_stored(stored):
    local = Local()
    local.engine.load()
    local.session.choose("session.keep", True)
    answered(local, said("Wrong.", 1))
    until(stored.newest)
    local.engine.report(TurnStarted(2, "typed", Timestamps(), 1))
    local.engine.past = (said("Right.", 2),)
    local.engine.turns = 2
    local.engine.finish(reply="Yes.")
    local.session.close()
    assert words_in(stored) == [["Right."]]


@pytest.mark.parametrize("times", [1, 2])
def test_an_answer_that_a_new_conversation_cuts_off_is_stored_though_the_program_ends(
    stored, times
):
    local = Local()
    local.engine.load()
    local.session.choose("session.keep", True)
    answered(local, said("One.", 1))
    local.engine.begin()
    for _ in range(times):
        local.session.new_conversation()
    local.engine.past = (said("One.", 1), said("Two.", 2, "It is"))  # it leaves no history any more
    local.session.close()
    assert words_in(stored) == [["One.", "Two."]]


@pytest.mark.parametrize("times", [1, 2])
def test_an_undone_new_conversation_goes_on_in_its_own_place(stored, times):
    local = Local()
    local.engine.load()
    local.session.choose("session.keep", True)
    answered(local, said("One.", 1))
    for _ in range(times):
        local.session.new_conversation()
    local.session.conversation.undo()
    answered(local, said("One.", 1), said("Two.", 2))
    local.session.close()
    assert words_in(stored) == [["One.", "Two."]]


@pytest.mark.parametrize("resumes", [False, True])
def test_an_answer_that_another_conversation_ends_is_kept_in_its_own(stored, resumes):
    events = queue.SimpleQueue()
    go_on = Flag()
    brain = ScriptedBrain(["Yes."], ["Well. ", go_on], ["Sure."])
    local = LocalSession(
        lambda emit: engine_on_fakes(emit, brain=brain),
        events.put,
        Config(session=SessionConfig(keep=True)),
    )
    try:
        local.start()
        take_until_ready(local, events)
        local.say("One.")
        take_until_ready(local, events)
        until(stored.newest)
        if resumes:
            local.new_conversation()
        local.say("Two.")
        while not isinstance(event := events.get(timeout=SECONDS), ReplyText):
            local.take(event)
        if resumes:
            local.conversation.resume(*local.conversation.read(stored.newest()[0].id))
        else:
            local.new_conversation()
        go_on.set()
        take_until_ready(local, events)
        local.say("Three.")
        take_until_ready(local, events)
    finally:
        local.close()
    kept = [["One.", "Three."], ["Two."]] if resumes else [["One.", "Two."], ["Three."]]
    assert sorted(words_in(stored)) == kept
    assert [e.vox for one in stored.newest("two") for e in stored.read(one.id).values()][-1] == (
        "Well. "
    )


def test_what_cannot_be_kept_is_said_once_and_kept_later(stored):
    local = Local()
    local.engine.load()
    stored.file.mkdir(parents=True)
    local.session.choose("session.keep", True)
    answered(local, said("One.", 1))
    until(lambda: "This conversation is not stored." in str(local.events))
    answered(local, said("One.", 1), said("Two.", 2))
    stored.file.rmdir()
    answered(local, said("One.", 1), said("Two.", 2), said("Three.", 3))
    local.session.close()
    sentences = [e.message for e in local.events if "not stored" in str(e)]
    assert len(sentences) == 1, sentences
    assert words_in(stored) == [["One.", "Two.", "Three."]]


def test_two_sessions_keep_their_own_conversations(stored):
    first, second = Local(), Local()
    for number, local in enumerate((first, second)):
        local.engine.load()
        local.session.choose("session.keep", True)
        answered(local, said(f"Number {number}.", 1))
    first.session.close()
    second.session.close()
    assert sorted(words_in(stored)) == [["Number 0."], ["Number 1."]]


def test_a_resumed_conversation_that_is_deleted_meanwhile_stays_deleted(stored):
    local = Local()
    local.engine.load()
    local.session.choose("session.keep", True)
    answered(local, said("Secret.", 1))
    until(stored.newest)
    stored.forget_all()
    answered(local, said("Secret.", 1), said("New.", 2))
    local.session.close()
    assert words_in(stored) == [["New."]]


@pytest.mark.parametrize(
    ("key", "value", "new"),
    [("voice.speed", 1.2, False), ("audio.output", "x", False), ("brain.name", "embedded", True),
     ("voice.engine", "none", True), ("generation.preset", "ultra", True)],
)  # fmt: skip
def test_models_are_new_only_if_one_was_loaded(key, value, new):
    local = Local()
    local.engine.load()
    assert local.session.models_are_new
    local.session.choose(key, value)
    local.session.take(ChangeFailed(ModelError("No.")))
    local.engine.load()
    assert not local.session.models_are_new
    assert local.session.chosen == {}
    local.session.choose(key, value)
    local.engine.load(changed=True)
    assert local.session.models_are_new is new
    assert local.session.chosen == {key: value}


def test_a_setting_that_never_loaded_is_not_saved():
    local = Local()
    local.session.take(LoadFailed(ModelError("There is no model.")))
    local.session.choose("voice.engine", "kokoro")
    local.session.take(LoadFailed(ModelError("Kokoro is not installed.")))
    with pytest.raises(NotAllowed, match="No setting was changed"):
        local.session.save_settings()
    local.session.choose("voice.engine", "none")
    local.engine.load()
    assert local.session.chosen == {"voice.engine": "none"}
    assert local.session.config.voice.engine == "none"


def test_nothing_else_is_chosen_while_a_part_is_loaded():
    local = Local()
    local.engine.load()
    local.session.choose("voice.engine", "none")
    for act in (lambda: local.session.choose("voice.speed", 1.2), local.session.answer_again):
        with pytest.raises(NotAllowed, match="still loading"):
            act()


def test_text_is_kept_until_a_model_is_loaded_and_sent_in_order():
    local = Local()
    assert local.session.say("one") is None
    local.session.take(LoadFailed(ModelError("No.")))
    assert local.session.say("two") is None
    local.session.retry()
    local.engine.load()
    local.engine.begin("typed")
    local.engine.finish()
    assert [call[1] for call in local.engine.calls if call[0] == "say"] == ["one", "two"]


def test_text_is_kept_while_a_part_that_was_chosen_is_loaded():
    local = Local()
    local.engine.load()
    local.session.choose("voice.engine", "none")  # the engine has not begun to load it
    assert [local.session.say(text) for text in ("one", "two")] == [None, None]
    local.engine.report(StateChanged(State.READY))  # of the turn before
    assert list(local.session.queued) == ["one", "two"]
    local.engine.load(changed=True)
    local.engine.begin("typed")
    local.engine.finish()
    assert [call[1] for call in local.engine.calls if call[0] == "say"] == ["one", "two"]


def test_listing_devices_on_a_thread_is_the_only_way_to_reach_the_sound_system():
    listed_on = []

    def devices():
        listed_on.append(threading.current_thread())
        return ()

    local = Local(factories=make_factories(devices=devices))
    local.engine.load()
    local.session.rescan_devices()
    local.session.choose("voice.speed", 1.2)
    assert listed_on == []


def test_a_conversation_begins_with_the_newest_notes(tmp_path):
    notes = tmp_path / "notes.md"
    notes.write_text("".join(f"- Note number {number}.\n" for number in range(2_000)))
    config = Config(tools=ToolsConfig(notes_file=str(notes), read_notes=True))
    local = LocalSession(engine_on_fakes, queue.SimpleQueue().put, config)
    try:
        local.start()
        until(lambda: local.engine.past)
        (turn,) = local.engine.past
        kept = [line for line in str(turn.user_input).splitlines() if "number" in line]
        assert 500 < len(kept) < 2_000
        assert kept == [f"- Note number {number}." for number in range(2_000)][-len(kept) :]
    finally:
        local.close()


def test_a_removed_turn_leaves_history_and_record_and_comes_back_in_its_place():
    events = queue.SimpleQueue()
    brain = ScriptedBrain(["One."], ["Two."], ["Three."])
    local = LocalSession(lambda emit: engine_on_fakes(emit, brain=brain), events.put, Config())
    try:
        local.start()
        take_until_ready(local, events)
        for text in ("first", "second", "third"):
            local.post(SendText(text))
            take_until_ready(local, events)
        before, record = local.engine.past, [*local.record.turns]
        for number in record:
            removed = remove_turn(local, number)
            until(lambda: len(local.engine.past) == 2)
            assert number not in [turn.number for turn in local.engine.past]
            assert number not in local.record.turns
            put_back(local, removed)
            until(lambda: len(local.engine.past) == 3)
            assert local.engine.past == before and [*local.record.turns] == record
    finally:
        local.close()


def take_until_ready(local, events) -> None:
    event = None
    while event != StateChanged(State.READY):
        event = events.get(timeout=SECONDS)
        local.take(event)
