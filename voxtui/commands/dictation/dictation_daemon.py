"""A daemon that keeps the recogniser loaded, for `voxtui dictate --start` and `voxtui mcp`.

It listens on a socket in a folder that only its user may enter. It records between two orders, and
returns the words to the process that sent the second one, which delivers them. So the text goes
where the key was pressed. For `voxtui mcp` it records one utterance while that connection is open.
"""

from __future__ import annotations

import hashlib
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from voxtui import wiring
from voxtui.commands.dictation.dictation import SILENT_SECONDS, Dictated, Dictation
from voxtui.commands.dictation.lent_recogniser import borrowed, runtime_folder
from voxtui.dialogue.protocols import StopFlag
from voxtui.dialogue.timestamps import Timestamps
from voxtui.errors import InputError, VoxtuiError
from voxtui.settings.schema import Config, DictateConfig

Order: TypeAlias = Literal["start", "stop", "toggle"]
AnyOrder: TypeAlias = Literal["start", "stop", "toggle", "listen"]
State: TypeAlias = Literal["listening", "idle", "heard", "stale"]

IDLE_SECONDS = 600.0
"""Time without an order after which the daemon ends and frees the recogniser's memory."""

FORGOTTEN_SECONDS = 60.0
"""Silence after which the microphone is closed. The words then wait for `--stop`."""

START_SECONDS = 20.0

ANSWER_SECONDS = 120.0
"""Timeout of an answer, which includes recognition, perhaps by a slow remote brain."""

MESSAGE_SECONDS = 1.0

RETRY_SECONDS = 0.05

POLL_SECONDS = 0.1
"""Interval at which a client that waits for words checks for a cancel."""

LARGEST_MESSAGE = 1 << 20


class Message(msgspec.Struct):
    order: AnyOrder
    settings: str
    """the `fingerprint` of the client's settings"""
    seconds: float = 0.0
    """the maximum seconds of a recording by `listen`"""


class OrderResult(msgspec.Struct):
    state: State
    """the state after the order; a `stale` daemon has other settings, and ends"""
    text: str = ""
    problem: str = ""
    error: str = ""


LENT = OrderResult("idle", error="A program is listening now, through `voxtui mcp`.")
DICTATING = OrderResult("idle", error="The microphone is dictating: `voxtui dictate --stop`.")


def fingerprint(config: Config) -> str:
    """Return a value that is equal for equal settings of a recording."""
    dictate = DictateConfig(sound=config.dictate.sound)
    recording = msgspec.structs.replace(config, dictate=dictate)
    return hashlib.sha256(repr(recording).encode()).hexdigest()


# The process that gives an order.


def resident_command(arguments: Sequence[str]) -> list[str]:
    # -P: a module in the current directory must not be imported in the place of ours.
    return [sys.executable, "-P", "-m", "voxtui", "dictate", "--resident", *arguments]


def give_order(order: Order, config: Config, command: Sequence[str]) -> tuple[State, Dictated]:
    """Give `order` to the daemon. If none is running, start one with `command`.

    Returns its new state and, after `heard`, the words. Raises VoxtuiError.
    """
    message = Message(order, fingerprint(config))
    with _connected(message, command, starts=order != "stop") as (_, answer):
        return answer.state, Dictated(answer.text, answer.problem)


class Listening:
    """One utterance that the daemon records. The microphone is open."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def words(self, cancelled: StopFlag) -> Dictated:
        """Return the words once the utterance has ended; none if `cancelled`. Raises InputError."""
        while not select.select([self._connection], [], [], POLL_SECONDS)[0]:
            if cancelled.is_set():
                return Dictated("", "")
        answer = _read(self._connection)
        if answer is None:
            raise InputError("The dictation process ended.", "`voxtui doctor` says more.")
        if answer.error:
            raise InputError(answer.error)
        return Dictated(answer.text, answer.problem)


@contextmanager
def listening(config: Config, seconds: float, command: Sequence[str]) -> Generator[Listening]:
    """Open the daemon's microphone for one utterance of up to `seconds`.

    Leaving the context closes it. Raises VoxtuiError.
    """
    message = Message("listen", fingerprint(config), seconds)
    with _connected(message, command, starts=True) as (connection, _):
        yield Listening(connection)


@contextmanager
def _connected(
    message: Message, command: Sequence[str], starts: bool
) -> Generator[tuple[socket.socket, OrderResult]]:
    """Yield the connection and the answer to `message`; if `starts`, start `command` if needed."""
    path = runtime_folder() / "dictate.sock"
    started: subprocess.Popen[bytes] | None = None
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        with socket.socket(socket.AF_UNIX) as connection:
            answer = _ask(connection, path, message)
            if answer is not None and answer.state != "stale":
                if answer.error:
                    raise InputError(answer.error)
                yield connection, answer
                return
            if not starts:
                yield connection, OrderResult("idle")
                return
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


def _ask(connection: socket.socket, path: Path, message: Message) -> OrderResult | None:
    """Return the answer of the daemon at `path`, or None if none is running there."""
    connection.settimeout(ANSWER_SECONDS)
    try:
        connection.connect(str(path))
        connection.sendall(msgspec.json.encode(message) + b"\n")
        return _read(connection)
    except (FileNotFoundError, ConnectionError):
        return None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}.") from error


def _read(connection: socket.socket) -> OrderResult | None:
    """Return the next answer, or None at the end. Buffers nothing beyond it."""
    line = bytearray()
    while not line.endswith(b"\n"):
        piece = connection.recv(1)
        if not piece or len(line) > LARGEST_MESSAGE:
            return None
        line += piece
    return msgspec.json.decode(line, type=OrderResult)


# The resident process.


def serve(config: Config) -> None:
    """Obey orders until none came for IDLE_SECONDS. Return at once if another daemon is running."""
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


@dataclass(slots=True)
class _Listener:
    connection: socket.socket
    deadline: float
    """the monotonic seconds at which the recording ends"""
    over: bool = False
    """whether the recording's thread has answered or is about to; written by that thread"""

    def ended_at(self) -> float | None:
        # The client sends nothing more, so there is something to read once it has disconnected.
        disconnected = select.select([self.connection], [], [], 0)[0]
        now = time.monotonic()
        return now if disconnected or now >= self.deadline else None


class DictationDaemon:
    """Records on one thread when ordered to. Everything else happens on another thread."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._fingerprint = fingerprint(config)
        self._loaded = ExitStack()
        self._to_text: wiring.SpeechToText | None = None
        self._recording: threading.Thread | None = None
        self._listener: _Listener | None = None
        """the client of the recording in progress, if only this client may end it"""
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
                if self._listener and self._listener.over and self._recording:
                    self._recording.join()
                    self._recording = self._listener = None
                stale = self._recording is None and message.settings != self._fingerprint
                if not stale and message.order == "listen":
                    self._listen(connection.dup(), message.seconds)
                    continue
                answer = OrderResult("stale") if stale else self.obey(message.order)
                _send(connection, answer)
            if stale:
                return

    def obey(self, order: AnyOrder) -> OrderResult:
        if self._listener is not None:
            return LENT
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

    def _listen(self, connection: socket.socket, seconds: float) -> None:
        if self._recording is not None:
            result = LENT if self._listener else DICTATING
        else:
            result = self._start(_Listener(connection, time.monotonic() + seconds))
        if result.error:
            _send(connection, result)
            connection.close()

    def _start(self, listener: _Listener | None = None) -> OrderResult:
        """Begin a recording. It is announced once the microphone delivers and the user may speak.

        Without a `listener`, wait for that.
        """
        silence_s = self._config.vad.end_ms / 1000 if listener else FORGOTTEN_SECONDS
        began = Began(listener)
        dictation = Dictation(wiring.microphone_alone(self._config), silence_s, began)
        try:
            dictation.open()
        except VoxtuiError as error:
            return OrderResult("idle", error=str(error))
        self._ended_at, self._error, self._dictated = None, "", Dictated("", "")
        self._listener = listener
        self._recording = threading.Thread(
            target=self._record, args=(dictation, began), name="voxtui-dictation"
        )
        self._recording.start()
        if listener or (began.event.wait(SILENT_SECONDS) and began.delivers):
            if not listener and self._config.dictate.sound:
                play = partial(play_cue, self._config)
                threading.Thread(target=play, name="voxtui-cue", daemon=True).start()
            return OrderResult("listening")
        result = self._stop()
        return OrderResult("idle", error=result.error or result.problem)

    def _stop(self) -> OrderResult:
        assert self._recording is not None
        self._ended_at = time.monotonic()
        self._recording.join()
        self._recording = None
        return self._result()

    def _result(self) -> OrderResult:
        return OrderResult("heard", self._dictated.text, self._dictated.problem, self._error)

    # Runs on the thread of a recording.

    def _record(self, dictation: Dictation, began: Began) -> None:
        listener = began.listener

        def ended_at() -> float | None:
            return self._ended_at or (listener.ended_at() if listener else None)

        try:
            lent = borrowed(self._config, lambda: self._own().recognise) if listener else None
            to_text = wiring.SpeechToText(lent, "", repeats=False) if lent else self._own()
            detector = wiring.build_detector(self._config)
            self._dictated = dictation.listen(self._config.vad, detector, to_text, ended_at)
        except VoxtuiError as error:
            self._error = str(error)
        except Exception as error:  # noqa: BLE001 - the process that gives the next order says it
            self._error = f"The dictation failed: {error!r}."
        finally:
            dictation.close()
            began.event.set()
        if listener:
            listener.over = True
            if not began.delivers:
                self._error = self._error or self._dictated.problem
            _send(listener.connection, self._result())
            listener.connection.close()

    def _own(self) -> wiring.SpeechToText:
        """Return the daemon's own recogniser, which the first call loads. Raises ModelError."""
        if self._to_text is None:
            loading = wiring.recogniser(self._config, lambda sentence: None, careful=True)
            self._to_text = self._loaded.enter_context(loading)
        return self._to_text


class Began:
    """A DictationView without a screen, which reports that a dictation began or failed."""

    def __init__(self, listener: _Listener | None) -> None:
        self.listener = listener
        self.event = threading.Event()
        """the event that is set when the microphone delivers, or the dictation is over"""
        self.delivers = False

    def listening(self) -> None:
        if self.listener and not self.delivers:
            _send(self.listener.connection, OrderResult("listening"))
        self.delivers = True
        self.event.set()

    def caption(self, text: str) -> None:
        pass

    def notice(self, sentence: str) -> None:
        pass


def play_cue(config: Config) -> None:
    """Play the two notes after which the user may speak. Blocks for 0.5 s."""
    from voxtui.audio.chime import cue

    speaker = wiring.build_speaker(config.audio.output)
    with suppress(VoxtuiError), closing(speaker):
        speaker.open()
        speaker.play(cue(), Timestamps(), threading.Event())
        speaker.finish(Timestamps(), threading.Event())


def _send(connection: socket.socket, result: OrderResult) -> None:
    with suppress(OSError):
        connection.settimeout(ANSWER_SECONDS)
        connection.sendall(msgspec.json.encode(result) + b"\n")


def _message(connection: socket.socket) -> Message | None:
    connection.settimeout(MESSAGE_SECONDS)
    with suppress(OSError, msgspec.DecodeError):
        line = connection.makefile("rb").readline(LARGEST_MESSAGE)
        return msgspec.json.decode(line, type=Message)
    return None
