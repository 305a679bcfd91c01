"""Turn the clauses of a reply into speech, and tell how much of it was heard."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from voxtui.dialogue.data import SpeechChunk, Token, audible
from voxtui.dialogue.interfaces import Voice
from voxtui.dialogue.marks import Mark, Marks
from voxtui.dialogue.prefetch import FirstItemTimeout, prefetch

if TYPE_CHECKING:
    pass

from voxtui.dialogue.clauses import NOT_A_LIST, SHORTEST_SPOKEN, clauses, speakable, unfinished

_log = logging.getLogger(__name__)


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
        """Speech for `tokens`, each clause once it is complete.

        Raises VoiceFailed, FirstItemTimeout.
        """
        for clause in clauses(token.text for token in tokens):
            if self.stopped():
                return
            first = not self.spoken
            text = unfinished(speakable(NOT_A_LIST.sub(r"\1\\", clause) if first else clause))
            too_short = first and len(clause.strip()) < SHORTEST_SPOKEN
            spoken = SpokenClause(len(clause), whole=too_short or not text)
            self.spoken.append(spoken)
            if spoken.whole:
                continue
            self.marks.mark(Mark.FIRST_CLAUSE)
            speech = self._speech(text)
            try:
                with prefetch(speech, 4, "voice", self.timeout_s, self.stopped) as chunks:
                    for chunk in chunks:
                        self.marks.mark(Mark.FIRST_AUDIO)
                        self.marks.speech_s += chunk.seconds
                        spoken.add(chunk)
                        yield chunk
            except FirstItemTimeout:
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
