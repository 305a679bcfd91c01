"""Read text from a file or a pipe."""

from __future__ import annotations

import codecs
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from voxtui.dialogue.history.attachments import Attachment
from voxtui.errors import InputError, one_line, strip_control_characters
from voxtui.settings.files import file_errors

PIECE_BYTES = 1 << 16

STDIN = Path("-")
"""The path that means stdin, as in other programs."""

ATTACHMENT_CHARACTERS = 1_000_000
"""Maximum characters of an attachment, more than any model reads. A pipe may never end."""


def open_text(path: Path) -> Iterator[str]:
    """Open `path` (`-`: stdin) and return its text, which is read as it arrives.

    Raises InputError, also while reading, for data that is not UTF-8 text.
    """
    if path == STDIN:
        return _decoded(0, "stdin")
    with file_errors(path, "read"):
        return _decoded(os.open(path, os.O_RDONLY | os.O_CLOEXEC), str(path))


def read_attachment(path: Path) -> Attachment:
    """Read a text to attach. Raises InputError, also for one that is too long."""
    name = "stdin" if path == STDIN else one_line(str(path))
    text = ""
    for piece in open_text(path):
        text += piece
        if len(text) > ATTACHMENT_CHARACTERS:
            raise InputError(
                f"{name}: is longer than {ATTACHMENT_CHARACTERS:,} characters.",
                "Take a part of it, such as its beginning: head -c 4000",
            )
    if not text.strip():
        raise InputError(f"{name}: there is no text in it.")
    return Attachment(name, strip_control_characters(text))


def take_keys_from_terminal() -> None:
    """Replace a piped stdin, which has been read, by the terminal. Raises InputError."""
    try:
        terminal = os.open(os.ttyname(sys.stderr.fileno()), os.O_RDWR | os.O_NOCTTY)
        os.dup2(terminal, 0)
        os.close(terminal)
    except OSError as error:
        raise InputError(f"The keys cannot be read from the terminal: {error.strerror}.") from error


def _decoded(descriptor: int, name: str) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    read = 0
    """the number of bytes so far"""
    try:
        while True:
            with file_errors(name, "read"):
                data = os.read(descriptor, PIECE_BYTES)
            if (nul := data.find(b"\0")) >= 0:
                raise InputError(f"{name}: is not text: byte {read + nul} is NUL.")
            undecoded = len(decoder.getstate()[0])
            try:
                text = decoder.decode(data, final=not data)
            except UnicodeDecodeError as error:
                at = read - undecoded + error.start
                raise InputError(f"{name}: is not UTF-8 text: byte {at} is invalid.") from error
            read += len(data)
            if text:
                yield text
            if not data:
                return
    finally:
        if descriptor:
            os.close(descriptor)
