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
from voxtui.dialogue.commands import Cancel, NewConversation, Redo, Release, SendText, Talk
from voxtui.dialogue.data import Token
from voxtui.dialogue.events import (
    ChangeFailed,
    LoadFailed,
    State,
    StateChanged,
    TurnFinished,
    TurnStarted,
)
from voxtui.dialogue.protocols import PastTurn
from voxtui.dialogue.timestamps import Outcome
from voxtui.errors import InputError, ModelError
from voxtui.session.local_session import LocalSession
from voxtui.session.user_session import ClipEnded, NotAllowed, UserSession
from voxtui.settings.schema import Config
from voxtui.settings.sources import load_config
from voxtui.storage.saved_conversation import conversation_file

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
        with pytest.raises(NotAllowed, match="Still loading"):
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


def test_a_clip_that_cannot_be_read_leaves_the_one_before_it_playing():
    flags, readable = [], [True]

    def open_clip(path):
        if not readable[0]:
            raise InputError("It is too long.")

        def speak(listener, stopped):
            flags.append(stopped)
            stopped.wait(SECONDS)

        return speak

    local = Local(clips=[("a question", Path("question.wav"))], open_clip=open_clip)
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


SAID = PastTurn("I am Ann.", "I am Ann.", (Token("Hello."),))


@pytest.fixture
def conversation(tmp_path, monkeypatch):
    """Return where a conversation is kept on this machine of the test."""
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    return conversation_file()


def keeping(local, *turns):
    """Keep `turns`, as after an answer."""
    local.session.choose("session.keep", True)
    local.engine.past = turns
    local.engine.begin()
    local.engine.finish()


def test_a_conversation_is_kept_only_if_that_was_chosen(conversation):
    local = Local()
    local.engine.load()
    local.engine.past = (SAID,)
    local.engine.begin()
    local.engine.finish()
    local.session.close()
    assert not conversation.exists()


def test_the_choice_to_keep_it_is_saved_and_the_next_start_goes_on(conversation):
    local = Local()
    local.engine.load()
    keeping(local, SAID)
    local.session.close()
    assert f"saved as a setting: {conversation}" in str(local.events)
    found = load_config(None, (), {}).config
    assert found.session.keep
    again = Local()
    again.session.config = found
    again.session.start()
    assert [turn.user_text for turn in again.engine.past] == ["I am Ann."]
    assert "The last conversation goes on." in str(again.events)
    again.session.close()


@pytest.mark.parametrize("way", ["new", "off"])
def test_what_was_kept_is_deleted_with_the_conversation(conversation, way):
    local = Local()
    local.engine.load()
    keeping(local, SAID)
    until(conversation.exists)
    if way == "new":
        local.session.new_conversation()
        until(lambda: not conversation.exists())
        local.engine.finish()  # of the turn that was cut off
    else:
        local.session.choose("session.keep", False)
        assert f"No longer kept, and saved as a setting: {conversation} was deleted." in str(
            local.events
        )
        assert not load_config(None, (), {}).config.session.keep
    local.session.close()
    assert not conversation.exists()


def test_a_second_voxtui_says_that_it_keeps_nothing(conversation):
    first, second = Local(), Local()
    first.engine.load()
    second.engine.load()
    keeping(first, SAID)
    keeping(second)
    assert "another voxtui keeps its own" in str(second.events)
    second.session.close()
    first.session.close()
    assert conversation.exists()


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
        with pytest.raises(NotAllowed, match="Still loading"):
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
