"""`voxtui ask`: answer sound files, one turn each."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from voxtui.audio.clips import Clip, load_clip
from voxtui.audio.file_speaker import FileSpeaker, SilentSpeaker
from voxtui.commands.devices import can_play
from voxtui.commands.headless import headless
from voxtui.commands.stderr import native_log, native_stderr_in
from voxtui.dialogue.engine import Engine
from voxtui.dialogue.events import Event, Notice, ReplyText, TurnStarted
from voxtui.dialogue.marks import Mark, Marks, Outcome, Turn
from voxtui.errors import InputError, one_line
from voxtui.records.metrics_log import metrics_log
from voxtui.settings.schema import AudioConfig, Config
from voxtui.wiring import build_engine, build_skills, build_speaker

if TYPE_CHECKING:
    from voxtui.dialogue.interfaces import Speaker


@dataclass(frozen=True, slots=True)
class AskOptions:
    as_json: bool = False
    wav: Path | None = None
    """file for the spoken answers"""
    play: bool = False
    paced: bool = True
    """clips are fed in real time"""
    fresh: bool = False
    """each clip is a conversation of its own"""


def run(config: Config, files: Sequence[Path], options: AskOptions) -> bool:
    """Answer `files`. Return False if a turn failed. Raises VoxtuiError."""
    if (options.wav or options.play) and config.voice.engine == "none":
        raise InputError("--speak and --play need a voice, and voice.engine is none.")
    with native_stderr_in(native_log()):
        clips = [load_clip(path, config.audio.max_utterance_s) for path in files]
    wav = options.wav
    if wav and wav.exists() and any(wav.samefile(path) for path in files):
        raise InputError(f"{wav}: is one of the clips, and would be overwritten.")
    file = FileSpeaker(wav) if wav else None
    if file:
        file.open()
    try:
        speaker, audible = _speaker(config.audio, options, file)
        with native_stderr_in(native_log()), metrics_log(config.metrics.enabled) as log:
            answered = answer(
                clips,
                lambda emit: build_engine(
                    config, log.tee(emit), None, speaker, skills=build_skills()
                ),
                options,
                audible,
            )
        if file:
            file.keep()
    except BaseException:
        if file:
            file.abandon()
        raise
    return answered


def _speaker(
    audio: AudioConfig, options: AskOptions, file: FileSpeaker | None
) -> tuple[Speaker, bool]:
    """Return the speaker and whether it plays aloud. Raises DeviceError."""
    if not (options.play and can_play(audio)):
        return file or SilentSpeaker(), False
    loud = build_speaker(audio.output)
    if file:
        file.speaker = loud
    return file or loud, True


def answer(
    clips: Sequence[Clip],
    make_engine: Callable[[Callable[[Event], object]], Engine],
    options: AskOptions,
    audible: bool,
) -> bool:
    """Run a turn for each clip and print its answer. Return False if a turn failed.

    Raises the error of a start that failed.
    """
    answered = True
    with headless(make_engine) as started:
        if started.loaded.sends_to and not options.as_json:
            click.echo(f"Your voice and words go to {started.loaded.sends_to}.", err=True)
        if not audible and not options.as_json:
            click.echo("Silent; --play plays the answers.", err=True)
        for clip in clips:
            if options.fresh:
                started.engine.new_conversation()
            turn = started.ask(clip, options.paced, _print_events(options))
            _report(turn, options)
            answered &= turn.outcome is not Outcome.FAILED
    return answered


def _print_events(options: AskOptions) -> Callable[[Event], object]:
    """Return a function that prints a reply while it arrives, and notices on stderr."""
    marks: Marks | None = None

    def on_event(event: Event) -> None:
        nonlocal marks
        match event:
            case TurnStarted(_, _, started):
                marks = started
            case ReplyText(_, text) if not options.as_json:
                click.echo(text, nl=False)  # and flush
                if marks is not None:
                    marks.mark(Mark.FIRST_SHOWN)
            case Notice(message):
                click.echo(message, err=True)
            case _:
                pass

    return on_event


def _report(turn: Turn, options: AskOptions) -> None:
    if options.as_json:
        click.echo(json.dumps(turn.as_json(), ensure_ascii=False))
    elif turn.reply:
        click.echo()
    clip = one_line(str(turn.clip))
    if turn.outcome is Outcome.NO_SPEECH and not options.as_json:
        click.echo(f"Nothing was heard in {clip}.", err=True)
    elif turn.outcome is Outcome.FAILED:
        click.echo(f"{clip}: {turn.error}", err=True)
