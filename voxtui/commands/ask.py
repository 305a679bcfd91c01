"""`voxtui ask`: answer sound files or a text, one turn each."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISFIFO, S_ISREG

import click
from msgspec.structs import replace

from voxtui.audio.clips import Clip, load_clip
from voxtui.audio.file_speaker import FileSpeaker, SilentSpeaker, file_speaker
from voxtui.commands.devices_command import can_play
from voxtui.commands.headless import headless, show_step
from voxtui.dialogue import events
from voxtui.dialogue.components.sound_devices import Devices
from voxtui.dialogue.engine_commands import Attach, NewConversation
from voxtui.dialogue.history.attachments import Attachment
from voxtui.dialogue.protocols import Speaker
from voxtui.dialogue.timestamps import NO_WORDS, Milestone, Outcome, Timestamps, Turn
from voxtui.errors import InputError, strip_control_characters
from voxtui.session.tool_lines import call_line
from voxtui.session.user_session import MakeEngine
from voxtui.settings.schema import AudioConfig, Config, SessionConfig
from voxtui.storage.metrics_files import metrics_writer
from voxtui.terminal.native_stderr import native_log, native_stderr_in
from voxtui.terminal.text_input import STDIN, read_attachment
from voxtui.wiring import build_engine, build_skills, build_speaker


@dataclass(frozen=True, slots=True)
class AskOptions:
    as_json: bool = False
    wav: Path | None = None
    play: bool = False
    paced: bool = True
    """whether clips are fed in real time"""
    together: bool = False
    """whether the questions are turns of one conversation"""
    quiet: bool = False
    attachment: Attachment | None = None


def words_and_text(
    files: Sequence[Path], text: str | None
) -> tuple[Sequence[Path], str | None, Attachment | None]:
    """Return the files, the words of the question, and the piped text that they are about.

    An argument with a space that is no file is words. Text is read from a pipe beside such words,
    or for `-` beside --text. Raises InputError.
    """
    if text is not None:
        return ((), text, read_attachment(STDIN)) if [*files] == [STDIN] else (files, text, None)
    if len(files) == 1 and " " in str(files[0]) and not os.path.exists(files[0]):
        return (), str(files[0]), read_attachment(STDIN) if _is_piped() else None
    return files, None, None


def _is_piped() -> bool:
    """Return True if stdin is a pipe, or a file that is not empty."""
    stdin = os.fstat(0)
    return S_ISFIFO(stdin.st_mode) or (S_ISREG(stdin.st_mode) and stdin.st_size > 0)


def questions(files: Sequence[Path], text: str | None, config: Config) -> list[Clip | str]:
    if text is None and [*files] == [STDIN]:
        if sys.stdin.isatty():
            click.echo("Type your question. Ctrl+D ends it.", err=True)
        text, files = read_attachment(STDIN).text, ()
    if text is not None and not files:
        if not (question := strip_control_characters(text).strip()):
            raise InputError("There is no text in the question.")
        return [question]
    if text is not None or STDIN in files:
        raise InputError("FILES, - and --text exclude each other.")
    for path in files:
        if not path.exists():
            hint = "" if path.suffix else "To ask words: voxtui ask --text WORDS"
            raise InputError(f"{path}: there is no such file.", hint)
    with native_stderr_in(native_log()):
        return [load_clip(path, config.audio.max_utterance_s) for path in files]


def run(
    config: Config, asked: Sequence[Clip | str], files: Sequence[Path], options: AskOptions
) -> list[Turn]:
    """Answer each file or text of `asked`. Return the turns. Raises VoxtuiError."""
    if (options.wav or options.play) and config.voice.engine == "none":
        raise InputError("--speak and --play need a voice, and voice.engine is none.")
    config = replace(config, session=SessionConfig())  # no conversation is kept here
    wav = options.wav
    if wav and wav.exists() and any(wav.samefile(path) for path in files if path != STDIN):
        raise InputError(f"{wav}: is one of the clips, and would be overwritten.")
    with file_speaker(wav) as file:
        if file:
            file.open()
        speaker, audible = _speaker(config.audio, options, file)
        with native_stderr_in(native_log()), metrics_writer(config.metrics.enabled) as log:
            return answer(
                asked,
                lambda emit: build_engine(
                    config,
                    log.tee(emit),
                    Devices(speaker=speaker),
                    build_skills(config, rings=False),
                ),
                options,
                audible,
            )


def _speaker(
    audio: AudioConfig, options: AskOptions, file: FileSpeaker | None
) -> tuple[Speaker, bool]:
    """Return the speaker, and whether it is audible. Raises DeviceError."""
    if not (options.play and can_play(audio)):
        return file or SilentSpeaker(), False
    loud = build_speaker(audio.output)
    if file:
        file.speaker = loud
    return file or loud, True


def answer(
    asked: Sequence[Clip | str],
    make_engine: MakeEngine,
    options: AskOptions,
    audible: bool,
) -> list[Turn]:
    """Run a turn for each question, print its answer, and return it."""
    turns: list[Turn] = []
    talkative = not (options.as_json or options.quiet)
    with headless(make_engine, options.quiet) as started:
        if started.loaded.sends_to and talkative:
            click.echo(f"Your voice and words go to {started.loaded.sends_to}.", err=True)
        if not (audible or options.wav or options.play) and talkative:
            click.echo("Silent; --play plays the answers.", err=True)
        for question in asked:
            if not options.together:
                started.engine.post(NewConversation())
            if options.attachment:
                started.engine.post(Attach(options.attachment))
            turn = _print_answer(started.events(question, options.paced), options)
            _report(turn, options)
            turns.append(turn)
    return turns


def _print_answer(arriving: Iterator[events.Event], options: AskOptions) -> Turn:
    """Print the reply while it arrives, and notices on stderr. Return the turn."""
    timestamps: Timestamps | None = None
    for event in arriving:
        match event:
            case events.TurnStarted(_, _, started):
                timestamps = started
            case events.ReplyText(_, text) if not options.as_json:
                click.echo(text, nl=False)  # and flush
                if timestamps is not None:
                    timestamps.record(Milestone.FIRST_SHOWN)
            case events.PrefillProgress() if sys.stderr.isatty() and not options.quiet:
                show_step(reading_line(event))
            case events.ToolEnded(_, report) if not (options.as_json or options.quiet):
                click.echo(f"› {call_line(report)}", err=True)
            case events.Notice(_, "information") if options.quiet:
                pass
            case events.Notice(message) | events.Remark(message):
                click.echo(message, err=True)
            case events.TurnFinished(turn):
                return turn
            case _:
                pass
    raise AssertionError("a turn did not end")


def reading_line(reading: events.PrefillProgress) -> str:
    """Return the progress of reading a long text; empty at its end."""
    if reading.ended:
        return ""
    left = "" if reading.seconds_left is None else f", {reading.seconds_left:.0f} s left"
    return f"Reading: {reading.done:,} of {reading.total:,} tokens{left}"


def _report(turn: Turn, options: AskOptions) -> None:
    if options.as_json:
        click.echo(json.dumps(turn.as_json(), ensure_ascii=False))
    elif turn.reply:
        click.echo()
    clip = turn.clip or "The question"
    if turn.outcome is Outcome.NO_SPEECH and not (options.as_json or options.quiet):
        click.echo(f"Nothing was heard in {clip}.", err=True)
    elif turn.outcome is Outcome.ANSWERED and not turn.reply.strip():
        click.echo(f"{clip}: {NO_WORDS}", err=True)
    elif turn.outcome is Outcome.FAILED:
        click.echo(f"{clip}: {turn.error}", err=True)
