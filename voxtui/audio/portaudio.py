"""List the microphones and speakers. The only module that imports PortAudio."""

from __future__ import annotations

import ctypes
import difflib
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import msgspec

from voxtui.errors import DeviceError, strip_control_characters

Direction = Literal["input", "output"]

PERIODS = 4
"""Number of periods by PortAudio's default."""

UNKNOWN_RATE, USUAL_RATE = 44_100.0, 48_000.0
"""The rate that PortAudio reports of every ALSA device that accepts it, and that of most sound
servers and sound cards. At another rate they convert."""

PROBE_SECONDS = 20
"""Timeout of `probe`, because a sound server may hang."""

ALIASES = ("default", "pulse", "pipewire")
"""Names of ALSA for the device that the sound server has chosen."""

PACTL_SECONDS = 1.0

_ALSA_ROUTE = re.compile(
    r"(?:sysdefault|front|rear|center_lfe|side|surround\d+|iec958|spdif|hdmi|dmix|dsnoop|lavrate"
    r"|samplerate|speex|speexrate|upmix|vdownmix|jack|oss|null|pulse|pipewire)(?::|$)"
)
"""Matches further names of ALSA for the default device or a listed one."""


@dataclass(frozen=True, slots=True)
class Device:
    index: int
    name: str
    host: str
    """the host API, such as ALSA or Core Audio"""
    inputs: int
    outputs: int
    """the number of channels"""
    rate: float
    """the sample rate in Hz, as PortAudio reports it"""
    default_input: bool
    default_output: bool

    @property
    def rates(self) -> tuple[float, ...]:
        unknown = self.host == "ALSA" and self.rate == UNKNOWN_RATE
        return (USUAL_RATE, self.rate) if unknown else (self.rate,)

    def channels(self, direction: Direction) -> int:
        return self.inputs if direction == "input" else self.outputs

    def is_default(self, direction: Direction) -> bool:
        return self.default_input if direction == "input" else self.default_output


@dataclass(frozen=True, slots=True)
class Probe:
    """The devices that another process found."""

    devices: tuple[Device, ...]
    problem: str | None = None
    """a sentence, if the devices could not be listed"""


def portaudio() -> ModuleType:
    """Import sounddevice. Raises DeviceError if PortAudio is missing or cannot be initialised."""
    if "sounddevice" not in sys.modules and not _alsa_names_devices():
        raise DeviceError(
            "ALSA has no configuration, so there is no sound.",
            "Install libasound2-data (or your system's package of alsa.conf).",
        )
    try:
        import sounddevice  # pyright: ignore[reportMissingTypeStubs]
    except OSError as error:
        raise DeviceError("PortAudio is not installed, so there is no sound.", install()) from error
    except Exception as error:  # PortAudioError, which cannot be imported from a failed module
        raise unusable(error) from error
    return sounddevice


def _alsa_names_devices() -> bool:
    """Return False if ALSA is here without a device: PortAudio would then abort the process."""
    try:
        alsa = ctypes.CDLL("libasound.so.2")
    except OSError:
        return True
    alsa.snd_config_update()
    config, devices = ctypes.c_void_p.in_dll(alsa, "snd_config"), ctypes.c_void_p()
    found = alsa.snd_config_search(config, b"pcm", ctypes.byref(devices)) if config else -1
    return found >= 0


def unusable(error: Exception) -> DeviceError:
    return DeviceError(f"The sound system cannot be used: {error}.", "`voxtui doctor` tests it.")


@contextmanager
def periods(count: int) -> Generator[None]:
    """Open streams with a buffer of `count` periods if PortAudio uses ALSA.

    The device takes sound one period at a time. The default is 4, and sounddevice exposes no
    setting, so the C function is called directly.
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
    """Counts the open streams, because PortAudio lists devices only when it is initialised."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        """the lock for listing devices and for streams, because PortAudio is not thread-safe"""
        self.open = 0
        """the number of open streams"""
        self._looked = False

    def close(self, stream: Any) -> None:
        with self.lock:
            stream.close(ignore_errors=True)
            self.open -= 1

    def rescan_devices(self, sounddevice: Any) -> None:
        if self._looked and not self.open:
            # sounddevice has no public function for this.
            if sounddevice._initialized:  # 0 if the last initialisation failed
                sounddevice._terminate()
            sounddevice._initialize()
        self._looked = True


streams = Streams()


def list_devices() -> list[Device]:
    """List every device, except new ones while a stream is open. Raises DeviceError."""
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


def sound_system() -> object:
    """Return a value that changes when devices or sound servers come or go. Cheap; Linux only."""
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR") or "/run/user/0")
    server = os.environ.get("PULSE_SERVER", "").removeprefix("unix:") or runtime / "pulse/native"
    found: list[object] = []
    with suppress(OSError):
        found += sorted(os.listdir("/dev/snd"))
    for socket in (Path(server), runtime / "pipewire-0"):
        with suppress(OSError):
            status = socket.stat()
            found.append((status.st_ino, status.st_mtime_ns))
    return tuple(found)


def choices(devices: Sequence[Device]) -> list[Device]:
    """Return the devices that a person would choose, without duplicates, if any remain."""
    chosen = [d for d in devices if d.host != "ALSA" or not _ALSA_ROUTE.match(d.name)]
    return chosen or list(devices)


def shown_name(device: Device, direction: Direction) -> str:
    """Return the name behind a sound server's `default`, by `pactl` (20 ms), else its own name."""
    if device.name not in ALIASES:
        return device.name
    kind = "source" if direction == "input" else "sink"
    try:
        chosen = _pactl("info")[f"default_{kind}_name"]
        listed = {found["name"]: found["description"] for found in _pactl("list", f"{kind}s")}
        return strip_control_characters(listed[chosen]) or device.name
    except (OSError, subprocess.SubprocessError, ValueError, LookupError, TypeError):
        return device.name


def _pactl(*arguments: str) -> Any:
    done = subprocess.run(
        ["pactl", "--format=json", *arguments],
        capture_output=True,
        timeout=PACTL_SECONDS,
        check=True,
    )
    return json.loads(done.stdout)


def find(devices: Sequence[Device], wanted: str, direction: Direction) -> Device:
    """Return the device by index, name or part of it; "" is the default. Raises DeviceError."""
    kind = "microphone" if direction == "input" else "speaker"
    able = [device for device in devices if device.channels(direction) > 0]
    if not able:
        hint = "Connect one. A device that another program holds alone is not seen."
        raise DeviceError(f"There is no {kind}.", hint)
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


def formats(device: Device, direction: Direction) -> list[tuple[float, int]]:
    most = device.channels(direction)
    channels = dict.fromkeys((1, min(2, most), most))
    return [(rate, count) for count in channels for rate in device.rates]


def open_stream(
    wanted: str, direction: Direction, make: Callable[[Device, float, int], Any]
) -> tuple[Any, str, float, int]:
    """Start a stream by `make(device, rate, channels)` in the first format that works.

    `wanted` names the device, as for `find`. Returns the stream, the name on the screen, the rate
    (Hz) and the channels. Raises DeviceError.
    """
    sounddevice: Any = portaudio()
    failure = None
    with streams.lock:
        device = find(list_devices(), wanted, direction)
        name = shown_name(device, direction)
        for rate, channels in formats(device, direction):
            stream = None
            try:
                stream = make(device, rate, channels)
                stream.start()
            except sounddevice.PortAudioError as error:
                failure = error
                if stream is not None:
                    stream.close(ignore_errors=True)
            else:
                streams.open += 1
                return stream, name, rate, channels
    raise _opening_failed(device, direction, failure) from failure


def _opening_failed(device: Device, direction: Direction, error: Exception | None) -> DeviceError:
    kind = "microphone" if direction == "input" else "speaker"
    text = str(error).lower()
    if "sample rate" in text:
        reason = f"does not accept its own default rate of {device.rate:g} Hz"
    elif "unavailable" in text or "busy" in text:
        reason = "is in use by another program"
    else:
        reason = "did not open; another program may use it, or it was unplugged"
    return DeviceError(
        f"The {kind} {device.name!r} {reason}.", "`voxtui devices` lists the others."
    )


def probe() -> Probe:
    """List the devices from another process, because a broken sound setup can abort a process."""
    command = [sys.executable, "-P", "-m", "voxtui.audio.portaudio"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PROBE_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return Probe((), f"The sound system did not answer within {PROBE_SECONDS} s.")
    if done.returncode != 0:
        return Probe((), "The sound system crashed when asked for its devices.")
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=Probe)


def _answer() -> Probe:
    try:
        return Probe(tuple(list_devices()))
    except DeviceError as error:
        return Probe((), str(error))


if __name__ == "__main__":
    sys.stdout.write(msgspec.json.encode(_answer()).decode() + "\n")
