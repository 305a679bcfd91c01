"""Run a private PulseAudio with a virtual microphone and speaker, for machines without sound.

    with VirtualAudio() as audio, audio.environment():
        audio.say(wav)              # what the microphone `voxmic` hears
        audio.record()              # what the speaker `voxspk` plays

All files are in one temporary directory. The user's sound setup is neither read nor written.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import numpy as np

from tests.deadline import SECONDS

MICROPHONE, SPEAKER = "voxmic", "voxspk"
SAID = "voxcable.monitor"
"""The source that records the microphone's input."""

RATE = 48_000
PROGRAMS = ("pulseaudio", "pactl", "paplay", "parecord")

CLIENT = """\
autospawn = no
enable-shm = no
auto-connect-localhost = no
auto-connect-display = no
"""

# A sound card does not wait for the processor: where that is allowed, its stand-in comes first.
DAEMON = f"""\
exit-idle-time = -1
high-priority = yes
realtime-scheduling = no
flat-volumes = no
enable-shm = no
default-sample-rate = {RATE}
resample-method = soxr-mq
"""

# With norewinds a null sink renders 10 ms at a time; without, two seconds, and capture starts late.
SCRIPT = f"""\
.fail
load-module module-native-protocol-unix socket=@socket@ auth-anonymous=1 auth-cookie-enabled=0
load-module module-cli-protocol-unix socket=@socket@-commands
load-module module-null-sink sink_name=voxcable format=s16le rate={RATE} channels=1 norewinds=1
load-module module-remap-source source_name={MICROPHONE} master=voxcable.monitor channels=1 \
source_properties=device.description={MICROPHONE}
load-module module-null-sink sink_name={SPEAKER} format=s16le rate={RATE} channels=2 norewinds=1 \
sink_properties=device.description={SPEAKER}
set-default-source {MICROPHONE}
set-default-sink {SPEAKER}
"""

# PortAudio lists each of these names. The system's own configuration is left out.
ALSA = f"""\
pcm.{MICROPHONE} {{ type pulse server "unix:@socket@" device "{MICROPHONE}" }}
pcm.{SPEAKER} {{ type pulse server "unix:@socket@" device "{SPEAKER}" }}
pcm.default {{ type asym playback.pcm "{SPEAKER}" capture.pcm "{MICROPHONE}" }}
ctl.default {{ type pulse server "unix:@socket@" }}
"""

OTHER_ALSA = f"""\
pcm.othermic {{ type pulse server "unix:@socket@" device "{MICROPHONE}" }}
pcm.otherspk {{ type pulse server "unix:@socket@" device "{SPEAKER}" }}
pcm.default {{ type asym playback.pcm "otherspk" capture.pcm "othermic" }}
ctl.default {{ type pulse server "unix:@socket@" }}
"""


def missing() -> list[str]:
    """Return the programs missing for a virtual sound server."""
    return [program for program in PROGRAMS if shutil.which(program) is None]


class VirtualAudio:
    """The sound server and everything that tests do to it."""

    def __init__(self) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="voxtui-audio-"))
        self._socket = self._home / "native"
        self._daemon: subprocess.Popen[bytes] | None = None
        self._clips = 0
        self.env = {
            "PULSE_SERVER": f"unix:{self._socket}",
            "PULSE_RUNTIME_PATH": str(self._home),
            "PULSE_STATE_PATH": str(self._home / "state"),
            "PULSE_COOKIE": str(self._home / "cookie"),
            "PULSE_CLIENTCONFIG": str(self._home / "client.conf"),
            "PULSE_CONFIG": str(self._home / "daemon.conf"),
            "XDG_RUNTIME_DIR": str(self._home),
            "ALSA_CONFIG_PATH": str(self._home / "asound.conf"),
        }

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill(signal.SIGTERM)
        shutil.rmtree(self._home, ignore_errors=True)

    def start(self) -> None:
        """Start the server, or start it again after `kill`."""
        (self._home / "state").mkdir(exist_ok=True)
        (self._home / "client.conf").write_text(CLIENT)
        (self._home / "daemon.conf").write_text(DAEMON)
        for name, text in (("voxtui.pa", SCRIPT), ("asound.conf", ALSA)):
            # At once, because PortAudio aborts the process if it reads an empty configuration.
            written = self._home / f"{name}.new"
            written.write_text(text.replace("@socket@", str(self._socket)))
            written.replace(self._home / name)
        self._socket.unlink(missing_ok=True)
        command = ["pulseaudio", "-n", "--daemonize=no", "--use-pid-file=no", "--log-level=notice"]
        self._daemon = subprocess.Popen(
            [*command, f"--log-target=file:{self._home / 'log'}", "-F", self._home / "voxtui.pa"],
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        deadline = time.monotonic() + SECONDS
        while not (self._socket.exists() and f"Default Sink: {SPEAKER}" in self._pactl("info")):
            died = self._daemon.poll() is not None
            if died or time.monotonic() > deadline:
                log = self._home / "log"
                said = log.read_text() if log.exists() else ""
                raise RuntimeError(f"the virtual sound server did not start: {said}")
            threading.Event().wait(0.02)

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        """Kill the server, as if every sound device were unplugged at once."""
        if self._daemon is None:
            return
        self._daemon.send_signal(how)
        try:
            self._daemon.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self._daemon.kill()
            self._daemon.wait()
        self._daemon = None

    def unplug(self, other: VirtualAudio | None = None) -> None:
        """Remove both devices; those of `other`, under other names, become the default."""
        if other is not None:
            text = OTHER_ALSA.replace("@socket@", str(other._socket))
            (self._home / "asound.conf").write_text(text)
        self.kill()

    def remove_microphone(self) -> None:
        """Remove the microphone from the running server; another one exists."""
        self._pactl(
            "load-module",
            "module-remap-source",
            "source_name=second",
            "master=voxcable.monitor",
            "channels=1",
        )
        self._pactl("set-default-source", "second")
        self._unload(f"source_name={MICROPHONE}")

    def plug_in(self, name: str) -> None:
        """Add a microphone that hears the same; PortAudio lists it by this name."""
        master = ("master=voxcable.monitor", "channels=1")
        self._pactl("load-module", "module-remap-source", f"source_name={name}", *master)
        self._list(name)

    def plug_in_speaker(self, name: str) -> None:
        """Add a speaker, which becomes the default."""
        described = f"sink_properties=device.description={name}"
        self._pactl(
            "load-module", "module-null-sink", f"sink_name={name}", "norewinds=1", described
        )
        self._pactl("set-default-sink", name)
        self._list(name, f'pcm.!default {{ type asym playback.pcm "{name}" capture.pcm "voxmic" }}')

    def _list(self, name: str, *also: str) -> None:
        server = f"unix:{self._socket}"
        line = f'pcm.{name} {{ type pulse server "{server}" device "{name}" }}'
        with (self._home / "asound.conf").open("a") as devices:
            devices.write("\n".join((line, *also, "")))

    def remove_speaker(self, with_streams: bool = False) -> None:
        """Remove the speaker from the running server.

        Its streams move to the default speaker, unless `with_streams` ends them.
        """
        playing = self._pactl("list", "short", "sink-inputs").splitlines()
        self._unload(f"sink_name={SPEAKER}")
        for stream in playing if with_streams else []:
            self._command(f"kill-sink-input {stream.split()[0]}")

    def _unload(self, about: str) -> None:
        for line in self._pactl("list", "short", "modules").splitlines():
            if about in line:
                self._pactl("unload-module", line.split("\t")[0])

    @contextmanager
    def environment(self) -> Iterator[None]:
        """Point this process and its children to this server, and re-read PortAudio's devices."""
        before = {name: os.environ.get(name) for name in self.env}
        os.environ.update(self.env)
        read_devices()
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
            read_devices()

    def say(
        self, sound: Path | np.ndarray, rate: int = 16_000, ahead_ms: int = 500
    ) -> subprocess.Popen[bytes]:
        """Play a file or samples into the microphone, and return when all of it was played.

        The server holds `ahead_ms` in advance, so a busy machine causes no gap.
        """
        if isinstance(sound, np.ndarray):
            sound = self.wav(sound, rate)
        command = ["paplay", "--device=voxcable", f"--latency-msec={ahead_ms}", str(sound)]
        return subprocess.Popen(command, env=self.environ, stdin=subprocess.DEVNULL)

    def record(self, device: str = f"{SPEAKER}.monitor", latency_ms: int = 10) -> Recorder:
        """Record the speaker, or the microphone's input, until `stop`.

        The server's block is the shortest `latency_ms` that any client asks for.
        """
        command = ["parecord", "--raw", f"--device={device}", f"--latency-msec={latency_ms}"]
        form = [f"--rate={RATE}", "--channels=1", "--format=s16le"]
        return Recorder(
            subprocess.Popen(
                [*command, *form],
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                bufsize=0,
            )
        )

    def echo(self, percent: int, delay_ms: int = 20) -> None:
        """Feed the speaker into the microphone at this volume; 0 stops it."""
        for line in self._pactl("list", "short", "modules").splitlines():
            number, name = line.split("\t")[:2]
            if name == "module-loopback":
                self._pactl("unload-module", number)
        if not percent:
            return
        loop = ("source=voxspk.monitor", "sink=voxcable", f"latency_msec={delay_ms}")
        self._pactl("load-module", "module-loopback", *loop)
        for line in self._pactl("list", "short", "sink-inputs").splitlines():
            if "module-loopback" in line:
                self._pactl("set-sink-input-volume", line.split("\t")[0], f"{percent}%")

    def plug_in_loudspeaker(self, percent: int) -> str:
        """Add a speaker that the microphone hears at this volume; return its name.

        The echo of `echo` passes through a buffer, which grows on a busy machine. This one has a
        constant delay, as in a room.
        """
        name = f"loud{percent}"
        self._pactl("load-module", "module-remap-sink", f"sink_name={name}", "master=voxcable")
        newest = self._pactl("list", "short", "sink-inputs").splitlines()[-1].split("\t")[0]
        self._pactl("set-sink-input-volume", newest, f"{percent}%")
        self._list(name)
        return name

    def mute(self, muted: bool) -> tuple[float, float]:
        """Mute or unmute the speaker.

        Returns the monotonic times before and after the command, at most 1 ms apart.
        """
        return self._command(f"set-sink-mute {SPEAKER} {int(muted)}")

    def stall(self) -> None:
        """Freeze both devices: streams stay active, no sound moves, no error is reported."""
        self._suspend("1")

    def unstall(self) -> None:
        self._suspend("0")

    def captures(self) -> int:
        """Return how many programs record the microphone."""
        sources = [line.split("\t") for line in self._list_of("sources")]
        microphone = [number for number, name, *_ in sources if name == MICROPHONE]
        return sum(line.split("\t")[1] in microphone for line in self._list_of("source-outputs"))

    def _list_of(self, kind: str) -> list[str]:
        return self._pactl("list", "short", kind).splitlines()

    def _suspend(self, switch: str) -> None:
        self._pactl("suspend-sink", "voxcable", switch)
        self._pactl("suspend-sink", SPEAKER, switch)
        self._pactl("suspend-source", MICROPHONE, switch)

    def wav(self, samples: np.ndarray, rate: int) -> Path:
        import soundfile

        self._clips += 1
        path = self._home / f"said-{self._clips}.wav"
        soundfile.write(path, samples, rate, subtype="PCM_16")
        return path

    def _command(self, line: str) -> tuple[float, float]:
        """Send a raw command; return the times at which it was sent and done."""
        with socket.socket(socket.AF_UNIX) as commands:
            commands.settimeout(SECONDS)
            commands.connect(f"{self._socket}-commands")
            commands.sendall(b"hello\n")
            _prompt(commands)
            before = time.monotonic()
            commands.sendall(f"{line}\n".encode())
            _prompt(commands)
            return before, time.monotonic()

    def _pactl(self, *arguments: str) -> str:
        done = subprocess.run(
            ["pactl", *arguments],
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        return done.stdout

    @property
    def environ(self) -> dict[str, str]:
        return {**os.environ, **self.env, "LC_ALL": "C"}


def _prompt(commands: socket.socket) -> None:
    """Wait until the server has finished its commands."""
    said = b""
    while not said.endswith(b">>> "):
        said += commands.recv(4096)


class Recorder:
    """Records the speaker with the time at which each sample was played.

    A sample arrives after it was played, never before, so the earliest arrival (in samples) is the
    recording's clock.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._pieces: list[bytes] = []
        self._samples = 0
        self.began_at = float("inf")
        """monotonic seconds of the first sample"""
        self._running = threading.Event()
        self._reader = threading.Thread(target=self._read, name="recorder", daemon=True)
        self._reader.start()
        if not self._running.wait(SECONDS):
            self.stop()
            raise RuntimeError("nothing can be recorded from the virtual speaker")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _read(self) -> None:
        assert self._process.stdout is not None
        odd = b""
        while piece := self._process.stdout.read(65_536):
            now = time.monotonic()
            whole = odd + piece
            odd = whole[len(whole) // 2 * 2 :]
            self._pieces.append(whole[: len(whole) // 2 * 2])
            self._samples += len(whole) // 2
            self.began_at = min(self.began_at, now - self._samples / RATE)
            self._running.set()

    @property
    def seconds(self) -> float:
        return self._samples / RATE

    @property
    def pieces(self) -> int:
        """The number of pieces that arrived."""
        return len(self._pieces)

    def block(self, since: int) -> float:
        """Return the seconds of sound that arrive at once since that piece."""
        return statistics.median(len(piece) // 2 for piece in self._pieces[since:]) / RATE

    def until(self, at: float) -> None:
        """Wait until the recording holds the sample played at `at` (monotonic seconds)."""
        while self._reader.is_alive() and self.began_at + self.seconds < at:
            threading.Event().wait(0.01)

    def stop(self) -> np.ndarray:
        """Stop and return everything since the start: mono float32 at 48 kHz."""
        self._process.terminate()
        self._process.wait()
        self._reader.join()
        if self._process.stdout is not None:
            self._process.stdout.close()
        return self.samples

    @property
    def samples(self) -> np.ndarray:
        """Return the recording so far: mono float32 at 48 kHz."""
        return np.frombuffer(b"".join(self._pieces), np.int16).astype(np.float32) / 32768

    def since(self, at: float) -> np.ndarray:
        """Return the samples played since `at` (monotonic seconds)."""
        wanted = self._samples - self.index(at)
        pieces: list[bytes] = []
        for piece in reversed(self._pieces):
            if wanted <= 0:
                break
            pieces.insert(0, piece)
            wanted -= len(piece) // 2
        return (
            np.frombuffer(b"".join(pieces), np.int16)[max(0, -wanted) :].astype(np.float32) / 32768
        )

    def index(self, at: float) -> int:
        """Return the index of the sample played at `at` (monotonic seconds)."""
        return round((at - self.began_at) * RATE)


def read_devices() -> None:
    """Make PortAudio read the device list again, which it does only when it is initialised."""
    import sounddevice

    sounddevice._terminate()
    sounddevice._initialize()
