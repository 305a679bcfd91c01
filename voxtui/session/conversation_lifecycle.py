"""Store the present conversation, and replace it by a new or a stored one."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator

from voxtui.dialogue.engine_commands import NewConversation, RecallConversation
from voxtui.dialogue.protocols import Past
from voxtui.session.user_session import NotAllowed, UserSession
from voxtui.storage.conversation_writer import ConversationWriter, StoredConversation
from voxtui.storage.saved_session import Record, SessionTurn


class Conversation:
    """Begins, stores and resumes conversations. Used on the front end's thread."""

    def __init__(self, session: UserSession, record: Record, log: ConversationWriter) -> None:
        self._session = session
        self._record = record
        self._log = log
        self._past_numbers = itertools.count(-1, -1)
        """the numbers for turns of stored conversations"""
        self._has_begun = True
        """whether a turn began in the present conversation; True at the start"""
        self._left = deque[StoredConversation]()
        """the previous conversations, of which the engine may still report turns"""
        self._before: StoredConversation | None = None
        self._turns_before = 0
        """the newest turn of this session before a conversation was resumed"""

    @property
    def turns(self) -> Iterator[tuple[int, SessionTurn]]:
        """The turns of this conversation in this session, newest first."""
        turns = reversed(self._record.turns.items())
        return ((number, turn) for number, turn in turns if number > self._turns_before)

    @property
    def earlier_words(self) -> str:
        """The user's newest words in a resumed conversation; empty if there are none."""
        past = reversed(self._session.engine.past)
        return next((turn.user_text for turn in past if not turn.attached), "")

    def note_turn(self) -> None:
        self._has_begun = True
        self._left.clear()

    def store(self) -> None:
        """Store the conversation as it is now, if storing is on."""
        if not self._left:
            self._store(self._log.current, self._session.engine.past)

    def store_left(self, past: Past) -> None:
        """Store the conversation that the engine left, whose last answer may have been cut off."""
        if self._left:
            self._store(self._left.popleft(), past)

    def store_rest(self) -> None:
        """Store the end, once the engine is closed: it may not have taken a NewConversation."""
        past = self._session.engine.past
        cut_off = self._left and any(turn.number > 0 for turn in past)
        self._store(self._left[0] if cut_off else self._log.current, past)

    def _store(self, conversation: StoredConversation, past: Past) -> None:
        turns = self._record.turns.copy().items()
        answered_by = {n: turn.result.brain if turn.result else "" for n, turn in turns}
        self._log.store(conversation, past, answered_by)

    def begin_new(self) -> None:
        self.store()
        self._left.append(self._log.current)
        self._session.post(NewConversation())
        if self._has_begun:  # a second new conversation leaves an empty one
            self._before = self._log.current
        self._log.current = StoredConversation()
        self._has_begun = False

    def undo(self) -> None:
        """Bring back the previous conversation. Raises NotAllowed once the new one has a turn."""
        if self._has_begun:
            raise NotAllowed("A new conversation can be undone only until its first turn.")
        self._has_begun = True
        self._session.post(RecallConversation())
        if self._before is not None:
            self._log.current = self._before

    def read(self, conversation: int | None = None) -> tuple[Past, StoredConversation]:
        """Read a stored conversation (None: the newest), which may take seconds. Any thread.

        Raises InputError, and NotAllowed if none is stored.
        """
        if conversation is None:
            newest = self._log.conversations.newest(most=1)
            if not newest:
                nothing = "No conversation is stored yet, so a new one begins."
                raise NotAllowed(nothing, "information")
            conversation = newest[0].id
        return self._log.read(conversation, self._past_numbers)

    def resume(self, past: Past, stored: StoredConversation) -> None:
        """Replace the present conversation by one from `read`, to which new turns are added."""
        self.store()
        self._left.append(self._log.current)
        self._log.current = stored
        self._session.post(NewConversation(past))
        self._has_begun = True
        self._turns_before = max(self._record.turns, default=0)
