"""The recogniser of a running window, lent to `voxtui mcp`: one in memory instead of two.

The window answers on a socket in a folder that only its user may enter. A request is a line
followed by samples; the answer is a line.
"""

from __future__ import annotations

import hashlib
import os
import socket
import stat
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Event as Flag
from threading import Thread
from typing import TYPE_CHECKING, Annotated

import msgspec

from voxtui.errors import InputError, ModelError
from voxtui.settings.paths import user_folders
from voxtui.wiring import Recognise, transcriber

if TYPE_CHECKING:
    from voxtui.dialogue.data import Samples
    from voxtui.dialogue.protocols import Brain
    from voxtui.settings.schema import Config

LONGEST_LINE = 1 << 16

MOST_SAMPLES = 16_000 * 120

BROKEN = (OSError, msgspec.MsgspecError)
"""Errors of a connection whose other end has closed or sends invalid data."""


class Request(msgspec.Struct):
    settings: str
    samples: Annotated[int, msgspec.Meta(ge=0, le=MOST_SAMPLES)]
    """the number of float32 samples that follow, at 16 kHz; 0 only asks whether one is lent"""


class Answer(msgspec.Struct):
    text: str = ""
    is_lent: bool = True
    """whether the window serves these settings, with a brain that can do so beside a turn"""


def runtime_folder() -> Path:
    """Return the folder of the sockets, which only this user may enter. Raises InputError."""
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


def settings_of(config: Config) -> str:
    return hashlib.sha256(repr(config.brain).encode()).hexdigest()


@contextmanager
def owned_socket(name: str) -> Generator[socket.socket | None]:
    """Yield a listening socket in the runtime folder, or None if another process owns `name`."""
    # Imported here, because a process that only connects needs no lock.
    from filelock import FileLock, Timeout

    folder = runtime_folder()
    with ExitStack() as stack:
        try:
            stack.enter_context(FileLock(folder / f"{name}.lock", timeout=0, mode=0o600))
        except Timeout:
            yield None
            return
        path = folder / f"{name}.sock"
        path.unlink(missing_ok=True)  # of a process that was killed: the lock is ours
        listening = stack.enter_context(socket.socket(socket.AF_UNIX))
        listening.bind(str(path))
        stack.callback(path.unlink, missing_ok=True)
        path.chmod(0o600)
        listening.listen()
        yield listening


@contextmanager
def lent(brain: Callable[[], Brain], settings: Callable[[], str]) -> Generator[None]:
    """Answer requests on a thread inside the context. Does nothing if another window does.

    `brain` may raise ModelError while none is loaded.
    """
    with ExitStack() as stack:
        with suppress(InputError, OSError):
            if listening := stack.enter_context(owned_socket("recogniser")):
                serving = (listening, brain, settings)
                Thread(target=_serve, args=serving, name="voxtui-lent", daemon=True).start()
                stack.callback(_wake, listening)
        yield


def _wake(listening: socket.socket) -> None:
    with suppress(OSError):  # macOS: it is not connected
        listening.shutdown(socket.SHUT_RDWR)


def _serve(
    listening: socket.socket, brain: Callable[[], Brain], settings: Callable[[], str]
) -> None:
    while True:
        try:
            connection, _ = listening.accept()
        except OSError:  # closed
            return
        connection.settimeout(5)
        with connection, connection.makefile("rb") as sent, suppress(*BROKEN):
            request = msgspec.json.decode(sent.readline(LONGEST_LINE), type=Request)
            data = sent.read(4 * request.samples)
            answer = _answer(request, data, brain, settings())
            connection.sendall(msgspec.json.encode(answer) + b"\n")


def _answer(request: Request, data: bytes, brain: Callable[[], Brain], settings: str) -> Answer:
    import numpy as np

    try:
        lender = brain()
        # Voxtral has one thread, where a turn takes precedence over a transcript.
        if request.settings != settings or lender.name != "embedded":
            return Answer(is_lent=False)
        samples = np.frombuffer(data, np.float32)
        return Answer(transcriber(lender)(samples) if len(samples) else "")
    except (ModelError, ValueError):
        return Answer(is_lent=False)


def borrowed(config: Config, own: Callable[[], Recognise]) -> Recognise | None:
    """Return the recogniser of a running window, or None if none has these settings.

    `own` loads another one, in case the window is closed meanwhile.
    """
    try:
        path = runtime_folder() / "recogniser.sock"
        if not _ask(path, config, b"").is_lent:
            return None
    except (InputError, *BROKEN):
        return None

    def recognise(samples: Samples, cancelled: Flag | None = None) -> str:
        with suppress(*BROKEN):
            answer = _ask(path, config, samples.astype("<f4").tobytes())
            if answer.is_lent:
                return answer.text
        return own()(samples, cancelled)

    return recognise


def _ask(path: Path, config: Config, data: bytes) -> Answer:
    with socket.socket(socket.AF_UNIX) as connection, connection.makefile("rb") as received:
        connection.settimeout(30)
        connection.connect(str(path))
        line = msgspec.json.encode(Request(settings_of(config), len(data) // 4))
        connection.sendall(line + b"\n" + data)
        return msgspec.json.decode(received.readline(LONGEST_LINE), type=Answer)
