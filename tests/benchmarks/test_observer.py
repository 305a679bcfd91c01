"""The latencies on the screen are true for an observer outside the process."""

import statistics
import time

import pytest

from benchmarks import observer
from tests.audio.sounds import report
from tests.virtual_audio import missing
from voxtui.models.catalogue import CHAT_MODELS
from voxtui.models.store import is_here


def test_the_screen_is_read_in_the_order_of_arrival_even_when_read_late():
    command = ["sh", "-c", "printf one; read word; printf two; read word"]
    with observer.Watched(command, {}) as terminal:
        terminal.until(lambda: b"one" in terminal.output)
        told = terminal.send("\n")
        terminal.until(lambda: b"two" in terminal.output)
        came = time.monotonic()
        assert told <= terminal.first(lambda screen: "two" in screen.shown[1]) <= came
        assert "two" in terminal.lines[1]
        terminal.send("\n")
        terminal.ends()


@pytest.mark.slow
@pytest.mark.audio
@pytest.mark.models
@pytest.mark.timeout(300)
@pytest.mark.skipif(bool(missing()), reason="needs a virtual sound server")
@pytest.mark.skipif(not is_here(CHAT_MODELS["smollm2-135m"]), reason="needs smollm2-135m")
def test_the_screen_agrees_with_a_recording_and_with_the_first_painted_byte(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    model = ("--set", "brain.embedded.model=smollm2-135m")
    calibration, seen = observer.observe(tmp_path / "state", 5, model)
    for turn in seen:
        report(str(turn))
    assert calibration.uncertain < 0.003
    assert abs(statistics.median(turn.sound_error for turn in seen)) <= 5
    assert max(abs(turn.sound_error) for turn in seen) <= observer.SOUND_MS
    assert min(turn.paint_delay for turn in seen) >= -1
    assert statistics.median(turn.paint_delay for turn in seen) <= observer.ONE_PAINT_MS
