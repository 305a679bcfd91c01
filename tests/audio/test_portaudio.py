"""Names of devices, and which of them a person would choose."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from voxtui.audio.portaudio import Device, formats, probe, shown_name

DEFAULT = Device(0, "default", "ALSA", 32, 32, 44_100, True, True)
SINKS = [
    {"name": "hdmi", "description": "Television"},
    {"name": "usb", "description": "Blue\x1b[31m Headset"},
]


@pytest.fixture
def pactl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in for the sound server's tool; returns its file."""
    program = tmp_path / "pactl"
    info, sinks = json.dumps({"default_sink_name": "usb"}), json.dumps(SINKS)
    program.write_text(f"#!/bin/sh\n[ $2 = info ] && echo '{info}' || echo '{sinks}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    return program


def test_the_default_device_has_the_name_of_the_one_behind_it(pactl: Path) -> None:
    assert shown_name(DEFAULT, "output") == "Blue[31m Headset"


@pytest.mark.parametrize(
    "script",
    ["exit 1", "echo no JSON", "echo '[]'", "echo '{}'", "echo '{\"default_sink_name\": []}'"],
)
def test_a_default_device_keeps_its_name_where_nothing_is_known(pactl: Path, script: str) -> None:
    pactl.write_text(f"#!/bin/sh\n{script}\n")
    assert shown_name(DEFAULT, "output") == "default"


def test_without_a_tool_or_for_a_true_name_nothing_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert shown_name(DEFAULT, "input") == "default"
    headset = Device(1, "Headset (hw:1,0)", "ALSA", 1, 0, 48_000, False, False)
    assert shown_name(headset, "input") == "Headset (hw:1,0)"


def test_the_rate_of_an_alsa_device_is_unknown_so_the_usual_one_is_tried_first() -> None:
    assert formats(DEFAULT, "input")[:3] == [(48_000, 1), (44_100, 1), (48_000, 2)]
    headset = Device(1, "Headset", "ALSA", 1, 2, 16_000, False, False)
    assert formats(headset, "input") == [(16_000, 1)]
    built_in = Device(2, "Built-in", "Core Audio", 0, 2, 44_100, False, True)
    assert formats(built_in, "output") == [(44_100, 1), (44_100, 2)]


@pytest.mark.skipif(sys.platform != "linux", reason="ALSA is of Linux")
def test_without_one_device_of_alsa_portaudio_is_not_begun_because_it_would_abort() -> None:
    pytest.importorskip("sounddevice")
    done = subprocess.run(
        [sys.executable, "-c", "from voxtui.audio.portaudio import portaudio; portaudio()"],
        env={**os.environ, "ALSA_CONFIG_PATH": os.devnull},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "DeviceError: ALSA has no configuration, so there is no sound." in done.stderr


def test_no_module_of_the_current_directory_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "voxtui.py").write_text("open('ran', 'w')")
    monkeypatch.chdir(tmp_path)
    probe()
    assert not (tmp_path / "ran").exists()
