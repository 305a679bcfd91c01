"""Store the present conversation, on a thread of its own (`session.keep`)."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from queue import SimpleQueue

from voxtui.dialogue.data import Token
from voxtui.dialogue.protocols import Past, PastTurn
from voxtui.errors import InputError
from voxtui.storage.conversation_database import UNDO_SECONDS, Conversations, Exchange


@dataclass(frozen=True, slots=True)
class _Row:
    number: int | None
    """the number of the exchange in the file, or None if it was deleted there"""
    exchange: Exchange


@dataclass(slots=True)
class StoredConversation:
    """The stored part of a conversation. Only the writer's thread changes it."""

    number: int | None = None
    rows: dict[int | str, _Row] | None = None


class ConversationWriter:
    """Writes the conversation after each turn, between `begin` and `close`.

    `tell` receives a sentence about the first of several failures, on any thread.
    """

    def __init__(self, conversations: Conversations, tell: Callable[[str], object]) -> None:
        self.conversations = conversations
        self._tell = tell
        self.current = StoredConversation()
        """the stored part of the present conversation"""
        self._queue: SimpleQueue[tuple[StoredConversation, Past, Mapping[int, str]] | None] = (
            SimpleQueue()
        )
        self._thread: threading.Thread | None = None

    @property
    def is_open(self) -> bool:
        return self._thread is not None

    def begin(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._write, name="voxtui-history", daemon=True)
            self._thread.start()

    def resume(self, conversation: int, numbers: Iterator[int]) -> Past:
        """Continue a stored conversation. Its turns get the next `numbers`.

        Raises InputError.
        """
        stored = self.conversations.read(conversation)
        turns = {row: _as_turn(exchange, next(numbers)) for row, exchange in stored.items()}
        rows = {_key(turn): _Row(row, stored[row]) for row, turn in turns.items()}
        self.current = StoredConversation(conversation, rows)
        return tuple(turns.values())

    def store(self, past: Past, answered_by: Mapping[int, str]) -> None:
        """Store what is new in the engine's history. Returns at once.

        `answered_by` has the brain's name of each turn of this session that was not replaced. The
        history drops old turns; the file does not.
        """
        if self.is_open:
            self._queue.put((self.current, past, answered_by))

    def close(self, seconds: float | None = None) -> None:
        """Write what is queued; wait for at most `seconds`."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(seconds)
            self._thread = None

    def _write(self) -> None:
        complained = False
        try:
            self.conversations.erase_deleted(time.time() - UNDO_SECONDS)
        except InputError as error:
            complained = self._complain(error)
        while (item := self._queue.get()) is not None:
            try:
                if self._update(*item):
                    complained = False
            except InputError as error:
                complained = complained or self._complain(error)

    def _complain(self, error: InputError) -> bool:
        self._tell(f"This conversation is not stored. {error}")
        return True

    def _update(
        self, current: StoredConversation, past: Past, answered_by: Mapping[int, str]
    ) -> bool:
        """Write what is new, as for `store`. Return False if nothing is new."""
        rows = current.rows or {}
        now = time.time()
        exchanges = {
            _key(turn): Exchange(
                turn.user_text, turn.reply_text, turn.clock, turn.attached, now,
                answered_by.get(turn.number, ""),
            )
            for turn in past
        }  # fmt: skip
        if not rows and all(exchange.attached for exchange in exchanges.values()):
            return False
        new = {key: exchange for key, exchange in exchanges.items() if key not in rows}
        replaced = [
            key for key in rows
            if key not in exchanges and isinstance(key, int) and key > 0
            and key not in answered_by
        ]  # fmt: skip
        changed = {
            row.number: exchanges[key]
            for key, row in rows.items()
            if row.number is not None
            and key in exchanges
            and (exchanges[key].you, exchanges[key].vox) != (row.exchange.you, row.exchange.vox)
        }
        removed = [number for key in replaced if (number := rows[key].number) is not None]
        if not (new or changed or removed):
            return False
        number, added = self.conversations.store(
            current.number, tuple(new.values()), changed, removed
        )
        deleted = current.number not in (None, number)  # so its words stay deleted
        rows = {
            key: _Row(None if deleted else row.number, exchanges.get(key, row.exchange))
            for key, row in rows.items() if key not in replaced
        }  # fmt: skip
        fresh = (_Row(row, exchange) for row, exchange in zip(added, new.values(), strict=True))
        current.number, current.rows = number or None, rows | dict(zip(new, fresh, strict=True))
        return True


def _key(turn: PastTurn) -> int | str:
    """Return the identity of a turn of the history; an attached text has no number."""
    return turn.number or turn.user_text


def _as_turn(exchange: Exchange, number: int) -> PastTurn:
    reply = tuple(Token(word) for word in re.findall(r"\s*\S+", exchange.vox))
    return PastTurn(
        exchange.you, None if exchange.attached else exchange.you, reply,
        attached=exchange.attached, clock=exchange.clock,
        number=0 if exchange.attached else number,
    )  # fmt: skip
