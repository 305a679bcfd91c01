"""Key releases: Textual neither asks for them nor can it parse them, so both is done here.

Good for Textual 8.2.8 on Linux and macOS, by the kitty keyboard protocol. It leans on four private
things: `linux_driver.XTermParser` and its `getincrementaldecoder`, which the driver looks up when
its input thread starts, `XTermParser._sequence_to_key_events`, and the driver's `_file`, which its
output thread writes to.
The tests of this file fail where one changes. Once Textual delivers releases and says when a frame
has been written, this file goes.
"""

from __future__ import annotations

import codecs
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, TextIO

from textual import constants, events
from textual._xterm_parser import XTermParser
from textual.drivers import linux_driver
from textual.keys import Keys
from textual.message import Message

from voxtui.commands.terminal import EVENT_TYPES

REQUEST = f"\x1b[={EVENT_TYPES};2u\x1b[?u\x1b[5n"
"""Adds the flag to what Textual has pushed, so that Textual's own pop takes it back; asks what was
granted; and asks for the status, which every terminal answers in turn: no flags before it means no
protocol, and there is no time-out to guess."""

_TYPED_KEY = re.compile(r"(\x1b\[[\d:]*;\d*):(\d)((?:;[\d:]*)?[u~A-HPQRS])")
_GRANTED = re.compile(r"\x1b\[\?(\d+)u")
_STATUS = "\x1b[0n"
_REPEAT, _RELEASE = "2", "3"


WRITE_SECONDS = 1 / 60


class KeyUp(Message):
    """A key came up. `time` is when its bytes arrived."""

    def __init__(self, key: str) -> None:
        super().__init__()
        self.key = key.rpartition("+")[2]
        """without modifiers, which may have come up before it"""


class KeyboardAnswer(Message):
    """The terminal has said whether it reports releases. Comes at the start and after a suspend."""

    key = ""
    """Whatever a parser yields has one."""

    def __init__(self, releases: bool) -> None:
        super().__init__()
        self.releases = releases


class Key(events.Key):
    """A key that says whether it went down or repeats. Named so that Textual handles it as any."""

    __slots__ = ["repeated"]

    def __init__(self, key: str, character: str | None, repeated: bool) -> None:
        super().__init__(key, character)
        self.repeated = repeated


class KeyParser(XTermParser):
    """Textual's parser, which dies on `ESC [ 32 ; 1 : 3 u` and types the answer to `CSI ? u`."""

    _granted = False

    def _sequence_to_key_events(self, sequence: str, alt: bool = False) -> Iterable[events.Key]:
        # The parser passes on whatever has a `key`, as all of these do.
        return self._messages(sequence, alt)  # type: ignore[return-value]

    def _messages(self, sequence: str, alt: bool) -> Iterator[events.Key | KeyUp | KeyboardAnswer]:
        if granted := _GRANTED.fullmatch(sequence):
            self._granted = True
            yield KeyboardAnswer(bool(int(granted[1]) & EVENT_TYPES))
        elif sequence == _STATUS:
            yield events.Key(Keys.Ignore, sequence) if self._granted else KeyboardAnswer(False)
        elif typed := _TYPED_KEY.fullmatch(sequence):
            for key in self._keys(typed[1] + typed[3], alt):
                if key.key == Keys.Ignore:
                    yield key
                elif typed[2] == _RELEASE:
                    yield KeyUp(key.key)
                else:
                    yield Key(key.key, key.character, repeated=typed[2] == _REPEAT)
        else:
            yield from self._keys(sequence, alt)

    def _keys(self, sequence: str, alt: bool) -> list[events.Key]:
        try:
            return list(super()._sequence_to_key_events(sequence, alt))
        except (ValueError, OverflowError):  # no such character
            return [events.Key(Keys.Ignore, sequence)]


def _forgiving(encoding: str) -> Callable[[], codecs.IncrementalDecoder]:
    """A byte that is no text costs that character: Textual's own decoder would end the app.

    Terminals send such bytes for keys in another encoding, and for a mouse beyond column 95.
    """
    return partial(codecs.getincrementaldecoder(encoding), "replace")


class Note(str):
    """An empty piece of output; `tell` is called once all output before it has been flushed."""

    tell: Callable[[float], object]


class Output:
    """The terminal as Textual's output thread writes to it; each flush calls the notes so far."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._notes: list[Note] = []

    def write(self, text: str) -> None:
        if isinstance(text, Note):
            self._notes.append(text)
        else:
            self._file.write(text)

    def flush(self) -> None:
        self._file.flush()
        now = time.monotonic()
        for note in self._notes:
            note.tell(now)
        self._notes.clear()

    def fileno(self) -> int:
        return self._file.fileno()


def _tell_others(what: signal.Signals) -> None:
    """Send `what` to the rest of this process group. Only on the main thread."""
    obeyed = signal.signal(what, signal.SIG_IGN)
    try:
        os.killpg(0, what)
    finally:
        signal.signal(what, obeyed)


class KeyboardDriver(linux_driver.LinuxDriver):
    """Textual's driver for Linux and macOS, with key releases where the terminal reports them."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)  # pyright: ignore[reportUnknownMemberType]
        self._file: Any = Output(self._file)

    def when_written(self, tell: Callable[[float], object]) -> None:
        """Call `tell` with the time at which all that was written so far had left.

        On the output thread.
        """
        note = Note()
        note.tell = tell
        self.write(note)

    def let_out(self) -> None:
        """Wait until what was written so far has left, but no longer than a frame.

        Going on at once would keep the interpreter from the output thread for milliseconds.
        """
        left = threading.Event()
        self.when_written(lambda at: left.set())
        left.wait(WRITE_SECONDS)

    def suspend_application_mode(self) -> None:
        """What started this, `make` or `uv run`, stops too: the shell waits for that."""
        super().suspend_application_mode()
        _tell_others(signal.SIGTSTP)

    def resume_application_mode(self) -> None:
        _tell_others(signal.SIGCONT)
        super().resume_application_mode()

    def start_application_mode(self) -> None:
        linux_driver.XTermParser = KeyParser  # pyright: ignore[reportPrivateImportUsage]
        linux_driver.getincrementaldecoder = _forgiving  # type: ignore[assignment]
        super().start_application_mode()
        if not constants.DISABLE_KITTY_KEY:
            self.write(REQUEST)
            self.flush()
