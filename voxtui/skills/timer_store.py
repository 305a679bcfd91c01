"""The files of timers and reminders, which all processes of this user share."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias, TypeVar

import msgspec

from voxtui.dialogue.events import Countdown
from voxtui.errors import InputError
from voxtui.settings.files import file_errors, read_file, write_file

if TYPE_CHECKING:
    from filelock import BaseFileLock

LARGEST_FILE = 1 << 20
"""Maximum bytes of a file of timers or reminders."""

MOST_ENTRIES = 100
"""Maximum number of timers, and of reminders."""

LONGEST_LENGTH = 100 * 86_400
"""Maximum seconds of a timer. A file that somebody edited may hold any number."""

EARLIEST_YEAR, LATEST_YEAR = 1971, 9998
"""Range of years in which every moment has a local time in each time zone."""

POLL_SECONDS = 0.005
"""Interval of attempts at a lock, which another process holds only while it writes a file."""

_SHOWN = "^[^\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]*$"
"""Matches names without control characters and characters that reorder text."""

_Time = Annotated[datetime, msgspec.Meta(tz=True)]
_Name = Annotated[str, msgspec.Meta(max_length=200, pattern=_SHOWN)]


class Timer(msgspec.Struct, frozen=True, omit_defaults=True):
    """A timer, running or paused."""

    seconds: float
    """the length of the timer when it was set, in seconds"""
    due: _Time | None = msgspec.field(name="ends", default=None)
    """the time at which it rings, or None while it is paused"""
    left: float = 0.0
    """the seconds left while it is paused"""
    name: _Name = ""
    missed: bool = False
    """whether it was due and nobody stopped it"""

    def __post_init__(self) -> None:
        if not 0 < self.seconds <= LONGEST_LENGTH or not 0 <= self.left <= LONGEST_LENGTH:
            raise ValueError(f"a timer of {self.seconds:g} s with {self.left:g} s left")
        if self.due is not None and not EARLIEST_YEAR <= self.due.year <= LATEST_YEAR:
            raise ValueError(f"a timer that ends in the year {self.due.year}")

    @property
    def title(self) -> str:
        return self.name or "timer"

    def remaining(self, now: datetime) -> float:
        """Return the seconds left at `now` (aware)."""
        return self.left if self.due is None else (self.due - now).total_seconds()


class Reminder(msgspec.Struct, frozen=True, omit_defaults=True):
    """A reminder, or an alarm. `about` in the file is its name."""

    due: _Time = msgspec.field(name="at")
    name: _Name = msgspec.field(name="about", default="")
    missed: bool = False
    unnamed: bool = False
    """whether it is a reminder without a name; an alarm has neither"""

    def __post_init__(self) -> None:
        if not EARLIEST_YEAR <= self.due.year <= LATEST_YEAR:
            raise ValueError(f"a reminder in the year {self.due.year}")

    @property
    def title(self) -> str:
        return self.name or ("reminder" if self.unnamed else "alarm")


Entry: TypeAlias = Timer | Reminder


@dataclass(frozen=True, slots=True)
class Entries:
    all: tuple[Entry, ...] = ()

    @property
    def timers(self) -> list[Timer]:
        return [entry for entry in self.all if isinstance(entry, Timer)]

    @property
    def reminders(self) -> list[Reminder]:
        return [entry for entry in self.all if isinstance(entry, Reminder)]

    @property
    def next_due(self) -> datetime | None:
        return min((e.due for e in self.all if e.due is not None and not e.missed), default=None)

    def countdowns(self, ringing: Sequence[Entry] = ()) -> tuple[Countdown, ...]:
        """Return the countdowns of all entries, the next one first, some of them `ringing`."""
        shown = [
            Countdown(
                entry.title,
                entry.due.timestamp() if entry.due else None,
                entry.left if isinstance(entry, Timer) else 0.0,
                clock=isinstance(entry, Reminder),
                rings=entry in ringing,
                missed=entry.missed,
            )
            for entry in self.all
        ]
        return tuple(sorted(shown, key=lambda one: one.ends or float("inf")))


@dataclass(slots=True)
class Change:
    """The entries while a process changes them."""

    entries: Entries


T = TypeVar("T")


class TimerStore:
    """Reads and changes the two files of `folder`. Any thread, any process."""

    def __init__(self, folder: Path) -> None:
        self._timers, self._reminders = timers_file(folder), reminders_file(folder)
        self._folder = folder

    def read(self) -> Entries:
        """Return the entries of both files. Raises InputError."""
        timers, reminders = _read(self._timers, list[Timer]), _read(self._reminders, list[Reminder])
        return Entries((*timers, *reminders))

    @contextmanager
    def changing(self) -> Generator[Change]:
        """Yield the entries to change, and write them while others wait. Raises InputError."""
        lock = _acquire(self._folder / "timers.lock", timeout_s=-1)
        try:
            before = self.read()
            yield (change := Change(before))
            after = change.entries
            if after.timers != before.timers:
                _write(self._timers, after.timers)
            if after.reminders != before.reminders:
                _write(self._reminders, after.reminders)
        finally:
            lock.release()

    def try_to_ring(self) -> BaseFileLock | None:
        """Return the lock of the one process that rings; None if another is. Raises InputError."""
        from filelock import Timeout

        try:
            return _acquire(self._folder / "ringing.lock", timeout_s=0)
        except Timeout:
            return None


def timers_file(folder: Path) -> Path:
    return folder / "timers.json"


def reminders_file(folder: Path) -> Path:
    return folder / "reminders.json"


def _read(path: Path, kind: type[list[T]]) -> list[T]:
    with file_errors(path, "read"):
        data = read_file(path, LARGEST_FILE, missing=b"[]")
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path}: is damaged ({error}).", "Repair or delete it.") from error


def _write(path: Path, entries: object) -> None:
    data = msgspec.json.format(msgspec.json.encode(entries), indent=2) + b"\n"
    with file_errors(path, "written"):
        write_file(path, data)


def _acquire(path: Path, timeout_s: float) -> BaseFileLock:
    """Return a lock that this process holds. A negative `timeout_s` waits without limit."""
    # Imported here, because the first frame of the screen would wait for it.
    from filelock import FileLock, Timeout

    lock = FileLock(path, timeout_s, mode=0o600, thread_local=False, poll_interval=POLL_SECONDS)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        raise
    except OSError as error:
        raise InputError(f"{path}: cannot be opened: {error.strerror}.") from error
    return lock
