from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

from voxtui.dialogue.data import FinishedCall, Token
from voxtui.dialogue.events import EngineEvent
from voxtui.dialogue.live_config import LiveConfig
from voxtui.dialogue.protocols import Past, PastTurn

ROOM = 0.75
"""Share of the maximum tokens that remains when old turns are dropped, several at once."""

DELAY = 1.1
"""Factor by which the history may exceed the maximum after an answer of a rule. The brain has to
read that answer in the pause; after a cut it would have to read the history again as well."""


class ConversationLeft(EngineEvent, frozen=True):
    """A NewConversation was taken. `past` is the history it replaced, with a cancelled answer."""

    past: Past


class History:
    """The past turns, within the limits of the brain in use.

    Turns older than the newest `history.turns` hold text instead of audio.
    """

    def __init__(self, config: LiveConfig) -> None:
        self._config = config
        self.past: tuple[PastTurn, ...] = ()
        self.dropped: tuple[PastTurn, ...] = ()
        """the user's part of dropped turns, which only skills still read"""
        self._forgotten = self.past, self.dropped

    @property
    def newest(self) -> int | None:
        return self.past[-1].number if self.past else None

    @property
    def unanswered(self) -> PastTurn | None:
        """The last turn, if it has no reply yet."""
        last = self.past[-1] if self.past else None
        return last if last is not None and not last.reply and not last.attached else None

    def add(self, turn: PastTurn, heard: str, by_rule: bool = False) -> None:
        """Add `turn` with the `heard` part of its reply. After a rule it may be longer (DELAY)."""
        tokens = _tokens_within(turn.reply, len(heard))
        if any(token.text for token in tokens):
            added = replace(turn, reply=tokens)
            self._set((*self.past, added), DELAY if by_rule else 1.0)

    def insert(self, turn: PastTurn, after: int | None = None, first: bool = False) -> None:
        """Insert a turn, perhaps without a reply: behind turn `after`, at the end or `first`."""
        places = [i for i, other in enumerate(self.past, 1) if other.number == after]
        place = 0 if first else places[-1] if places else len(self.past)
        self._set((*self.past[:place], turn, *self.past[place:]))

    def add_result(self, finished: FinishedCall) -> None:
        if (last := self.unanswered) is not None:
            self.past = (*self.past[:-1], replace(last, calls=(*last.calls, finished)))

    def cut(self, turn: int, heard: str | None) -> None:
        """Reduce the reply of a turn to what was `heard`; None removes it."""
        if (place := self._place(turn, user=False)) is not None:
            past = self.past[place]
            self._put(place, replace(past, reply=_tokens_within(past.reply, len(heard or ""))))

    def take_back(self, turn: int) -> None:
        if self.newest == turn:
            self.past = self.past[:-1]

    def set_words(self, turn: int, words: str) -> None:
        if (place := self._place(turn, user=True)) is not None:
            spoken = replace(self.past[place], words=words)
            self._put(place, spoken if self._config.current.history.turns else _as_text(spoken))

    def attach(self, turn: PastTurn) -> None:
        """Add an attached text. It is never dropped, however long the conversation becomes."""
        self.past = (*self.past, turn)

    def forget(self) -> None:
        # Texts alone, such as the notes, do not replace a conversation.
        if any(not turn.attached for turn in self.past) or not self._forgotten[0]:
            self._forgotten = self.past, self.dropped
        self.past = self.dropped = ()

    def resume(self, past: Sequence[PastTurn]) -> None:
        if past:
            self._set(tuple(past))

    def recall(self) -> None:
        if self._forgotten[0] and all(turn.attached for turn in self.past):
            self.past, self.dropped = self._forgotten

    def _set(self, past: tuple[PastTurn, ...], delay: float = 1.0) -> None:
        """Store as much of `past` as the configuration allows, times `delay`."""
        spoken = [turn for turn in past if _has_input(turn)]
        older = spoken[: max(0, len(spoken) - self._config.current.history.turns)]
        turns = [_as_text(turn) if turn in older else turn for turn in past]
        recent, dropped = _divided(
            turns, self._config.current.history.tokens(self._config.brain_name), delay
        )
        self.past = tuple(recent)
        self.dropped += tuple(replace(_as_text(turn), reply=()) for turn in dropped)
        self._forgotten = (), ()

    def remove(self, turn: int, user: bool) -> None:
        if not user:
            self.cut(turn, None)
        elif (place := self._place(turn, user=True)) is not None:
            self._put(place, replace(self.past[place], user_input="", words=None))

    def _place(self, turn: int, user: bool) -> int | None:
        for place in reversed(range(len(self.past))):
            past = self.past[place]
            if past.number == turn and (_has_input(past) if user else past.reply):
                return place
        return None

    def _put(self, place: int, turn: PastTurn) -> None:
        rest = (turn,) if _has_input(turn) or turn.reply else ()
        self.past = (*self.past[:place], *rest, *self.past[place + 1 :])


def _has_input(turn: PastTurn) -> bool:
    return turn.user_input != ""


def _divided(
    turns: list[PastTurn], most_tokens: int, delay: float
) -> tuple[list[PastTurn], list[PastTurn]]:
    """Return the turns that stay, and the oldest ones beyond `delay` times the maximum tokens.

    Attached texts always stay; the newest turn stays if it fits alone.
    """
    size = sum(_size(turn) for turn in turns if not turn.attached)
    if size <= most_tokens * delay:
        return turns, []
    recent: list[PastTurn] = []
    dropped: list[PastTurn] = []
    for turn in turns:
        most = most_tokens if turn is turns[-1] else most_tokens * ROOM
        if size > most and not turn.attached:
            size -= _size(turn)
            dropped.append(turn)
        else:
            recent.append(turn)
    return recent, dropped


def _tokens_within(tokens: Sequence[Token], length: int) -> tuple[Token, ...]:
    ends = [*accumulate(len(token.text) for token in tokens)]
    return tuple(tokens[: bisect_right(ends, length)])


def _as_text(turn: PastTurn) -> PastTurn:
    return replace(turn, user_input=turn.user_text)


def _size(turn: PastTurn) -> int:
    """Count tokens: exactly in the reply; 3 bytes each in words, 2 in the line with the time."""
    return len(turn.reply) + len(turn.user_text.encode()) // 3 + len(turn.clock) // 2 + 8
