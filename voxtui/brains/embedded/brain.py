"""The embedded brain: a recogniser and a small chat model on the CPU that work during speech.

While the user speaks, one thread transcribes the utterance so far again and again, and prefills
the chat model's prompt with the words that are certain. When the words stop changing, or speech
pauses, a reply is speculated. The words of the final, trimmed utterance decide: the speculation for
exactly these words becomes the answer, any other one is dropped.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import takewhile
from math import inf
from pathlib import Path
from threading import Event as Flag
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from voxtui.brains.embedded.chat import ASK, BEAT_SECONDS, Llama, chatml
from voxtui.brains.embedded.recogniser import (
    Heard,
    check_language,
    joined,
    stretches,
)
from voxtui.brains.embedded.streaming_recogniser import embedded_recogniser
from voxtui.brains.prompting import (
    SPEAKABLE,
    after_clock,
    examples,
    instruction,
    until_repeated,
    with_reminder,
)
from voxtui.brains.speculation import Speculation, SpeculationThread
from voxtui.dialogue.data import FRAME_SECONDS, Origin, Token, UserTranscript, Utterance
from voxtui.dialogue.interfaces import AS_CONFIGURED, Manner, OnWords, Past, Progress
from voxtui.dialogue.marks import Mark, Marks
from voxtui.dialogue.recording import Extent, Recording
from voxtui.errors import ForeignSpeech, ModelError, strip_control_characters
from voxtui.models.catalogue import CHAT_MODELS, Model, Source, chat_model
from voxtui.models.download import download, download_default
from voxtui.models.installed import chat_model_name, check_content, model_file
from voxtui.settings.paths import user_folders
from voxtui.settings.schema import AUTO, Config, Sampling

if TYPE_CHECKING:
    from voxtui.dialogue.data import Samples

PASS_SECONDS = 0.24
"""New speech after which the utterance is transcribed again: two or three syllables."""

FIRST_PASS_SECONDS = 0.4
"""Speech before the first pass: less rarely contains a complete word."""

TYPING_PAUSE_SECONDS = 0.25
"""A reply to a typed text is drafted once no key was pressed for this time."""

SENTENCE_ENDS = (".", "?", "!")
"""A typed text that ends so is drafted at once, because Enter is the next key most of the time."""

PROMPT_TOKENS = 1600
"""Room in the context for the instruction, the examples and an utterance of two minutes."""


class Recogniser(Protocol):
    """Speech to text. See Moonshine."""

    def load(self) -> None: ...

    def recognise(self, samples: Samples) -> Heard: ...

    def close(self) -> None: ...


class ChatModel(Protocol):
    """A chat model. See Llama."""

    def load(self, path: Path, beat: Callable[[], object]) -> None: ...

    def run(
        self,
        prompt: str,
        sampling: Sampling,
        max_tokens: int,
        on_prefilled: Callable[[int, int], bool],
        on_token: Callable[[str], bool],
        *,
        ignore_end: bool = False,
    ) -> bool: ...

    def close(self) -> None: ...


@dataclass(slots=True)
class Work:
    """A time (monotonic seconds) in which the chat model worked on a prompt."""

    prompt: str
    started: float
    ended: float = inf
    complete: bool = False
    """the whole prompt was evaluated"""


class ChatReply(Speculation[str]):
    """The reply to a prompt: the text of each token. `max_tokens` 0 only prefills the prompt.

    `settled`, a beginning of the prompt, is evaluated at once, the rest only from `due_at` on.
    """

    def __init__(
        self,
        chat: ChatModel,
        prompt: str,
        sampling: Sampling,
        max_tokens: int,
        cancelled: Flag,
        settled: str = "",
        due_at: float = 0.0,
        progress: Callable[[int, int], object] = lambda done, total: None,
    ) -> None:
        super().__init__((prompt, max_tokens), cancelled, due_at=due_at)
        self.prefilled_at: float | None = None
        self._chat = chat
        self._prompt = prompt
        self._sampling = sampling
        self._max_tokens = max_tokens
        self._settled = settled
        self._progress = progress
        self._works: list[Work] = []

    def follow(self, earlier: ChatReply) -> None:
        """Count the work on `earlier` whose result this one uses."""
        self._works = [work for work in earlier._works if self._prompt.startswith(work.prompt)]

    @property
    def _is_settled(self) -> bool:
        """True once `settled` is evaluated, also by earlier work that ended after `follow`."""
        done = (work.prompt for work in tuple(self._works) if work.complete)
        return not self._settled or self._settled in done

    @property
    def due_at(self) -> float:
        return super().due_at if self._is_settled else 0.0

    def worked_before(self, at: float) -> float:
        return sum(max(0.0, min(w.ended, at) - w.started) for w in tuple(self._works))

    def advance(self, wanted: Callable[[], bool]) -> bool:
        """Continue after the tokens so far. See Speculation."""

        def on_prefilled(done: int, total: int) -> bool:
            # A run that is stopped after its last batch has evaluated the prompt, too.
            self._works[-1].complete = self._works[-1].complete or done >= total
            if not self.computed:
                self.prefilled_at = time.monotonic()
            self._progress(done, total)
            return not wanted()

        def on_token(text: str) -> bool:
            self.add(text)
            return not wanted()

        def run(prompt: str, max_tokens: int, ignore_end: bool = False) -> bool:
            texts = self.computed
            # Another seed, because the numbers of the first run have chosen the tokens so far.
            sampling = replace(self._sampling, seed=self._sampling.seed + len(texts))
            self._works.append(work := Work(prompt, time.monotonic()))
            try:
                ended = self._chat.run(
                    prompt + "".join(texts),
                    sampling,
                    max_tokens,
                    on_prefilled,
                    on_token,
                    ignore_end=ignore_end,
                )
            finally:
                work.ended = time.monotonic()
            work.complete = work.complete or ended
            return ended

        if not self._is_settled:
            run(self._settled, 0)
            return False
        ended = run(self._prompt, self._max_tokens - len(self.computed))
        missing = min(self._sampling.min_new_tokens, self._max_tokens) - len(self.computed)
        if ended and missing > 0:
            # once, though tokens may have no text
            ended = wanted() and run(self._prompt, missing, ignore_end=True)
        return ended


@dataclass(frozen=True, slots=True)
class PartialTranscript:
    """The words of one pass of the recogniser."""

    origin: Origin | None
    """the frames that were transcribed"""
    heard: Heard
    started_at: float
    ended_at: float


@dataclass(slots=True)
class LiveUtterance:
    """An utterance while it is being spoken."""

    past: Past
    recording: Recording
    cancelled: Flag
    manner: Manner
    on_words: OnWords | None
    released: bool = False
    partials: list[PartialTranscript] = field(default_factory=list[PartialTranscript])
    """the latest two"""
    transcribed_frames: int = 0
    """frames that the latest pass covered"""
    fixed: dict[tuple[int, int], Heard] = field(default_factory=dict[tuple[int, int], Heard])
    """words of the stretches that can no longer change"""
    bug: BaseException | None = None
    """an unexpected exception (not a ModelError), raised again in `reply`"""


class EmbeddedBrain:
    """Moonshine and a GGUF chat model. English only: raises ModelError for another language.

    `fetches`: download the chat model at warm-up if it is missing. `notify` says which, and why.
    """

    name = "embedded"
    sends_to = ""

    def __init__(
        self,
        config: Config,
        fetches: bool = False,
        notify: Callable[[str], object] = lambda sentence: None,
        *,
        recogniser: Recogniser | None = None,
        chat: ChatModel | None = None,
    ) -> None:
        check_language(config.brain)
        self._named = config.brain.embedded.model
        self._model = chat_model_name(self._named)
        known = CHAT_MODELS.get(self._model)
        self._fetches = fetches and known is not None
        self._notify = notify
        self._opening = known.opening if known else ""
        self._sampling = config.generation.sampling()
        self._instruction = instruction(config)
        self._examples = examples(config)
        self._recogniser = recogniser or embedded_recogniser(config.brain.embedded.recogniser)
        read = config.history.tokens(self.name) + config.input.tokens(self.name)
        context = PROMPT_TOKENS + read * 5 // 4 + self._sampling.max_new_tokens
        self._chat = chat or Llama(
            -(-context // 256) * 256,
            self._prompt((), ""),
            user_folders().user_cache_path / "prefixes",
            SPEAKABLE if self._examples else "",
        )
        self._replies: SpeculationThread | None = None
        self._ahead: ChatReply | None = None
        """what was requested last for a turn that is not answered yet"""
        self._progress: Callable[[int, int], object] = lambda done, total: None
        self._changed = threading.Condition()
        self._live: LiveUtterance | None = None
        self._transcribing = False
        self._closed = False
        self._listener = threading.Thread(
            target=self._transcribe_ahead, name="voxtui-recogniser", daemon=True
        )

    @property
    def description(self) -> str:
        name = self._model.removesuffix(".gguf").rpartition("/")[2]
        return f"embedded: {name} (small local model, English)"

    def warm_up(self, progress: Progress) -> None:
        import numpy as np

        if self._fetches:
            self._fetch(progress)
        progress("recogniser", None)
        self._recogniser.load()
        self._recogniser.recognise(np.zeros(32_000, np.float32))
        progress("chat model", None)
        self._load_chat(lambda: progress("chat model", None))
        self._replies = SpeculationThread("voxtui-chat")
        prompt = self._question((), "Hello, how are you?", AS_CONFIGURED)
        for text, tokens in ((prompt, 4), (self._prompt((), ""), 0)):
            reply = self._request(text, tokens, Flag())
            while not reply.wait(BEAT_SECONDS):
                progress("warming up", None)
            for _ in reply.tokens():  # raises the error it ended with
                pass
        self._listener.start()

    def _fetch(self, progress: Progress) -> None:
        """Download the chat model, unless it is here."""

        def attempt(model: Model, source: Source | Path) -> None:
            step = f"fetching {model.name}"
            progress(step, None)
            download(model, source, lambda done, size: progress(step, done / size))

        if self._named == AUTO:
            download_default("auto", attempt, self._notify)
        else:
            attempt(chat_model(self._named), "auto")

    def _load_chat(self, beat: Callable[[], object]) -> None:
        self._model = chat_model_name(self._named)
        path = model_file(self._named, beat)
        try:
            self._chat.load(path, beat)
        except ModelError:
            check_content(path)
            raise

    def listen(
        self,
        past: Past,
        recording: Recording,
        cancelled: Flag,
        manner: Manner = AS_CONFIGURED,
        on_words: OnWords | None = None,
    ) -> None:
        self._request(self._prompt(past, "", manner), 0, cancelled)
        with self._changed:
            self._live = LiveUtterance(past, recording, cancelled, manner, on_words)

    def wake(self) -> None:
        with self._changed:
            self._changed.notify()

    def read(
        self,
        past: Past,
        progress: Callable[[int, int], object],
        cancelled: Flag,
        manner: Manner = AS_CONFIGURED,
    ) -> None:
        self._progress = progress
        self._request(self._prompt(past, "", manner), 0, cancelled)

    def read_ahead(
        self, past: Past, text: str, cancelled: Flag, manner: Manner = AS_CONFIGURED
    ) -> None:
        # The last word may still grow.
        settled = self._prompt(past, text.rpartition(" ")[0], manner)
        pause = 0.0 if text.endswith(SENTENCE_ENDS) else TYPING_PAUSE_SECONDS
        due_at = time.monotonic() + pause
        prompt, tokens = self._question(past, text, manner), self._most_tokens(manner)
        self._request(prompt, tokens, cancelled, settled, due_at)

    def reply(
        self,
        past: Past,
        user_input: Utterance | str,
        marks: Marks,
        cancelled: Flag,
        manner: Manner = AS_CONFIGURED,
    ) -> Generator[UserTranscript | Token]:
        released = marks.at(Mark.RELEASED) or time.monotonic()
        live = self._stop_listening()
        try:
            if isinstance(user_input, str):
                words, doubtful = user_input, ()
            else:
                heard = self._heard(user_input, live, marks, released)
                words, doubtful = heard.english(), heard.doubtful
            if not words:
                return
            yield UserTranscript(words, doubtful)
        except (GeneratorExit, ForeignSpeech):
            self._ahead = None
            self._loaded().abandon_newest()
            raise
        prompt = self._question(past, words, manner)
        reply = self._request(prompt, self._most_tokens(manner), cancelled)
        self._ahead = None
        for number, text in enumerate(until_repeated(reply.tokens())):
            if number == 0:
                marks.mark(Mark.PREFILLED, reply.prefilled_at)
                marks.speculative_s += reply.worked_before(released)
                marks.drafted = len(reply.computed)
            yield Token(strip_control_characters(text))

    def language(self, reply: str, marks: Marks) -> str:
        return "en"

    def transcribe(self, utterance: Utterance, cancelled: Flag) -> Iterator[Token]:
        for number, (start, end) in enumerate(stretches(utterance)):
            if cancelled.is_set():
                return
            with self._recognising():
                text = self._recogniser.recognise(utterance.samples[start:end]).english()
            yield Token(f" {text}" if number else text)

    @contextmanager
    def _recognising(self) -> Generator[None]:
        """Keep the recogniser from a pass, because the next utterance may have begun."""
        with self._changed:
            self._changed.wait_for(lambda: not self._transcribing)
            self._transcribing = True
        try:
            yield
        finally:
            with self._changed:
                self._transcribing = False
                self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._listener.is_alive():
            self._listener.join()
        if self._replies is not None:
            self._replies.close()
            self._replies = None
        self._chat.close()
        self._recogniser.close()

    def _request(
        self,
        prompt: str,
        max_tokens: int,
        cancelled: Flag,
        settled: str = "",
        due_at: float = 0.0,
    ) -> ChatReply:
        reply = ChatReply(
            self._chat,
            prompt,
            self._sampling,
            max_tokens,
            cancelled,
            settled,
            due_at,
            self._progress,
        )
        if self._ahead is not None:
            reply.follow(self._ahead)
        self._ahead = self._loaded().request(reply)
        return self._ahead

    def _loaded(self) -> SpeculationThread:
        if self._replies is None:
            raise ModelError("The embedded brain is not loaded.")
        return self._replies

    def _prompt(self, past: Past, words: str, manner: Manner = AS_CONFIGURED) -> str:
        texts = [turn.user_text for turn in past]
        if manner.instruction is None and self._examples:
            texts = [with_reminder(text, texts[:place]) for place, text in enumerate(texts)]
        said = [
            (after_clock(turn.clock, text), turn.reply_text)
            for turn, text in zip(past, texts, strict=True)
        ]
        if manner.instruction is None:
            said = [*self._examples, *said]
        front = self._instruction if manner.instruction is None else manner.instruction
        return chatml(front, said, words, manner.clock, self._opening)

    def _question(self, past: Past, words: str, manner: Manner) -> str:
        """Return the prompt for a reply to the complete `words`."""
        if manner.instruction is None and self._examples:
            words = with_reminder(words, [turn.user_text for turn in past])
        return self._prompt(past, words, manner) + ASK + self._opening

    def _most_tokens(self, manner: Manner) -> int:
        return manner.limit(self._sampling.max_new_tokens)

    # The final pass.

    def _stop_listening(self) -> LiveUtterance | None:
        """End and return the live utterance: it starts no pass and no chat request any more."""
        with self._changed:
            live, self._live = self._live, None
            if live is not None:
                live.released = True
            # A pass that is running may cover the final samples. If not, it still has to end.
            self._changed.wait_for(lambda: not self._transcribing)
        if live is not None and live.bug is not None:
            raise live.bug
        return live

    def _heard(
        self, utterance: Utterance, live: LiveUtterance | None, marks: Marks, released: float
    ) -> Heard:
        """Transcribe `utterance`, unless a pass has covered exactly its frames already."""
        partials, fixed = (live.partials, live.fixed) if live is not None else ([], {})
        ready = [p for p in partials if p.origin is not None and p.origin == utterance.origin]
        final = ready[-1] if ready else self._pass(utterance, fixed)
        marks.mark(Mark.TRANSCRIBED, final.ended_at)
        marks.speculative_s += max(0.0, min(released, final.ended_at) - final.started_at)
        return final.heard

    def _pass(self, utterance: Utterance, fixed: dict[tuple[int, int], Heard]) -> PartialTranscript:
        # One after the other, because two passes in parallel slow each other down.
        self._loaded().pause()
        started = time.monotonic()
        parts = stretches(utterance)
        found: list[Heard] = []
        for part in parts:
            heard = fixed.get(part)
            if heard is None:
                heard = self._recogniser.recognise(utterance.samples[part[0] : part[1]])
            if part != parts[-1]:
                fixed[part] = heard
            found.append(heard)
        return PartialTranscript(utterance.origin, joined(found), started, time.monotonic())

    # Before the release, on the recogniser's thread.

    def _transcribe_ahead(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._due() is not None)
                due = self._due()
                if self._closed or due is None:
                    return
                live, extent = due
                live.transcribed_frames = extent.frames
                self._transcribing = True
            try:
                self._advance(live, extent)
            except ModelError:
                pass  # the final pass raises it, if it fails too
            except BaseException as error:  # noqa: BLE001 - raised again in `reply`
                live.bug = error
            finally:
                with self._changed:
                    self._transcribing = False
                    self._changed.notify_all()

    def _due(self) -> tuple[LiveUtterance, Extent] | None:
        """Return the live utterance and its extent, if enough of it is new for another pass."""
        live = self._live
        if live is None or live.cancelled.is_set() or live.released or self._transcribing:
            return None
        extent = live.recording.extent
        if extent.speech_seconds < FIRST_PASS_SECONDS:
            return None
        new = extent.frames - live.transcribed_frames
        # A pause also counts as new, if the last pass ended at the very last frame of speech.
        if not new or new < extent.quiet_frames:
            return None
        last = live.partials[-1] if live.partials else None
        took = last.ended_at - last.started_at if last is not None else 0.0
        if not extent.quiet_frames and new * FRAME_SECONDS < max(PASS_SECONDS, 1.5 * took):
            return None
        return live, extent

    def _advance(self, live: LiveUtterance, extent: Extent) -> None:
        utterance = live.recording.utterance(extent)
        if utterance is None:
            return
        partial = self._pass(utterance, live.fixed)
        text, before = partial.heard.text, live.partials[-1].heard.text if live.partials else None
        live.partials = [*live.partials[-1:], partial]
        if live.cancelled.is_set() or partial.heard.is_foreign:
            return
        paused = live.recording.extent.quiet_frames > 0
        if paused or text == before:
            prompt, tokens = (
                self._question(live.past, text, live.manner),
                self._most_tokens(live.manner),
            )
        else:
            # The last word may still grow, and the full stop after it is a guess.
            settled = text.rpartition(" ")[0]
            prompt, tokens = self._prompt(live.past, settled, live.manner), 0
        self._request(prompt, tokens, live.cancelled)
        # Last, because the screen paints it at the cost of what else wants the interpreter.
        if live.on_words is not None:
            live.on_words(text, _shared(before or "", text))


def _shared(one: str, other: str) -> int:
    """Count the characters with which both begin."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
