"""`voxtui dictate --start`, `--stop` and `--toggle`: a process that keeps the recogniser loaded.

The process listens on a socket in a folder that only its user may enter. It records while it is
told to, and returns the words to the process that ends it, which delivers them. So the text goes
where the key was pressed.
"""

from __future__ import annotations

import hashlib
import os
import socket
import stat
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from voxtui.commands.dictation.dictation import SILENT_SECONDS, Dictated, Dictation
from voxtui.errors import InputError, VoxtuiError
from voxtui.settings.paths import user_folders
from voxtui.settings.schema import Config, DictateConfig
from voxtui.wiring import SpeechToText, build_detector, microphone_alone, recogniser

Order: TypeAlias = Literal["start", "stop", "toggle"]
State: TypeAlias = Literal["listening", "idle", "heard", "stale"]

IDLE_SECONDS = 600.0
"""The process ends after this time without an order, and frees the memory of the recogniser."""

FORGOTTEN_SECONDS = 60.0
"""Silence after which the microphone closes. The words wait for `--stop`."""

START_SECONDS = 20.0
"""Timeout for the start of the process."""

ANSWER_SECONDS = 120.0
"""Timeout of an answer: the last words are recognised, and a remote brain may be slow."""

MESSAGE_SECONDS = 1.0

RETRY_SECONDS = 0.05

LARGEST_MESSAGE = 1 << 20


class Message(msgspec.Struct):
    order: Order
    settings: str
    """`fingerprint` of the settings"""


class OrderResult(msgspec.Struct):
    state: State
    """after the order; `stale`: the process has other settings, and ends"""
    text: str = ""
    problem: str = ""
    error: str = ""


def runtime_folder() -> Path:
    """Return the folder of the socket, which only this user may enter. Raises InputError."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    folder = Path(runtime) / "voxtui" if runtime else user_folders().user_state_path / "run"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise InputError(f"{folder}: cannot be used: {error.strerror}.") from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise InputError(
            f"{folder}: other users may enter it, so nothing is dictated there.",
            f"Remove it, or: chmod 700 {folder}",
        )
    return folder


def fingerprint(config: Config) -> str:
    """Return a value that is the same for the same settings of a recording."""
    recording = msgspec.structs.replace(config, dictate=DictateConfig())
    return hashlib.sha256(repr(recording).encode()).hexdigest()


# The process that gives an order.


def give_order(order: Order, config: Config, command: Sequence[str]) -> tuple[State, Dictated]:
    """Give `order` to the resident process. If none runs, start one with `command`.

    Return its new state and, after `heard`, the words. Raises VoxtuiError.
    """
    path, message = runtime_folder() / "dictate.sock", Message(order, fingerprint(config))
    started: subprocess.Popen[bytes] | None = None
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        answer = _ask(path, message)
        if answer is not None and answer.state != "stale":
            if answer.error:
                raise InputError(answer.error)
            return answer.state, Dictated(answer.text, answer.problem)
        if order == "stop":
            return "idle", Dictated("", "")
        if started is None or started.poll() is not None:
            if started is not None and started.returncode:
                break
            started = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        time.sleep(RETRY_SECONDS)  # the other process creates the socket: nothing to wait on
    raise InputError("The dictation process did not start.", "`voxtui doctor` says more.")


def _ask(path: Path, message: Message) -> OrderResult | None:
    """Return the answer of the process at `path`, or None if none runs there."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(ANSWER_SECONDS)
        try:
            connection.connect(str(path))
            connection.sendall(msgspec.json.encode(message) + b"\n")
            line = connection.makefile("rb").readline(LARGEST_MESSAGE)
        except (FileNotFoundError, ConnectionError):
            return None
        except OSError as error:
            raise InputError(f"{path}: {error.strerror or error}.") from error
    return msgspec.json.decode(line, type=OrderResult) if line else None


# The resident process.


def serve(config: Config) -> None:
    """Obey orders until none came for IDLE_SECONDS. Return at once if another process does."""
    # Imported here, because the process that gives an order needs no lock.
    from filelock import FileLock, Timeout

    folder = runtime_folder()
    with ExitStack() as stack:
        try:
            stack.enter_context(FileLock(folder / "dictate.lock", timeout=0, mode=0o600))
        except Timeout:
            return
        path = folder / "dictate.sock"
        path.unlink(missing_ok=True)  # of a process that was killed: the lock is ours
        listening = stack.enter_context(socket.socket(socket.AF_UNIX))
        listening.bind(str(path))
        stack.callback(path.unlink, missing_ok=True)
        listening.listen()
        stack.enter_context(closing(resident := DictationDaemon(config)))
        resident.serve(listening)


class DictationDaemon:
    """Records on a thread while it is told to. Everything else happens on one other thread."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._fingerprint = fingerprint(config)
        self._loaded = ExitStack()
        self._to_text: SpeechToText | None = None
        self._recording: threading.Thread | None = None
        self._ended_at: float | None = None
        self._dictated = Dictated("", "")
        self._error = ""

    def serve(self, listening: socket.socket) -> None:
        listening.settimeout(IDLE_SECONDS)
        while True:
            try:
                connection, _ = listening.accept()
            except TimeoutError:
                if self._recording is None or not self._recording.is_alive():
                    return
                continue
            with connection:
                message = _message(connection)
                if message is None:
                    continue
                stale = self._recording is None and message.settings != self._fingerprint
                answer = OrderResult("stale") if stale else self.obey(message.order)
                with suppress(OSError):
                    connection.settimeout(ANSWER_SECONDS)
                    connection.sendall(msgspec.json.encode(answer) + b"\n")
            if stale:
                return

    def obey(self, order: Order) -> OrderResult:
        match order:
            case "start" if self._recording is not None and self._recording.is_alive():
                return OrderResult("listening")
            case "start":
                return self._start()
            case "stop" if self._recording is None:
                return OrderResult("idle")
            case "toggle" if self._recording is None:
                return self._start()
            case _:
                return self._stop()

    def close(self) -> None:
        if self._recording is not None:
            self._stop()
        self._loaded.close()

    def _start(self) -> OrderResult:
        """Begin a recording. Answers once the microphone delivers, because then one may speak."""
        began = Began()
        dictation = Dictation(partial(microphone_alone, self._config), FORGOTTEN_SECONDS, began)
        try:
            dictation.open()
        except VoxtuiError as error:
            return OrderResult("idle", error=str(error))
        self._ended_at, self._error, self._dictated = None, "", Dictated("", "")
        self._recording = threading.Thread(
            target=self._record, args=(dictation, began), name="voxtui-dictation"
        )
        self._recording.start()
        began.event.wait(SILENT_SECONDS)
        if began.delivers:
            return OrderResult("listening")
        error = self._stop()
        return OrderResult("idle", error=error.error or error.problem)

    def _stop(self) -> OrderResult:
        assert self._recording is not None
        self._ended_at = time.monotonic()
        self._recording.join()
        self._recording = None
        return OrderResult("heard", self._dictated.text, self._dictated.problem, self._error)

    # Runs on the thread of a recording.

    def _record(self, dictation: Dictation, began: Began) -> None:
        try:
            if self._to_text is None:
                loading = recogniser(self._config, lambda sentence: None)
                self._to_text = self._loaded.enter_context(loading)
            detector = build_detector(self._config)
            self._dictated = dictation.listen(
                self._config.vad, detector, self._to_text, lambda: self._ended_at
            )
        except VoxtuiError as error:
            self._error = str(error)
        except Exception as error:  # noqa: BLE001 - the process that gives the next order says it
            self._error = f"The dictation failed: {error!r}."
        finally:
            dictation.close()
            began.event.set()


class Began:
    """A DictationView without a screen: it tells when a dictation begins, or cannot."""

    def __init__(self) -> None:
        self.event = threading.Event()
        """Set when the microphone delivers, or the dictation is over."""
        self.delivers = False

    def listening(self) -> None:
        self.delivers = True
        self.event.set()

    def caption(self, text: str) -> None:
        pass

    def notice(self, sentence: str) -> None:
        pass


def _message(connection: socket.socket) -> Message | None:
    connection.settimeout(MESSAGE_SECONDS)
    with suppress(OSError, msgspec.DecodeError):
        line = connection.makefile("rb").readline(LARGEST_MESSAGE)
        return msgspec.json.decode(line, type=Message)
    return None
