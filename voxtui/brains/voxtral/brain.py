"""Voxtral as a brain: the user's voice goes in as sound, and stays in the context as sound.

While the key is held the history is brought into the cache, and at each pause the utterance so far
is encoded, prefilled and answered a few tokens far. At release that draft is the answer if, and
only if, the trimmed samples are the same; else the utterance is answered as if nothing had been.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import threading
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event as Flag
from typing import TYPE_CHECKING, TypeVar, cast

from voxtui.brains.embedded.brain import SHORT
from voxtui.brains.voxtral.drafts import Draft, ModelThread, Work
from voxtui.brains.voxtral.prompt import (
    EOS,
    Clip,
    Elements,
    Exchange,
    chat,
    transcription,
    without_trailing_zeros,
)
from voxtui.brains.voxtral.text import Detokenizer, Tekken
from voxtui.dialogue.data import FRAME_SECONDS, SAMPLE_RATE, Token, UserTranscript, Utterance
from voxtui.dialogue.interfaces import Past, PastTurn, Progress
from voxtui.dialogue.marks import Mark, Marks
from voxtui.dialogue.recording import Extent, Recording
from voxtui.errors import ModelError, ModelLost, how_to_install
from voxtui.settings.schema import Config, Sampling

if TYPE_CHECKING:
    from voxtui.brains.voxtral.decoder import Decoder
    from voxtui.brains.voxtral.embedder import AudioEmbedder
    from voxtui.brains.voxtral.generate import Loop

AHEAD_TOKENS = 8
"""How far a reply is worked out before anybody asked for it: the GPU's work ahead has an end."""

SCHEDULE_SECONDS = 0.5
"""Speech without a pause after which the utterance so far is worked through all the same: a GPU
left idle slows its clocks down, and a window that is complete is encoded for good."""

SLOW_SECONDS = 0.25
"""A machine that takes longer than this for an utterance would still be at the draft of a pause
when the real one is there: it works ahead on the history only."""

SHARE = 0.25
"""Of the time the key is held, at most so much goes into work ahead, however often one pauses."""

REHEARSAL_SECONDS = 3.0
"""No longer one is begun after that: on a CPU each takes many seconds."""

CAPACITY = 4096
"""Tokens of cache at first: five spoken turns, their replies, and some text."""

CAPTURED_CAPACITY = 8192
"""Tokens of cache with captured graphs, which read it where it is: it cannot grow. 1 GB."""

WRITING_CAPACITY = 1024

WORDS_PER_SECOND = 10
"""A transcript has fewer tokens than this for each second, however fast one speaks."""

FAILURES = 2
"""So many failed turns, and the model is given up."""

PATIENCE_SECONDS = 0.2

RESTART = "A restart of voxtui brings Voxtral back."


@dataclass(slots=True)
class Answer:
    """A reply that is asked for, or may be: to the utterance as it would be if it ended now."""

    past: Past
    recording: Recording
    extent: Extent
    encoded_at: float | None = None
    prefilled_at: float | None = None
    _said: Utterance | str | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def said(self) -> Utterance | str:
        with self._lock:
            if self._said is None:
                self._said = self.recording.utterance(self.extent)
            assert self._said is not None
            return self._said

    def is_to(self, past: Past, said: Utterance | str) -> bool:
        mine = self.said
        if isinstance(mine, str) or isinstance(said, str) or tuple(self.past) != tuple(past):
            return False
        return mine.is_same(said)


@dataclass(slots=True)
class Following:
    """An utterance that is being spoken."""

    past: Past
    recording: Recording
    cancelled: Flag
    guess: tuple[Answer, Draft] | None = None
    guessed_frames: int = 0


class VoxtralBrain:
    """The checkpoint in `directory`: config.json, safetensors, tekken.json.

    `say` gets the sentence for what the user set and this machine cannot do. `bring` brings the
    files there before they are loaded, and tells how many bytes of how many are there.
    """

    name = "voxtral"
    sends_to = ""

    def __init__(
        self, config: Config, directory: Path,
        say: Callable[[str], object] = lambda sentence: None,
        bring: Callable[[Callable[[int, int], object]], object] | None = None,
    ) -> None:  # fmt: skip
        self._config = config
        self._directory = directory
        self._say = say
        self._bring = bring
        self._sampling = config.generation.sampling()
        short = SHORT if self._sampling.one_sentence else ""
        self._instruction = f"{config.brain.instruction}{short}".strip()
        self._numbers = itertools.count()
        self._clips: list[tuple[Utterance, Clip]] = []
        self._following: Following | None = None
        self._took = math.inf
        """seconds for an utterance, at best"""
        self._failures = 0
        self._thread: ModelThread | None = None
        self._device = "not loaded"

    @property
    def description(self) -> str:
        return f"voxtral: {self._directory.name} on {self._device}"

    # Start-up.

    def warm_up(self, progress: Progress) -> None:
        if self._bring is not None:
            self._fetch(self._bring, progress)
        _patiently(progress, "Voxtral", self._load)
        self._thread = ModelThread()
        if self._config.brain.voxtral.graphs:
            self._capture(progress)
        _patiently(progress, "warming up", self._rehearse)

    def _fetch(
        self, bring: Callable[[Callable[[int, int], object]], object], progress: Progress
    ) -> None:
        done: float | None = None

        def told(here: int, size: int) -> None:
            nonlocal done
            done = here / size

        step = f"fetching {self._directory.name}"
        _patiently(progress, step, lambda: bring(told), lambda: done)

    def _load(self) -> None:
        try:
            import torch

            from voxtui.brains.voxtral import fp8 as quantized
            from voxtui.brains.voxtral import weights

            self._tekken = Tekken(self._directory)
        except ImportError as error:
            raise ModelError("Voxtral is not installed.", how_to_install("voxtral")) from error
        except (OSError, ValueError, KeyError) as error:
            raise weights_unusable(self._directory, error) from error
        device = weights.best_device()
        if device.type == "cuda":
            self._device = torch.cuda.get_device_name(device)
        else:
            self._device = "the CPU"
            # The sound must not starve.
            torch.set_num_threads(max(1, (os.cpu_count() or 2) - 1))
        captured = self._config.brain.voxtral.graphs
        if self._config.brain.voxtral.quantization == "fp8":
            quantized.check(device)
        try:
            decoder, ears = weights.load(self._directory, device)
            self._change(decoder)
            capacity = CAPTURED_CAPACITY if captured else CAPACITY
            self._chat = self._loop(decoder, ears, self._sampling, capacity)
            self._writer = self._loop(decoder, ears, GREEDY, WRITING_CAPACITY)
        except Exception as error:
            if _is_full(error):
                raise ModelError(
                    f"Voxtral does not fit into what is free of the memory of {self._device}.",
                    "`nvidia-smi` says what has the rest.",
                ) from error
            raise weights_unusable(self._directory, error) from error

    def _change(self, decoder: Decoder) -> None:
        """What does not work here costs its speed, not the answers."""
        wanted = self._config.brain.voxtral
        if wanted.quantization == wanted.kernels == "none":
            return
        from platformdirs import user_cache_path

        from voxtui.brains.voxtral import fp8 as quantized
        from voxtui.brains.voxtral import step

        cache = user_cache_path("voxtui", appauthor=False) / "triton"
        os.environ.setdefault("TRITON_CACHE_DIR", str(cache))
        if wanted.quantization == "fp8":
            try:
                quantized.quantise(decoder)
                self._device += ", fp8 weights"
            except ModelError as error:
                self._say(f"Voxtral keeps its weights as they are. {error.message}")
        if wanted.kernels != "none":
            try:
                step.use(decoder, wanted.kernels)
                self._device += ", kernels"
            except ModelError as error:
                self._say(f"Voxtral does without kernels. {error.message}")

    def _loop(
        self, decoder: Decoder, ears: AudioEmbedder, sampling: Sampling, capacity: int
    ) -> Loop:
        from voxtui.brains.voxtral.generate import Loop
        from voxtui.brains.voxtral.sampling import Sampler

        sampler = Sampler(
            decoder.head.shape[0],
            EOS,
            decoder.embedding.device,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            repetition_penalty=sampling.repetition_penalty,
            min_new_tokens=sampling.min_new_tokens,
            seed=sampling.seed,
        )
        return Loop(decoder, ears, sampler, capacity)

    def _capture(self, progress: Progress) -> None:
        """Whatever goes wrong with it, the same work without graphs answers.

        Raises ModelLost if the device cannot be used any more after that.
        """
        from voxtui.brains.voxtral import graphs

        done = 0.0

        def work() -> Generator[int | None, None, None]:
            nonlocal done
            try:
                for done in self._chat.capture(graphs.CudaRecorder()):  # noqa: B007
                    yield None
            except Exception as error:  # noqa: BLE001 - said, and done without
                why = "the GPU has no memory for them" if _is_full(error) else _first_line(error)
                self._say(f"Voxtral answers more slowly, without CUDA graphs: {why}.")
                self._chat.release()

        draft = Draft(work, Flag(), None)
        self._ask(draft)
        _patiently(progress, "capturing CUDA graphs", lambda: [*self._tokens(draft)], lambda: done)

    def _rehearse(self) -> None:
        """Turns of noise and their transcripts, so that whatever is slow the first time is over.

        Longer ones too, where they cost little: other lengths go through other kernels.
        """
        import numpy as np

        from voxtui.brains.voxtral.generate import REHEARSED

        random, began = np.random.default_rng(0), time.monotonic()
        for number, seconds in enumerate(REHEARSED):
            if number > 1 and time.monotonic() - began > REHEARSAL_SECONDS:
                break
            noise = random.normal(0, 0.05, seconds * SAMPLE_RATE).astype(np.float32)
            said = Utterance(noise, ((0.0, float(seconds)),), 0.0)
            draft = self._draft(Answer((), Recording(), Extent(), _said=said), Flag(), AHEAD_TOKENS)
            for count, _ in enumerate(self._tokens(draft), 1):
                if count == AHEAD_TOKENS:
                    break
            self._took = min(self._took, sum(end - start for start, end in draft.worked))
            for count, _ in enumerate(self.transcribe(said, Flag())):
                if count == AHEAD_TOKENS:
                    break
        self._prepare((), Flag())

    # While the key is held.

    def listen(self, past: Past, recording: Recording, cancelled: Flag) -> None:
        self._following = Following(past, recording, cancelled)
        self._prepare(past, cancelled)

    def _prepare(self, past: Past, cancelled: Flag) -> None:
        """The history into the cache, up to where the user's voice will stand."""

        def work() -> Generator[int | None, None, None]:
            prompt, clips = self._prompt(past, None)
            yield from self._chat.prepare(prompt, clips)

        self._ask(Draft(self._guarded(work), cancelled))

    def wake(self) -> None:
        following = self._following
        if following is None:
            return
        extent = following.recording.extent
        if self._is_time(following, extent):
            following.guessed_frames = extent.frames
            answer = Answer(following.past, following.recording, extent)
            following.guess = (answer, self._draft(answer, following.cancelled, AHEAD_TOKENS))

    def _is_time(self, following: Following, extent: Extent) -> bool:
        """Whether to work through the utterance so far: it pauses, or has gone on for long."""
        if extent.speech_seconds < self._config.vad.min_speech_ms / 1000:
            return False
        if self._took > SLOW_SECONDS:
            return False
        since = extent.frames - following.guessed_frames
        if since * FRAME_SECONDS < self._took / SHARE:
            return False
        if not extent.quiet_frames:
            return since * FRAME_SECONDS >= SCHEDULE_SECONDS
        return since >= extent.quiet_frames  # once in a pause

    # Answering.

    def reply(
        self, past: Past, said: Utterance | str, marks: Marks, cancelled: Flag
    ) -> Iterator[UserTranscript | Token]:
        from voxtui.brains.voxtral import weights

        released = marks.at(Mark.RELEASED) or time.monotonic()
        following, self._following = self._following, None
        if isinstance(said, str):
            yield UserTranscript(said)
        answer, draft = self._answer(following, past, said, cancelled)
        text = Detokenizer(self._tekken)
        for number, token in enumerate(self._tokens(draft)):
            if number == 0:
                self._note(answer, draft, marks, released)
            yield Token(text.text(token), token)
            if number == 0:  # behind the first token: to ask takes a while
                marks.gpu_bytes = weights.gpu_bytes()
        if rest := text.rest():
            yield Token(rest)

    def _answer(
        self, following: Following | None, past: Past, said: Utterance | str, cancelled: Flag
    ) -> tuple[Answer, Draft]:
        """The one that was worked on ahead, if it is to these very samples, or a new one."""
        if following is not None and following.guess is not None:
            answer, draft = following.guess
            if draft.error is None and answer.is_to(past, said):
                draft.claim()
                self._ask(draft)
                return answer, draft
        answer = Answer(past, Recording(), Extent(), _said=said)
        return answer, self._draft(answer, cancelled, None)

    def _draft(self, answer: Answer, cancelled: Flag, ahead: int | None) -> Draft:
        def work() -> Generator[int | None, None, None]:
            prompt, clips = self._prompt(answer.past, answer.said)
            first = True
            for item in self._chat.reply(prompt, clips, self._sampling.max_new_tokens):
                if first and item is not None:
                    first = False
                    answer.encoded_at = self._chat.encoded_at
                    answer.prefilled_at = self._chat.prefilled_at
                yield item

        draft = Draft(self._guarded(work), cancelled, ahead)
        self._ask(draft)
        return draft

    def _ask(self, draft: Draft) -> None:
        if self._thread is None:
            raise ModelError("Voxtral is not loaded.")
        self._thread.ask(draft)

    def _tokens(self, draft: Draft) -> Iterator[int]:
        try:
            yield from draft.tokens()
        except Exception as error:
            raise self._explained(error) from error
        finally:
            draft.leave()

    def _note(self, answer: Answer, draft: Draft, marks: Marks, released: float) -> None:
        if not isinstance(answer.said, str):
            marks.mark(Mark.ENCODED, answer.encoded_at)
        marks.mark(Mark.PREFILLED, answer.prefilled_at)
        marks.speculative_s += sum(
            min(end, released) - start for start, end in draft.worked if start < released
        )

    def transcribe(self, said: Utterance, cancelled: Flag) -> Iterator[Token]:
        most = 16 + int(said.seconds * WORDS_PER_SECOND)

        def work() -> Generator[int | None, None, None]:
            clip = self._clip(said)
            prompt = transcription(self._tekken.encode, clip, None)
            yield from self._writer.reply(prompt, [clip], most)

        draft = Draft(self._guarded(work), cancelled, None)
        self._ask(draft)
        text = Detokenizer(self._tekken)
        for token in self._tokens(draft):
            yield Token(text.text(token), token)
        if rest := text.rest():
            yield Token(rest)

    def close(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.close()
            del self._chat, self._writer

    # On the model's thread.

    def _prompt(self, past: Past, said: Utterance | str | None) -> tuple[Elements, list[Clip]]:
        """The prompt and the clips in it; of a past that is too long, the latest part."""
        longest = self._chat.longest - self._sampling.max_new_tokens
        while True:
            exchanges = [Exchange(self._said(turn.said), self._reply(turn)) for turn in past]
            now = None if said is None else self._said(said)
            prompt = chat(self._tekken.encode, self._instruction, exchanges, now)
            if len(prompt) <= longest or not past:
                break
            past = past[1:]
        clips = [s for s in (*(e.said for e in exchanges), now) if isinstance(s, Clip)]
        numbers = {clip.number for clip in clips}
        self._clips = [(whose, clip) for whose, clip in self._clips if clip.number in numbers]
        self._chat.ears.forget_all_but(numbers)
        return prompt, clips

    def _said(self, said: Utterance | str) -> Clip | str:
        return said if isinstance(said, str) else self._clip(said)

    def _reply(self, turn: PastTurn) -> list[int]:
        """The very tokens of a reply; text is made tokens only if another brain wrote it."""
        ids = [token.id for token in turn.reply if token.id is not None]
        return ids or self._tekken.encode(turn.reply_text)

    def _clip(self, said: Utterance) -> Clip:
        """The same clip for the same utterance."""
        for whose, clip in self._clips:
            if whose.is_same(said):
                return clip
        clip = Clip(next(self._numbers), without_trailing_zeros(said.samples))
        self._clips.append((said, clip))
        return clip

    def _guarded(self, work: Work) -> Work:
        """`work`, after whose failure the next one finds everything as at the start."""

        def guarded() -> Generator[int | None, None, None]:
            try:
                yield from work()
            except Exception:
                with contextlib.suppress(RuntimeError):
                    self._recover()
                raise

        return guarded

    def _recover(self) -> None:
        import torch

        self._clips = []
        self._chat.ears.forget_all_but(set())
        for loop in (self._chat, self._writer):
            loop.forget()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    # Failures.

    def _explained(self, error: Exception) -> Exception:
        """`error` as one sentence; itself if it is a bug."""
        sentence = _sentence(error)
        if sentence is None:
            return error
        self._failures += 1
        if self._failures < FAILURES and not _is_sticky(error):
            return ModelError(sentence)
        return ModelLost(sentence, RESTART)


GREEDY = Sampling(0, 0, 0.0, 1.0, 0, 1.0)


def _sentence(error: Exception) -> str | None:
    from voxtui.brains.voxtral.generate import NotNumbers, TooLong

    match error:
        case NotNumbers():
            return "Voxtral computed something that is not a number."
        case TooLong():
            return "What was said is longer than Voxtral can hear at once."
        case RuntimeError() if "not enough memory" in str(error):
            return "There is no memory left for this turn."
        case RuntimeError() if _is_full(error):
            return "The GPU has no memory left for this turn."
        case RuntimeError() if any(name in str(error) for name in ("CUDA", "CUDNN", "CUFFT")):
            return f"The GPU failed: {_first_line(error)}."
        case _:
            return None


def _is_full(error: Exception) -> bool:
    """Whether the device ran out of memory: CUDA's libraries have words of their own for it."""
    import torch

    words = ("out of memory", "ALLOC_FAILED")
    return isinstance(error, torch.OutOfMemoryError) or any(word in str(error) for word in words)


def _is_sticky(error: Exception) -> bool:
    """After an error of the device, not of an allocation, the process cannot use it any more.

    Torch and Triton each say it in their own words.
    """
    words = ("CUDA error", "Triton Error [CUDA]")
    return any(word in str(error) for word in words) and not _is_full(error)


def weights_unusable(directory: Path, error: Exception) -> ModelError:
    return ModelError(
        f"{directory} holds no Voxtral that can be loaded: {_first_line(error)}.",
        "Fetch it again, or set brain.voxtral.model to another.",
    )


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


T = TypeVar("T")


def _patiently(
    progress: Progress, step: str, work: Callable[[], T],
    done: Callable[[], float | None] = lambda: None,
) -> T:  # fmt: skip
    """Do `work` on a thread of its own and report `step`, and how much is `done`, until it is over.

    If reporting raises, the work is left to end by itself.
    """
    ended: SimpleQueue[tuple[T | None, BaseException | None]] = SimpleQueue()

    def run() -> None:
        try:
            ended.put((work(), None))
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            ended.put((None, error))

    threading.Thread(target=run, name="loading Voxtral", daemon=True).start()
    while True:
        progress(step, done())
        with contextlib.suppress(Empty):
            result, error = ended.get(timeout=PATIENCE_SECONDS)
            if error is not None:
                raise error
            return cast("T", result)
