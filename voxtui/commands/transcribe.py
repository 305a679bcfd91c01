"""`voxtui transcribe`: speech to text, cut into segments at pauses."""

from __future__ import annotations

import html
import json
import math
import shutil
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click

from voxtui.audio.clips import check_clip, frames, pieces
from voxtui.commands.segmentation import Segmenter, utterances
from voxtui.dialogue.data import FRAME_SECONDS, Frame
from voxtui.dialogue.protocols import SpeechDetector
from voxtui.errors import ForeignSpeech, InputError, one_line
from voxtui.settings.schema import Config, VadConfig
from voxtui.terminal.native_stderr import native_log, native_stderr_in
from voxtui.terminal.text_input import STDIN
from voxtui.wiring import build_detector, recogniser

if TYPE_CHECKING:
    from voxtui.dialogue.data import Samples

Recognise = Callable[["Samples"], str]


@dataclass(frozen=True, slots=True)
class TranscriptSegment:
    file: str
    start: float
    end: float
    """seconds from the beginning of the file to the first and the last speech"""
    text: str


def run(config: Config, files: Sequence[Path], form: str, quiet: bool = False) -> bool:
    """Print the transcripts of `files` as text, json, srt or vtt (`form`). Raises VoxtuiError.

    Return False if nothing was heard in one of them. `-` is the sound on stdin.
    """
    if form in ("srt", "vtt") and len(files) > 1:
        raise InputError(f"--format {form} takes one file at a time.")
    with native_stderr_in(native_log()), ExitStack() as stack:
        files = [stack.enter_context(sound_file(path)) for path in files]
        for path in files:
            check_clip(path)
        notify = partial(click.echo, err=True)
        heard = stack.enter_context(recogniser(config, notify))
        if heard.sends_to and not quiet:
            notify(f"Your voice goes to {heard.sends_to}.")
        detector = build_detector(config)
        return write(files, form, config.vad, detector, heard.recognise, quiet)


@contextmanager
def sound_file(path: Path) -> Generator[Path]:
    """Yield `path`; for `-` a temporary file of the sound on stdin. Raises InputError.

    A file, because most formats cannot be read without seeking.
    """
    if path != STDIN:
        yield path
        return
    if sys.stdin.isatty():
        raise InputError("stdin is a terminal, not a sound.", "Pipe a sound file into voxtui.")
    with TemporaryDirectory() as folder:
        sound = Path(folder, "stdin")
        with open(0, "rb", closefd=False) as source, sound.open("wb") as copy:
            shutil.copyfileobj(source, copy)
        try:
            yield sound
        except InputError as error:
            raise InputError(str(error).replace(str(sound), "stdin")) from error


def write(
    files: Sequence[Path],
    form: str,
    vad: VadConfig,
    detector: SpeechDetector,
    recognise: Recognise,
    quiet: bool = False,
) -> bool:
    """Print the segments of `files` as they are recognised. Raises InputError.

    Return False if nothing was heard in one of them.
    """
    if form == "vtt":
        click.echo("WEBVTT\n")
    count, heard = 0, True
    for file in files:
        before, sound, foreign = count, pieces(file, math.inf), list[float]()
        for segment in segments(file.name, sound, vad, detector, recognise, foreign.append):
            count += 1
            click.echo(format_segment(segment, form, count))
        heard = heard and count > before
        name = one_line(file.name)
        if foreign and not quiet:
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
    on_foreign: Callable[[float], object] = lambda start: None,
) -> Iterator[TranscriptSegment]:
    """Yield the segments of `sound` (mono float32, 16 kHz, in pieces of any length) one by one.

    `name` is the name of its file. `on_foreign` gets the start, in seconds, of a segment that is
    left out, because it is in a language that the recogniser does not know. Raises ModelError of
    `recognise` and of the detector.
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
