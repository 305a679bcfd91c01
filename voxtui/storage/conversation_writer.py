"""Store the present conversation, on a thread of its own (`session.keep`)."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import TypeAlias

from voxtui.dialogue.data import Token
from voxtui.dialogue.protocols import Past, PastTurn
from voxtui.errors import InputError
from voxtui.storage.conversation_database import UNDO_SECONDS, Conversations, Exchange

_Rows: TypeAlias = dict[int | str, tuple[int | None, Exchange]]
"""Exchanges by the key of their turn, with their numbers in the file; None: deleted there."""


@dataclass(slots=True)
class StoredConversation:
    """The stored part of a conversation. Only the writer's thread changes it."""

    number: int | None = None
    rows: _Rows = field(default_factory=_Rows)


class ConversationWriter:
    """Writes the conversation after each turn, between `begin` and `close`.

    `tell` receives a sentence about the first of several failures, on any thread.
    """

    def __init__(self, conversations: Conversations, tell: Callable[[str], object]) -> None:
        self.conversations = conversations
        self._tell = tell
        self.current = StoredConversation()
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

    def read(self, conversation: int, numbers: Iterator[int]) -> tuple[Past, StoredConversation]:
        """Read a conversation. Its turns get the next `numbers`. Any thread. Raises InputError."""
        stored = self.conversations.read(conversation)
        turns = {row: _as_turn(exchange, next(numbers)) for row, exchange in stored.items()}
        rows: _Rows = {_key(turn): (row, stored[row]) for row, turn in turns.items()}
        return tuple(turns.values()), StoredConversation(conversation, rows)

    def store(
        self, conversation: StoredConversation, past: Past, answered_by: Mapping[int, str]
    ) -> None:
        """Store what is new in the history `past`. Returns at once.

        `answered_by` has the brain's name of each turn of this session that was not replaced. The
        history drops old turns; the file does not.
        """
        if self.is_open:
            self._queue.put((conversation, past, answered_by))

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
        rows, now = current.rows.copy(), time.time()
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
        changed: dict[int, Exchange] = {}
        removed: list[int] = []
        for key, (number, before) in current.rows.items():
            if exchange := exchanges.get(key):
                rows[key] = number, exchange
                if number is not None and (exchange.you, exchange.vox) != (before.you, before.vox):
                    changed[number] = exchange
            elif isinstance(key, int) and key > 0 and key not in answered_by:  # it was replaced
                del rows[key]
                if number is not None:
                    removed.append(number)
        if not (new or changed or removed):
            return False
        number, added = self.conversations.store(
            current.number, tuple(new.values()), changed, removed
        )
        if current.number not in (None, number):  # it was deleted, so its words stay deleted
            rows = {key: (None, exchange) for key, (_, exchange) in rows.items()}
        rows |= dict(zip(new, zip(added, new.values(), strict=True), strict=True))
        current.number, current.rows = number or None, rows
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
