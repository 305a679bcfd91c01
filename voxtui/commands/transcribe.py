"""`voxtui transcribe`: speech to text, cut into segments at pauses."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from voxtui.audio.clips import check_clip, frames, pieces
from voxtui.commands.stderr import native_log, native_stderr_in
from voxtui.dialogue.data import FRAME_SECONDS, Frame, Utterance
from voxtui.dialogue.interfaces import SpeechDetector
from voxtui.dialogue.listening import SpeechGate
from voxtui.dialogue.recording import LEAD_FRAMES, Recording
from voxtui.errors import InputError, one_line
from voxtui.settings.schema import Config, VadConfig
from voxtui.wiring import build_detector, recogniser

if TYPE_CHECKING:
    from voxtui.dialogue.data import Samples

PAUSE_SECONDS = 0.5
"""Silence that ends a segment."""

LONGEST_SECONDS = 25.0
"""A segment without a pause is cut here, because Moonshine was trained on less than 30 s."""

Recognise = Callable[["Samples"], str]


@dataclass(frozen=True, slots=True)
class Segment:
    file: str
    start: float
    end: float
    """seconds from the beginning of the file to the first and the last speech"""
    text: str


def run(config: Config, files: Sequence[Path], form: str) -> None:
    """Print the transcripts of `files` as text, json, srt or vtt (`form`). Raises VoxtuiError."""
    if form in ("srt", "vtt") and len(files) > 1:
        raise InputError(f"--format {form} takes one file at a time.")
    with native_stderr_in(native_log()):
        for path in files:
            check_clip(path)
        with recogniser(config, partial(click.echo, err=True)) as recognise:
            write(files, form, config.vad, build_detector(config), recognise)


def write(
    files: Sequence[Path], form: str, vad: VadConfig, detector: SpeechDetector, recognise: Recognise
) -> None:
    """Print the segments of `files` as they are recognised. Raises InputError."""
    if form == "vtt":
        click.echo("WEBVTT\n")
    count = 0
    for file in files:
        before, sound = count, pieces(file, math.inf)
        for segment in segments(file.name, sound, vad, detector, recognise):
            count += 1
            click.echo(format_segment(segment, form, count))
        if count == before:
            click.echo(f"Nothing was heard in {one_line(file.name)}.", err=True)


def format_segment(segment: Segment, form: str, number: int) -> str:
    """Return `segment` as text, json, srt or vtt; `number`, from 1, is the srt counter."""
    match form:
        case "json":
            return json.dumps(asdict(segment), ensure_ascii=False)
        case "srt":
            return f"{number}\n{_clock(segment, ',')}\n{segment.text}\n"
        case "vtt":
            return f"{_clock(segment, '.')}\n{html.escape(segment.text, quote=False)}\n"
        case _:
            return segment.text


def _clock(segment: Segment, point: str) -> str:
    def stamp(seconds: float) -> str:
        ms = round(seconds * 1000)
        return (
            f"{ms // 3_600_000:02}:{ms // 60_000 % 60:02}:{ms // 1000 % 60:02}{point}{ms % 1000:03}"
        )

    return f"{stamp(segment.start)} --> {stamp(segment.end)}"


def segments(
    name: str,
    sound: Iterable[Samples],
    vad: VadConfig,
    detector: SpeechDetector,
    recognise: Recognise,
) -> Iterator[Segment]:
    """Yield the segments of `sound` (mono float32, 16 kHz, in pieces of any length) one by one.

    `name` is the name of its file. Raises ModelError of `recognise` and of the detector.
    """
    for utterance in _utterances(name, sound, vad, detector):
        text = " ".join(recognise(utterance.samples).split())  # an empty line ends a subtitle
        if text:
            speech = utterance.speech
            start = utterance.ended_at - (speech[-1][1] - speech[0][0])
            yield Segment(name, round(start, 3), round(utterance.ended_at, 3), text)


def _utterances(
    name: str, sound: Iterable[Samples], vad: VadConfig, detector: SpeechDetector
) -> Iterator[Utterance]:
    """Yield each utterance of `sound` as soon as the pause after it is long enough."""
    gate, recording = SpeechGate(vad.threshold), Recording()
    detector.reset()
    for count, samples in enumerate(frames(sound), 1):
        frame = Frame(samples, count * FRAME_SECONDS, name)
        recording.append(frame, gate.verdict(detector.probability(frame)))
        if not recording.speech_seconds:
            recording = _part(recording, -LEAD_FRAMES, None)
            continue
        if recording.quiet_frames * FRAME_SECONDS >= PAUSE_SECONDS:
            over, recording = recording, Recording()
        elif recording.seconds >= LONGEST_SECONDS:
            cut = _best_cut(recording)
            over, recording = _part(recording, 0, cut), _part(recording, cut, None)
        else:
            continue
        yield from _speech_of(over, vad)
    yield from _speech_of(recording, vad)


def _part(recording: Recording, start: int, end: int | None) -> Recording:
    part = Recording()
    kept = slice(start, end)
    for frame, speech in zip(recording.frames[kept], recording.verdicts[kept], strict=True):
        part.append(frame, speech)
    return part


def _best_cut(recording: Recording) -> int:
    """Return the middle of the longest pause in the second half; without a pause, the end."""
    verdicts = recording.verdicts
    best = (0, len(verdicts))
    length = 0
    for index in range(len(verdicts) // 2, len(verdicts)):
        length = 0 if verdicts[index] else length + 1
        best = max(best, (length, index + 1 - length // 2), key=lambda pause: pause[0])
    return best[1]


def _speech_of(recording: Recording, vad: VadConfig) -> Iterator[Utterance]:
    """Yield the utterance of `recording`, unless it holds too little speech."""
    utterance = recording.utterance()
    if utterance is not None and recording.speech_seconds >= vad.min_speech_ms / 1000:
        yield utterance
