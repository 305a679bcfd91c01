"""`voxtui transcribe`: segments, formats, and the brain that transcribes."""

import json
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import soundfile
from click.testing import CliRunner

from tests.deadline import SECONDS
from tests.fakes import LoudIsSpeech, ScriptedBrain
from tests.patterns import sound
from voxtui.brains.embedded.recogniser import Heard
from voxtui.cli import cli
from voxtui.commands import transcribe as module
from voxtui.commands.transcribe import (
    Sound,
    TranscriptSegment,
    format_segment,
    run,
    segments,
    write,
)
from voxtui.dialogue.data import FRAME_SAMPLES, FRAME_SECONDS, SAMPLE_RATE
from voxtui.dialogue.fallbacks import Fallbacks
from voxtui.dialogue.recording import TRAIL_SAMPLES
from voxtui.errors import ForeignSpeech, ModelError
from voxtui.settings.schema import BrainConfig, Config, VadConfig, VoxtralBrainConfig
from voxtui.wiring import SpeechToText


def transcribed(pattern):
    pieces = np.array_split(sound(pattern), 3)  # wherever
    recognise = lambda samples: f"{len(samples)}"  # noqa: E731
    return [*segments("clip.wav", pieces, VadConfig(), LoudIsSpeech(), recognise)]


def spans(pattern):
    """(start, end) in frames of the segments of `pattern`."""
    found = transcribed(pattern)
    return [(round(s.start / FRAME_SECONDS), round(s.end / FRAME_SECONDS)) for s in found]


def test_a_segment_lasts_from_its_first_to_its_last_speech():
    assert spans("...xxxxxxxxxx....") == [(3, 13)]


def test_a_pause_of_half_a_second_ends_a_segment():
    speech = "x" * 10
    assert spans(f"..{speech}{'.' * 15}{speech}") == [(2, 37)]
    assert spans(f"..{speech}{'.' * 16}{speech}") == [(2, 12), (28, 38)]


def test_speech_after_minutes_of_silence_is_found():
    assert spans("." * 2000 + "x" * 20) == [(2000, 2020)]


def test_a_short_noise_is_not_part_of_a_segment():
    assert spans("x.." + "." * 40 + "x" * 10) == [(43, 53)]


def test_a_long_stretch_is_cut_at_its_longest_pause():
    speech = "x" * 500 + "." * 4 + "x" * 100 + "." * 8 + "x" * 100 + ".." + "x" * 100
    assert spans(speech) == [(0, 604), (612, 814)]
    lead = (int(transcribed(speech)[1].text) - TRAIL_SAMPLES) // FRAME_SAMPLES - (814 - 612)
    assert lead == 4  # half of the pause is left before the speech after it


def test_a_segment_is_one_line_even_if_the_recogniser_returns_two():
    (segment,) = segments(
        "clip.wav", [sound("x" * 20)], VadConfig(), LoudIsSpeech(), lambda samples: " One\n\ntwo.\n"
    )
    assert segment.text == "One two."


def test_speech_in_another_language_is_left_out_and_told_in_one_sentence(tmp_path, capsys):
    def recognise(samples):
        if len(samples) > 20 * FRAME_SAMPLES:
            raise ForeignSpeech
        return "English."

    clip = tmp_path / "clip.wav"
    soundfile.write(clip, sound("x" * 10 + "." * 20 + "x" * 50 + "." * 20), SAMPLE_RATE)
    sounds = [Sound(clip, clip.name)]
    assert write(sounds, "text", VadConfig(), LoudIsSpeech(), recognise, quiet=True)
    out, err = capsys.readouterr()
    assert out == "English.\n"
    assert err == (
        "clip.wav (at 1 s): That did not sound like English, the only language of the embedded "
        "recogniser. For another one: `voxtui models fetch whisper-base`, then brain.language or "
        "Ctrl+P.\n"
    )


def test_speech_without_a_pause_is_cut_at_the_longest_length():
    longest = 782  # 25 s
    assert spans("x" * 1000) == [(0, longest), (longest, 1000)]


@pytest.mark.parametrize(
    ("form", "lines"),
    [
        ("text", "Is it < two?"),
        ("srt", "7\n10:02:03,045 --> 10:02:59,999\nIs it < two?\n"),
        ("vtt", "10:02:03.045 --> 10:02:59.999\nIs it &lt; two?\n"),
        (
            "json",
            '{"file": "é.wav", "start": 36123.045, "end": 36179.999, "text": "Is it < two?"}',
        ),
    ],
)
def test_a_segment_has_each_format(form, lines):
    segment = TranscriptSegment("é.wav", 36_123.045, 36_179.999, "Is it < two?")
    assert format_segment(segment, form, 7) == lines


def test_the_detector_is_reset_for_each_file_and_the_count_goes_on(tmp_path, capsys):
    """A detector that still has the end of one file in it hears the next differently."""
    parts = []

    class Detector(LoudIsSpeech):
        def reset(self):
            parts.append(capsys.readouterr())

    for name, pattern in (("one", "..xxxxxxxx"), ("none", "....."), ("two", "xxxxxxxx..")):
        soundfile.write(tmp_path / f"{name}.wav", sound(pattern), SAMPLE_RATE)
    files = [Sound(tmp_path / f"{name}.wav", f"{name}.wav") for name in ("one", "none", "two")]
    assert not write(files, "srt", VadConfig(), Detector(), lambda samples: "So.")
    parts.append(capsys.readouterr())
    assert [lines.out.partition("\n")[0] for lines in parts] == ["", "1", "", "2"]
    assert [lines.err for lines in parts] == ["", "", "Nothing was heard in none.wav.\n", ""]


def test_a_file_in_which_nothing_is_heard_is_an_exit_code_of_its_own(voxtui_transcribe):
    assert voxtui_transcribe("clip.wav").exit_code == 0
    silent = voxtui_transcribe("clip.wav", "none.wav")
    assert (silent.exit_code, silent.stdout) == (3, "Words.\n")
    assert voxtui_transcribe("none.wav", "--quiet").output == ""


def test_the_sound_on_stdin_is_transcribed(voxtui_transcribe, monkeypatch):
    def piped(file):
        with open(file, "rb") as sound:
            kept = os.dup(0)
            os.dup2(sound.fileno(), 0)
            try:
                return voxtui_transcribe("-", "--json")
            finally:
                os.dup2(kept, 0)
                os.close(kept)

    ran = piped("clip.wav")
    assert (ran.exit_code, json.loads(ran.stdout)["file"]) == (0, "stdin")
    assert str(piped(os.devnull).exception) == "stdin: is empty."
    assert str(piped("/dev/zero").exception) == "stdin: is not a sound file that can be read."
    monkeypatch.setattr(module, "LARGEST_STDIN", 1000)
    assert str(piped("clip.wav").exception).startswith("stdin: is longer than")
    assert not list(Path(tempfile.gettempdir()).glob("*stdin*"))
    full = lambda: open("/no/folder", "wb")  # noqa: E731, SIM115
    monkeypatch.setattr(module, "TemporaryFile", full)
    assert str(piped("clip.wav").exception) == "stdin: cannot be copied: No such file or directory."


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the copy has a name")
def test_a_signal_ends_it_at_once_and_leaves_nothing(tmp_path):
    command = [sys.executable, "-m", "voxtui", "transcribe", "-"]
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=environ) as process:
        header = b"RIFF\xff\xff\xff\xffWAVEfmt \x10\0\0\0\1\0\1\0\x80\x3e\0\0\0\x7d\0\0\2\0\x10\0"
        process.stdin.write(header + b"data\xff\xff\xff\xff" + bytes(4 << 20))
        process.stdin.flush()  # most of it has been read by then
        process.terminate()
        assert process.wait(SECONDS) == 130
    assert not [path for path in tmp_path.iterdir() if path.is_file()]


@pytest.fixture
def voxtui_transcribe(monkeypatch, tmp_path):
    """Run `voxtui transcribe` in a folder with a clip and silence; every segment is `Words.`"""

    @contextmanager
    def recogniser(config, notify, careful=False):
        yield SpeechToText(lambda samples: "Words.", "", repeats=False)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("voxtui.commands.transcribe.build_detector", lambda config: LoudIsSpeech())
    monkeypatch.setattr("voxtui.commands.transcribe.recogniser", recogniser)
    soundfile.write("clip.wav", sound("..xxxxxxxxxx....."), SAMPLE_RATE)
    soundfile.write("none.wav", sound("........"), SAMPLE_RATE)
    return lambda *arguments: CliRunner().invoke(cli, ["transcribe", *arguments])


@pytest.fixture
def transcribe(monkeypatch, tmp_path, capsys):
    """Run `voxtui transcribe` on a clip with `brain` in force."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("voxtui.commands.transcribe.build_detector", lambda config: LoudIsSpeech())
    soundfile.write(tmp_path / "clip.wav", sound("..xxxxxxxxxx....."), SAMPLE_RATE)

    def start(brain, name):
        embedded = (lambda: pytest.fail("made"),) if name == "auto" else ()
        loaders = Fallbacks((lambda: brain, *embedded))
        monkeypatch.setattr("voxtui.wiring.build_brain", lambda config, notify: loaders)
        run(Config(brain=BrainConfig(name=name)), [tmp_path / "clip.wav"], "text")
        return capsys.readouterr()

    return start


@pytest.mark.parametrize("name", ["auto", "voxtral", "remote"])
def test_the_brain_in_force_transcribes(transcribe, name):
    brain = ScriptedBrain(heard="Quelle est la capitale ?")
    printed = transcribe(brain, name)
    assert (printed.out, printed.err) == ("Quelle est la capitale ?\n", "")
    assert brain.closed


def test_a_brain_that_cannot_load_is_one_error_and_is_not_replaced(transcribe):
    class Broken(ScriptedBrain):
        def warm_up(self, progress):
            raise ModelError("The weights are gone.")

    brain = Broken()
    with pytest.raises(ModelError, match="The weights are gone"):
        transcribe(brain, "voxtral")
    assert brain.closed


def test_auto_without_voxtral_transcribes_by_the_embedded_recogniser(transcribe, monkeypatch):
    class Recogniser:
        def __init__(self, choice):
            pass

        def load(self): ...

        def recognise(self, samples, cancelled=None):
            return Heard("Recognised.")

        def close(self): ...

    class Broken(ScriptedBrain):
        def warm_up(self, progress):
            raise ModelError("The weights are gone.")

    monkeypatch.setattr("voxtui.brains.embedded.whisper.Moonshine", Recogniser)
    assert transcribe(Broken(), "auto").out == "Recognised.\n"


def test_another_language_is_refused_by_the_embedded_recogniser(tmp_path, monkeypatch):
    """Unless Whisper is here."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    soundfile.write(tmp_path / "clip.wav", sound("..xxxxxxxxxx....."), SAMPLE_RATE)
    arguments = ["transcribe", str(tmp_path / "clip.wav"), "--set", "brain.name=embedded"]
    refused = CliRunner().invoke(cli, [*arguments, "--language", "fr"]).exception
    assert isinstance(refused, ModelError)
    assert refused.message.startswith(
        "The embedded recogniser knows English only, and brain.language is French."
    )
    assert "voxtui models fetch whisper-base" in str(refused)
    wrong = CliRunner().invoke(cli, [*arguments, "--language", "xx"]).exception
    assert "--language: brain.language" in str(wrong)


def test_voxtral_that_is_not_here_is_refused_with_the_command(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    soundfile.write(tmp_path / "clip.wav", sound("..xxxxxxxxxx....."), SAMPLE_RATE)
    with pytest.raises(ModelError) as caught:
        run(Config(brain=BrainConfig(name="voxtral")), [tmp_path / "clip.wav"], "text")
    assert caught.value.hint.startswith("Run `voxtui models fetch voxtral`")


@pytest.mark.slow
def test_voxtral_transcribes_a_file(tmp_path, tiny_voxtral, capsys):
    """A checkpoint of random weights: it makes any words, or none."""
    soundfile.write(tmp_path / "clip.wav", sound("..xxxxxxxxxx....."), SAMPLE_RATE)
    voxtral = VoxtralBrainConfig(model=str(tiny_voxtral))
    run(Config(brain=BrainConfig(name="voxtral", voxtral=voxtral)), [tmp_path / "clip.wav"], "json")
    assert "Traceback" not in capsys.readouterr().err
