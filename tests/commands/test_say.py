"""`voxtui say`: text becomes speech while it still arrives."""

import os
import threading
from pathlib import Path

import pytest
import soundfile
from click.testing import CliRunner

import voxtui.cli
from tests.deadline import SECONDS
from tests.fakes import BeepVoice, FakeSpeaker
from voxtui.commands.say import read_aloud
from voxtui.dialogue.fallbacks import Fallbacks
from voxtui.dialogue.speech.reply_speech import VoiceWorker
from voxtui.errors import InputError, ModelError, UnspokenLanguage
from voxtui.terminal.text_input import open_text


@pytest.fixture
def say(monkeypatch, tmp_path, capfd):
    """Run `voxtui say` in this process. Returns exit code, stderr and the clauses spoken."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def run(*arguments, stdin=b"", voice=None, speaker=None):
        voice, speaker = voice or BeepVoice(), speaker or FakeSpeaker()

        def build_voice(config):
            return None if config.voice.engine == "none" else Fallbacks((lambda: voice,))

        monkeypatch.setattr("voxtui.commands.say.build_voice", build_voice)
        monkeypatch.setattr("voxtui.commands.say.build_speaker", lambda name: speaker)
        Path("stdin").write_bytes(stdin)
        with open("stdin", "rb") as file:
            kept = os.dup(0)
            os.dup2(file.fileno(), 0)
            try:
                ran = CliRunner().invoke(voxtui.cli.cli, ["say", *arguments])
            finally:
                os.dup2(kept, 0)
                os.close(kept)
        if ran.exception is not None and not isinstance(ran.exception, SystemExit):
            raise ran.exception
        assert voice.closed and ran.stdout == ""
        return ran.exit_code, ran.stderr + capfd.readouterr().err, voice.clauses

    return run


def test_stdin_a_file_and_words_are_spoken(say):
    Path("text.txt").write_text("From a file.")
    assert say(stdin=b"From stdin.\n") == (0, "", ["From stdin."])
    assert say("-", stdin=b"From stdin.\n") == (0, "", ["From stdin."])
    assert say("text.txt") == (0, "", ["From a file."])
    assert say("--text", "Just words") == (0, "", ["Just words."])


@pytest.mark.parametrize("words", [("The build is done.",), ("The", "build", "is", "done.")])
def test_words_need_no_option(say, words):
    assert say(*words) == (0, "", ["The build is done."])


def test_a_single_word_is_a_file_if_there_is_one_or_it_looks_like_a_path(say):
    Path("notes").write_text("From a file.")
    assert say("notes") == (0, "", ["From a file."])
    assert say("Hello.") == (0, "", ["Hello."])
    assert say("Hello " * 100)[0] == 0  # longer than a name of a file may be
    for missing in ("notes.txt", "docs/notes"):
        with pytest.raises(InputError, match=f"{missing}: there is no such file"):
            say(missing)


def test_the_text_is_spoken_in_the_configured_language(say):
    voice = BeepVoice()
    assert say("--text", "Bonjour.", "--set", "brain.language=fr", voice=voice)[0] == 0
    assert voice.languages == ["fr"]

    class English(BeepVoice):
        def speak(self, clause, speed=None, language="en"):
            raise UnspokenLanguage("The voice has no French.")
            yield

    with pytest.raises(UnspokenLanguage, match=r"^The voice has no French\.$"):
        say("--text", "Bonjour.", "--set", "brain.language=fr", voice=English())


def test_the_speech_is_written_to_a_file(say):
    assert say("--text", "One. Two.", "-o", "out.wav")[0] == 0
    samples, rate = soundfile.read("out.wav")
    assert (len(samples), rate) == (240 * len("One.Two."), 24_000)
    assert [path.name for path in Path().iterdir() if "out" in path.name] == ["out.wav"]


@pytest.mark.parametrize(
    ("arguments", "stdin", "sentence"),
    [
        ((), b"", "There is no text to speak."),
        ((), b"=====\n\n", "There is no text to speak."),
        ((), b"ab\xc3\xa9\xff", "stdin: is not UTF-8 text: byte 4 is invalid."),
        ((), b"ab\xc3", "stdin: is not UTF-8 text: byte 2 is invalid."),
        ((), b"ab\x00c", "stdin: is not text: byte 2 is NUL."),
        (("hello.txt",), b"", "hello.txt: there is no such file. To say these words: voxtui say "
         "--text hello.txt"),
        ((".",), b"", ".: is a directory, not a text."),
        (("--text", "a", "file"), b"", "FILE or WORDS, --text and --clipboard exclude each other."),
        (("--text", "a", "--set", "voice.engine=none"), b"",
         "There is no voice: voice.engine is none."),
    ],
)  # fmt: skip
def test_what_cannot_be_spoken_is_refused(say, arguments, stdin, sentence):
    with pytest.raises(InputError) as refused:
        say(*arguments, stdin=stdin)
    assert str(refused.value) == sentence


def test_the_text_is_not_overwritten_by_its_speech(say):
    Path("NOTES").write_text("My text.")
    Path("link").symlink_to("NOTES")
    with pytest.raises(InputError, match="is the text, and would be overwritten"):
        say("link", "-o", "NOTES")
    assert Path("NOTES").read_text() == "My text."


def test_nothing_is_left_of_a_file_that_was_not_finished(say):
    with pytest.raises(InputError):
        say("-o", "out.wav", stdin=b"Begun. And on.\n\xff")
    assert {path.name for path in Path().iterdir()} == {"state", "stdin"}


def test_a_passage_at_which_the_voice_fails_is_left_out_and_counted(say):
    def fail(clause):
        if "bad" in clause:
            raise ModelError("no such sound")

    code, err, clauses = say(stdin=b"One.\nThis is bad.\nThree.\n", voice=BeepVoice(fail))
    assert (code, err) == (1, "Passages that could not be spoken: 1.\n")
    assert clauses == ["One.", "This is bad.", "Three."]


def test_the_first_words_sound_before_the_text_has_ended():
    speaker, worker = FakeSpeaker(), VoiceWorker(BeepVoice(), 30.0)
    go_on = threading.Event()

    def texts():
        yield "The beginning.\n"
        yield "The middle.\n"
        assert speaker.playing.wait(SECONDS)
        go_on.set()
        yield "The end.\n"

    assert read_aloud(texts(), worker, speaker) == 0
    assert go_on.is_set()
    assert [chunk.text for chunk in speaker.chunks] == ["The beginning.", "The middle.", "The end."]
    worker.close()


def test_text_is_decoded_across_pieces(tmp_path, monkeypatch):
    (tmp_path / "text").write_text("\ufeffé€😀" * 3, "utf-8")
    monkeypatch.setattr("voxtui.terminal.text_input.PIECE_BYTES", 1)
    assert "".join(open_text(tmp_path / "text")) == ("\ufeffé€😀" * 3)[1:]
