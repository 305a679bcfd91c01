"""The past turns that each new turn sends to the brain."""

from __future__ import annotations

from collections.abc import Sequence

from voxtui.dialogue.data import Token, Utterance
from voxtui.dialogue.interfaces import PastTurn
from voxtui.settings.schema import HistoryConfig


class History:
    """The past turns. Beyond the latest `history.turns`, the user's audio becomes text."""

    def __init__(self, config: HistoryConfig) -> None:
        self._config = config
        self.past: tuple[PastTurn, ...] = ()
        self._last: Utterance | str = ""
        """of the last turn of `past`, which may hold only its text"""

    def add(
        self, user_input: Utterance | str, words: str | None, reply: Sequence[Token], heard: str
    ) -> None:
        """Add a turn with the tokens of `reply` that were `heard`; nothing if none was heard."""
        kept = _tokens_within(reply, len(heard))
        if not any(token.text for token in kept):
            return
        turns = [*self.past, PastTurn(user_input, words, kept)]
        older = len(turns) - self._config.turns
        turns = [_as_text(turn) if i < older else turn for i, turn in enumerate(turns)]
        while turns and sum(map(_size, turns)) > self._config.max_tokens:
            turns.pop(0)
        self.past = tuple(turns)
        self._last = user_input

    def take_back(self, utterance: Utterance) -> None:
        """Remove the last turn, if it answered this utterance."""
        if self._last is utterance:
            self.past = self.past[:-1]

    def set_words(self, utterance: Utterance, words: str) -> None:
        """Set the user's words in the last turn, if it answered this utterance."""
        if self.past and self._last is utterance:
            turn = PastTurn(self.past[-1].user_input, words, self.past[-1].reply)
            self.past = (*self.past[:-1], turn if self._config.turns else _as_text(turn))

    def forget(self) -> None:
        self.past = ()


def _tokens_within(tokens: Sequence[Token], length: int) -> tuple[Token, ...]:
    """Return the whole tokens within the first `length` characters."""
    total = 0
    for count, token in enumerate(tokens):
        total += len(token.text)
        if total > length:
            return tuple(tokens[:count])
    return tuple(tokens)


def _as_text(turn: PastTurn) -> PastTurn:
    return PastTurn(turn.user_text, turn.words, turn.reply)


def _size(turn: PastTurn) -> int:
    """Count a turn's tokens as text: the reply's exactly, the user's estimated at 3 bytes each."""
    return len(turn.reply) + len(turn.user_text.encode()) // 3 + 8
