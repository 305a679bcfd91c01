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
        self.newest: int | None = None
        """the number of the last turn of `past`, where that is known"""
        self._forgotten: tuple[tuple[PastTurn, ...], int | None] = ((), None)

    def add(
        self,
        turn: int,
        user_input: Utterance | str,
        words: str | None,
        reply: Sequence[Token],
        heard: str,
    ) -> None:
        """Add a turn with the tokens of `reply` that were `heard`; nothing if none was heard."""
        kept = _tokens_within(reply, len(heard))
        if not any(token.text for token in kept):
            return
        turns = [*self.past, PastTurn(user_input, words, kept)]
        older = len(turns) - self._config.turns
        turns = [_as_text(turn) if i < older else turn for i, turn in enumerate(turns)]
        self.past = tuple(_within(turns, self._config.max_tokens))
        self.newest, self._forgotten = turn, ((), None)

    def take_back(self, turn: int) -> None:
        """Remove the last turn, if it is this one."""
        if self.newest == turn:
            self.past, self.newest = self.past[:-1], None

    def set_words(self, turn: int, words: str) -> None:
        """Set the user's words in the last turn, if it is this one."""
        if self.past and self.newest == turn:
            last = PastTurn(self.past[-1].user_input, words, self.past[-1].reply)
            self.past = (*self.past[:-1], last if self._config.turns else _as_text(last))

    def give(self, turn: PastTurn) -> None:
        """Add a given text, which is not dropped however long the conversation becomes."""
        self.past, self.newest = (*self.past, turn), None

    def forget(self) -> None:
        """Empty the history. `recall` undoes it until the next turn is added."""
        if self.past:
            self._forgotten = (self.past, self.newest)
        self.past, self.newest = (), None

    def recall(self) -> None:
        """Bring back what `forget` removed, unless a turn was added since."""
        if not self.past:
            self.past, self.newest = self._forgotten


def _within(turns: list[PastTurn], most_tokens: int) -> list[PastTurn]:
    """Return `turns` without the oldest ones that do not fit; given texts always fit."""
    size = sum(_size(turn) for turn in turns if not turn.given)
    kept: list[PastTurn] = []
    for turn in turns:
        if size > most_tokens and not turn.given:
            size -= _size(turn)
        else:
            kept.append(turn)
    return kept


def _tokens_within(tokens: Sequence[Token], length: int) -> tuple[Token, ...]:
    """Return the whole tokens within the first `length` characters."""
    total = 0
    for count, token in enumerate(tokens):
        total += len(token.text)
        if total > length:
            return tuple(tokens[:count])
    return tuple(tokens)


def _as_text(turn: PastTurn) -> PastTurn:
    return PastTurn(turn.user_text, turn.words, turn.reply, turn.given)


def _size(turn: PastTurn) -> int:
    """Count a turn's tokens as text: the reply's exactly, the user's estimated at 3 bytes each."""
    return len(turn.reply) + len(turn.user_text.encode()) // 3 + 8
