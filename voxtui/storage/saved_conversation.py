"""Keep the conversation in a file, so that it goes on after a restart (`session.keep`)."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

import msgspec

from voxtui.dialogue.data import Token
from voxtui.dialogue.protocols import Past, PastTurn
from voxtui.errors import strip_control_characters
from voxtui.settings.paths import user_folders
from voxtui.storage.files import read_file, write_private

if TYPE_CHECKING:
    from filelock import BaseFileLock

LARGEST = 4 << 20
"""Bytes. A history of 32,000 tokens and an attached text have less than 1 MB."""


class StoredTurn(msgspec.Struct, frozen=True):
    """A turn, or an attached text, as it stands in the file."""

    you: str
    vox: str
    clock: str = ""
    attached: bool = msgspec.field(default=False, name="given")


def conversation_file() -> Path:
    return user_folders().user_data_path / "conversation.json"


class SavedConversation:
    """Reads the conversation of the last voxtui, and writes that of this one.

    It does so between `begin` and `close` or `delete`. A thread writes, so `store` returns at once.
    `tell` gets a sentence on each failure, from any thread.
    """

    def __init__(self, file: Path, tell: Callable[[str], object]) -> None:
        self.file = file
        self._tell = tell
        self._lock: BaseFileLock | None = None
        self._states: SimpleQueue[Past | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    @property
    def is_open(self) -> bool:
        return self._thread is not None

    def begin(self) -> Past:
        """Return the turns in the file, and keep what `store` gets from now on.

        Keeps nothing if the file belongs to another running voxtui, or cannot be used.
        """
        # Imported here, because the first frame of the screen would wait for it.
        from filelock import FileLock, Timeout

        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self._lock = FileLock(f"{self.file}.lock", timeout=0)
            self._lock.acquire()
        except Timeout:
            self._tell("This conversation is not kept, because another voxtui keeps its own.")
            return ()
        except OSError as error:
            self._complain(error)
            return ()
        self._thread = threading.Thread(target=self._write, name="voxtui-kept", daemon=True)
        self._thread.start()
        try:
            exchanges = msgspec.json.decode(read_file(self.file, LARGEST), type=list[StoredTurn])
        except FileNotFoundError:
            return ()
        except OSError as error:
            self._complain(error)
            return ()
        except (msgspec.MsgspecError, UnicodeDecodeError):
            aside = self.file.with_suffix(".damaged")
            with suppress(OSError):
                self.file.replace(aside)
            self._tell(f"{self.file} is no conversation that voxtui wrote. It is now {aside.name}.")
            return ()
        return [_as_turn(exchange) for exchange in exchanges]

    def store(self, past: Past) -> None:
        """Write `past` in place of what the file holds; an empty one deletes the file."""
        if self.is_open:
            self._states.put(past)

    def delete(self, seconds: float) -> None:
        """Delete the file, for `seconds` at most, and keep nothing more."""
        self.store(())
        self.close(seconds)

    def close(self, seconds: float | None = None) -> None:
        if self._thread is not None:
            self._states.put(None)
            self._thread.join(seconds)
            self._thread = None
            if self._lock is not None:
                self._lock.release()

    def _write(self) -> None:
        complained = False
        while (past := self._states.get()) is not None:
            try:
                if past:
                    write_private(self.file, msgspec.json.encode([_as_exchange(p) for p in past]))
                else:
                    self.file.unlink(missing_ok=True)
            except OSError as error:
                if not complained:
                    self._complain(error)
                complained = True

    def _complain(self, error: OSError) -> None:
        self._tell(f"This conversation is not kept: {self.file}: {error.strerror or error}.")


def _as_exchange(turn: PastTurn) -> StoredTurn:
    return StoredTurn(turn.user_text, turn.reply_text, turn.clock, turn.attached)


def _as_turn(exchange: StoredTurn) -> PastTurn:
    """Return the turn without a number, because this voxtui counts its own turns from 1."""
    you, vox = strip_control_characters(exchange.you), strip_control_characters(exchange.vox)
    reply = tuple(Token(word) for word in re.findall(r"\s*\S+", vox))
    return PastTurn(you, you, reply, attached=exchange.attached, clock=exchange.clock)
