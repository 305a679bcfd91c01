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
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from voxtui import wiring
from voxtui.commands.dictation.dictation import SILENT_SECONDS, Dictated, Dictation, DictationView
from voxtui.commands.dictation.lent_recogniser import borrowed, owned_socket, runtime_folder
from voxtui.dialogue.protocols import StopFlag
from voxtui.dialogue.timestamps import Timestamps
from voxtui.errors import InputError, VoxtuiError
from voxtui.settings.schema import Config, DictateConfig

Order: TypeAlias = Literal["start", "stop", "toggle"]
State: TypeAlias = Literal["listening", "idle", "heard", "stale"]

IDLE_SECONDS = 600.0
"""Time without an order after which the daemon ends and frees the recogniser's memory."""

FORGOTTEN_SECONDS = 60.0
"""Silence after which the microphone is closed. The words then wait for `--stop`."""

ANSWER_SECONDS = 120.0
"""Timeout of an answer, which includes recognition, perhaps by a slow remote brain."""

POLL_SECONDS = 0.1
"""Interval at which a client that waits for words checks for a cancel."""

LARGEST_MESSAGE = 1 << 20


class Message(msgspec.Struct):
    order: Order | Literal["listen"]
    settings: str
    """the `fingerprint` of the client's settings"""
    seconds: float = 0.0


class OrderResult(msgspec.Struct):
    state: State
    """the state after the order; a `stale` daemon has other settings, and ends"""
    text: str = ""
    problem: str = ""
    error: str = ""


LENT = OrderResult("idle", error="A program is listening now, through `voxtui mcp`.")


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


@contextmanager
def listening(
    config: Config, seconds: float, command: Sequence[str]
) -> Generator[Callable[[StopFlag], Dictated]]:
    """Open the daemon's microphone inside the context, for one utterance of up to `seconds`.

    Yields a function that waits for the end of the utterance, or for its argument to be set.
    """
    message = Message("listen", fingerprint(config), seconds)
    with _connected(message, command, starts=True) as (connection, _):
        yield partial(_words, connection)


def _words(connection: socket.socket, cancelled: StopFlag) -> Dictated:
    while not select.select([connection], [], [], POLL_SECONDS)[0]:
        if cancelled.is_set():
            return Dictated("", "")
    answer = _read(connection)
    if answer is None:
        raise InputError("The dictation process ended.", "`voxtui doctor` says more.")
    if answer.error:
        raise InputError(answer.error)
    return Dictated(answer.text, answer.problem)


@contextmanager
def _connected(
    message: Message, command: Sequence[str], starts: bool
) -> Generator[tuple[socket.socket, OrderResult]]:
    """Yield the connection and the answer to `message`; if `starts`, start `command` if needed."""
    path = runtime_folder() / "dictate.sock"
    started: subprocess.Popen[bytes] | None = None
    deadline = time.monotonic() + 20
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
        time.sleep(0.05)  # the other process creates the socket: nothing to wait on
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
    line = connection.makefile("rb", buffering=0).readline(LARGEST_MESSAGE)
    return msgspec.json.decode(line, type=OrderResult) if line.endswith(b"\n") else None


# The resident process.


def serve(config: Config) -> None:
    """Obey orders until none came for IDLE_SECONDS. Return at once if another daemon is running."""
    with owned_socket("dictate") as listening:
        if listening is not None:
            with closing(DictationDaemon(config)) as daemon:
                daemon.serve(listening)


class DictationDaemon:
    """Obeys orders. Each recording has a thread of its own."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._fingerprint = fingerprint(config)
        self._loaded = ExitStack()
        self._to_text: wiring.SpeechToText | None = None
        self._recording: _Recording | None = None

    def serve(self, listening: socket.socket) -> None:
        listening.settimeout(IDLE_SECONDS)
        while True:
            try:
                connection, _ = listening.accept()
            except TimeoutError:
                held = self._recording
                if held is None or not (held.thread.is_alive() or held.result.text):
                    return
                continue
            with connection:
                message = _message(connection)
                if message is None:
                    continue
                if self._recording and self._recording.answered:
                    self._recording.thread.join()
                    self._recording = None
                stale = self._recording is None and message.settings != self._fingerprint
                if stale:
                    answer = OrderResult("stale")
                elif message.order == "listen":
                    answer = self._listen(connection, message.seconds)
                else:
                    answer = self.obey(message.order)
                if answer is not None:
                    _send(connection, answer)
            if stale:
                return

    def obey(self, order: Order) -> OrderResult:
        recording = self._recording
        if recording is None:
            return OrderResult("idle") if order == "stop" else self._start()
        if recording.listener is not None:
            return LENT
        if order == "start" and recording.thread.is_alive():
            return OrderResult("listening")
        if order == "start" and not recording.result.text:
            return self._start()
        return self._stop()

    def close(self) -> None:
        if self._recording is not None:
            self._stop()
        self._loaded.close()

    def _listen(self, connection: socket.socket, seconds: float) -> OrderResult | None:
        """Record for the program at `connection`. Return an error; else the recording answers."""
        if self._recording is not None:
            dictating = "The microphone is dictating: `voxtui dictate --stop`."
            return LENT if self._recording.listener else OrderResult("idle", error=dictating)
        listener = connection.dup()
        result = self._start(listener, seconds)
        if not result.error:
            return None
        listener.close()
        return result

    def _start(self, listener: socket.socket | None = None, seconds: float = 0.0) -> OrderResult:
        """Begin a recording. It is announced once the microphone delivers and the user may speak.

        Without a `listener`, wait for that.
        """
        recording = _Recording(self._config, self._own, listener, seconds)
        try:
            recording.start()
        except VoxtuiError as error:
            return OrderResult("idle", error=str(error))
        self._recording = recording
        if listener or (recording.began.wait(SILENT_SECONDS) and recording.delivers):
            if not listener and self._config.dictate.sound:
                play = partial(play_cue, self._config)
                threading.Thread(target=play, name="voxtui-cue", daemon=True).start()
            return OrderResult("listening")
        result = self._stop()
        return OrderResult("idle", error=result.error or result.problem)

    def _stop(self) -> OrderResult:
        recording, self._recording = self._recording, None
        assert recording is not None
        recording.ended_at = time.monotonic()
        recording.thread.join()
        return recording.result

    def _own(self) -> wiring.SpeechToText:
        """Return the daemon's own recogniser, which the first call loads. Raises ModelError."""
        if self._to_text is None:
            loading = wiring.recogniser(self._config, lambda sentence: None, careful=True)
            self._to_text = self._loaded.enter_context(loading)
        return self._to_text


class _Recording(DictationView):
    """A recording on a thread of its own. A program at `listener` is the only one that may end it.

    `own` returns the daemon's recogniser. The recording of a program ends after `seconds`, too.
    """

    def __init__(
        self,
        config: Config,
        own: Callable[[], wiring.SpeechToText],
        listener: socket.socket | None,
        seconds: float,
    ) -> None:
        self._config = config
        self._own = own
        self.listener = listener
        self._deadline = time.monotonic() + seconds
        self.ended_at: float | None = None
        silence_s = config.vad.end_ms / 1000 if listener else FORGOTTEN_SECONDS
        self._dictation = Dictation(wiring.microphone_alone(config), silence_s, self)
        self.thread = threading.Thread(target=self._run, name="voxtui-dictation")
        self.began = threading.Event()
        """the event that is set when the microphone delivers, or the recording is over"""
        self.delivers = False
        self.answered = False
        """whether the listener has its result, or gets it now"""
        self.result = OrderResult("heard")

    def start(self) -> None:
        self._dictation.open()
        self.thread.start()

    def listening(self) -> None:
        if self.listener and not self.delivers:
            _send(self.listener, OrderResult("listening"))
        self.delivers = True
        self.began.set()

    def _run(self) -> None:
        config, result = self._config, self.result
        try:
            lent = borrowed(config, lambda: self._own().recognise) if self.listener else None
            to_text = wiring.SpeechToText(lent, "", repeats=False) if lent else self._own()
            detector = wiring.build_detector(config)
            dictated = self._dictation.listen(config.vad, detector, to_text, self._ended)
            result.text, result.problem = dictated.text, dictated.problem
        except VoxtuiError as error:
            result.error = str(error)
        except Exception as error:  # noqa: BLE001 - the process that gives the next order says it
            result.error = f"The dictation failed: {error!r}."
        finally:
            self._dictation.close()
            self.began.set()
        if self.listener is not None:
            if not self.delivers:
                result.error = result.error or result.problem
            self.answered = True
            _send(self.listener, result)
            self.listener.close()

    def _ended(self) -> float | None:
        if self.listener is None:
            return self.ended_at
        # The client sends nothing more, so there is something to read once it has disconnected.
        disconnected = select.select([self.listener], [], [], 0)[0]
        now = time.monotonic()
        return now if disconnected or now >= self._deadline else self.ended_at


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
    connection.settimeout(1)
    with suppress(OSError, msgspec.DecodeError):
        line = connection.makefile("rb").readline(LARGEST_MESSAGE)
        return msgspec.json.decode(line, type=Message)
    return None
