"""`voxtui doctor --loopback`: measure the device offset with chirps."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import click

from voxtui.audio.loopback_delay import CHIRPS, Loopback, measure
from voxtui.dialogue.listening.level import decibels
from voxtui.settings.schema import AudioConfig
from voxtui.storage.device_offset import offset_file, save_offset
from voxtui.terminal.native_stderr import native_log, native_stderr_in
from voxtui.wiring import build_microphone, build_speaker


def run(audio: AudioConfig) -> bool:
    """Measure the configured devices and save their offset. Return False if too few were heard."""
    speaker, microphone = build_speaker(audio.output), build_microphone(audio.input)
    click.echo(f"{CHIRPS} chirps, as loud as the speaker is set …")
    with native_stderr_in(native_log()):
        found = measure(speaker, microphone)
    heard = len(found.offsets)
    click.echo(f"{heard} heard by {microphone.name!r}, from {speaker.name!r}")
    click.echo(f"noise floor    {decibels(found.noise)}")
    if heard * 2 <= CHIRPS:
        click.echo("Too few. Is the speaker muted, or are headphones plugged in?")
        return False
    click.echo(f"loudest        {decibels(found.peak)}, {_clipping(found)}")
    click.echo(
        f"round trip     {_times(found.round_trips)}, from handing a sound over to hearing it"
    )
    click.echo(f"device offset  {_times(found.offsets)}, which the sound system does not know of;")
    click.echo(f"{'':<15}shown beside first sound from now on ({offset_file()})")
    save_offset(offset_file(), speaker.name, microphone.name, median(found.offsets))
    return True


def _times(seconds: Sequence[float]) -> str:
    middle, low, high = (value * 1000 for value in (median(seconds), min(seconds), max(seconds)))
    return f"{middle:.0f} ms ({low:.0f} to {high:.0f})"


def _clipping(found: Loopback) -> str:
    if found.clipped:
        return f"{found.clipped} samples clipped: turn the microphone or the speaker down"
    return "nothing clipped"
