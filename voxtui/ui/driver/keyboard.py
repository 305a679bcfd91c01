"""Receive key releases, which Textual neither requests nor parses.

Uses the kitty keyboard protocol. Relies on private parts of Textual 8.2, which pyproject.toml pins:
`XTermParser._sequence_to_key_events` and `_timeout_time`; and of the driver `_file`, which its
output thread writes to, `_debug`, `_must_signal_resume` and `_mouse_pixels`. The tests of this file
fail if one of them changes. Delete this file once Textual delivers releases and reports written
frames.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import re
import select
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, TextIO

from textual import constants, events
from textual._xterm_parser import XTermParser
from textual.drivers import linux_driver
from textual.keys import Keys
from textual.message import Message

from voxtui.terminal.capabilities import EVENT_TYPES

REQUEST = f"\x1b[={EVENT_TYPES};2u\x1b[?u\x1b[5n"
"""Control sequences that request key releases, the flags in force and the terminal's status.

The flag is added to those that Textual has pushed, so that Textual's own pop removes it. Every
terminal answers the status request, and answers in order: a status without flags before it means
that the terminal has no keyboard protocol. No timeout is needed."""

_TYPED_KEY = re.compile(r"(\x1b\[[\d:]*;\d*):(\d)((?:;[\d:]*)?[u~A-HPQRS])")
_GRANTED = re.compile(r"\x1b\[\?(\d+)u")
_STATUS = "\x1b[0n"
_REPEAT, _RELEASE = "2", "3"

PASTE_BEGINS, PASTE_ENDS = "\x1b[200~", "\x1b[201~"

PASTE_SILENCE_SECONDS = 2.0
"""Silence that ends a bracketed paste. A paste without an end would swallow every key."""

LONGEST_PASTE = 2**20
"""Maximum characters of a bracketed paste, more than any attachment may have."""

TYPED_CHARACTERS = 33
"""Characters of a burst that stay keys: `/` may open the text field, and an escape sequence that
began before the burst ends within 32 characters."""

_BURST = re.compile(r"[^\x00-\x1f\x7f-\x9f]{100,}")
"""Matches more text than anyone types between two reads. Key by key, 20,000 letters took 15 s."""

WRITE_SECONDS = 1 / 60

READ_BYTES = 4096


class KeyUp(Message):
    """A key was released. `time` is when its bytes arrived."""

    def __init__(self, key: str) -> None:
        super().__init__()
        self.key = key.rpartition("+")[2]
        """the key without modifiers, which may have been released before it"""


class KeyboardAnswer(Message):
    """Tells if the terminal reports releases. Sent at the start and after each suspend."""

    key = ""
    """an attribute that Textual requires of everything that its parser yields"""

    def __init__(self, releases: bool) -> None:
        super().__init__()
        self.releases = releases


class Key(events.Key):
    """A key press or its repetition. Its name makes Textual handle it as any other key."""

    __slots__ = ["repeated"]

    def __init__(self, key: str, character: str | None, repeated: bool) -> None:
        super().__init__(key, character)
        self.repeated = repeated


class Paste(events.Paste):
    """A bracketed paste. Its name makes Textual handle it as any other paste."""

    def __init__(self, text: str, characters: int) -> None:
        super().__init__(text)
        self.characters = characters
        """the length of the paste; `text` is the beginning of one longer than LONGEST_PASTE"""


class KeyParser(XTermParser):
    """Parses key releases, takes each paste as a whole, and merges bursts of text.

    Textual's own parser fails on `ESC [ 32 ; 1 : 3 u` and types the answer to `CSI ? u`. It takes a
    paste character by character, which occupies the interpreter for a second per million.
    """

    _granted = False
    _pieces: list[str] | None = None
    _pasted = 0
    _fed_at = 0.0
    _last = ""
    """the last characters fed, because a marker may be split over two reads"""

    def feed(self, data: str) -> Iterable[Message]:
        if not data:
            yield from super().feed(data)
        while data:
            if self._pieces is None:
                data = yield from self._feed_keys(data)
            else:
                data = yield from self._feed_paste(data)

    @property
    def patience(self) -> float | None:
        """The seconds after which `tick` must be called; None if only input changes anything."""
        ends = self._timeout_time
        if self._pieces is not None:
            ends = self._fed_at + PASTE_SILENCE_SECONDS
        return None if ends is None else max(0.0, ends - time.monotonic())

    def tick(self) -> Iterable[Message]:
        yield from super().tick()
        if self._pieces is not None and time.monotonic() - self._fed_at >= PASTE_SILENCE_SECONDS:
            yield from self._end_paste(self._last)

    def _feed_keys(self, data: str) -> Generator[Message, None, str]:
        before = len(self._last)
        begins = (self._last + data).find(PASTE_BEGINS)
        end = len(data) if begins < 0 else begins + len(PASTE_BEGINS) - before
        yield from self._merge_bursts(data[:end])
        if begins < 0:
            self._last = (self._last + data)[1 - len(PASTE_BEGINS) :]
        else:
            self._pieces, self._pasted, self._last = [], 0, ""
            self._fed_at = time.monotonic()
        return data[end:]

    def _feed_paste(self, data: str) -> Generator[Message, None, str]:
        self._fed_at = time.monotonic()
        seen = self._last + data
        end = seen.find(PASTE_ENDS)
        if end >= 0:
            yield from self._end_paste(seen[:end])
            return seen[end + len(PASTE_ENDS) :]
        whole = max(0, len(seen) + 1 - len(PASTE_ENDS))
        self._keep(seen[:whole])
        self._last = seen[whole:]
        return ""

    def _keep(self, text: str) -> None:
        assert self._pieces is not None
        self._pieces.append(text[: max(0, LONGEST_PASTE - self._pasted)])
        self._pasted += len(text)

    def _end_paste(self, last: str) -> Iterator[Message]:
        self._keep(last)
        text = "".join(self._pieces or ()).replace("\x00", "")
        self._pieces, self._last = None, ""
        for message in super().feed(PASTE_ENDS):
            if not isinstance(message, events.Paste):  # Textual's own is empty
                yield message
        yield Paste(text, self._pasted)

    def _merge_bursts(self, data: str) -> Iterator[Message]:
        """Parse `data`; turn each burst after its first TYPED_CHARACTERS into a paste."""
        start = 0
        for burst in _BURST.finditer(data):
            typed = burst.start() + TYPED_CHARACTERS
            yield from super().feed(data[start:typed])
            yield events.Paste(data[typed : burst.end()])
            start = burst.end()
        if start < len(data):
            yield from super().feed(data[start:])

    def parse_mouse_code(self, code: str) -> Message | None:
        # A terminal that does not know its size in pixels reports 0. Textual divides by it.
        sizes = self.terminal_pixel_size, self.terminal_size
        if any(size is not None and 0 in tuple(size) for size in sizes):
            self.mouse_pixels = False
        return super().parse_mouse_code(code)

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


class FlushMarker(str):
    """An empty piece of output. `reached` is called once all output before it was flushed."""

    reached: Callable[[float], object]


class Output:
    """The terminal as Textual's output thread writes to it. Each flush calls earlier markers."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._markers: list[FlushMarker] = []

    def write(self, text: str) -> None:
        if isinstance(text, FlushMarker):
            self._markers.append(text)
        else:
            self._file.write(text)

    def flush(self) -> None:
        self._file.flush()
        now = time.monotonic()
        for marker in self._markers:
            marker.reached(now)
        self._markers.clear()

    def fileno(self) -> int:
        return self._file.fileno()


def _signal_others(what: signal.Signals) -> None:
    """Send the signal `what` to the other processes of this group. Main thread."""
    obeyed = signal.signal(what, signal.SIG_IGN)
    try:
        os.killpg(0, what)
    finally:
        signal.signal(what, obeyed)


class KeyboardDriver(linux_driver.LinuxDriver):
    """Textual's driver for Linux and macOS, with key releases if the terminal reports them."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)  # pyright: ignore[reportUnknownMemberType]
        self._file: Any = Output(self._file)
        self._stopped, self._stop = os.pipe()
        """a pipe with a byte once the thread that reads the terminal has to end"""
        self._runs = self._suspended = False
        """whether the terminal is in application mode, and whether it was suspended from it"""

    def run_input_thread(self) -> None:
        """Read the terminal until `disable_input`. Textual's own loop looks ten times a second.

        Invalid bytes are replaced: terminals send them for keys in another encoding, and for a
        mouse beyond column 95.
        """
        parser = KeyParser(self._debug)
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        while True:
            ready, _, _ = select.select([self.fileno, self._stopped], [], [], parser.patience)
            if self._stopped in ready:
                os.read(self._stopped, 1)
                return
            if ready:
                if not (data := os.read(self.fileno, READ_BYTES)):
                    return  # the terminal is closed
                if text := decode(data):
                    for message in parser.feed(text):
                        self.process_message(message)
            for message in parser.tick():
                self.process_message(message)

    def disable_input(self) -> None:
        if self._key_thread is not None and self._key_thread.is_alive():
            os.write(self._stop, b".")
        super().disable_input()

    def wait_written(self, reached: Callable[[float], object]) -> None:
        """Wait until all output so far is flushed, for at most WRITE_SECONDS.

        `reached` is called then, on the output thread, with the time. Without the wait the UI
        thread holds the interpreter, and the output thread is late by milliseconds.
        """
        written = threading.Event()

        def flushed(at: float) -> None:
            reached(at)
            written.set()

        marker = FlushMarker()
        marker.reached = flushed
        self.write(marker)
        written.wait(WRITE_SECONDS)

    def suspend_application_mode(self) -> None:
        """Suspend this process and its parent (`make`, `uv run`): the shell waits for that."""
        if self._runs:
            super().suspend_application_mode()
            self._suspended = True
        _signal_others(signal.SIGTSTP)

    def resume_application_mode(self) -> None:
        """Resume after a suspend, or after a SIGCONT at any other time.

        A SIGCONT without a suspend comes from `kill -CONT`, from systemd, or after a SIGSTOP,
        during which the shell may have changed the terminal. A second start would take the
        terminal's raw settings for those to restore at the end, so the application mode is left
        first. The event loop does this, because the signal may have interrupted a write whose lock
        the restart needs.
        """
        if self._suspended:
            _signal_others(signal.SIGCONT)
            super().resume_application_mode()
        elif self._runs:
            self._loop.call_soon_threadsafe(self._restart)

    def _restart(self) -> None:
        if self._runs:
            super().suspend_application_mode()
            self._must_signal_resume = True  # everything is painted again
            super().resume_application_mode()

    def start_application_mode(self) -> None:
        self._suspended = False
        self._loop = asyncio.get_running_loop()
        super().start_application_mode()
        if not constants.DISABLE_KITTY_KEY:
            self.write(REQUEST)
            self.flush()
        self._runs = True

    def stop_application_mode(self) -> None:
        self._runs = False
        if self._mouse_pixels:  # Textual never resets it
            self.write("\x1b[?1016l")
            self._mouse_pixels = False
        super().stop_application_mode()
