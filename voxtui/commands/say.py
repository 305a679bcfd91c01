"""`voxtui say`: read text aloud, or into a sound file."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from threading import Event

import click

from voxtui.audio.file_speaker import file_speaker
from voxtui.commands.dictation.text_cleanup import passages
from voxtui.dialogue.data import Token
from voxtui.dialogue.fallbacks import Closable
from voxtui.dialogue.prefetch import Prefetched
from voxtui.dialogue.protocols import Speaker, StopFlag
from voxtui.dialogue.speech.reply_speech import (
    Speech,
    SpokenReply,
    VoiceFailed,
    VoiceTimeout,
    VoiceWorker,
    voice_workers,
)
from voxtui.dialogue.timestamps import Timestamps
from voxtui.errors import InputError, ModelError, UnspokenLanguage
from voxtui.settings.schema import Config
from voxtui.terminal.clipboard import clipboard_text
from voxtui.terminal.native_stderr import native_log, native_stderr_in
from voxtui.terminal.text_input import STDIN, open_text
from voxtui.wiring import build_speaker, build_voice

PATIENCE_SECONDS = 30.0
"""Timeout of a clause: longer than in a conversation, because a text may hold very long ones."""


def run(config: Config, texts: Iterator[str], wav: Path | None) -> bool:
    """Speak `texts`, aloud or into `wav`. Return False if a passage failed. Raises VoxtuiError."""
    with file_speaker(wav) as file:
        speaker = file or build_speaker(config.audio.output)
        with native_stderr_in(native_log()), _closing(speaker):
            speaker.open()
            worker = load_voice(config)
            with _closing(worker):
                failed = read_aloud(texts, worker, speaker, config.brain.language or "en")
    if failed:
        click.echo(f"Passages that could not be spoken: {failed}.", err=True)
    return not failed


@contextmanager
def _closing(part: Closable) -> Generator[None]:
    """Close `part` at the end, but not after Ctrl-C, because closing plays the queued sound."""
    try:
        yield
    except Exception:
        part.close()
        raise
    part.close()


def source(
    arguments: Sequence[str], text: str | None, clipboard: bool, wav: Path | None = None
) -> Iterator[str]:
    """Return the passages of a file, words, the clipboard or stdin. Raises InputError."""
    if bool(arguments) + (text is not None) + clipboard > 1:
        raise InputError("FILE or WORDS, --text and --clipboard exclude each other.")
    path = Path(arguments[0]) if _names_file(arguments) else None
    if arguments and path is None:
        text = " ".join(arguments)
    if text is not None:
        return passages((text,))
    if clipboard:
        return passages((clipboard_text(),))
    if path and path != STDIN:  # before the speaker opens and the voice loads
        if path.is_dir():
            raise InputError(f"{path}: is a directory, not a text.")
        if not path.exists():
            hint = f"To say these words: voxtui say --text {shlex.quote(str(path))}"
            raise InputError(f"{path}: there is no such file.", hint)
        if wav and wav.exists() and wav.samefile(path):
            raise InputError(f"{wav}: is the text, and would be overwritten.")
    typed = path in (None, STDIN) and sys.stdin.isatty()
    if typed:
        click.echo("Each line that you type is spoken. Ctrl+D ends.", err=True)
    return passages(open_text(path or STDIN), unwrap=not typed)


def _names_file(arguments: Sequence[str]) -> bool:
    """Return True if there is one argument that is a file or looks like a path."""
    if len(arguments) != 1:
        return False
    looks_like_path = re.fullmatch(r"-|\S*[/.]\w+\S*", arguments[0]) is not None
    return looks_like_path or os.path.exists(arguments[0])


def load_voice(config: Config) -> VoiceWorker:
    voices = build_voice(config)
    if voices is None:
        raise InputError("There is no voice: voice.engine is none.")
    workers = voice_workers(voices, PATIENCE_SECONDS)
    return workers.load(lambda worker: worker.warm_up(lambda step, fraction: None)).part


class _Tokens(Prefetched[Token]):
    """Reads a text only as fast as the voice needs it, so a pipe of any length fits into memory."""

    def __init__(self, texts: Iterator[str]) -> None:
        super().__init__()
        self._texts = texts

    def within(self, seconds: float | None) -> Token:
        """Return the next text, however long it takes."""
        return Token(next(self._texts))


@dataclass(frozen=True, slots=True)
class _Passage(SpokenReply):
    language: str

    def style(self, clause: str) -> tuple[float | None, str]:
        return None, self.language


def read_aloud(
    texts: Iterator[str],
    worker: VoiceWorker,
    speaker: Speaker,
    language: str = "en",
    stopped: StopFlag | None = None,
) -> int:
    """Speak `texts` clause by clause as they arrive; block until the last sound, or `stopped`.

    Returns the number of passages that the voice failed to speak. Raises VoxtuiError.
    """
    first = next(texts, None)
    if first is None:
        raise InputError("There is no text to speak.")
    tokens = _Tokens(chain((first,), texts))
    failed = 0
    while True:
        speech = Speech(worker, speaker, Timestamps(), stopped or Event(), _Passage(language))
        try:
            speech.play(tokens)
            return failed
        except VoiceTimeout as error:
            raise ModelError(str(error)) from error
        except VoiceFailed as error:
            if isinstance(error.__cause__, UnspokenLanguage):  # as each passage would be
                raise error.__cause__ from None
            speech.finish()
            failed += 1
