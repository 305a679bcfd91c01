"""What is said to whom: tokens become clauses, clauses speech, and turns history."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import zip_longest
from typing import TYPE_CHECKING

from voxtui.ahead import Stalled, ahead
from voxtui.config import HistoryConfig
from voxtui.protocols import PastTurn, Voice
from voxtui.turn import Mark, Marks, SpeechChunk, Token, Utterance, audible

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

_log = logging.getLogger(__name__)

SHORTEST_FIRST_CLAUSE = 10
"""Characters after which the first clause may end at a comma: its length is latency."""

LONGEST_CLAUSE = 240
"""Characters after which any clause ends at a space: no voice waits for a missing full stop."""

SHORTEST_SPOKEN = 2
"""Characters of the shortest reply that is spoken."""

_ABBREVIATION = re.compile(
    r"(?:\b(?:Mr|Mrs|Ms|Dr|St|Prof|Jr|Sr|vs|etc|approx|No|e\.g|i\.e|a\.m|p\.m|U\.S)|\b[A-Z]|(?:^|\s)\d{1,2})\.$"
)
"""A full stop after these ends no sentence; `1.` alone is a list marker."""

_PHRASE_START = re.compile(
    r"\s(?=(?:because|but|which|where|while|although|since|and|or|so"
    r"|is|are|was|were|in|on|at|to|by|for|from|with)\s)"
)
"""Where a speaker may breathe without a comma: before a conjunction, a preposition, a verb."""

SHORTEST_PHRASE = 4
"""Words the first clause has at least if it ends without punctuation."""

_SENTENCE_END = re.compile(r"[.!?…]+[\"')\]*_]*(?=\s)|\n+")
_FULL_STOP = re.compile(r"(?:^|\s)(?!www\.)[^\s\d./:@]*[^\W\d]{3}[.!?…]$")
"""Of a word: in `100.5`, or an address, more follows."""

_CLAUSE_END = re.compile(r"[,;:–—]+[\"')\]*_]*(?=\s)|(?<!\d)\s[–—-]+(?=\s)")
_FENCE = re.compile(r"^[ \t]*(?:```(?!.*`)|~~~)", re.MULTILINE)
"""Begins a block of code, or ends it."""

_NO_LIST = re.compile(r"^(\s*(?!1[.)])\d+)(?=[.)]\s)")
"""A number that is the answer: a list would begin with 1."""

_SIGNS = {
    "-": "minus", "−": "minus", "*": "times", "/": "divided by", "≈": "about", "≤": "at most",
    "≥": "at least", "√": "the square root of", "→": "to", "#": "sharp",
}  # fmt: skip
_SIGN = re.compile(r"[−≈≤≥√→]|(?<=\d )[-*/](?= \d)|(?<=\b[A-G])#")
"""What voices leave out, and so say something else."""


def clauses(texts: Iterator[str]) -> Generator[str, None, None]:
    """Cut streamed text into speakable clauses; joined, they are the text.

    The first may end at a comma or a phrase, for speed; later ones are whole
    sentences, for prosody. The first is let go at its full stop, later ones once the space after
    it shows that it was one. A block of code is one clause.
    """
    buffer, first = "", True
    for text in texts:
        buffer += text
        while (end := _clause_end(buffer, first)) is not None:
            yield buffer[:end]
            buffer, first = buffer[end:], False
    if buffer.strip():
        yield buffer


def _clause_end(text: str, first: bool) -> int | None:
    for found in _SENTENCE_END.finditer(text):
        head = text[: found.end()]
        in_code = len(_FENCE.findall(head)) % 2
        ended = not in_code and not _ABBREVIATION.search(head.rstrip("\n"))
        if len(head.strip()) >= SHORTEST_SPOKEN and ended:
            return found.end()
    if _FENCE.search(text):
        return None
    if first:
        for found in _CLAUSE_END.finditer(text):
            if len(text[: found.end()].strip()) >= SHORTEST_FIRST_CLAUSE:
                return found.end()
        for found in _PHRASE_START.finditer(text):
            if len(text[: found.start()].split()) >= SHORTEST_PHRASE:
                return found.start()
        if _FULL_STOP.search(text) and not _ABBREVIATION.search(text):
            return len(text)
    if len(text) > LONGEST_CLAUSE and (space := text.rfind(" ", 1, LONGEST_CLAUSE)) > 0:
        return space
    return None


class VoiceFailed(Exception):
    """The voice raised; whatever it was, it costs the sound of one turn and nothing else."""


@dataclass(slots=True)
class SpokenClause:
    """A clause that went to the voice."""

    length: int
    """characters of the reply it covers"""
    seconds: float = 0.0
    """of its speech, as far as it is known"""
    audible: float = 0.0
    """seconds up to its last audible sample"""
    whole: bool = False
    """all of its speech is known"""

    def add(self, chunk: SpeechChunk) -> None:
        heard = audible(chunk.samples)
        if len(heard):
            self.audible = self.seconds + float(heard[-1]) / chunk.rate
        self.seconds += chunk.seconds


@dataclass(slots=True)
class Speech:
    """The spoken side of one reply: which text, how long."""

    voice: Voice
    marks: Marks
    timeout_s: float
    """a voice that takes longer for the first chunk of a clause has failed"""
    stopped: Callable[[], bool] = lambda: False
    """true once nobody will hear more: no clause is begun then, and none waited for"""
    busy: threading.Lock = field(default_factory=threading.Lock)
    """held by the thread that runs the voice, which may still work for a turn that is over"""
    spoken: list[SpokenClause] = field(default_factory=list[SpokenClause])

    def chunks(self, tokens: Iterator[Token]) -> Generator[SpeechChunk, None, None]:
        """Speech for `tokens`, each clause once it is complete. Raises VoiceFailed, Stalled."""
        for clause in clauses(token.text for token in tokens):
            if self.stopped():
                return
            first = not self.spoken
            text = _unfinished(speakable(_NO_LIST.sub(r"\1\\", clause) if first else clause))
            too_short = first and len(clause.strip()) < SHORTEST_SPOKEN
            spoken = SpokenClause(len(clause), whole=too_short or not text)
            self.spoken.append(spoken)
            if spoken.whole:
                continue
            self.marks.mark(Mark.FIRST_SENTENCE)
            speech = self._speech(text)
            try:
                with ahead(speech, 4, "voice", self.timeout_s, self.stopped) as chunks:
                    for chunk in chunks:
                        self.marks.mark(Mark.FIRST_AUDIO)
                        self.marks.speech_s += chunk.seconds
                        spoken.add(chunk)
                        yield chunk
            except Stalled:
                if self.stopped():
                    return
                raise
            spoken.whole = spoken.seconds > 0 or not self.stopped()

    def _speech(self, text: str) -> Generator[SpeechChunk, None, None]:
        try:
            with self.busy:
                if not self.stopped():
                    yield from self.voice.speak(text)
        except Exception as error:
            _log.debug("the voice failed", exc_info=True)  # it may quote the answer
            raise VoiceFailed(str(error) or type(error).__name__) from error

    def heard(self, reply: str, seconds: float) -> str:
        """The beginning of `reply` that `seconds` of its speech said, in whole words."""
        end = 0
        for clause in self.spoken:
            if clause.whole and seconds >= clause.audible:
                seconds = max(0.0, seconds - clause.seconds)
                end += clause.length
                continue
            cut = end
            if seconds < clause.audible:
                cut += int(clause.length * seconds / clause.audible)
            while cut > end and not reply[cut : cut + 1].isspace():
                cut -= 1
            return reply[:cut]
        return reply[:end] if reply[end:].strip() else reply


def speakable(text: str) -> str:
    """`text` as it should be read aloud: no Markdown, no code, no bare URLs, no list markers."""
    plain: list[str] = []
    blocks = _markdown().parse(text.strip())
    for block, after in zip_longest(blocks, blocks[1:]):
        plain.append("code" if block.type in ("fence", "code_block") else " ")
        if block.type == "list_item_open" and after is not None and after.nesting < 0:
            plain.append(f"{block.info}{block.markup}")  # an answer such as `42.` marks no list
        for piece in block.children or ():
            if piece.type in ("text", "code_inline"):
                plain.append(piece.content)
            elif piece.type in ("softbreak", "hardbreak"):
                plain.append(" ")
    spoken = re.sub(r"https?://\S+", "link", "".join(plain))
    spoken = _SIGN.sub(lambda sign: f" {_SIGNS[sign[0]]} ", spoken)
    return " ".join(spoken.split()) if any(c.isalnum() for c in spoken) else ""


def _unfinished(text: str) -> str:
    """`text` with a comma where it breaks off, so that the voice does not sound as if it ended."""
    return f"{text}," if text and (text[-1].isalnum() or text[-1] == "'") else text


@cache
def _markdown() -> MarkdownIt:
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark", {"html": False}).disable("reference")  # `[Vox]: Yes` is none


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
