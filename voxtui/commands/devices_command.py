"""`voxtui devices`: list microphones and speakers, with a level check."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import asdict
from queue import Empty, Queue

import click

from voxtui.audio.portaudio import Device, Direction, choices, find, probe, shown_name
from voxtui.dialogue.listening.level import CLIPPED, SHOWS_LEVEL, decibels, diagnose_level
from voxtui.dialogue.protocols import Microphone
from voxtui.errors import DeviceError
from voxtui.settings.schema import AudioConfig
from voxtui.terminal.native_stderr import native_log, native_stderr_in
from voxtui.wiring import build_microphone

LEVEL_SECONDS = 1.5
POLL_SECONDS = 0.05

HELD = "A device that another program holds alone is not seen."
"""The explanation of a missing device: PortAudio lists a device only if it can open it."""


def run(audio: AudioConfig, everything: bool = False, as_json: bool = False) -> None:
    """Print the devices, mark those in use, and print the microphone's level.

    `everything` includes devices that a person would not choose. Raises DeviceError, at the end if
    a configured device is missing.
    """
    with native_stderr_in(native_log()):
        _show_devices(audio, build_microphone(audio.input), everything, as_json)


def can_play(audio: AudioConfig) -> bool:
    """Return True if there is a speaker, else print why not. Raises DeviceError for a named one."""
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


def configured_devices(audio: AudioConfig) -> list[tuple[Direction, str, str]]:
    return [("input", "microphone", audio.input), ("output", "speaker", audio.output)]


def _show_devices(
    audio: AudioConfig, microphone: Microphone, everything: bool, as_json: bool
) -> None:
    found = probe()
    if found.problem:
        raise DeviceError(found.problem)
    if not found.devices and not as_json:
        click.echo(f"There is no sound device. {HELD} Text and sample clips work without.")
        return
    used, problems = _used(audio, found.devices)
    chosen = choices(found.devices)
    shown = [d for d in found.devices if everything or d in chosen or d in used.values()]
    if as_json:
        peak, lost = hear(microphone) if "input" in used else (0.0, None)
        devices = [
            asdict(device) | {"used_as": [kind for kind in used if used[kind] is device]}
            for device in shown
        ]
        level = round(20 * math.log10(peak), 1) if peak else None
        told = {"devices": devices, "level_dbfs": level, "microphone_lost": lost}
        click.echo(json.dumps(told, ensure_ascii=False))
    else:
        for device in shown:
            click.echo(_row(device, used))
        if left_out := len(found.devices) - len(shown):
            click.echo(f"`voxtui devices --all` lists {left_out} more.")
        if "input" in used:
            click.echo(_level(microphone))
    if problems:
        click.echo(HELD, err=True)
    for wanted, problem in problems:
        if wanted:
            raise problem
        click.echo(str(problem), err=True)


def _used(
    audio: AudioConfig, devices: Sequence[Device]
) -> tuple[dict[Direction, Device], list[tuple[str, DeviceError]]]:
    used: dict[Direction, Device] = {}
    problems: list[tuple[str, DeviceError]] = []
    for direction, _, wanted in configured_devices(audio):
        try:
            used[direction] = find(devices, wanted, direction)
        except DeviceError as error:
            problems.append((wanted, error))
    return used, problems


def _row(device: Device, used: dict[Direction, Device]) -> str:
    uses: list[str] = []
    for direction, kind, _ in configured_devices(AudioConfig()):
        if used.get(direction) is device:
            name = shown_name(device, direction)
            uses.append(f"used as {kind}" + (f" ({name})" if name != device.name else ""))
    channels = f"{device.inputs} in, {device.outputs} out"
    line = f"{device.index:>3}  {device.name:<32} {device.host:<12} {device.rates[0]:>6g} Hz"
    return f"{line}  {channels:<16} {', '.join(uses)}".rstrip()


def _level(microphone: Microphone) -> str:
    peak, lost = hear(microphone)
    problem = None if peak else diagnose_level(microphone.name, peak)
    level = f"Level: {decibels(peak)} at most in {LEVEL_SECONDS:g} s from {microphone.name!r}."
    if peak >= CLIPPED:
        level += " It is overdriven: turn it down in the system's sound settings."
    return lost or (problem.removesuffix(SHOWS_LEVEL) if problem else level)


def hear(microphone: Microphone) -> tuple[float, str | None]:
    """Return the peak (0 to 1) of LEVEL_SECONDS, and the error if the microphone was lost."""
    peak, lost = 0.0, Queue[str]()
    try:
        microphone.open(lambda frame: None, lost.put)
    except DeviceError as error:
        return peak, str(error)
    with closing(microphone):
        for _ in range(round(LEVEL_SECONDS / POLL_SECONDS)):
            with suppress(Empty):
                return peak, lost.get(timeout=POLL_SECONDS)
            peak = max(peak, microphone.level)
    return peak, None
