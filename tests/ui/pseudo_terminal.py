"""A terminal on a pseudo-terminal: tracks the modes that are set, and sends exact bytes."""

from __future__ import annotations

import fcntl
import json
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

import psutil

from tests.deadline import SECONDS

REPOSITORY = Path(__file__).parents[2]
# pytest reads its size into COLUMNS and LINES, which would stand above that of this terminal.
ENVIRONMENT = {
    name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")
}
ENVIRONMENT["TERM"] = "xterm-256color"

KEYBOARD = re.compile(rb"\x1b\[([>=<?])([\d;]*)u")
MODE = re.compile(rb"\x1b\[\?(\d+)([hl])")
ALTERNATE_SCREEN, CURSOR, PASTE, FOCUS = 1049, 25, 2004, 1004
MOUSE = (1000, 1003, 1006)
MOUSE_IN_PIXELS = 1016


def until(true: Callable[[], object], shown: Callable[[], str] = lambda: "") -> None:
    """Wait until `true` returns true; a failure prints what was `shown`."""
    deadline = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < deadline, shown()
        threading.Event().wait(0.01)


class PseudoTerminal:
    """Runs `command`. `releases`: speaks the kitty keyboard protocol; None: answers no question."""

    def __init__(
        self,
        command: Sequence[str | Path],
        releases: bool | None = True,
        size: tuple[int, int] = (80, 24),
        environment: dict[str, str] | None = None,
        directory: Path = REPOSITORY,
    ) -> None:
        self._releases = releases
        self.flags = [0]
        """the stack of the keyboard protocol"""
        self.modes = {CURSOR: True}
        self.output = bytearray()
        self._seen = 0
        self._here, there = os.openpty()
        self._cooked = termios.tcgetattr(there)
        self.resize(*size)
        self.process = subprocess.Popen(
            command,
            stdin=there,
            stdout=there,
            stderr=there,
            cwd=directory,
            env=ENVIRONMENT | (environment or {}),
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        self._there = there
        self._open = True
        self.pid = self.process.pid
        self._reader = threading.Thread(target=self._read, name="pseudo-terminal", daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.hang_up()

    def hang_up(self) -> None:
        """Close the terminal, as closing its window does."""
        if not self._open:
            return
        self._open = False
        self._reader.join(SECONDS)
        os.close(self._there)
        os.close(self._here)

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._here, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def send(self, *pieces: str | bytes) -> float:
        """Type each piece, as bytes that arrive together; when the last was about to be sent.

        Not when it had been: what it brings about may have come before the write returns.
        """
        sent = time.monotonic()
        for piece in pieces:
            sent = time.monotonic()
            os.write(self._here, piece.encode() if isinstance(piece, str) else piece)
        return sent

    def ends(self, how: signal.Signals | None = None) -> int:
        """Send the signal `how`, if given, and return the exit code."""
        if how is not None:
            os.kill(self.pid, how)
        return self.process.wait(SECONDS)

    def until_suspended(self) -> None:
        """Wait until the program has stopped itself. An earlier SIGCONT would be lost."""
        self.until(lambda: psutil.Process(self.pid).status() == psutil.STATUS_STOPPED)
        self.until(self.restored)

    def until(self, true: Callable[[], object]) -> None:
        until(true, lambda: self.output[-2000:].decode(errors="replace"))

    def restored(self) -> bool:
        """Tell if the terminal is in the state that it had at the start."""
        modes = {mode for mode, on in self.modes.items() if on} - {7}  # 7, wrapping, is usual
        return (
            self.flags == [0]
            and modes == {CURSOR}
            and termios.tcgetattr(self._there)[:4] == self._cooked[:4]
        )

    def _read(self) -> None:
        while self._open:
            if select.select([self._here], [], [], 0.05)[0]:
                self.output += os.read(self._here, 65536)
                self._obey()

    def _obey(self) -> None:
        """Follow what was written, but for the last bytes, which may be half a sequence."""
        text = bytes(self.output[self._seen :])
        end = text.rfind(b"\x1b")
        whole = text if end < 0 or len(text) - end > 16 or text[-1:].isalpha() else text[:end]
        self._seen += len(whole)
        for found in MODE.finditer(whole):
            self.modes[int(found[1])] = found[2] == b"h"
        if self._releases:
            for kind, numbers in KEYBOARD.findall(whole):
                self._keyboard(kind, numbers.decode())
        if b"\x1b[5n" in whole and self._releases is not None:
            self.send("\x1b[0n")

    def _keyboard(self, kind: bytes, numbers: str) -> None:
        match kind:
            case b">":
                self.flags.append(int(numbers or 0))
            case b"<":
                del self.flags[max(1, len(self.flags) - int(numbers or 1)) :]
            case b"=":
                flags, _, how = numbers.partition(";")
                assert how == "2"
                self.flags[-1] |= int(flags)
            case _:
                self.send(f"\x1b[?{self.flags[-1]}u")


class AppInTerminal(PseudoTerminal):
    """The screen on a scripted engine, which notes its commands in a file."""

    def __init__(
        self, log: Path, *arguments: str, in_shell: bool = False, by_make: bool = False,
        **terminal: object,
    ) -> None:  # fmt: skip
        """`in_shell`: as people start it. A terminal is hung up when its first process ends.

        `by_make`: the shell watches another process, which has started it. Once that is stopped,
        the shell says so, and the next line brings it back.
        """
        self._log = log
        command = [sys.executable, "-m", "tests.ui.scripted_app", str(log), *arguments]
        if in_shell:
            command = ["/bin/sh", "-c", '"$@"; exit $?', "sh", *command]
        if by_make:
            shell = '"$@"; echo it stopped; read -r line; fg; exit $?'
            started = ["/bin/sh", "-c", '"$@"; exit $?', "make", *command]
            command = ["/bin/bash", "-mc", shell, "bash", *started]
        super().__init__(command, **terminal)  # type: ignore[arg-type]
        self.until(lambda: "ready" in self.told)
        self.pid = int(str(self.calls_of("ready")[0][0]))

    @property
    def calls(self) -> list[list[object]]:
        """(name, times) of each call of the engine so far."""
        text = self._log.read_text() if self._log.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    @property
    def told(self) -> list[object]:
        return [call[0] for call in self.calls]

    def calls_of(self, name: str) -> list[list[object]]:
        return [call[1:] for call in self.calls if call[0] == name]
