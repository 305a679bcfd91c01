"""`voxtui doctor --loopback_delay`: the report and the file, on a cable instead of a room."""

import numpy as np
import pytest

from tests.audio.test_loopback_delay import Cable
from tests.fakes import FakeMicrophone
from voxtui.audio import loopback_delay
from voxtui.commands.doctor import loopback
from voxtui.settings.schema import AudioConfig
from voxtui.storage.device_offset import device_offset


@pytest.fixture
def measured(monkeypatch, tmp_path):
    """Measure a cable that changes the sound by `room`; return (passed, file)."""
    monkeypatch.setattr(loopback_delay, "NOISE_SECONDS", 0.0)

    def run(room):
        microphone = FakeMicrophone()
        path = tmp_path / "loopback.json"
        monkeypatch.setattr(loopback, "build_speaker", lambda name: Cable(microphone, room=room))
        monkeypatch.setattr(loopback, "build_microphone", lambda name: microphone)
        monkeypatch.setattr(loopback, "offset_file", lambda: path)
        return loopback.run(AudioConfig()), path

    return run


def test_the_offset_is_printed_and_saved(measured, capsys):
    passed, path = measured(lambda sound: sound)
    assert passed
    assert device_offset("fake speaker", path) == pytest.approx(100, abs=2)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "5 heard by 'fake microphone', from 'fake speaker'"
    assert lines[-1].endswith(f"({path})")


def test_silence_is_reported_and_saves_nothing(measured, capsys):
    passed, path = measured(lambda sound: np.zeros_like(sound))
    assert not passed
    assert "Too few." in capsys.readouterr().out
    assert not path.exists()
