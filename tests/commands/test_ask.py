"""`voxtui ask`: the real engine and real files, on small fakes."""

import json
import os
import re
import shutil
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest
import soundfile
from click.testing import CliRunner

import voxtui.cli
from tests.fakes import OUT_OF_MEMORY, BeepVoice, LoudIsSpeech, ScriptedBrain
from tests.patterns import sound
from voxtui.dialogue.components.components import Models
from voxtui.dialogue.engine import Engine
from voxtui.dialogue.events import Notice
from voxtui.errors import InputError, ModelError
from voxtui.storage.metrics_files import metrics_folder

QUESTIONS = Path(__file__).parents[1] / "data" / "questions"


@dataclass
class Ran:
    exit_code: int
    stdout: str
    stderr: str


@pytest.fixture
def ask(monkeypatch, tmp_path, capfd):
    """Run `voxtui ask --fast` on `clips` in this process; `brain` answers."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name, pattern in {"one": "..xxxxxxxxxx.", "two": ".xxxxxxxxxxxx", "none": "....."}.items():
        soundfile.write(f"{name}.wav", sound(pattern), 16_000)

    def run(*arguments, brain=None, voice=None, pace="--fast", stdin=""):
        brain, voice = brain or ScriptedBrain(), voice or BeepVoice()

        def build(config, emit, devices, skills=None):
            run.emit = emit
            return Engine(Models(LoudIsSpeech(), brain, voice), config, emit, devices, skills)

        monkeypatch.setattr("voxtui.commands.ask.build_engine", build)
        command = ["ask", *arguments, *([pace] if pace else [])]
        Path("stdin").write_text(stdin)
        with open("stdin") as file:
            kept = os.dup(0)
            os.dup2(file.fileno(), 0)
            try:
                ran = CliRunner().invoke(voxtui.cli.cli, command)
            finally:
                os.dup2(kept, 0)
                os.close(kept)
        if ran.exception is not None and not isinstance(ran.exception, SystemExit):
            raise ran.exception
        assert brain.closed and voice.closed
        return Ran(ran.exit_code, ran.stdout, capfd.readouterr().err)

    return run


def test_stdout_holds_the_answer_only(ask):
    ran = ask("one.wav", brain=ScriptedBrain(["It ", "is ", "noon."]))
    assert (ran.exit_code, ran.stdout) == (0, "It is noon.\n")
    assert ran.stderr == "Silent; --play plays the answers.\n"


def test_a_note_that_cannot_be_stored_is_a_failure(ask, tmp_path):
    (tmp_path / "notes.md").mkdir()
    place = f"tools.notes_file={tmp_path / 'notes.md'}"
    ran = ask("--text", "Remember that the bins go out on Tuesday.", "--set", place)
    assert ran.exit_code == 2
    assert "notes.md: cannot be" in ran.stdout


def test_a_notice_of_the_start_goes_to_stderr_and_the_exit_code_is_0(ask):
    class Talkative(ScriptedBrain):
        def warm_up(self, progress, options):
            ask.emit(Notice("Another voice speaks.", "information"))

    ran = ask("one.wav", "--json", brain=Talkative(["It is noon."]))
    assert ran.exit_code == 0
    assert json.loads(ran.stdout)["reply"] == "It is noon."
    assert ran.stderr == "Another voice speaks.\n"


def test_a_missing_speaker_is_told_in_one_sentence(ask, monkeypatch):
    monkeypatch.setattr("voxtui.commands.ask.can_play", lambda audio: False)  # which says why
    assert ask("one.wav", "--play").stderr == ""


def test_the_receiver_of_the_voice_is_printed_before_the_first_clip(ask):
    class Elsewhere(ScriptedBrain):
        sends_to = "example.org"

    printed = ask("one.wav", brain=Elsewhere()).stderr.splitlines()
    assert printed[0] == "Your voice and words go to example.org."
    assert ask("one.wav", "--json", brain=Elsewhere()).stderr == ""


def test_each_clip_is_a_conversation_of_its_own(ask):
    brain = ScriptedBrain(["First."], ["Second."])
    ran = ask("one.wav", "two.wav", brain=brain)
    assert ran.stdout == "First.\nSecond.\n"
    assert [len(past) for past in brain.pasts] == [0, 0]


def test_together_makes_the_clips_turns_of_one_conversation(ask):
    brain = ScriptedBrain(["First."], ["Second."])
    ask("one.wav", "two.wav", "--together", brain=brain)
    assert [[turn.reply_text for turn in past] for past in brain.pasts] == [[], ["First."]]


def test_text_is_answered_from_an_option_or_from_stdin(ask):
    for arguments, stdin in ((("--text", "What is it?"), ""), (("-",), "What\n is it?\n")):
        brain = ScriptedBrain(["It ", "is ", "noon."])
        ran = ask(*arguments, brain=brain, pace=None, stdin=stdin)
        assert (ran.exit_code, ran.stdout) == (0, "It is noon.\n")
        assert brain.said[0].split() == ["What", "is", "it?"]
    turn = json.loads(ask("--text", "Why?", "--json", pace=None).stdout)
    assert (turn["clip"], turn["heard"], turn["reply"]) == (None, "Why?", "Yes.")
    failed = ask("--text", "Why?", brain=ScriptedBrain([OUT_OF_MEMORY]), pace=None)
    assert (failed.exit_code, failed.stderr.splitlines()[-1]) == (1, "The question: Out of memory.")


def test_a_question_is_not_kept_where_conversations_are(ask):
    asked = ("--text", "Do you record what I say?", "--set", "session.keep=true")
    ran = ask(*asked, pace=None)
    assert "It is stored only when you ask for that" in ran.stdout


@pytest.mark.parametrize(
    ("arguments", "stdin", "sentence"),
    [
        (("--text", "  "), "", "There is no text in the question."),
        (("",), "", "An empty argument names no file and holds no question."),
        (("-",), "\n", "stdin: there is no text in it."),
        (("-",), "a\0b", "stdin: is not text: byte 1 is NUL."),
        (("one.wav", "--text", "a"), "", "FILES, - and --text exclude each other."),
        (("one.wav", "-"), "", "FILES, - and --text exclude each other."),
        (("What?",), "", "What?: there is no such file. To ask words: voxtui ask --text WORDS"),
        (("What is it.wav",), "a\0b", "stdin: is not text: byte 1 is NUL."),
        (("--text", "What is it?", "-"), " \n", "stdin: there is no text in it."),
        (("-",), "long " * 200_001, "stdin: is longer than 1,000,000 characters. Take a "
         "part of it, such as its beginning: head -c 4000"),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_is_refused_before_a_model_loads(ask, arguments, stdin, sentence):
    with pytest.raises(InputError) as refused:
        ask(*arguments, stdin=stdin)
    assert str(refused.value) == sentence


def test_a_question_of_stdin_may_replace_an_earlier_answer(ask):
    assert ask("-", "--speak", "one.wav", pace=None, stdin="What is it?").exit_code == 0


@pytest.mark.parametrize("arguments", [("What changed there?",), ("--text", "What changed?", "-")])
def test_a_question_may_be_about_the_text_of_a_pipe(ask, arguments):
    brain = ScriptedBrain(["The colour."])
    ran = ask(*arguments, brain=brain, pace=None, stdin="red\nblue\n")
    assert (ran.exit_code, ran.stdout) == (0, "The colour.\n")
    assert "Attached stdin: 2 lines, about 4 tokens." in ran.stderr
    ((text,),) = brain.pasts
    assert text.attached and "red\nblue\n" in text.user_text


LONGER_THAN_A_FILE_NAME = "What is it, if it goes on? " * 20


@pytest.mark.parametrize("question", ["What is it?", LONGER_THAN_A_FILE_NAME])
def test_a_question_in_quotes_needs_no_pipe(ask, question):
    ran = ask(question, brain=ScriptedBrain(["Noon."]), pace=None)
    assert (ran.exit_code, ran.stdout) == (0, "Noon.\n")


def test_quiet_prints_the_answer_only(ask):
    class Talkative(ScriptedBrain):
        sends_to = "example.org"

        def warm_up(self, progress, options):
            ask.emit(Notice("Another voice speaks.", "information"))

    assert ask("one.wav", "--quiet", brain=Talkative()).stderr == ""
    assert ask("none.wav", "-q").stderr == ""
    failed = ask("one.wav", "-q", brain=ScriptedBrain([OUT_OF_MEMORY]))
    assert failed.stderr == "one.wav: Out of memory.\n"


def test_the_same_clip_may_be_asked_twice(ask):
    ran = ask("one.wav", "one.wav", brain=ScriptedBrain(["First."], ["Second."]))
    assert ran.stdout == "First.\nSecond.\n"


@pytest.mark.parametrize("name", ["microphone", "typed", "replay"])
def test_a_file_named_like_a_source_is_still_a_clip(ask, name):
    shutil.copy("one.wav", name)
    turn = json.loads(ask(name, "--json").stdout)
    assert (turn["outcome"], turn["clip"]) == ("answered", f"./{name}")


def test_json_prints_one_line_per_turn_and_nothing_else(ask):
    brain = ScriptedBrain(["Ein ", "Käse."], ["Second."])
    ran = ask("one.wav", "two.wav", "--json", brain=brain)
    first, second = map(json.loads, ran.stdout.splitlines())
    assert ran.stderr == ""
    assert (first["clip"], first["reply"], first["outcome"]) == ("one.wav", "Ein Käse.", "answered")
    assert (second["clip"], second["heard"], second["paced"]) == (
        "two.wav",
        "what was said",
        False,
    )
    assert {"first_token", "first_sentence", "first_audio", "last_token"} <= set(first["marks"])
    assert first["first_sound_ms"] is None  # it was not played
    assert "first_shown" not in first["marks"]  # nothing is shown before the turn is over


def test_clips_are_fed_in_real_time_unless_fast(ask):
    ran = ask("one.wav", "--json", pace=None)
    turn = json.loads(ran.stdout)
    assert turn["paced"] is True
    assert turn["marks"]["captured"] >= 0


def test_only_turns_in_real_time_are_kept_in_the_metrics_file(ask):
    ask("one.wav", "--fast")
    ask("one.wav", pace=None, brain=ScriptedBrain(["Noon."]))
    ask("one.wav", "--set", "metrics.enabled=false", pace=None)
    (file,) = metrics_folder().iterdir()
    (line,) = file.read_text().splitlines()
    assert json.loads(line)["source"] == "clip"
    assert "one.wav" not in line and "Noon" not in line


def test_a_clip_without_speech_is_an_exit_code_of_its_own(ask):
    brain = ScriptedBrain()
    ran = ask("none.wav", brain=brain)
    assert (ran.exit_code, ran.stdout) == (3, "")
    assert ran.stderr.splitlines()[-1] == "Nothing was heard in none.wav."
    assert ask("none.wav", "one.wav").exit_code == 3
    assert ask("none.wav", "one.wav", brain=ScriptedBrain([OUT_OF_MEMORY])).exit_code == 1
    assert brain.inferences == 0
    assert json.loads(ask("none.wav", "--json").stdout)["outcome"] == "no_speech"


def test_the_name_of_a_clip_gives_the_terminal_no_command(ask):
    for file in ("one.wav", "none.wav"):
        Path(file).rename(f"\x1b]0;{file}\x07")
    printed = ask("\x1b]0;none.wav\x07", "\x1b]0;one.wav\x07", brain=ScriptedBrain([OUT_OF_MEMORY]))
    assert printed.stderr.splitlines()[-2:] == [
        "Nothing was heard in ]0;none.wav.",
        "]0;one.wav: Out of memory.",
    ]
    answered = ask("\x1b]0;one.wav\x07", "--json")
    assert json.loads(answered.stdout)["clip"] == "]0;one.wav"
    with pytest.raises(InputError, match=r"^\]0;two.wav: there is no such file.$"):
        ask("\x1b]0;two.wav\x07")


def test_a_failed_turn_is_one_sentence_and_the_next_clip_is_answered(ask):
    brain = ScriptedBrain(["Half", OUT_OF_MEMORY], ["Whole."])
    ran = ask("one.wav", "two.wav", brain=brain)
    assert (ran.exit_code, ran.stdout) == (1, "Half\nWhole.\n")
    assert ran.stderr.splitlines()[-1] == "one.wav: Out of memory."
    again = ask("one.wav", "--json", brain=ScriptedBrain([OUT_OF_MEMORY]))
    assert again.exit_code == 1
    assert json.loads(again.stdout)["error"] == "Out of memory."
    assert again.stderr == "one.wav: Out of memory.\n"


def test_speak_writes_the_answers_of_all_turns_in_order(ask):
    spoken = BeepVoice()
    ask("one.wav", "two.wav", "--speak", "out.wav", brain=ScriptedBrain(["A."], ["Longer."]),
        voice=spoken)  # fmt: skip
    samples, rate = soundfile.read("out.wav")
    assert spoken.clauses == ["A.", "Longer."]
    assert (rate, len(samples)) == (24_000, 240 * len("A.Longer."))
    assert sorted(path.name for path in Path().glob("*out*")) == ["out.wav"]


class BrokenBrain(ScriptedBrain):
    def warm_up(self, progress, options):
        raise ModelError("The weights are gone.")


def test_a_failed_start_leaves_an_older_answer_file_unchanged(ask):
    Path("out.wav").write_text("older")
    with pytest.raises(ModelError, match="The weights are gone"):
        ask("one.wav", "--speak", "out.wav", brain=BrokenBrain())
    assert Path("out.wav").read_text() == "older"
    assert list(Path().glob(".*.partial")) == []


def test_a_bug_raises_and_leaves_no_partial_file(ask):
    with pytest.raises(ZeroDivisionError):
        ask("one.wav", "--speak", "out.wav", brain=ScriptedBrain(["A.", ZeroDivisionError()]))
    assert list(Path().glob("*out*")) + list(Path().glob(".*.partial")) == []


@pytest.mark.slow
@pytest.mark.models
@pytest.mark.timeout(600)
def test_the_default_model_answers_recorded_questions(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    questions = tomllib.loads((QUESTIONS / "questions.toml").read_text())["question"][:6]
    files = [str(QUESTIONS / question["file"]) for question in questions]
    speak = str(tmp_path / "answers.wav")
    ran = CliRunner().invoke(voxtui.cli.cli, ["ask", *files, "--json", "--speak", speak])
    assert ran.exit_code == 0, ran.stderr
    turns = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [turn["outcome"] for turn in turns] == ["answered"] * len(questions)
    right = [
        re.search(question["answer"], turn["reply"], re.IGNORECASE) is not None
        for question, turn in zip(questions, turns, strict=True)
    ]
    assert sum(right) >= len(questions) - 1
    assert soundfile.info(speak).duration > len(questions) / 2
