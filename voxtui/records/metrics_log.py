"""The metrics file: the times of past turns, kept on this machine. No words, no sound, no names.

A line of JSON per turn. Several sessions may write at once; a damaged line costs that line only.
"""

from __future__ import annotations

import logging
import os
import threading
import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from queue import SimpleQueue
from typing import Literal, TypeAlias, cast

import msgspec

from voxtui.dialogue.data import MICROPHONE, OWN_SOURCES
from voxtui.dialogue.events import Event, TurnFinished, TurnStarted
from voxtui.dialogue.marks import Mark, Marks, Outcome, Turn
from voxtui.errors import InputError
from voxtui.settings.paths import user_folders

_log = logging.getLogger(__name__)

KEPT_BYTES = 2_000_000
"""A file that has grown so large becomes the older one: some 4,000 turns in each of the two."""

LOCK_SECONDS = 2.0
"""How long another session that writes is waited for."""

LATE_SECONDS = 0.5
"""How long after a turn its first painted word is waited for."""

LONGEST = 86_400.0
"""Seconds. No turn takes a day, or has a token for each of its seconds."""

UNKEPT = ("clip", "heard", "reply", "error")
"""Keys of a turn's JSON that may hold words or names."""

Emit: TypeAlias = Callable[[Event], object]

Source = Literal["microphone", "typed", "replay", "clip"]


class Line(msgspec.Struct, frozen=True):
    """A turn as the file keeps it; keys that newer versions add are ignored."""

    at: datetime
    session: str
    source: Source
    number: int
    brain: str
    outcome: Outcome
    tokens: int
    hidden_ms: float
    marks: dict[str, float]
    network_ms: float | None = None

    @property
    def turn(self) -> Turn:
        return Turn(
            self.number,
            self.brain,
            self.outcome,
            self.marks,
            tokens=self.tokens,
            speculative_s=self.hidden_ms / 1000,
            network_s=None if self.network_ms is None else self.network_ms / 1000,
        )


@dataclass(frozen=True, slots=True)
class Past:
    """What the file remembers, oldest first."""

    lines: list[Line]
    damaged: int
    """lines that could not be read"""


def metrics_file() -> Path:
    """Where the times of turns are kept. It need not exist yet."""
    return user_folders().user_state_path / "metrics.jsonl"


def read(path: Path) -> Past:
    """Every turn in the older file and in the file at `path`; a missing file holds none.

    Raises InputError.
    """
    lines: list[Line] = []
    damaged = 0
    for file in (_older(path), path):
        for text in _lines(file):
            try:
                line = msgspec.json.decode(text, type=Line)
            except (msgspec.MsgspecError, ValueError):
                damaged += 1
                continue
            if _is_possible(line):
                lines.append(line)
            else:
                damaged += 1
    return Past(sorted(lines, key=lambda line: line.at), damaged)


def _is_possible(line: Line) -> bool:
    try:
        line.at.astimezone()
    except OverflowError:  # the first or the last day there is
        return False
    times = *line.marks.values(), line.hidden_ms / 1000, (line.network_ms or 0) / 1000
    return (
        line.at.tzinfo is not None
        and 0 <= line.tokens < LONGEST
        and line.brain.isprintable()
        and all(abs(time) < LONGEST for time in times)
    )


def _lines(file: Path) -> Iterator[bytes]:
    try:
        with file.open("rb") as opened:
            yield from (line for line in opened if line.strip())
    except FileNotFoundError:
        return
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror}.") from error


def _older(path: Path) -> Path:
    return path.with_suffix(".older.jsonl")


@dataclass(frozen=True, slots=True)
class _Finished:
    turn: Turn
    source: Source
    marks: Marks | None
    """still being written to"""
    at: datetime


class MetricsLog:
    """Appends each finished turn to a file, on a thread of its own. `path` None: keeps nothing.

    What cannot be written is dropped: no failure here ever reaches the conversation.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._session = uuid.uuid4().hex[:12]
        self._started: TurnStarted | None = None
        self._finished: SimpleQueue[_Finished | None] = SimpleQueue()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def tee(self, emit: Emit) -> Emit:
        """`emit`, which is noted down as well."""
        if self._path is None:
            return emit

        def both(event: Event) -> None:
            emit(event)
            self._note(event)

        return both

    def close(self) -> None:
        """Write what is left, and join the thread. May be called twice."""
        self._closing.set()
        self._finished.put(None)
        if self._thread is not None:
            self._thread.join()

    def _note(self, event: Event) -> None:
        """On the engine's thread, mostly: takes note and returns."""
        match event:
            case TurnStarted():
                self._started = event
            case TurnFinished(turn) if turn.paced:
                started = self._started
                if started is None or started.turn != turn.number:
                    started = None
                source = _kind(started.source if started else MICROPHONE)
                marks = started.marks if started else None
                self._finished.put(_Finished(turn, source, marks, datetime.now(UTC)))
                if self._thread is None:
                    self._thread = threading.Thread(
                        target=self._write, name="voxtui-metrics", daemon=True
                    )
                    self._thread.start()
            case _:
                pass

    # The writer's thread.

    def _write(self) -> None:
        while (finished := self._finished.get()) is not None:
            try:
                self._append(self._encoded(finished))
            except (OSError, TimeoutError) as error:
                _log.info("the metrics file cannot be written: %s", error)

    def _encoded(self, finished: _Finished) -> bytes:
        turn, marks = finished.turn, finished.marks
        if marks is not None:
            if marks.at(Mark.FIRST_SHOWN) is None:
                self._closing.wait(LATE_SECONDS)
            turn = replace(turn, marks=marks.since_release())
        kept = {key: value for key, value in turn.as_json().items() if key not in UNKEPT}
        said = {
            "at": finished.at,
            "session": self._session,
            "number": turn.number,
            "source": finished.source,
        }
        return msgspec.json.encode(said | kept) + b"\n"

    def _append(self, line: bytes) -> None:
        from filelock import FileLock

        path = self._path
        assert path is not None
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_suffix(".lock"), timeout=LOCK_SECONDS):
            if path.exists() and path.stat().st_size + len(line) > KEPT_BYTES:
                os.replace(path, _older(path))
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                os.write(file, line if _ends_a_line(file) else b"\n" + line)
            finally:
                os.close(file)


@contextmanager
def metrics_log(enabled: bool) -> Generator[MetricsLog]:
    """Open the log of this session, and close it at the end."""
    log = MetricsLog(metrics_file() if enabled else None)
    try:
        yield log
    finally:
        log.close()


def _kind(source: str) -> Source:
    return cast("Source", source) if source in OWN_SOURCES else "clip"


def _ends_a_line(file: int) -> bool:
    """Whether nothing, or a whole line, stands at the end: a line may have been cut by a crash."""
    size = os.fstat(file).st_size
    return not size or os.pread(file, 1, size - 1) == b"\n"
