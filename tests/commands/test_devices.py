"""`voxtui devices`, and the speaker of `voxtui ask --play`."""

import json
import re
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from tests.commands.sound_devices import CRASHED, MICROPHONE, SPEAKER
from tests.fakes import FakeMicrophone
from voxtui.audio import portaudio as audio
from voxtui.audio.portaudio import Device, Probe
from voxtui.commands import devices_command as devices
from voxtui.errors import DeviceError
from voxtui.settings.schema import AudioConfig


@pytest.fixture
def listed(monkeypatch, capsys):
    monkeypatch.setattr(devices, "LEVEL_SECONDS", 0.05)

    def show(probe, audio=AudioConfig(), microphone=None, level=0.1, everything=False):  # noqa: B008
        monkeypatch.setattr(devices, "probe", lambda: probe)
        microphone = microphone or FakeMicrophone()
        microphone.level = level
        monkeypatch.setattr(devices, "build_microphone", lambda name: microphone)
        monkeypatch.setattr(devices, "native_stderr_in", nullcontext)  # capsys sees stderr
        devices.run(audio, everything)
        return capsys.readouterr()

    return show


def test_devices_are_a_table_that_marks_the_used_ones(listed):
    first, second, level = listed(Probe((MICROPHONE, SPEAKER))).out.splitlines()
    printed = [re.sub(" +", " ", line).strip() for line in (first, second)]
    assert printed == [
        "0 Headset ALSA 48000 Hz 1 in, 0 out used as microphone",
        "1 Loud speaker ALSA 48000 Hz 0 in, 2 out used as speaker",
    ]
    assert level == "Level: −20 dBFS at most in 0.05 s from 'fake microphone'."


def test_devices_are_json_too(monkeypatch, capsys):
    monkeypatch.setattr(devices, "LEVEL_SECONDS", 0.05)
    monkeypatch.setattr(devices, "probe", lambda: Probe((MICROPHONE, SPEAKER)))
    microphone = FakeMicrophone()
    microphone.level = 0.1
    monkeypatch.setattr(devices, "build_microphone", lambda name: microphone)
    devices.run(AudioConfig(), as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert [(d["name"], d["used_as"]) for d in told["devices"]] == [
        ("Headset", ["input"]),
        ("Loud speaker", ["output"]),
    ]
    assert (told["level_dbfs"], told["microphone_lost"]) == (-20.0, None)
    monkeypatch.setattr(devices, "probe", lambda: Probe(()))
    devices.run(AudioConfig(), as_json=True)
    assert json.loads(capsys.readouterr().out)["devices"] == []


def test_the_name_of_a_device_gives_the_terminal_no_command(monkeypatch):
    """That of a Bluetooth headset is whatever its owner calls it."""
    named = {"name": "\x1b]0;title\x07Headset", "hostapi": 0, "max_input_channels": 1,
             "max_output_channels": 0, "default_samplerate": 16_000.0}  # fmt: skip
    system = SimpleNamespace(
        PortAudioError=OSError,
        default=SimpleNamespace(device=(0, -1)),
        query_hostapis=lambda: [{"name": "ALSA"}],
        query_devices=lambda: [named],
    )
    monkeypatch.setattr(audio, "portaudio", lambda: system)
    monkeypatch.setattr(audio, "streams", audio.Streams())
    assert [device.name for device in audio.list_devices()] == ["]0;titleHeadset"]


def test_a_configured_device_that_is_missing_is_an_error_after_the_list(listed, capsys):
    with pytest.raises(DeviceError) as missing:
        listed(Probe((MICROPHONE, SPEAKER)), AudioConfig(input="Hedset"))
    assert str(missing.value) == (
        "There is no microphone 'Hedset' (audio.input). Did you mean 'Headset'? "
        "`voxtui devices` lists them."
    )
    printed = capsys.readouterr()
    assert "Headset" in printed.out and "Level" not in printed.out
    assert printed.err == "A device that another program holds alone is not seen.\n"


def test_other_names_of_the_same_device_are_listed_on_request(listed):
    routes = [
        Device(2 + n, name, "ALSA", 1, 2, 48_000, False, False)
        for n, name in enumerate(("sysdefault", "surround51", "dmix", "pulse"))
    ]
    found = Probe((MICROPHONE, SPEAKER, *routes))
    brief, full = listed(found).out, listed(found, everything=True).out
    assert "Headset" in brief and "surround51" not in brief
    assert "`voxtui devices --all` lists 4 more." in brief
    assert all(route.name in full for route in routes) and "--all" not in full
    assert "surround51" in listed(found, AudioConfig(output="surround51")).out


def test_an_overdriven_microphone_gets_advice(listed):
    assert "It is overdriven: turn it down" in listed(Probe((MICROPHONE,)), level=1.0).out


def test_digital_silence_is_reported_as_a_muted_microphone(listed):
    microphone = FakeMicrophone()
    printed = listed(Probe((MICROPHONE,)), microphone=microphone, level=0.0).out.splitlines()[-1]
    assert printed.startswith("Only digital silence comes from 'fake microphone': it is muted")
    assert "voxtui devices" not in printed
    assert microphone.closed


def test_a_microphone_lost_during_the_check_is_not_reported_as_silent(listed):
    class Lost(FakeMicrophone):
        def open(self, sink, lost):
            super().open(sink, lost)
            self.unplug()

    microphone = Lost()
    printed = listed(Probe((MICROPHONE,)), microphone=microphone, level=0.0).out.splitlines()[-1]
    assert printed == "The microphone was unplugged."
    assert microphone.closed


def test_a_busy_microphone_is_reported(listed):
    busy = FakeMicrophone(fails=DeviceError("The microphone is in use."))
    assert listed(Probe((MICROPHONE,)), microphone=busy).out.endswith("The microphone is in use.\n")


def test_missing_devices_are_no_failure_but_a_missing_sound_system_is(listed):
    assert "There is no sound device" in listed(Probe(())).out
    with pytest.raises(DeviceError, match="crashed"):
        listed(Probe((), CRASHED))


def test_without_a_speaker_play_is_skipped_with_a_sentence(monkeypatch, capsys):
    monkeypatch.setattr(devices, "probe", lambda: Probe((MICROPHONE,)))
    assert not devices.can_play(AudioConfig())
    assert capsys.readouterr().err.startswith("There is no speaker.")
    monkeypatch.setattr(devices, "probe", lambda: Probe((SPEAKER,)))
    assert devices.can_play(AudioConfig())


def test_play_on_a_named_speaker_that_is_missing_is_refused(monkeypatch):
    monkeypatch.setattr(devices, "probe", lambda: Probe((SPEAKER,)))
    with pytest.raises(DeviceError, match="There is no speaker 'USB'"):
        devices.can_play(AudioConfig(output="USB"))
