"""Keep what later turns see of earlier ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from voxtui.dialogue.data import Token, Utterance
from voxtui.dialogue.interfaces import PastTurn
from voxtui.settings.schema import HistoryConfig

if TYPE_CHECKING:
    pass


class Conversation:
    """The one owner of what was said. Past `history.turns`, a user's audio becomes text."""

    def __init__(self, config: HistoryConfig) -> None:
        self._config = config
        self.past: tuple[PastTurn, ...] = ()
        self._last_said: Utterance | str = ""
        """in the last turn of `past`, which may hold only the text of it"""

    def remember(
        self, said: Utterance | str, words: str | None, reply: tuple[Token, ...], heard: str
    ) -> None:
        """Add a turn, of whose reply `heard` was heard. A reply nobody heard leaves no trace."""
        kept = _tokens_within(reply, len(heard))
        if not kept:
            return
        turns = [*self.past, PastTurn(said, words, kept)]
        older = len(turns) - self._config.turns
        turns = [_as_text(turn) if i < older else turn for i, turn in enumerate(turns)]
        while turns and sum(map(_size, turns)) > self._config.max_tokens:
            turns.pop(0)
        self.past = tuple(turns)
        self._last_said = said

    def take_back(self, said: Utterance) -> None:
        """Forget the last turn, if it is the one in which this was said."""
        if self._last_said is said:
            self.past = self.past[:-1]

    def put_into_words(self, said: Utterance, words: str) -> None:
        """The words of the last turn, if this was said in it, became known after it was over."""
        if self.past and self._last_said is said:
            turn = PastTurn(self.past[-1].said, words, self.past[-1].reply)
            self.past = (*self.past[:-1], turn if self._config.turns else _as_text(turn))

    def forget(self) -> None:
        self.past = ()


def _tokens_within(tokens: tuple[Token, ...], length: int) -> tuple[Token, ...]:
    total = 0
    for count, token in enumerate(tokens):
        total += len(token.text)
        if total > length:
            return tokens[:count]
    return tokens


def _as_text(turn: PastTurn) -> PastTurn:
    return PastTurn(turn.user_text, turn.words, turn.reply)


def _size(turn: PastTurn) -> int:
    """Tokens of a turn as text: the reply's are known, the user's are guessed at 3 bytes each."""
    return len(turn.reply) + len(turn.user_text.encode()) // 3 + 8
