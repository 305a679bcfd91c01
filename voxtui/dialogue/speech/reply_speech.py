"""Speak a reply clause by clause, and compute how much of it was heard."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import TypeAlias

from voxtui.dialogue.data import SpeechChunk, Token, audible
from voxtui.dialogue.fallbacks import Fallbacks
from voxtui.dialogue.prefetch import TICK_SECONDS, Prefetched
from voxtui.dialogue.protocols import Progress, Speaker, StopFlag, Voice
from voxtui.dialogue.speech.clauses import (
    NOT_A_LIST,
    SHORTEST_SPOKEN,
    clauses,
    speakable,
    unfinished,
)
from voxtui.dialogue.speech.speech_pacing import SpeechPacing
from voxtui.dialogue.timestamps import Milestone, Timestamps
from voxtui.errors import DeviceError, ModelError, UnspokenLanguage

_log = logging.getLogger(__name__)


class VoiceFailed(Exception):
    """The voice failed, so one turn has no sound. The message is a sentence."""


class VoiceTimeout(VoiceFailed):
    """The voice did not begin a clause within its timeout."""


_Result: TypeAlias = SpeechChunk | BaseException | None
"""A chunk; an exception that ends the job; or None after the last chunk."""


@dataclass(slots=True, eq=False)
class _Job:
    run: Callable[[], Iterable[SpeechChunk]]
    stopped: StopFlag
    abandoned: bool = False
    """whether nobody reads further results; written by the consumer"""
    over: bool = False
    """whether the voice has returned; written by the worker"""
    results: SimpleQueue[_Result] = field(default_factory=SimpleQueue[_Result])


class VoiceWorker:
    """Runs a voice on one thread: its warm-up, every clause, and its close.

    It is one thread because cuDNN stores its convolution plans per thread: a GPU voice would plan
    each layer again on a new one. A call into a model cannot be stopped, so the thread may still be
    busy with a cancelled clause; the next clause waits for it. After a clause that exceeds
    `timeout_s`, the voice is `stuck` until that call returns, because a second thread in the same
    model would race with it. A voice that is not `owned` is warm, and `close` leaves it idle.
    """

    def __init__(self, voice: Voice, timeout_s: float, owned: bool = True) -> None:
        self.voice = voice
        self._owned = owned
        self._timeout_s = timeout_s
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._late: _Job | None = None
        self._thread: Thread | None = None

    @property
    def stuck(self) -> bool:
        """True while the voice is still busy with a clause that timed out."""
        return self._late is not None and not self._late.over

    def warm_up(self, progress: Progress) -> None:
        """Warm up the voice on its thread. If that fails, close it and raise its error."""
        if not self._owned:
            return

        def warm() -> Iterator[SpeechChunk]:
            self.voice.warm_up(progress)
            return iter(())

        job = _Job(warm, Event())
        self._submit(job)
        failed = job.results.get()
        if isinstance(failed, BaseException):
            self.close()
            raise failed

    def speak(
        self, clause: str, stopped: StopFlag, speed: float | None = None, language: str = "en"
    ) -> Generator[SpeechChunk, None, bool]:
        """Yield the speech of `clause`. Return False if `stopped` was set before its end.

        Raises VoiceFailed, and VoiceTimeout if the first chunk takes longer than `timeout_s`.
        """
        job = _Job(lambda: self.voice.speak(clause, speed, language), stopped)
        self._submit(job)
        begun, waited = False, 0.0
        try:
            while True:
                try:
                    result = job.results.get(timeout=TICK_SECONDS)
                except Empty:
                    if stopped.is_set():
                        return False
                    # Intervals are counted, because the clock goes on during a suspend (Ctrl+Z).
                    waited += TICK_SECONDS
                    if not begun and waited > self._timeout_s:
                        self._late = job
                        sentence = f"The voice took more than {self._timeout_s:g} s to begin."
                        raise VoiceTimeout(sentence) from None
                    continue
                match result:
                    case None:
                        return begun or not stopped.is_set()  # never begin a clause after the stop
                    case UnspokenLanguage():
                        raise VoiceFailed(str(result)) from result
                    case Exception():
                        reason = str(result) or type(result).__name__
                        raise VoiceFailed(f"The voice failed: {reason}") from result
                    case BaseException():
                        raise result
                    case SpeechChunk():
                        begun = True
                        yield result
        finally:
            job.abandoned = True

    def close(self, seconds: float | None = None) -> None:
        """Close the voice after its call. Wait `seconds` (None: its timeout) unless it is stuck.

        Without a limit for a voice that is not owned, because another session uses it next.
        """
        thread, self._thread = self._thread, None
        if thread is None:
            self._close_voice()
            return
        self._jobs.put(None)
        if not self._owned:
            thread.join()
        elif not self.stuck:
            thread.join(self._timeout_s if seconds is None else seconds)

    def _submit(self, job: _Job) -> None:
        if self._thread is None:
            self._thread = Thread(target=self._run, name="voxtui-voice", daemon=True)
            self._thread.start()
        self._jobs.put(job)

    # Runs on the voice's thread.

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            end: BaseException | None = None
            try:
                self._do(job)
            except BaseException as error:  # noqa: BLE001 - raised again in the consumer
                _log.debug("the voice failed", exc_info=True)  # the message may quote the answer
                end = error
            job.over = True
            job.results.put(end)
        self._close_voice()

    def _close_voice(self) -> None:
        if self._owned:
            self.voice.close()

    def _do(self, job: _Job) -> None:
        if job.abandoned or job.stopped.is_set():
            return
        for chunk in job.run():
            job.results.put(chunk)
            if job.abandoned:
                return


def voice_workers(
    voices: Fallbacks[Voice], timeout_s: float, owned: bool = True
) -> Fallbacks[VoiceWorker]:
    def worker(make: Callable[[], Voice]) -> VoiceWorker:
        return VoiceWorker(make(), timeout_s, owned)

    return Fallbacks(tuple(partial(worker, make) for make in voices.makers), voices.first_only)


@dataclass(slots=True)
class SpokenClause:
    length: int
    """the number of characters of the reply in this clause"""
    text: str
    """the text for the voice; empty if nothing of the clause is spoken"""
    seconds: float = 0.0
    audible: float = 0.0
    """the seconds up to its last audible sample"""
    whole: bool = False
    """whether all of its speech is known"""

    def add(self, chunk: SpeechChunk) -> None:
        heard = audible(chunk.samples)
        if len(heard):
            self.audible = self.seconds + float(heard[-1]) / chunk.rate
        self.seconds += chunk.seconds


class SpokenReply:
    def style(self, clause: str) -> tuple[float | None, str]:
        """Return the speed (None: the configured one) and the language, by the first clause."""
        return None, "en"

    def begins(self) -> None:
        """Take note that its first chunk is played next."""


class Speech:
    """The spoken side of one reply.

    Nothing more of it is heard once `stopped` is set. One thread uses it and waits in turn for the
    brain, the voice and the speaker. The next clause is made while the last one plays, because the
    speaker queues seconds of speech.
    """

    def __init__(
        self,
        worker: VoiceWorker,
        speaker: Speaker,
        timestamps: Timestamps,
        stopped: StopFlag,
        reply: SpokenReply | None = None,
    ) -> None:
        self._worker = worker
        self._speaker = speaker
        self._timestamps = timestamps
        self._stopped = stopped
        self._reply = reply or SpokenReply()
        self._style: tuple[float | None, str] | None = None
        self._spoken: list[SpokenClause] = []
        self._cut = 0
        """the number of characters of the clauses so far"""
        self._heard_s = 0.0
        self._pace = SpeechPacing()

    def play(self, tokens: Prefetched[Token]) -> None:
        """Speak `tokens`, each clause once it is complete; block until the last sound was played.

        A clause is cut earlier if the speech before it would end too soon. Raises DeviceError.
        Raises VoiceFailed at once; `finish` then plays the speech made so far. An error of `tokens`
        is raised after that speech was played.
        """
        speaking = False
        try:
            with closing(self._chunks(tokens)) as chunks:
                for chunk in chunks:
                    if self._stopped.is_set():
                        break
                    if not speaking:
                        speaking = True
                        self._reply.begins()
                    self._pace.queued(chunk.seconds, time.monotonic())
                    self._speaker.play(chunk, self._timestamps, self._stopped)
        except ModelError:
            with suppress(DeviceError):
                self.finish()
            raise
        self.finish()

    def finish(self) -> None:
        """Block until all speech was played, or `stopped` is set. Raises DeviceError."""
        self._heard_s = self._speaker.finish(self._timestamps, self._stopped)

    def heard(self, reply: str, within: float | None = None) -> str:
        """Return the beginning of `reply` whose speech was heard, in whole words.

        Only the first `within` seconds of the speech count; None: all that was played.
        """
        end, seconds = 0, self._heard_s if within is None else min(within, self._heard_s)
        for clause in self._spoken:
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

    def _chunks(self, tokens: Prefetched[Token]) -> Generator[SpeechChunk, None, None]:
        for text in clauses(self._texts(tokens)):
            if self._stopped.is_set():
                return
            clause = self._clause(text)
            self._spoken.append(clause)
            self._cut += len(text)
            if not clause.text:
                continue
            self._timestamps.record(Milestone.FIRST_CLAUSE)
            self._timestamps.spoken.append((self._cut, self._timestamps.speech_s))
            clause.whole = yield from self._speak(clause)

    def _texts(self, tokens: Prefetched[Token]) -> Generator[str | None, None, None]:
        """Yield the text of each token, or None if the next one would come too late for speech."""
        written, cut = 0, True
        while True:
            waiting = written - self._cut
            # Where nothing could be cut, only another token helps.
            patience = self._pace.patience(waiting, time.monotonic()) if cut else None
            try:
                text = tokens.within(patience).text
            except Empty:
                clauses_before = len(self._spoken)
                yield None
                cut = len(self._spoken) > clauses_before
            except StopIteration:
                return
            else:
                cut = True
                written += len(text)
                yield text

    def _clause(self, text: str) -> SpokenClause:
        first = not self._spoken
        plain = unfinished(speakable(NOT_A_LIST.sub(r"\1\\", text) if first else text))
        too_short = first and len(text.strip()) < SHORTEST_SPOKEN
        spoken = "" if too_short else plain
        return SpokenClause(len(text), spoken, whole=not spoken)

    def _speak(self, clause: SpokenClause) -> Generator[SpeechChunk, None, bool]:
        asked_at = time.monotonic()
        self._style = self._style or self._reply.style(clause.text)
        speech = self._worker.speak(clause.text, self._stopped, *self._style)
        with closing(speech):
            while True:
                try:
                    chunk = next(speech)
                except StopIteration as ended:
                    return ended.value
                if not clause.seconds:
                    self._pace.made(len(clause.text), time.monotonic() - asked_at)
                self._timestamps.record(Milestone.FIRST_AUDIO)
                self._timestamps.speech_s += chunk.seconds
                self._timestamps.spoken[-1] = (self._cut, self._timestamps.speech_s)
                clause.add(chunk)
                yield chunk
