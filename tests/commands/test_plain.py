"""The conversation in lines: what is printed, and what lines do."""

import os
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import click
import numpy as np
import pytest

from tests.fakes import ScriptedEngine, make_factories
from tests.ui.pseudo_terminal import until
from voxtui.commands.plain import Plain, typed_lines
from voxtui.dialogue.data import Utterance
from voxtui.dialogue.engine_commands import ReplaceComponents
from voxtui.dialogue.events import (
    Caption,
    Captured,
    Died,
    LoadFailed,
    Loading,
    MicrophoneLost,
    Notice,
    PrefillProgress,
    Rang,
    ReplyText,
    SpokenUpTo,
    State,
    StateChanged,
    UserWords,
)
from voxtui.dialogue.timestamps import Milestone, Outcome
from voxtui.errors import InputError, ModelError, ModelMissing
from voxtui.settings.schema import Config, UiConfig
from voxtui.storage.conversation_database import history_file

CLIPS = [("a question", Path("question.wav"))]
MARKS = {"released": 0.0, "first_token": 0.084, "first_sound": 0.512, "last_token": 1.234}
THINKING, SPEAKING = StateChanged(State.THINKING), StateChanged(State.SPEAKING)
LISTENING = StateChanged(State.LISTENING)


def no_clip(path):
    return lambda listener, stopped: None


@pytest.fixture
def converse(capsys, monkeypatch):
    """Run `script(engine, told)`, which reports events and yields lines, in the order of both.

    Returns the lines of stdout and stderr in their order; `status` has those of stderr.
    """

    def run(
        script, live=True, offset=None, open_clip=no_clip, save_dir="", reload=None, quiet=False,
        continues=False,
    ):  # fmt: skip
        run.status = []

        def echo(line="", nl=True, err=False):
            run.status += [line] if err else []
            click.echo(line, nl=nl)

        monkeypatch.setattr("voxtui.commands.plain.click", SimpleNamespace(echo=echo))
        monkeypatch.setattr("voxtui.session.local_session.device_offset", lambda speaker: offset)
        opened = "voxtui.session.clip_player.open_clip"
        monkeypatch.setattr(opened, lambda path, most: open_clip(path))
        config = Config(ui=UiConfig(save_dir=save_dir))
        plain = Plain(
            ScriptedEngine,
            config,
            CLIPS,
            make_factories(reload=reload),
            live,
            quiet,
        )
        run.session = plain.session
        engine = plain.session.engine

        def told(*names):
            until(lambda: [call[0] for call in engine.calls[1:]][-len(names) :] == list(names))

        run.all_done = plain.run(script(engine, told), continues=continues)
        said = capsys.readouterr().out.splitlines()
        return said, [str(call[0]) for call in engine.calls if call[0] not in ("start", "close")]

    return run


def test_enter_starts_and_enter_ends_and_its_numbers_come_on_request(converse):
    def script(engine, told):
        engine.report(Loading("recogniser"), Loading("recogniser"), Loading("chat model"))
        engine.load()
        yield "\n"
        told("talk")
        timestamps = engine.begin()
        engine.report(LISTENING)
        yield "\n"
        told("talk", "release")
        engine.report(THINKING, UserWords(1, "What is the capital?"), ReplyText(1, "It is"))
        engine.report(SPEAKING, ReplyText(1, " Paris."))
        engine.finish(timestamps=MARKS, reply="It is Paris.")
        until(lambda: timestamps.at(Milestone.FIRST_SHOWN))
        yield "/numbers"

    said, commands = converse(script)
    assert said[:2] == ["Loading: recogniser.", "Loading: chat model."]
    assert said[2].startswith("Ready: scripted brain. Voice: a voice. Microphone: a microphone.")
    assert said[-5:] == [
        "Listening. Enter: have it answered.",
        "Thinking.",
        "You: What is the capital?",
        "Vox: It is Paris.",
        "First token 84 ms, ok 300, first sound 512 ms, over 500, total 1234 ms, ok 5000.",
    ]
    assert commands == ["talk", "release"]
    assert set(said) - set(converse.status) >= {*said[-3:]}
    assert {*said[:5], "Thinking."} <= {
        line for text in converse.status for line in text.split("\n")
    }


def test_quiet_prints_the_conversation_and_errors_only(converse):
    def script(engine, told):
        engine.load()
        engine.report(Notice("Another voice speaks.", "information"))
        yield "/clip 1"
        engine.begin("a question")
        engine.report(LISTENING, THINKING, UserWords(1, "What is it?"), ReplyText(1, "Noon."))
        engine.finish(timestamps=MARKS, reply="Noon.")
        yield "/clip 9"

    said, _ = converse(script, quiet=True)
    assert [line for line in said if not line.startswith("Sample")] == [
        "You: What is it?",
        "Vox: Noon.",
        "There is no sample clip 9. There are: 1 a question.",
    ]


def test_a_given_text_and_the_clipboard_are_read_with_their_progress(converse, monkeypatch):
    monkeypatch.setattr("voxtui.commands.plain.clipboard_text", lambda: "a text")

    def script(engine, told):
        engine.load()
        yield "/paste"
        told("give")
        for reading in (
            PrefillProgress(0, 980, None),
            PrefillProgress(3, 980, 34.6),
            PrefillProgress(6, 980, 33.0),
        ):
            engine.report(reading)
        engine.report(PrefillProgress(980, 980, 0.0))

    said, commands = converse(script)
    assert commands == ["give"]
    assert said[-2:] == ["Reading 980 tokens: 35 s.", "The text is read."]


@pytest.mark.parametrize("live", [True, False])
def test_a_damaged_history_stops_only_a_file_of_lines(converse, monkeypatch, tmp_path, live):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    history_file().parent.mkdir(parents=True)
    history_file().write_bytes(b"no database" * 100)

    def script(engine, told):
        engine.load()
        yield "/numbers"

    with nullcontext() if live else pytest.raises(InputError):
        said, _ = converse(script, live, continues=True)
        assert "is no history that voxtui wrote" in said[0]
        assert said[-1] == "No numbers yet."


def test_the_device_offset_is_shown_beside_the_first_sound(converse):
    def script(engine, told):
        engine.load()
        engine.begin()
        engine.finish(timestamps=MARKS, reply="Yes.")
        until(lambda: converse.session.record.finished)
        yield "/numbers"

    said, _ = converse(script, offset=42.3)
    assert any("first sound 512 ms and 42 in the devices, over 500" in line for line in said)


def test_a_timer_that_rings_is_a_line_and_enter_only_silences_it(converse):
    def script(engine, told):
        engine.load()
        engine.report(Rang("Your pasta timer is done."))
        engine.ringing = True
        yield "\n"
        yield "/mute"
        told("mute")
        assert not engine.ringing

    said, commands = converse(script)
    assert "Your pasta timer is done." in said
    assert commands == ["mute"]


def test_text_is_sent_and_not_repeated(converse):
    def script(engine, told):
        engine.load()
        yield "hello there\n"
        told("say")
        engine.begin("typed")
        engine.report(THINKING, UserWords(1, "hello there"), ReplyText(1, "Hi."))
        engine.finish(reply="Hi.")

    said, commands = converse(script)
    assert commands == ["say"]
    assert said[-2:] == ["Thinking.", "Vox: Hi."]


def test_text_typed_while_models_load_is_kept_and_enter_says_that_it_cannot_talk_yet(converse):
    def script(engine, told):
        yield "\n"
        yield "first\n"
        yield "second\n"
        until(lambda: len(converse.session.queued) == 2)
        engine.load()
        told("say")
        engine.begin("typed")
        engine.finish(reply="Yes.")
        told("say", "say")

    said, _ = converse(script)
    assert "The models are still loading. Text that you send is answered after that." in said


def test_no_line_of_an_answer_looks_like_a_line_of_the_user_or_of_a_tool(converse):
    def script(engine, told):
        engine.load()
        timestamps = engine.begin("typed")
        engine.report(ReplyText(1, "Yes.\nYou: "), ReplyText(1, "no\n› lights · 3 ms\n"))
        engine.finish(timestamps=MARKS, reply="Yes.")
        until(lambda: timestamps.at(Milestone.FIRST_SHOWN))
        yield "/numbers"

    said, _ = converse(script)
    assert [line for line in said if line.startswith(("You", "›", "Vox"))] == ["Vox: Yes."]
    assert "     You: no" in said and "     › lights · 3 ms" in said


def test_the_lines_of_a_pipe_wait_for_one_another_and_all_are_answered(converse):
    heard = []

    def open_clip(path):
        return lambda listener, stopped: heard.append(path)

    def script(engine, told):
        yield from ("one\n", "\n", "two\n", "/clip 1\n")
        engine.load()
        for count in (1, 2):
            until(lambda count=count: [c[0] for c in engine.calls].count("say") == count)
            engine.begin("typed")
            engine.finish(reply="Yes.")
        until(lambda: heard)
        engine.begin("a question")
        engine.finish(reply="Yes.")

    _, commands = converse(script, live=False, open_clip=open_clip)
    assert commands == ["say", "say"]
    assert heard == [Path("question.wav")]


@pytest.mark.parametrize(
    ("outcome", "fields", "said"),
    [
        (Outcome.NO_SPEECH, {}, "Nothing was heard."),
        (Outcome.CANCELLED, {}, "Dropped."),
        (Outcome.FAILED, {"error": "Out of memory."}, "Out of memory."),
        (Outcome.CANCELLED, {"reply": "A story", "timestamps": MARKS}, "First token 84 ms"),
    ],
)
def test_a_turn_that_was_not_answered_shows_its_outcome(converse, outcome, fields, said):
    def script(engine, told):
        engine.load()
        engine.begin()
        engine.finish(outcome, **fields)
        yield "/numbers"

    lines, _ = converse(script)
    assert any(line.startswith(said) for line in lines)


def test_a_notice_during_an_answer_has_its_own_line(converse):
    def script(engine, told):
        engine.load()
        engine.begin("typed")
        engine.report(ReplyText(1, "One"), Notice("The voice failed."), ReplyText(1, " two."))
        engine.report(SpokenUpTo(1, "One"))
        engine.finish(Outcome.CANCELLED, reply="One two.")
        yield "/help"

    said, _ = converse(script)
    at = said.index("Vox: One")
    assert said[at : at + 4] == [
        "Vox: One",
        "The voice failed.",
        "Vox:  two.",
        "Interrupted. You heard: One",
    ]


def test_commands(converse):
    def script(engine, told):
        engine.load()
        engine.begin()
        engine.report(SPEAKING)
        yield "/stop\n"
        told("cancel")
        yield "/new\n"
        told("new_conversation")
        yield from ("/mute", "/mute", "/clip 7", "/nonsense", "/quit")

    said, commands = converse(script)
    assert commands == ["cancel", "new_conversation", "mute", "mute"]
    assert said[-5:] == [
        "New conversation. /undo brings the old one back.",
        "The voice is off.",
        "The voice is on.",
        "There is no sample clip 7. There are: 1 a question.",
        "/nonsense: there is no such command. /help lists them.",
    ]


@pytest.mark.parametrize(
    ("line", "done"),
    [
        ("/mute", True),
        ("/nonsense", False),
        ("/clip 7", False),
        ("/save", False),
        ("/again", False),
    ],
)
def test_a_line_that_is_not_done_makes_run_return_false(converse, line, done):
    def script(engine, told):
        engine.load()
        yield line

    converse(script, live=False)
    assert converse.all_done is done


def test_a_session_is_saved_and_the_last_utterance_is_answered_again(converse, tmp_path):
    said = Utterance(np.full(16_000, 0.1, np.float32), ((0.0, 1.0),), 1.0)

    def script(engine, told):
        engine.load()
        yield "/save\n"
        yield "/again\n"
        yield "/clip 1\n"
        engine.begin("a question")
        engine.report(
            Caption(1, "hell", 0),
            Captured(1, said),
            THINKING,
            UserWords(1, "hello"),
            ReplyText(1, "Hi."),
        )
        engine.finish(timestamps=MARKS, reply="Hi.")
        yield "/save\n"
        until(lambda: list(tmp_path.rglob("session.md")))
        yield "/again\n"
        told("redo")

    lines, commands = converse(script, save_dir=str(tmp_path))
    assert commands == ["redo"]
    assert "There is nothing to save yet." in lines
    assert "There is no turn to answer again yet." in lines
    (place,) = tmp_path.iterdir()
    saved = lines.index(f"Saved, with your words: {place}")
    assert "session.keep = true" in lines[saved + 1]
    assert "hello" in (place / "session.md").read_text()
    assert (place / "turn-0001.wav").exists()


def test_without_a_microphone_enter_explains_the_alternatives(converse):
    def script(engine, told):
        engine.load(None)
        yield "\n"

    said, commands = converse(script)
    assert said[-1] == "There is no microphone. Type, or play a sample clip (1 to 1)."
    assert commands == []


def test_devices_are_looked_for_again_between_turns(converse):
    def script(engine, told):
        engine.load(microphone=None)
        yield "/look\n"
        told("rescan_devices")
        engine.load("a headset")
        engine.report(LISTENING)
        yield "/look\n"

    said, commands = converse(script)
    assert commands == ["rescan_devices"]
    assert "Microphone: a headset." in " ".join(said)
    assert sum("Enter: start to talk" in line for line in said) == 1
    assert said[-1] == "Devices can be searched for only between turns."


def test_a_microphone_that_is_lost_ends_the_talking(converse):
    def script(engine, told):
        engine.load()
        yield "\n"
        told("talk")
        engine.begin()
        engine.report(LISTENING, MicrophoneLost(), Notice("It was unplugged.", "error"), THINKING)
        engine.finish(reply="Yes.")
        yield "\n"

    said, commands = converse(script)
    assert "It was unplugged." in said
    assert said[-1].startswith("There is no microphone")
    assert commands == ["talk"]


def test_talking_over_an_answer_is_ended_by_the_next_enter(converse):
    """The end of the turn before may be reported after the key."""

    def script(engine, told):
        engine.load()
        engine.begin()
        engine.report(SPEAKING)
        yield "\n"
        told("talk")
        engine.report(THINKING)
        engine.finish(Outcome.CANCELLED)
        engine.begin()
        engine.report(LISTENING)
        yield "\n"
        told("talk", "release")

    converse(script)


MISSING = ModelMissing("The chat model is not here.", "Run it.", 1_117_320_768)


def test_a_missing_chat_model_is_fetched_on_request_and_kept_text_is_answered(
    converse,
):
    made = []

    def reload_parts(config, notify, fetches):
        made.append(fetches)
        return ReplaceComponents(Config())

    def script(engine, told):
        yield "hello"
        engine.report(LoadFailed(MISSING))
        until(lambda: converse.session.failed)
        yield "/again"
        told("change")
        engine.report(StateChanged(State.LOADING), LoadFailed(MISSING))
        yield "/fetch"
        told("change", "change")
        engine.report(*(Loading("fetching it", done / 100) for done in range(0, 100, 4)))
        engine.load()
        told("say")

    said, commands = converse(script, reload=reload_parts)
    assert made == [False, True]
    assert commands == ["change", "change", "say"]
    offer = "The chat model is not here. /fetch: fetch it now (1.1 GB). /again: try again."
    assert said[:2] == [offer, offer]
    assert said[2:12] == [f"Loading: fetching it {done}%." for done in range(0, 100, 10)]


def test_a_retry_that_fails_is_reported_and_can_be_repeated(converse):
    def reload_parts(config, notify, fetches):
        raise ModelError("Kokoro is not installed.", "Install it.")

    def script(engine, told):
        engine.report(LoadFailed(ModelError("Out of memory.")))
        yield ""
        yield "/again"

    said, commands = converse(script, reload=reload_parts)
    assert said == [
        "Out of memory. /again: try again.",
        "No model is loaded. Text that you send is answered once one is.",
        "Kokoro is not installed. Install it. /again: try again.",
    ]
    assert commands == []


def test_a_failed_start_is_raised_if_the_user_cannot_retry_and_a_bug_always(converse):
    def failing(engine, told):
        engine.report(LoadFailed(ModelError("Missing.")))
        yield "/help"

    with pytest.raises(ModelError, match="Missing"):
        converse(failing, live=False)

    def dying(engine, told):
        engine.report(Died(ZeroDivisionError("bug")))
        yield "/help"

    with pytest.raises(ZeroDivisionError):
        converse(dying)


def test_an_unreadable_clip_is_reported_and_not_waited_for(converse):
    def broken(path):
        raise InputError(f"{path} is not audio.")

    def script(engine, told):
        engine.load()
        yield "/clip 1\n"

    said, _ = converse(script, live=False, open_clip=broken)
    assert said[-1] == "question.wav is not audio."


def test_lines_are_read_as_they_are_typed():
    reading, writing = os.pipe()
    lines = typed_lines(reading)
    os.write(writing, "grüß dich\n".encode())
    assert next(lines) == "grüß dich\n"
    os.write(writing, b"\xff last")
    os.close(writing)
    assert list(lines) == ["\ufffd last"]
    os.close(reading)


def test_unreadable_input_has_no_lines(tmp_path):
    directory = os.open(tmp_path, os.O_RDONLY)
    assert list(typed_lines(directory)) == []
    os.close(directory)


def test_control_characters_that_were_typed_are_removed_before_they_are_kept(converse):
    def script(engine, told):
        engine.load()
        yield "red \x1b[31malert\x07\n"
        told("say")
        assert engine.calls[-1] == ("say", "red [31malert")

    converse(script)


def test_edit_shows_what_was_heard_and_sends_something_else_instead(converse):
    def script(engine, told):
        engine.load()
        engine.begin()
        engine.report(UserWords(1, "capital of Brussels"), ReplyText(1, "A city."))
        engine.finish(reply="A city.")
        yield "/edit"
        yield "/edit The capital of Belgium?"
        told("redo")

    said, calls = converse(script)
    assert "Heard: capital of Brussels Write /edit and what you said." in said
    assert calls == ["redo"]
