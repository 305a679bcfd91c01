"""The stored conversations: their words, times and which brain or skill answered.

They are in one SQLite file with a full-text index. It uses a rollback journal instead of a
write-ahead log, so that no deleted text stays in a second file.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated

import msgspec

from voxtui.errors import InputError, strip_control_characters
from voxtui.settings.files import file_errors, open_regular, read_file, write_file
from voxtui.settings.paths import user_folders

VERSION = 1
"""The `user_version` of the file. A file of a newer voxtui is not changed."""

BUSY_SECONDS = 5.0
"""Maximum wait while another voxtui writes."""

TITLE_CHARACTERS = 60

UNDO_SECONDS = 3600.0
"""Time in which a deleted conversation can be restored. Later the next start erases it."""

SPAN = 1 << 20
"""Size of each conversation's range of exchange ids: those of conversation n begin at n * SPAN. A
search thus reads only the index, and not each exchange that contains the words."""

OWN = f"id >= ?1 * {SPAN} AND id < (?1 + 1) * {SPAN}"
"""The SQL condition for the exchanges of conversation ?1."""

SCHEMA = """
CREATE TABLE conversation (
    id INTEGER PRIMARY KEY AUTOINCREMENT,  -- never used again, because another voxtui may know it
    title TEXT NOT NULL, named INTEGER NOT NULL DEFAULT 0,
    began REAL NOT NULL, changed REAL NOT NULL, turns INTEGER NOT NULL DEFAULT 0, deleted REAL);
CREATE INDEX newest ON conversation (changed);
CREATE TABLE exchange (
    id INTEGER PRIMARY KEY, at REAL NOT NULL,
    you TEXT NOT NULL, vox TEXT NOT NULL, answered_by TEXT NOT NULL, clock TEXT NOT NULL,
    attached INTEGER NOT NULL);
CREATE VIRTUAL TABLE words USING fts5 (
    you, vox, content='exchange', content_rowid='id', prefix='1 2 3',
    tokenize='unicode61 remove_diacritics 2');
CREATE TRIGGER added AFTER INSERT ON exchange BEGIN
    INSERT INTO words (rowid, you, vox) VALUES (new.id, new.you, new.vox); END;
CREATE TRIGGER removed AFTER DELETE ON exchange BEGIN
    INSERT INTO words (words, rowid, you, vox) VALUES ('delete', old.id, old.you, old.vox); END;
CREATE TRIGGER changed AFTER UPDATE OF you, vox ON exchange BEGIN
    INSERT INTO words (words, rowid, you, vox) VALUES ('delete', old.id, old.you, old.vox);
    INSERT INTO words (rowid, you, vox) VALUES (new.id, new.you, new.vox); END;
"""

LISTED = "`voxtui history` lists them."

REASONS = {
    "SQLITE_FULL": "the disk is full. Free some space.",
    "SQLITE_BUSY": "another program is using it. Try again.",
    "SQLITE_READONLY": "it cannot be written there.",
    "SQLITE_CANTOPEN": "it cannot be opened or written there.",
    "SQLITE_PERM": "it cannot be opened.",
    "SQLITE_AUTH": "it cannot be opened.",
    "SQLITE_NOTADB": "it is no history that voxtui wrote. Move it away, and a new one begins.",
    "SQLITE_CORRUPT": "it is damaged. Move it away, and a new one begins.",
}
"""Explanations of SQLite errors, by the beginning of their names."""


class Exchange(msgspec.Struct, frozen=True):
    """The user's words, or an attached text, and the answer."""

    you: str
    vox: str
    clock: str = ""
    """the line with the time that the brain read"""
    attached: bool = msgspec.field(default=False, name="given")
    at: float = 0.0
    """seconds since 1970"""
    answered_by: str = ""


_Time = Annotated[float, msgspec.Meta(ge=0, lt=250e9)]
"""Seconds since 1970, before the year 9900."""

_SummaryRow = tuple[int, str, _Time, int]
_ExchangeRow = tuple[int, str, str, str, int, _Time, str]
"""What SQLite, which keeps any value in any column, must have read from a file of ours."""


@dataclass(frozen=True, slots=True)
class Summary:
    """A stored conversation, without its words."""

    id: int
    title: str
    changed: float
    """the Unix time of the last exchange"""
    turns: int

    def when(self, now: datetime) -> str:
        """Return the time, shorter the nearer it is: 14:05, Mon 14:05, 3 Nov, 2025-11-03."""
        then = datetime.fromtimestamp(self.changed)
        days = (now.date() - then.date()).days
        if days == 0:
            return f"today {then:%H:%M}"
        if days == 1:
            return f"yesterday {then:%H:%M}"
        if 1 < days < 7:
            return f"{then:%A %H:%M}"
        return f"{then.day} {then:%B}" if then.year == now.year else f"{then:%Y-%m-%d}"

    @property
    def length(self) -> str:
        return f"{self.turns} turn{'s'[: self.turns != 1]}"


def history_file() -> Path:
    return user_folders().user_data_path / "history.db"


class Conversations:
    """The file of the stored conversations. Every method may run on any thread.

    Each method opens the file anew, which takes less than a millisecond, and raises InputError.
    """

    def __init__(self, file: Path) -> None:
        self.file = file

    def newest(self, words: str = "", most: int = -1) -> list[Summary]:
        """Return up to `most` newest conversations in which each of `words` begins a word."""
        if self._is_empty:
            return []
        words = strip_control_characters(words)
        conditions, arguments = ["deleted IS NULL"], list[object]()
        for word in words.split():
            conditions.append(
                "(title LIKE ? ESCAPE '\\'"
                " OR id IN (SELECT rowid >> 20 FROM words WHERE words MATCH ?))"
            )
            escaped = word.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
            arguments += [f"%{escaped}%", '"{}"*'.format(word.replace('"', '""'))]
        found = (
            f"SELECT id, title, changed, turns FROM conversation WHERE {' AND '.join(conditions)}"
            " ORDER BY changed DESC, id DESC LIMIT ?"
        )
        with self._opened() as database:
            rows = database.execute(found, (*arguments, most)).fetchall()
            return [Summary(*row) for row in msgspec.convert(rows, list[_SummaryRow])]

    def count(self) -> int:
        if self._is_empty:
            return 0
        with self._opened() as database:
            query = "SELECT COUNT(*) FROM conversation WHERE deleted IS NULL"
            return database.execute(query).fetchone()[0]

    def read(self, conversation: int) -> Mapping[int, Exchange]:
        if self._is_empty:
            raise InputError(f"There is no conversation {conversation}.", LISTED)
        with self._opened() as database:
            query = (
                "SELECT id, you, vox, clock, attached, at, answered_by FROM exchange"
                f" WHERE {OWN} AND EXISTS (SELECT 1 FROM conversation WHERE id = ?1"
                " AND deleted IS NULL) ORDER BY id"
            )
            found = database.execute(query, (conversation,)).fetchall()
            rows = msgspec.convert(found, list[_ExchangeRow])
        if not rows:
            raise InputError(f"There is no conversation {conversation}.", LISTED)
        return {
            number: Exchange(
                strip_control_characters(you), strip_control_characters(vox), clock, bool(given),
                at, answered_by,
            )
            for number, you, vox, clock, given, at, answered_by in rows
        }  # fmt: skip

    def store(
        self,
        conversation: int | None,
        added: Sequence[Exchange],
        changed: Mapping[int, Exchange],
        removed: Sequence[int],
    ) -> tuple[int, Sequence[int]]:
        """Add, change and remove exchanges of a conversation atomically; None begins one.

        Returns its number and those of the added exchanges. If the conversation was deleted
        meanwhile, a new one begins with `added`.
        """
        with self._opened(writes=True) as database:
            mark = (
                "UPDATE conversation SET changed = MAX(changed, ?) WHERE id = ? AND deleted IS NULL"
            )
            latest = max((exchange.at for exchange in added), default=0.0)
            if conversation is None or not database.execute(mark, (latest, conversation)).rowcount:
                if not added:
                    return conversation or 0, ()
                begin = "INSERT INTO conversation (title, began, changed) VALUES ('', ?, ?)"
                conversation = database.execute(begin, (added[0].at, latest)).lastrowid
            assert conversation is not None
            numbers = [_add(database, conversation, exchange) for exchange in added]
            change = "UPDATE exchange SET you = ?, vox = ? WHERE id = ?"
            rows = [(exchange.you, exchange.vox, number) for number, exchange in changed.items()]
            database.executemany(change, rows)
            remove = "DELETE FROM exchange WHERE id = ?"
            database.executemany(remove, [(number,) for number in removed])
            _describe(database, conversation)
            return conversation, numbers

    def rename(self, conversation: int, title: str) -> None:
        title = strip_control_characters(" ".join(title.split()))
        with self._opened(writes=True) as database:
            rename = "UPDATE conversation SET title = ?, named = 1 WHERE id = ?"
            database.execute(rename, (title, conversation))

    def delete(self, conversation: int, now: float) -> None:
        """Hide a conversation. `restore` brings it back until `erase_deleted`."""
        hide = "UPDATE conversation SET deleted = ? WHERE id = ? AND deleted IS NULL"
        if not self._is_empty:
            with self._opened(writes=True) as database:
                if database.execute(hide, (now, conversation)).rowcount:
                    return
        raise InputError(f"There is no conversation {conversation}.", LISTED)

    def restore(self, conversation: int) -> None:
        with self._opened(writes=True) as database:
            show = "UPDATE conversation SET deleted = NULL WHERE id = ?"
            database.execute(show, (conversation,))

    def erase_deleted(self, before: float) -> None:
        """Overwrite in the file what was deleted before this time."""
        if self._is_empty:
            return
        deleted = "SELECT id FROM conversation WHERE deleted <= ?"
        with self._opened() as database:
            if database.execute(deleted, (before,)).fetchone() is None:
                return
        with self._opened(writes=True) as database:
            for (conversation,) in database.execute(deleted, (before,)).fetchall():
                database.execute(f"DELETE FROM exchange WHERE {OWN}", (conversation,))
            database.execute("DELETE FROM conversation WHERE deleted <= ?", (before,))
            # Else the index holds the words until it happens to merge its parts.
            database.execute("INSERT INTO words (words) VALUES ('optimize')")

    def forget_all(self) -> None:
        """Erase every conversation, also that of voxtui 0.1.0, and overwrite the words."""
        try:
            self._old_file.unlink(missing_ok=True)
        except OSError as error:
            raise InputError(f"{self._old_file}: {error.strerror or error}.") from error
        if self._is_empty:
            return
        with self._opened(writes=True) as database:
            database.execute("DELETE FROM exchange")
            database.execute("DELETE FROM conversation")
            database.execute("INSERT INTO words (words) VALUES ('rebuild')")
        with self._opened() as database:
            database.execute("VACUUM")

    @property
    def _old_file(self) -> Path:
        """The path where voxtui 0.1.0 stored its conversation."""
        return self.file.with_name("conversation.json")

    @property
    def _is_empty(self) -> bool:
        """True before the first exchange is written, also while another thread creates the file.

        Imports what voxtui 0.1.0 stored.
        """
        try:
            if self.file.stat().st_size:
                return False
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as error:
            raise InputError(f"{self.file}: {error.strerror or error}.") from error
        if not self._old_file.exists():
            return True
        with self._opened(writes=True):
            return False

    @contextmanager
    def _opened(self, writes: bool = False) -> Generator[sqlite3.Connection]:
        """Open the file. For `writes`, create it if needed, and commit at the end or roll back."""
        try:
            if writes:
                self.file.parent.mkdir(parents=True, exist_ok=True)
                try:
                    os.close(open_regular(self.file, os.O_RDWR | os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    # Not opened, because closing it drops the locks that this process has on it.
                    if not stat.S_ISREG(self.file.lstat().st_mode):
                        raise OSError(errno.EINVAL, "It is not a regular file") from None
            # SQLite opens a file that it may only read for reading, and rolls back after a crash.
            address = f"{self.file.absolute().as_uri()}?mode=rw"
            database = sqlite3.connect(
                address, BUSY_SECONDS, isolation_level=None, check_same_thread=False, uri=True
            )
            with closing(database):
                database.execute("PRAGMA secure_delete = ON")
                if writes:
                    database.execute("BEGIN IMMEDIATE")
                imported = self._check_version(database, writes)
                yield database
                if writes:
                    database.execute("COMMIT")
                if imported:
                    self._old_file.unlink(missing_ok=True)
        except sqlite3.Error as error:
            raise InputError(f"{self.file}: {_reason(error)}") from error
        except (UnicodeDecodeError, msgspec.ValidationError) as error:
            raise InputError(f"{self.file}: {REASONS['SQLITE_CORRUPT']}") from error
        except OverflowError as error:
            raise InputError("There is no such conversation.", LISTED) from error
        except OSError as error:
            raise InputError(f"{self.file}: {error.strerror or error}.") from error

    def _check_version(self, database: sqlite3.Connection, writes: bool) -> bool:
        """Create the tables of a new file. Return True if a conversation was imported."""
        version = database.execute("PRAGMA user_version").fetchone()[0]
        if version > VERSION:
            raise InputError(
                f"{self.file}: a newer voxtui wrote it, so it was not changed.", "Update voxtui."
            )
        if version == 0 and writes:
            # Not `executescript`, which commits first.
            statement = ""
            for line in SCHEMA.splitlines():
                statement += f"{line}\n"
                if sqlite3.complete_statement(statement):
                    database.execute(statement)
                    statement = ""
            database.execute(f"PRAGMA user_version = {VERSION}")
            return self._take_over(database)
        return False

    def _take_over(self, database: sqlite3.Connection) -> bool:
        """Import the conversation that voxtui 0.1.0 stored, if it did."""
        old = self._old_file
        with suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError):
            exchanges = msgspec.json.decode(read_file(old, 4 << 20), type=list[Exchange])
            at = old.stat().st_mtime
            begin = "INSERT INTO conversation (title, began, changed) VALUES ('', ?, ?)"
            conversation = database.execute(begin, (at, at)).lastrowid
            assert conversation is not None
            for exchange in exchanges:
                _add(database, conversation, msgspec.structs.replace(exchange, at=at))
            _describe(database, conversation)
            return True
        return False


def as_markdown(summary: Summary, exchanges: Sequence[Exchange]) -> str:
    lines = [f"# {summary.title}"]
    for exchange in exchanges:
        at = f"{datetime.fromtimestamp(exchange.at):%Y-%m-%d %H:%M}"
        by = f", {exchange.answered_by}" if exchange.answered_by else ""
        lines += [f"\n**You** ({at}): {exchange.you}\n", f"**Vox**{by}: {exchange.vox.strip()}"]
    return "\n".join(lines) + "\n"


def export(conversations: Conversations, summary: Summary, folder: Path) -> Path:
    text = as_markdown(summary, [*conversations.read(summary.id).values()])
    place = folder / f"conversation-{summary.id}.md"
    with file_errors(place, "written"):
        write_file(place, text.encode())
    return place


def _add(database: sqlite3.Connection, conversation: int, exchange: Exchange) -> int:
    newest = f"SELECT COALESCE(MAX(id) + 1, ?1 * {SPAN}) FROM exchange WHERE {OWN}"
    number = database.execute(newest, (conversation,)).fetchone()[0]
    database.execute(
        "INSERT INTO exchange (id, at, you, vox, answered_by, clock, attached)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (number, exchange.at, exchange.you, exchange.vox, exchange.answered_by,
         exchange.clock, exchange.attached),
    )  # fmt: skip
    return number


def _describe(database: sqlite3.Connection, conversation: int) -> None:
    """Set the number of turns and, unless the user did, the title. Delete an empty conversation."""
    own = f"FROM exchange WHERE {OWN} AND NOT attached"
    query = f"SELECT CAST(you AS TEXT) {own} ORDER BY id LIMIT 1"
    first = database.execute(query, (conversation,)).fetchone()
    database.execute(
        f"UPDATE conversation SET turns = (SELECT COUNT(*) {own}),"
        " title = CASE named WHEN 1 THEN title ELSE ?2 END WHERE id = ?1",
        (conversation, _title(first[0]) if first else "A text"),
    )
    remains = f"SELECT 1 FROM exchange WHERE {OWN}"
    if database.execute(remains, (conversation,)).fetchone() is None:
        database.execute("DELETE FROM conversation WHERE id = ?", (conversation,))


def _title(words: str) -> str:
    line = strip_control_characters(" ".join(words[:1000].split()))
    if len(line) <= TITLE_CHARACTERS:
        return line
    begin = line[:TITLE_CHARACTERS]
    return f"{begin.rpartition(' ')[0] or begin}…"


def _reason(error: sqlite3.Error) -> str:
    name = getattr(error, "sqlite_errorname", "") or ""
    if name.startswith("SQLITE_IOERR"):
        return "it could not be read or written; the disk may be full."
    known = (reason for begin, reason in REASONS.items() if name.startswith(begin))
    return next(known, f"{error}.")
