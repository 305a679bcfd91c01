"""`voxtui transcribe`: speech to text, cut into segments at pauses."""

from __future__ import annotations

import html
import json
import math
import os
import select
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryFile
from typing import IO

import click

from voxtui.audio.clips import check_clip, frames, pieces
from voxtui.commands.segmentation import Segmenter, utterances
from voxtui.dialogue.data import FRAME_SECONDS, Frame, Samples
from voxtui.dialogue.protocols import SpeechDetector
from voxtui.errors import ForeignSpeech, InputError, one_line
from voxtui.settings.files import file_errors
from voxtui.settings.schema import Config, VadConfig
from voxtui.terminal.native_stderr import native_log, native_stderr_in
from voxtui.terminal.text_input import STDIN
from voxtui.wiring import build_detector, recogniser

Recognise = Callable[[Samples], str]

BLOCK_BYTES = 1 << 20

LARGEST_STDIN = 4 << 30
"""Maximum bytes on stdin, as much as a WAV file can hold."""

POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Sound:
    path: Path
    name: str


@dataclass(frozen=True, slots=True)
class TranscriptSegment:
    file: str
    start: float
    end: float
    """the end of speech, like `start` in seconds from the beginning of the file"""
    text: str


def run(config: Config, files: Sequence[Path], form: str, quiet: bool = False) -> bool:
    """Print the transcripts of `files` as text, json, srt or vtt (`form`). Raises VoxtuiError.

    Returns False if a file has no speech. `-` is the sound on stdin.
    """
    if form in ("srt", "vtt") and len(files) > 1:
        raise InputError(f"--format {form} takes one file at a time.")
    with native_stderr_in(native_log()), ExitStack() as stack:
        sounds = [stack.enter_context(sound_file(path)) for path in files]
        for sound in sounds:
            check_clip(sound.path)
        notify = partial(click.echo, err=True)
        heard = stack.enter_context(recogniser(config, notify))
        if heard.sends_to and not quiet:
            notify(f"Your voice goes to {heard.sends_to}.")
        detector = build_detector(config)
        return write(sounds, form, config.vad, detector, heard.recognise, quiet)


@contextmanager
def sound_file(path: Path) -> Generator[Sound]:
    """Yield the sound at `path`; for stdin a copy, because most formats seek. Raises InputError."""
    if path != STDIN:
        yield Sound(path, path.name)
        return
    if sys.stdin.isatty():
        raise InputError("stdin is a terminal, not a sound.", "Pipe a sound file into voxtui.")
    # Where its descriptor can be opened again it has no name, so no signal leaves it behind.
    nameless = sys.platform == "linux"
    with file_errors("stdin", "copied"):
        copy = TemporaryFile() if nameless else NamedTemporaryFile(prefix="voxtui-")  # noqa: SIM115
    with copy:
        sound = Path(f"/proc/self/fd/{copy.fileno()}" if nameless else copy.name)
        try:
            _copy_stdin(copy, sound)
            copy.flush()
            yield Sound(sound, "stdin")
        except InputError as error:
            raise InputError(str(error).replace(str(sound), "stdin")) from error


def _copy_stdin(copy: IO[bytes], sound: Path) -> None:
    """Copy stdin to `copy`, the file `sound`. Raises InputError if it is no sound or too long.

    The first megabyte decides the format, because a stream without one may never end.
    """
    size, checked = 0, False
    while True:
        # A signal that comes just before a read would wait for it.
        if not select.select([0], [], [], POLL_SECONDS)[0]:
            continue
        if not (block := os.read(0, BLOCK_BYTES)):
            return
        copy.write(block)
        size += len(block)
        if size >= BLOCK_BYTES and not checked:
            copy.flush()
            check_clip(sound)
            checked = True
        if size > LARGEST_STDIN:
            raise InputError(
                f"stdin: is longer than {LARGEST_STDIN >> 30} GB.", "Write the sound to a file."
            )


def write(
    sounds: Sequence[Sound],
    form: str,
    vad: VadConfig,
    detector: SpeechDetector,
    recognise: Recognise,
    quiet: bool = False,
) -> bool:
    """Print segments as they come. Return False if a sound has none. Raises InputError."""
    if form == "vtt":
        click.echo("WEBVTT\n")
    count, heard = 0, True
    for sound in sounds:
        before, samples, foreign = count, pieces(sound.path, math.inf), list[float]()
        for segment in segments(sound.name, samples, vad, detector, recognise, foreign.append):
            count += 1
            click.echo(format_segment(segment, form, count))
        heard = heard and count > before
        name = one_line(sound.name)
        if foreign:
            places = ", ".join(f"{at:.0f} s" for at in foreign)
            click.echo(f"{name} (at {places}): {ForeignSpeech()}", err=True)
        elif count == before and not quiet:
            click.echo(f"Nothing was heard in {name}.", err=True)
    return heard


def format_segment(segment: TranscriptSegment, form: str, number: int) -> str:
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


def _clock(segment: TranscriptSegment, point: str) -> str:
    stamps: list[str] = []
    for seconds in (segment.start, segment.end):
        minutes, ms = divmod(round(seconds * 1000), 60_000)
        stamps.append(f"{minutes // 60:02}:{minutes % 60:02}:{ms // 1000:02}{point}{ms % 1000:03}")
    return " --> ".join(stamps)


def segments(
    name: str,
    sound: Iterable[Samples],
    vad: VadConfig,
    detector: SpeechDetector,
    recognise: Recognise,
    on_foreign: Callable[[float], object] = lambda start: None,
) -> Iterator[TranscriptSegment]:
    """Yield the segments of `sound` (mono float32, 16 kHz, in pieces of any length) one by one.

    `name` is the file's name. `on_foreign` gets the start, in seconds, of a segment that is omitted
    because the recogniser does not know its language. Raises ModelError of `recognise` and the
    detector.
    """
    counted = enumerate(frames(sound), 1)
    found = (Frame(samples, count * FRAME_SECONDS, name) for count, samples in counted)
    for utterance in utterances(found, Segmenter(vad, detector)):
        speech = utterance.speech
        start = utterance.ended_at - (speech[-1][1] - speech[0][0])
        try:
            words = recognise(utterance.samples)
        except ForeignSpeech:
            on_foreign(start)
            continue
        if text := " ".join(words.split()):  # an empty line ends a subtitle
            yield TranscriptSegment(name, round(start, 3), round(utterance.ended_at, 3), text)
