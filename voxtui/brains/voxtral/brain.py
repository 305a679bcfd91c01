"""Voxtral as a brain: the user's voice enters the context as sound and stays there as sound.

While the key is held, the history is brought into the KV cache. At each pause the utterance so far
is encoded, prefilled and answered for a few tokens. At release this speculation becomes the answer
if, and only if, the trimmed utterance consists of the same frames.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from threading import Event as Flag
from typing import TYPE_CHECKING

from voxtui.brains.prompting import instruction
from voxtui.brains.reply_language import ReplyLanguage
from voxtui.brains.voxtral import model
from voxtui.brains.voxtral.conversation import Conversation
from voxtui.brains.voxtral.failures import first_line, is_full, keep_for_good, sentence_of
from voxtui.brains.voxtral.fast_paths import FastPaths
from voxtui.brains.voxtral.live_utterance import LiveUtterance
from voxtui.brains.voxtral.loading import report_while
from voxtui.brains.voxtral.model_thread import ModelThread
from voxtui.brains.voxtral.prompt import Clip, PromptIds, transcription
from voxtui.brains.voxtral.proving import Proving
from voxtui.brains.voxtral.text import Detokenizer
from voxtui.brains.voxtral.turns import Turns
from voxtui.brains.voxtral.verdict import FastPath, key_of, verdict_file
from voxtui.brains.voxtral.work import ModelWork, Timing, VoxtralReply
from voxtui.dialogue.data import SAMPLE_RATE, Origin, Token, UserTranscript, Utterance
from voxtui.dialogue.protocols import (
    DEFAULT_OPTIONS,
    OnWords,
    Past,
    Progress,
    ReplyOptions,
    TurnRequest,
)
from voxtui.dialogue.recording import Extent, Recording
from voxtui.dialogue.timestamps import Milestone, Timestamps

if TYPE_CHECKING:
    # The benchmark of random weights imports this module without msgspec.
    from voxtui.brains.voxtral.generate import ReplyGenerator
    from voxtui.settings.schema import Config

AHEAD_TOKENS = 8
"""Maximum tokens of a reply that are computed before the release, to limit the extra work."""

REHEARSAL_SECONDS = 3.0
"""No further rehearsal begins after this time, because on a CPU each takes many seconds."""

WORDS_PER_SECOND = 10
"""A transcript has fewer tokens than this for each second, however fast the speech."""


class VoxtralBrain:
    """The checkpoint in `directory`: config.json, safetensors, tekken.json.

    `notify` gets a sentence for each setting that this machine cannot follow. `download` runs
    before the loading; it reports the bytes so far and the bytes of all files. `trial_first`:
    complete the trial of fast paths before it is ready, not beside the first conversation.
    """

    name = "voxtral"
    sends_to = ""

    def __init__(
        self, config: Config, directory: Path,
        notify: Callable[[str], object] = lambda sentence: None,
        download: Callable[[Callable[[int, int], object]], object] | None = None,
        trial_first: bool = False,
    ) -> None:  # fmt: skip
        self._config = config
        self._directory = directory
        self._notify = notify
        self._download = download
        self._trial_first = trial_first
        self._sampling = config.generation.sampling()
        self._reply_language = ReplyLanguage(config.brain.language)
        self.instruction = instruction(config)
        self._live: LiveUtterance | None = None
        self.took = math.inf
        """seconds for an utterance; the fastest so far"""
        self._device = "not loaded"
        self._loaded = False
        self._turns = Turns()
        self._thread = ModelThread(self._recover)

    @property
    def description(self) -> str:
        path = f", {self.path}" if self._loaded and self.path else ""
        return f"voxtral: {self._directory.name} on {self._device}{path}"

    @property
    def generator(self) -> ReplyGenerator:
        """Return the loop that answers."""
        return self.paths.generator

    @property
    def path(self) -> FastPath | None:
        """Return the fast path that answers; None: the plain one."""
        return self.paths.path

    # Start-up.

    def warm_up(self, progress: Progress, options: ReplyOptions = DEFAULT_OPTIONS) -> None:
        if self._download is not None:
            self._fetch(self._download, progress)
        report_while(progress, "Voxtral", lambda stopping: self._load())
        self._reply_language.warm_up()
        self._thread.start()
        report_while(progress, "warming up", self._rehearse)
        self.paths.use_what_is_proved(progress, self._trial_first)
        if self.path is not None:
            report_while(progress, "warming up", self._rehearse)

    def _fetch(
        self, download: Callable[[Callable[[int, int], object]], object], progress: Progress
    ) -> None:
        done: float | None = None

        def run(stopping: Flag) -> None:
            def on_bytes(here: int, size: int) -> None:
                nonlocal done
                done = here / size
                if stopping.is_set():
                    raise InterruptedError

            download(on_bytes)

        report_while(progress, f"fetching {self._directory.name}", run, lambda: done)

    def _load(self) -> None:
        loaded = model.load(self._directory, self._config, self._notify)
        self.tekken, self.transcriber = loaded.tekken, loaded.transcriber
        self._device = loaded.device
        plain = loaded.generator
        self._conversation = Conversation(loaded.tekken, plain.embedder, self.instruction)
        self.paths = FastPaths(plain, self._sampling, self._thread, self._turns, self._notify)
        voxtral = self._config.brain.voxtral
        if loaded.gpu and voxtral.fast == "auto":
            key = key_of(loaded.gpu, voxtral.quantization)
            self.paths.proving = Proving(key, verdict_file(), self.paths, self._notify)
        self._loaded = True

    def _rehearse(self, stopping: Flag) -> None:
        """Answer and transcribe noise, because the first use of each kernel is slow.

        Longer noise follows where that costs little: other lengths use other kernels.
        """
        import numpy as np

        from voxtui.brains.voxtral.generate import REHEARSED

        random, began = np.random.default_rng(0), time.monotonic()
        for number, seconds in enumerate(REHEARSED):
            if number > 1 and time.monotonic() - began > REHEARSAL_SECONDS:
                break
            noise = random.normal(0, 0.05, seconds * SAMPLE_RATE).astype(np.float32)
            utterance = Utterance(noise, ((0.0, float(seconds)),), 0.0)
            reply = self._speculate((), utterance, stopping, AHEAD_TOKENS)
            for count, _ in enumerate(self._thread.tokens(reply), 1):
                if count == AHEAD_TOKENS:
                    break
            self.took = min(self.took, reply.worked_before(time.monotonic()))
            for count, _ in enumerate(self.transcribe(utterance, stopping)):
                if count == AHEAD_TOKENS:
                    break
        self._prepare((), Flag())

    # While the key is held.

    def listen(
        self, request: TurnRequest, recording: Recording, on_words: OnWords | None = None
    ) -> None:
        self._turns.key_pressed(request.cancelled)
        self._live = LiveUtterance(request.past, recording, request.cancelled, request.options)
        self._prepare(request.past, request.cancelled, request.options)

    def _prepare(
        self, past: Past, cancelled: Flag, options: ReplyOptions = DEFAULT_OPTIONS
    ) -> None:
        """Bring the history into the cache, up to the position of the user's voice."""

        def work() -> Generator[int | None, None, None]:
            prompt, clips = self._prompt(past, None, options)
            yield from self.generator.prepare(prompt, clips)

        self._thread.request(ModelWork(self._thread.guarded(work), cancelled))

    def wake(self) -> None:
        live = self._live
        if live is None:
            return
        extent = live.recording.extent
        if live.is_time(extent, self.took, self._config.vad.min_speech_ms / 1000):
            live.speculated_frames = extent.frames
            so_far = live.recording, extent
            self._speculate(live.past, so_far, live.cancelled, AHEAD_TOKENS, live.options)

    def read(self, request: TurnRequest, progress: Callable[[int, int], object]) -> None:
        """Do nothing: a GPU reads a text in milliseconds, and the transcript comes first."""

    def read_ahead(self, request: TurnRequest) -> None:
        """Do nothing, because a GPU reads a typed text in milliseconds."""

    # Answering.

    def reply(self, request: TurnRequest) -> Generator[UserTranscript | Token]:
        count = 0
        with self._turns.replying(request.timestamps, request.cancelled):
            self._live = None
            request.timestamps.path = self.path or ""
            for item in self._reply_by_model(request):
                yield item
                count += 1
            self._thread.succeeded()
        self.paths.after_turn(count)

    def _reply_by_model(self, request: TurnRequest) -> Generator[UserTranscript | Token]:
        from voxtui.brains.voxtral import weights

        user_input, timestamps = request.user_input, request.timestamps
        released = timestamps.at(Milestone.RELEASED) or time.monotonic()
        if isinstance(user_input, str):
            yield UserTranscript(user_input)
        reply = self._speculate(request.past, user_input, request.cancelled, None, request.options)
        text = Detokenizer(self.tekken)
        tokens = self._thread.tokens(reply)
        for number, token in enumerate(tokens):
            if number == 0:
                if not isinstance(user_input, str):
                    timestamps.record(Milestone.ENCODED, reply.timing.encoded_at)
                timestamps.record(Milestone.PREFILLED, reply.timing.prefilled_at)
                timestamps.speculative_s += reply.worked_before(released)
                timestamps.drafted = len(reply.computed)
            yield Token(text.text(token), token)
            if number == 0:  # after the first token, because the query takes time
                timestamps.gpu_bytes = weights.gpu_bytes()
        if rest := text.rest():
            yield Token(rest)

    def _speculate(
        self,
        past: Past,
        user_input: UserInput,
        cancelled: Flag,
        ahead: int | None,
        options: ReplyOptions = DEFAULT_OPTIONS,
    ) -> VoxtralReply:
        """Begin a reply, or continue the newest one if it is to the same frames and history."""
        timing = Timing()

        def work() -> Generator[int | None, None, None]:
            prompt, clips = self._prompt(past, _utterance(user_input), options)
            most = options.limit(self._sampling.max_new_tokens)
            for item in self.generator.reply(prompt, clips, most):
                if item is not None and timing.prefilled_at is None:
                    timing.encoded_at = self.generator.encoded_at
                    timing.prefilled_at = self.generator.prefilled_at
                yield item

        origin = _origin(user_input)
        key = None if origin is None else (tuple(past), origin, options)
        return self._thread.request(
            VoxtralReply(self._thread.guarded(work), timing, cancelled, ahead, key)
        )

    def language(self, reply: str, timestamps: Timestamps) -> str:
        return self._reply_language.of(reply, timestamps)

    def transcribe(self, utterance: Utterance, cancelled: Flag) -> Iterator[Token]:
        """Yield the words, in `brain.language` or the language that is spoken. See Brain."""
        most = 16 + int(utterance.seconds * WORDS_PER_SECOND)

        def work() -> Generator[int | None, None, None]:
            with self._conversation.passing():  # no part of a long file is needed again
                clip = self._conversation.clip(utterance)
                language = self._config.brain.language or None
                prompt = transcription(self.tekken.encode, clip, language)
                yield from self.transcriber.reply(prompt, [clip], most)

        text = Detokenizer(self.tekken)
        with self._turns.working():
            written = self._thread.request(ModelWork(self._thread.guarded(work), cancelled))
            for token in self._thread.tokens(written):
                yield Token(text.text(token), token)
            if rest := text.rest():
                yield Token(rest)

    @property
    def newest(self) -> ModelWork | None:
        """The work that was requested last, for tests and benchmarks to wait for."""
        return self._thread.newest

    def close(self) -> None:
        if not self._loaded:
            return
        self._loaded = False
        self.paths.close()
        self._thread.close()
        self.paths.proving = None  # refers to the paths, whose memory would wait for a collection
        if self._thread.lost:
            keep_for_good((self.paths, self.transcriber))
        del self.paths, self.transcriber, self._conversation

    # On the model's thread.

    def _prompt(
        self, past: Past, user_input: Utterance | str | None, options: ReplyOptions
    ) -> tuple[PromptIds, list[Clip]]:
        longest = self.generator.longest - self._sampling.max_new_tokens
        return self._conversation.prompt(past, user_input, options, longest)

    def _recover(self, error: Exception, again: bool) -> bool:
        """Reset all caches after a failure; drop a fast path that failed again. See ModelThread.

        Return True if a path was dropped.
        """
        import torch

        dropped = self.path is not None and (again or is_full(error))
        with contextlib.suppress(RuntimeError):
            if dropped:  # without its cache, 1 GB more are free
                self.paths.drop(sentence_of(error) or first_line(error), not is_full(error))
            self._conversation.forget()
            for loop in (self.generator, self.transcriber):
                loop.forget()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
        return dropped


UserInput = Utterance | tuple[Recording, Extent] | str
"""An utterance, or the part of a recording that would be one if it ended now, or typed text."""


def _utterance(user_input: UserInput) -> Utterance | str:
    if not isinstance(user_input, tuple):
        return user_input
    recording, extent = user_input
    utterance = recording.utterance(extent)
    assert utterance is not None  # a reply is speculated only once there is speech
    return utterance


def _origin(user_input: UserInput) -> Origin | None:
    match user_input:
        case str():
            return None
        case Utterance():
            return user_input.origin
        case (recording, extent):
            return recording.origin(extent)
