"""The embedded brain: a recogniser and a small chat model on the CPU that work while you speak.

While the user speaks, a follower thread recognises the utterance so far again and again, and keeps
the chat model's prompt prefilled with the words that are sure. When the words hold still, or speech
pauses, a reply is drafted. At release the words of the final, trimmed utterance decide: the draft
for exactly those words is the answer; any other is thrown away.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from threading import Event as Flag

from msgspec.structs import replace

from voxtui.brains.embedded.chat import ASK, BEAT_SECONDS, Llama, chatml
from voxtui.brains.embedded.recogniser import Moonshine, stretches
from voxtui.dialogue.data import FRAME_SECONDS, Token, UserTranscript, Utterance
from voxtui.dialogue.interfaces import Past, Progress
from voxtui.dialogue.marks import Mark, Marks
from voxtui.dialogue.prefetch import TICK_SECONDS
from voxtui.dialogue.recording import Extent, Recording
from voxtui.errors import ModelError, strip_control_characters
from voxtui.models.catalogue import CHAT_MODELS, chat_model
from voxtui.models.download import download
from voxtui.models.installed import check_content, model_file
from voxtui.settings.schema import Config, Sampling

FOLLOW_SECONDS = 0.24
"""New speech after which the follower listens again: two or three syllables."""

FIRST_SECONDS = 0.4
"""Speech before the first pass: less holds no word worth prefilling."""

SHORT = " Answer with one short sentence of at most fifteen words."

PROMPT_TOKENS = 1100
"""Room in the context for the instruction and an utterance of two minutes."""


class Draft:
    """A prompt and the reply to it, perhaps worked out before anybody asked, and in pieces."""

    def __init__(self, prompt: str, max_tokens: int) -> None:
        self.prompt = prompt
        self.max_tokens = max_tokens
        self.cancelled = Flag()
        """that of the turn it was asked for last"""
        self.prefilled_at: float | None = None
        self.worked: list[tuple[float, float]] = []
        """when the chat model worked on it: start, and end once it has stopped"""
        self.ended = False
        self._texts: list[str] = []
        self._error: BaseException | None = None
        self._changed = threading.Condition()

    def answers(self, prompt: str, max_tokens: int) -> bool:
        """Whether this is a reply to that, and has not failed."""
        return (self.prompt, self.max_tokens) == (prompt, max_tokens) and self._error is None

    # Called by the chat thread.

    def work(self, chat: Llama, sampling: Sampling, wanted: Callable[[], bool]) -> None:
        """Go on with the reply until it ends or is no longer `wanted`."""
        started = time.monotonic()
        self.worked.append((started, math.inf))

        def prefilled() -> bool:
            if not self._texts:
                self.prefilled_at = time.monotonic()
            return not wanted()

        def take(text: str) -> bool:
            with self._changed:
                self._texts.append(text)
                self._changed.notify_all()
            return not wanted()

        def run(tokens: int, past_end: bool) -> bool:
            prompt = self.prompt + "".join(self._texts)
            # Numbers of its own: those drawn before the pause have chosen what stands there now.
            drawing = replace(sampling, seed=sampling.seed + len(self._texts))
            return chat.run(prompt, drawing, tokens, prefilled, take, past_end=past_end)

        ended = False
        try:
            ended = run(self.max_tokens - len(self._texts), False)
            least = min(sampling.min_new_tokens, self.max_tokens)
            while ended and len(self._texts) < least:
                ended = wanted() and run(least - len(self._texts), True)
        except BaseException as error:  # noqa: BLE001 - raised again where the reply is read
            self._error = error
        with self._changed:
            self.worked[-1] = (started, time.monotonic())
            self.ended = ended or self._error is not None
            self._changed.notify_all()

    # Called by the one who wants the reply.

    def ends_within(self, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self.ended, seconds)

    def texts(self, cancelled: Flag) -> Iterator[str]:
        """The reply, token by token as it comes. Raises what went wrong."""
        count = 0
        while not cancelled.is_set():
            with self._changed:
                while len(self._texts) == count and not self.ended and not cancelled.is_set():
                    self._changed.wait(TICK_SECONDS)
                fresh = self._texts[count:]
            if not fresh:
                break
            yield from fresh
            count += len(fresh)
        if self._error is not None and not cancelled.is_set():
            raise self._error


class ChatThread:
    """Owns the chat model, and works on the newest draft asked for unless it is paused."""

    def __init__(self, chat: Llama, sampling: Sampling) -> None:
        self._chat = chat
        self._sampling = sampling
        self._changed = threading.Condition()
        self._draft: Draft | None = None
        self._paused = False
        self._working = False
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="voxtui-chat", daemon=True)
        self._thread.start()

    def ask(self, prompt: str, max_tokens: int, cancelled: Flag) -> Draft:
        """The draft for `prompt`, being worked on until `cancelled`: the one at hand if it is that,
        or a new one."""
        with self._changed:
            draft = self._draft
            if draft is None or not draft.answers(prompt, max_tokens):
                self._draft = draft = Draft(prompt, max_tokens)
            draft.cancelled = cancelled
            self._paused = False
            self._changed.notify_all()
            return draft

    def pause(self) -> None:
        """Stop at the next token or batch, and wait until then; what was worked out is kept."""
        with self._changed:
            self._paused = True
            self._changed.wait_for(lambda: not self._working)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._work_left())
                draft = self._draft
                if self._closed or draft is None:
                    return
                self._working = True
            draft.work(self._chat, self._sampling, partial(self._wants, draft))
            with self._changed:
                self._working = False
                self._changed.notify_all()

    def _wants(self, draft: Draft) -> bool:
        return self._draft is draft and not self._paused and not draft.cancelled.is_set()

    def _work_left(self) -> bool:
        return self._draft is not None and not self._draft.ended and self._wants(self._draft)

    def close(self) -> None:
        with self._changed:
            self._closed = self._paused = True
            self._changed.notify_all()
        self._thread.join()


@dataclass(frozen=True, slots=True, eq=False)
class Pass:
    """The words of one pass of the recogniser, and over what."""

    said: Utterance
    text: str
    started_at: float
    ended_at: float


@dataclass(slots=True)
class Following:
    """An utterance that is being spoken."""

    past: Past
    recording: Recording
    cancelled: Flag
    released: bool = False
    passes: list[Pass] = field(default_factory=list[Pass])
    """the latest two"""
    heard_frames: int = 0
    """frames that the latest pass saw"""
    known: dict[tuple[int, int], str] = field(default_factory=dict[tuple[int, int], str])
    """words of the stretches that can no longer change"""
    bug: BaseException | None = None
    """an exception that is no ModelError, raised again where the reply is asked for"""


class EmbeddedBrain:
    """Moonshine and a GGUF chat model. English only.

    `fetches`: a chat model that is not here is fetched as it loads.
    """

    name = "embedded"
    sends_to = ""

    def __init__(self, config: Config, fetches: bool = False) -> None:
        self._model = config.brain.embedded.model
        self._fetches = fetches and self._model in CHAT_MODELS
        self._sampling = config.generation.sampling()
        self._instruction = config.brain.instruction + (
            SHORT if self._sampling.one_sentence else ""
        )
        self._recogniser = Moonshine()
        context = PROMPT_TOKENS + config.history.max_tokens * 5 // 4 + self._sampling.max_new_tokens
        self._llama = Llama(-(-context // 256) * 256)
        self._chat: ChatThread | None = None
        self._changed = threading.Condition()
        self._following: Following | None = None
        self._busy = False
        self._closed = False
        self._follower = threading.Thread(target=self._follow, name="voxtui-follow", daemon=True)

    @property
    def description(self) -> str:
        name = self._model.removesuffix(".gguf").rpartition("/")[2]
        return f"embedded: {name} (small local model, English)"

    def warm_up(self, progress: Progress) -> None:
        import numpy as np

        if self._fetches:
            step = f"fetching {self._model}"
            progress(step, None)
            download(
                chat_model(self._model),
                progress=lambda done, size: progress(step, done / size),
            )
        progress("recogniser", None)
        self._recogniser.load()
        self._recogniser.recognise(np.zeros(32_000, np.float32))
        progress("chat model", None)
        self._load_chat(lambda: progress("chat model", None))
        self._chat = ChatThread(self._llama, self._sampling)
        prompt = self._prompt((), "Hello, how are you?") + ASK
        for text, tokens in ((prompt, 4), (self._prompt((), ""), 0)):
            draft = self._chat.ask(text, tokens, Flag())
            while not draft.ends_within(BEAT_SECONDS):
                progress("warming up", None)
            for _ in draft.texts(Flag()):  # raises what went wrong
                pass
        self._follower.start()

    def _load_chat(self, beat: Callable[[], object]) -> None:
        path = model_file(self._model, beat)
        try:
            self._llama.load(path, beat)
        except ModelError:
            check_content(path)
            raise

    def listen(self, past: Past, recording: Recording, cancelled: Flag) -> None:
        self._loaded().ask(self._prompt(past, ""), 0, cancelled)
        with self._changed:
            self._following = Following(past, recording, cancelled)

    def wake(self) -> None:
        with self._changed:
            self._changed.notify()

    def reply(
        self, past: Past, said: Utterance | str, marks: Marks, cancelled: Flag
    ) -> Iterator[UserTranscript | Token]:
        released = marks.at(Mark.RELEASED) or time.monotonic()
        following = self._stop_following()
        words = said if isinstance(said, str) else self._words(said, following, marks, released)
        if not words:
            return
        yield UserTranscript(words)
        prompt, tokens = self._prompt(past, words) + ASK, self._sampling.max_new_tokens
        draft = self._loaded().ask(prompt, tokens, cancelled)
        hidden = [(start, min(end, released)) for start, end in draft.worked if start < released]
        for number, text in enumerate(draft.texts(cancelled)):
            if number == 0:
                marks.mark(Mark.PREFILLED, draft.prefilled_at)
                marks.speculative_s += sum(end - start for start, end in hidden)
            yield Token(strip_control_characters(text))

    def transcribe(self, said: Utterance, cancelled: Flag) -> Iterator[Token]:
        for number, (start, end) in enumerate(stretches(said)):
            if cancelled.is_set():
                return
            text = self._recogniser.recognise(said.samples[start:end])
            yield Token(f" {text}" if number else text)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._follower.is_alive():
            self._follower.join()
        if self._chat is not None:
            self._chat.close()
            self._chat = None
        self._llama.close()
        self._recogniser.close()

    def _loaded(self) -> ChatThread:
        if self._chat is None:
            raise ModelError("The embedded brain is not loaded.")
        return self._chat

    def _prompt(self, past: Past, words: str) -> str:
        exchanges = [(turn.user_text, turn.reply_text) for turn in past]
        return chatml(self._instruction, exchanges, words)

    # The final pass.

    def _stop_following(self) -> Following | None:
        """What was followed. From now on its follower neither pauses the chat model nor asks it."""
        with self._changed:
            following, self._following = self._following, None
            if following is not None:
                following.released = True
            # A pass under way may be over the final samples; if not, it still has to end first.
            self._changed.wait_for(lambda: not self._busy)
        if following is not None and following.bug is not None:
            raise following.bug
        return following

    def _words(
        self, said: Utterance, following: Following | None, marks: Marks, released: float
    ) -> str:
        """The words of `said`: from the follower if it has recognised exactly these samples."""
        known = following.known if following is not None else {}
        final = (
            next((p for p in following.passes if p.said.is_same(said)), None) if following else None
        )
        if final is None:
            final = self._pass(said, known)
        marks.mark(Mark.TRANSCRIBED, final.ended_at)
        marks.speculative_s += max(0.0, min(released, final.ended_at) - final.started_at)
        return final.text

    def _pass(self, said: Utterance, known: dict[tuple[int, int], str]) -> Pass:
        # Side by side they take each other's cores; one after the other is faster for both.
        self._loaded().pause()
        started = time.monotonic()
        parts = stretches(said)
        texts: list[str] = []
        for part in parts:
            text = known.get(part)
            if text is None:
                text = self._recogniser.recognise(said.samples[part[0] : part[1]])
            if part != parts[-1]:
                known[part] = text
            texts.append(text)
        return Pass(said, " ".join(texts).strip(), started, time.monotonic())

    # Ahead of the release, on the follower's thread.

    def _follow(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._due() is not None)
                following = self._due()
                if self._closed or following is None:
                    return
                extent = following.recording.extent
                following.heard_frames = extent.frames
                self._busy = True
            try:
                self._advance(following, extent)
            except ModelError:
                pass  # the final pass says it, if it fails too
            except BaseException as error:  # noqa: BLE001 - raised again in the reply
                following.bug = error
            finally:
                with self._changed:
                    self._busy = False
                    self._changed.notify_all()

    def _due(self) -> Following | None:
        """What is being spoken, if enough of it is new to listen again."""
        following = self._following
        if following is None or following.cancelled.is_set() or following.released:
            return None
        extent = following.recording.extent
        if extent.speech_seconds < FIRST_SECONDS:
            return None
        fresh = extent.frames - following.heard_frames
        # The pause is news as well to a pass that ended with the very last frame of speech.
        if not fresh or fresh < extent.quiet_frames:
            return None
        took = (
            following.passes[-1].ended_at - following.passes[-1].started_at
            if following.passes
            else 0
        )
        wait = max(FOLLOW_SECONDS, 1.5 * took)
        return following if extent.quiet_frames or fresh * FRAME_SECONDS >= wait else None

    def _advance(self, following: Following, extent: Extent) -> None:
        said = following.recording.utterance(extent)
        if said is None:
            return
        heard = self._pass(said, following.known)
        before = following.passes[-1].text if following.passes else None
        following.passes = [*following.passes[-1:], heard]
        if following.cancelled.is_set():
            return
        paused = following.recording.extent.quiet_frames > 0
        if paused or heard.text == before:
            prompt, tokens = (
                self._prompt(following.past, heard.text) + ASK,
                self._sampling.max_new_tokens,
            )
        else:
            # The last word may still grow, and the full stop after it is a guess.
            prompt, tokens = self._prompt(following.past, heard.text.rpartition(" ")[0]), 0
        self._loaded().ask(prompt, tokens, following.cancelled)
