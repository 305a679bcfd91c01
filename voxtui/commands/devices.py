"""`voxtui devices`: list microphones and speakers, with a level check."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing, suppress
from queue import Empty, Queue

import click

from voxtui.audio.devices import Device, Direction, find, probe
from voxtui.commands.stderr import native_log, native_stderr_in
from voxtui.dialogue.interfaces import Microphone
from voxtui.dialogue.level import decibels, diagnose_level
from voxtui.errors import DeviceError
from voxtui.settings.schema import AudioConfig
from voxtui.wiring import build_microphone

LEVEL_SECONDS = 1.5
POLL_SECONDS = 0.05

HELD = "A device that another program holds alone is not seen."
"""PortAudio lists a device only if it can open it."""


def run(audio: AudioConfig) -> None:
    """Print every device, mark those in use, and print the microphone's level.

    Raises DeviceError.
    """
    with native_stderr_in(native_log()):
        show_devices(audio, build_microphone(audio.input))


def can_play(audio: AudioConfig) -> bool:
    """Return True if a speaker was found, else print the reason.

    Raises DeviceError for a named one.
    """
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


def wanted_devices(audio: AudioConfig) -> list[tuple[Direction, str, str]]:
    """Return (direction, kind, configured name) of both devices of a conversation."""
    return [("input", "microphone", audio.input), ("output", "speaker", audio.output)]


def show_devices(audio: AudioConfig, microphone: Microphone) -> None:
    """Print what `run` prints, with the level of `microphone`. Raises DeviceError."""
    found = probe()
    if found.problem:
        raise DeviceError(found.problem)
    if not found.devices:
        click.echo(f"There is no sound device. {HELD} Text and sample clips work without.")
        return
    used, problems = _used(audio, found.devices)
    for device in found.devices:
        click.echo(_row(device, audio, used))
    for problem in problems:
        click.echo(problem, err=True)
    if problems:
        click.echo(HELD, err=True)
    if any(direction == "input" for _, direction in used):
        click.echo(_level(microphone))


def _used(
    audio: AudioConfig, devices: Sequence[Device]
) -> tuple[set[tuple[int, Direction]], list[str]]:
    """Return (index, direction) of the devices that a conversation uses, and the problems found."""
    used: set[tuple[int, Direction]] = set()
    problems: list[str] = []
    for direction, _, wanted in wanted_devices(audio):
        try:
            used.add((find(devices, wanted, direction).index, direction))
        except DeviceError as error:
            problems.append(str(error))
    return used, problems


def _row(device: Device, audio: AudioConfig, used: set[tuple[int, Direction]]) -> str:
    uses = [
        f"used as {kind}"
        for direction, kind, _ in wanted_devices(audio)
        if (device.index, direction) in used
    ]
    channels = f"{device.inputs} in, {device.outputs} out"
    line = f"{device.index:>3}  {device.name:<32} {device.host:<12} {device.rate:>6g} Hz"
    return f"{line}  {channels:<16} {', '.join(uses)}".rstrip()


def _level(microphone: Microphone) -> str:
    """Return a sentence: the peak level over LEVEL_SECONDS, or the error."""
    peak, lost = 0.0, Queue[str]()
    try:
        microphone.open(lambda frame: None, lost.put)
    except DeviceError as error:
        return str(error)
    with closing(microphone):
        for _ in range(round(LEVEL_SECONDS / POLL_SECONDS)):
            with suppress(Empty):
                return lost.get(timeout=POLL_SECONDS)
            peak = max(peak, microphone.level)
    problem = None if peak else diagnose_level(microphone.name, peak)
    level = f"Level: {decibels(peak)} at most in {LEVEL_SECONDS:g} s from {microphone.name!r}."
    return problem or level
