"""The metrics files: the times of past turns, stored on this machine without words, sound or names.

There is one file per day and one line of JSON per turn. Sessions append to the same file without a
lock, because the system does not interleave single write() calls with O_APPEND. A file per session
would be simpler, but each `voxtui ask` is a session.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from queue import SimpleQueue
from typing import Annotated, Literal, TypeAlias

import msgspec

from voxtui.dialogue.data import MICROPHONE, OWN_SOURCES, TYPED
from voxtui.dialogue.events import Event, TurnFinished, TurnStarted
from voxtui.dialogue.timestamps import Milestone, Outcome, Turn
from voxtui.settings.files import append_line, file_errors, read_file
from voxtui.settings.paths import user_folders

_log = logging.getLogger(__name__)

KEPT_BYTES = 4_000_000
"""Maximum size of all files, some 8,000 turns. Each start deletes the oldest beyond it."""

DAY_BYTES = 2_000_000
"""Maximum size of the file of one day; later turns are dropped."""

LATE_SECONDS = 0.5
"""Maximum delay after a turn for its first word to be painted."""

CLOSE_SECONDS = 1.0
"""Maximum wait for the disk when closing."""

WORDS_AND_NAMES = ("clip", "heard", "reply", "error", "calls")
"""Keys of a turn's JSON that are never stored."""

NO_CONTROLS = r"^[^\x00-\x1f\x7f-\x9f]*$"

Emit: TypeAlias = Callable[[Event], object]

Source = Literal["microphone", "typed", "replay", "clip"]


class StoredTurn(msgspec.Struct, frozen=True, kw_only=True):
    """The times of a turn in a file. Keys that newer versions add are ignored."""

    clip: str | None = None
    brain: Annotated[str, msgspec.Meta(pattern=NO_CONTROLS)]
    outcome: Outcome
    tokens: Annotated[int, msgspec.Meta(ge=0)]
    hidden_ms: float = 0.0
    timestamps: dict[str, float] = msgspec.field(name="marks")
    network_ms: float | None = None
    drafted: Annotated[int, msgspec.Meta(ge=0)] | None = None
    path: Annotated[str, msgspec.Meta(pattern=NO_CONTROLS)] = ""

    def as_turn(self, number: int = 0, typed: bool = False) -> Turn:
        return Turn(
            number,
            self.brain,
            self.outcome,
            self.timestamps,
            self.clip,
            tokens=self.tokens,
            drafted=self.drafted,
            typed=typed,
            speculative_s=self.hidden_ms / 1000,
            network_s=None if self.network_ms is None else self.network_ms / 1000,
            path=self.path,
        )


class MetricsLine(StoredTurn, frozen=True, kw_only=True):
    at: Annotated[datetime, msgspec.Meta(tz=True)]
    session: str
    number: int
    source: Source

    @property
    def turn(self) -> Turn:
        return self.as_turn(self.number, self.source == TYPED)


@dataclass(frozen=True, slots=True)
class Past:
    lines: list[MetricsLine]
    damaged: int
    """the number of unreadable lines"""


def metrics_folder() -> Path:
    return user_folders().user_state_path / "metrics"


def read(folder: Path) -> Past:
    """Return all turns in the files of `folder`, which may be missing. Raises InputError."""
    decoder = msgspec.json.Decoder(MetricsLine)
    lines: list[MetricsLine] = []
    damaged = 0
    for file in _files(folder):
        with file_errors(file, "read"):
            content = read_file(file, KEPT_BYTES)
        for text in filter(bytes.strip, content.splitlines()):
            try:
                lines.append(decoder.decode(text))
            except (msgspec.MsgspecError, ValueError, RecursionError):
                damaged += 1
    return Past(sorted(lines, key=lambda line: line.at), damaged)


def _file(folder: Path, at: datetime) -> Path:
    return folder / f"{at:%Y-%m-%d}.jsonl"


def _files(folder: Path) -> list[Path]:
    """Return the metrics files, oldest first."""
    return sorted(folder.glob("*.jsonl"))


def _delete_oldest(folder: Path) -> None:
    """Delete the oldest files beyond KEPT_BYTES, but not today's, which sessions write to."""
    today, size = _file(folder, datetime.now(UTC)), DAY_BYTES
    for file in reversed(_files(folder)):
        if file == today:
            continue
        with suppress(OSError):  # another session may delete it at the same time
            size += file.stat().st_size
            if size > KEPT_BYTES:
                file.unlink()


class MetricsWriter:
    """Appends each finished turn to today's file in `folder`, on its own thread.

    Does nothing without a folder. A turn that cannot be written is dropped, because no failure here
    may disturb the conversation.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._session = uuid.uuid4().hex[:12]
        self._started: TurnStarted | None = None
        self._finished = SimpleQueue[tuple[Turn, TurnStarted | None, datetime] | None]()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def tee(self, emit: Emit) -> Emit:
        """Return a function that stores finished turns and calls `emit`."""
        if self._folder is None:
            return emit

        def both(event: Event) -> None:
            emit(event)
            self._note(event)

        return both

    def close(self) -> None:
        """Write the queue and end the thread; wait CLOSE_SECONDS at most. May be called twice."""
        self._closing.set()
        self._finished.put(None)
        if self._thread is not None:
            self._thread.join(CLOSE_SECONDS)

    def _note(self, event: Event) -> None:
        """Queue a finished turn. Runs on the emitting thread, usually the engine's."""
        match event:
            case TurnStarted():
                self._started = event
            case TurnFinished(turn) if turn.paced:
                begun = self._started
                started = begun if begun and begun.turn == turn.number else None
                self._finished.put((turn, started, datetime.now(UTC)))
                if self._thread is None:
                    self._thread = threading.Thread(
                        target=self._write, name="voxtui-metrics", daemon=True
                    )
                    self._thread.start()
            case _:
                pass

    def _write(self) -> None:
        assert self._folder is not None
        _delete_oldest(self._folder)
        while (finished := self._finished.get()) is not None:
            try:
                file = _file(self._folder, finished[-1])
                append_line(file, self._encoded(*finished), most=DAY_BYTES)
            except OSError as error:
                _log.info("the metrics file cannot be written: %s", error)

    def _encoded(self, turn: Turn, started: TurnStarted | None, at: datetime) -> bytes:
        source = MICROPHONE
        if started is not None:
            source = started.source if started.source in OWN_SOURCES else "clip"
            if started.timestamps.at(Milestone.FIRST_SHOWN) is None:  # the screen may still add it
                self._closing.wait(LATE_SECONDS)
            turn = replace(turn, timestamps=started.timestamps.since_release())
        own = {key: value for key, value in turn.as_json().items() if key not in WORDS_AND_NAMES}
        about = {"at": at, "session": self._session, "number": turn.number, "source": source}
        return msgspec.json.encode(about | own) + b"\n"


@contextmanager
def metrics_writer(enabled: bool) -> Generator[MetricsWriter]:
    log = MetricsWriter(metrics_folder() if enabled else None)
    try:
        yield log
    finally:
        log.close()
