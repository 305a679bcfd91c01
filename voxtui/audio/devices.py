"""Which microphones and speakers there are. The one place that imports PortAudio."""

from __future__ import annotations

import ctypes
import difflib
import json
import subprocess
import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from types import ModuleType
from typing import Any, Literal

from voxtui.errors import DeviceError, strip_control_characters

Direction = Literal["input", "output"]

PERIODS = 4
"""PortAudio's own number."""

PROBE_SECONDS = 20
"""A sound server that hangs must not hang us with it."""


@dataclass(frozen=True, slots=True)
class Device:
    """A sound device as PortAudio lists it."""

    index: int
    name: str
    host: str
    """the host API, such as ALSA or Core Audio"""
    inputs: int
    outputs: int
    """channels"""
    rate: float
    """Hz, its own"""
    default_input: bool
    default_output: bool

    def channels(self, direction: Direction) -> int:
        return self.inputs if direction == "input" else self.outputs

    def is_default(self, direction: Direction) -> bool:
        return self.default_input if direction == "input" else self.default_output


@dataclass(frozen=True, slots=True)
class Probe:
    """What a look at the sound system from another process found."""

    devices: tuple[Device, ...]
    problem: str | None = None
    """a sentence, when nothing can be said about devices"""


def portaudio() -> ModuleType:
    """The sounddevice module. Raises DeviceError where PortAudio is missing, or does not begin."""
    try:
        import sounddevice
    except OSError as error:
        raise DeviceError("PortAudio is not installed, so there is no sound.", install()) from error
    except Exception as error:  # its PortAudioError, which has no name while it does not load
        raise unusable(error) from error
    return sounddevice


def unusable(error: Exception) -> DeviceError:
    return DeviceError(f"The sound system cannot be used: {error}.", "`voxtui doctor` tries it.")


@contextmanager
def periods(count: int) -> Generator[None]:
    """Streams opened here have a buffer of so many parts, where PortAudio drives ALSA.

    A device takes sound a part at a time. PortAudio's own choice is 4, and sounddevice has no name
    for another.
    """
    sounddevice: Any = portaudio()
    choose = getattr(ctypes.CDLL(sounddevice._libname), "PaAlsa_SetNumPeriods", None)
    if choose is None:
        yield
        return
    choose(count)
    try:
        yield
    finally:
        choose(PERIODS)


def install() -> str:
    if sys.platform == "darwin":
        return "Run: brew install portaudio"
    return "Run: sudo apt install libportaudio2 (or your system's package of PortAudio)"


class Streams:
    """How many streams are open in this process: PortAudio looks for devices only as it begins."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        """held while devices are listed or a stream is opened or closed: PortAudio has no lock"""
        self._open = 0
        self._looked = False

    def opened(self) -> None:
        with self.lock:
            self._open += 1

    def close(self, stream: Any) -> None:
        """One that was `opened`, and may be broken."""
        with self.lock:
            stream.close(ignore_errors=True)
            self._open -= 1

    def rescan_devices(self, sounddevice: Any) -> None:
        """Let PortAudio find what has come or gone, if no stream would end by it."""
        if self._looked and not self._open:
            if sounddevice._initialized:  # it did begin, the last time
                sounddevice._terminate()
            sounddevice._initialize()
        self._looked = True


streams = Streams()


def list_devices() -> list[Device]:
    """Every device; while a stream is open, of those that were there before. Raises DeviceError."""
    sounddevice: Any = portaudio()
    try:
        with streams.lock:
            streams.rescan_devices(sounddevice)
            default_input, default_output = sounddevice.default.device
            hosts = sounddevice.query_hostapis()
            listed = list(sounddevice.query_devices())
    except sounddevice.PortAudioError as error:
        raise unusable(error) from error
    return [
        Device(
            index=index,
            name=strip_control_characters(found["name"]),
            host=hosts[found["hostapi"]]["name"],
            inputs=found["max_input_channels"],
            outputs=found["max_output_channels"],
            rate=found["default_samplerate"],
            default_input=index == default_input,
            default_output=index == default_output,
        )
        for index, found in enumerate(listed)
    ]


def find(devices: Sequence[Device], wanted: str, direction: Direction) -> Device:
    """The device that `wanted` means: an index, a name, part of a name, or "" for the default.

    Raises DeviceError.
    """
    kind = "microphone" if direction == "input" else "speaker"
    able = [device for device in devices if device.channels(direction) > 0]
    if not able:
        raise DeviceError(f"There is no {kind}.", "`voxtui devices` lists what there is.")
    if not wanted:
        return next((device for device in able if device.is_default(direction)), able[0])
    if wanted.isdecimal():
        matches = [d for d in able if d.index == int(wanted)]
    else:
        matches = [d for d in able if d.name == wanted] or [
            d for d in able if wanted.lower() in d.name.lower()
        ]
    setting = f"audio.{direction}"
    if not matches:
        near = difflib.get_close_matches(wanted, [d.name for d in able], 1, 0.6)
        meant = f" Did you mean {near[0]!r}?" if near else ""
        raise DeviceError(
            f"There is no {kind} {wanted!r} ({setting}).{meant}", "`voxtui devices` lists them."
        )
    if len(matches) > 1:
        names = ", ".join(f"{d.index} {d.name!r}" for d in matches[:4])
        raise DeviceError(
            f"{wanted!r} ({setting}) means more than one {kind}: {names}.", "Use the index."
        )
    return matches[0]


def opening_failed(device: Device, direction: Direction, error: Exception) -> DeviceError:
    """The sentence for a stream that did not open."""
    kind = "microphone" if direction == "input" else "speaker"
    text = str(error).lower()
    if "sample rate" in text:
        reason = f"does not take its own rate of {device.rate:g} Hz"
    elif "unavailable" in text or "busy" in text:
        reason = "is in use by another program"
    else:
        reason = "did not open; another program may hold it, or it was unplugged"
    return DeviceError(
        f"The {kind} {device.name!r} {reason}.", "`voxtui devices` lists the others."
    )


def probe() -> Probe:
    """The devices as another process sees them: a broken sound setup can abort a process."""
    command = [sys.executable, "-m", "voxtui.audio.devices"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PROBE_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return Probe((), f"The sound system did not answer within {PROBE_SECONDS} s.")
    if done.returncode != 0:
        return Probe((), "The sound system crashed when asked for its devices.")
    answer = json.loads(done.stdout.splitlines()[-1])
    return Probe(tuple(Device(**device) for device in answer["devices"]), answer["problem"])


def _answer() -> str:
    try:
        return json.dumps({"devices": [asdict(d) for d in list_devices()], "problem": None})
    except DeviceError as error:
        return json.dumps({"devices": [], "problem": str(error)})


if __name__ == "__main__":
    sys.stdout.write(_answer() + "\n")
