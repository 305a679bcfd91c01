"""Voxtral as a brain: the user's voice enters the context as sound and stays there as sound.

While the key is held, the history is brought into the KV cache. At each pause the utterance so far
is encoded, prefilled and answered by a few tokens. At release this speculation becomes the answer
if, and only if, the trimmed utterance consists of the same frames.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event as Flag
from typing import TYPE_CHECKING

from voxtui.brains.prompting import instruction, transcript_limit
from voxtui.brains.reply_form import QUOTING
from voxtui.brains.reply_language import ReplyLanguage
from voxtui.brains.voxtral.cuda_errors import is_full, never_free, sentence_of
from voxtui.brains.voxtral.model_thread import ModelThread, ModelWork, PrefillTimes, report_while
from voxtui.brains.voxtral.prompt import (
    TOOL_CALLS,
    Detokenizer,
    PromptClip,
    PromptHistory,
    PromptIds,
    transcription,
)
from voxtui.dialogue.data import (
    FRAME_SECONDS,
    SAMPLE_RATE,
    FinishedCall,
    Origin,
    Token,
    ToolCall,
    UserTranscript,
    Utterance,
)
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
from voxtui.errors import ModelError, first_line, how_to_install

if TYPE_CHECKING:
    from voxtui.brains.voxtral.fast_path import FastPath
    from voxtui.brains.voxtral.generate import ReplyGenerator
    from voxtui.models.catalogue import Model
    from voxtui.settings.schema import Config

AHEAD_TOKENS = 8
"""Maximum tokens of a reply that are computed before the release, to limit the extra work."""

REHEARSAL_SECONDS = 3.0
"""Time after which no further rehearsal begins, because on a CPU each takes many seconds."""

CALL_TOKENS = 200
"""Maximum tokens of a tool call, however short replies must be."""

FAST = "fast path"

SCHEDULE_SECONDS = 0.5
"""Length of speech without a pause after which the utterance so far is answered anyway. This keeps
the GPU from lowering its clocks, and encodes each complete window early."""

SLOW_SECONDS = 0.25
"""Maximum time for an utterance on a machine that speculates replies. On a slower one a speculative
reply would still be running at the release, so only the history is prefilled."""

SHARE = 0.25
"""Maximum share of the key's hold time for speculative replies."""


@dataclass(slots=True)
class SpokenUtterance:
    request: TurnRequest
    recording: Recording
    speculated_frames: int = 0
    """the number of frames in the latest speculative reply"""

    def is_time(self, extent: Extent, took: float, least_speech: float) -> bool:
        """Return True at a pause, or after speech without one, if the machine is fast enough.

        `took` is this machine's time for an utterance, `least_speech` the minimum speech of an
        utterance, both in seconds.
        """
        if extent.speech_seconds < least_speech or took > SLOW_SECONDS:
            return False
        new = extent.frames - self.speculated_frames
        if new * FRAME_SECONDS < took / SHARE:
            return False
        if not extent.quiet_frames:
            return new * FRAME_SECONDS >= SCHEDULE_SECONDS
        return new >= extent.quiet_frames  # once in a pause


class VoxtralBrain:
    """The checkpoint in `directory`: config.json, safetensors, tekken.json.

    `notify` receives a sentence for each setting that is impossible on this machine. `fetches` is
    downloaded before loading.
    """

    name = "voxtral"
    sends_to = ""

    def __init__(
        self, config: Config, directory: Path,
        notify: Callable[[str], object] = lambda sentence: None,
        fetches: Model | None = None,
    ) -> None:  # fmt: skip
        self._config = config
        self._directory = directory
        self._notify = notify
        self._fetches = fetches
        self._sampling = config.generation.sampling()
        self._reply_language = ReplyLanguage(config.brain.language)
        self.instruction = instruction(config)
        self._live: SpokenUtterance | None = None
        self._transcript: ModelWork | None = None
        self.took = math.inf
        """the seconds for an utterance, the fastest so far"""
        self._device = "not loaded"
        self._on_gpu = self._loaded = False
        self.fast_path: FastPath | None = None
        """the fast path, or None while the plain path answers"""
        self.thread = ModelThread(self._recover)

    @property
    def description(self) -> str:
        path = f", {self.path}" if self.path else ""
        return f"voxtral: {self._directory.name} on {self._device}{path}"

    @property
    def path(self) -> str:
        """The name of the fast path; empty while the plain one answers."""
        return FAST if self.fast_path else ""

    @property
    def generator(self) -> ReplyGenerator:
        return self.fast_path.generator if self.fast_path else self._plain

    # Start-up.

    def warm_up(self, progress: Progress, options: ReplyOptions = DEFAULT_OPTIONS) -> None:
        if self._fetches is not None:
            self._fetch(self._fetches, progress)
        report_while(progress, "Voxtral", lambda stopping: self._load())
        self._reply_language.warm_up()
        self.thread.start()
        report_while(progress, "warming up", self._rehearse)
        if self._on_gpu and self._config.brain.voxtral.fast:
            report_while(progress, "trying the fast path", self._try_fast_path)
            if self.fast_path:
                report_while(progress, "warming up", self._rehearse)

    def _fetch(self, model: Model, progress: Progress) -> None:
        from voxtui.models.download import download

        step = f"fetching {self._directory.name}"
        progress(step, None)
        download(model, progress=lambda here, size: progress(step, here / size))

    def _load(self) -> None:
        try:
            from voxtui.brains.voxtral import weights

            loaded = weights.load_model(self._directory, self._config, self._notify)
        except ImportError as error:
            raise ModelError("Voxtral is not installed.", how_to_install("voxtral")) from error
        self.tekken, self.transcriber = loaded.tekken, loaded.transcriber
        self._device, self._on_gpu = loaded.device, loaded.on_gpu
        self._plain = loaded.generator
        self._conversation = PromptHistory(loaded.tekken, self.instruction, self._notify)
        self._loaded = True

    def _try_fast_path(self, stopping: Flag) -> None:
        from voxtui.brains.voxtral import fast_path

        prompts = fast_path.rehearsal_prompts(self.tekken.encode, self.instruction)
        try:
            found = fast_path.choose(self.thread, self._plain, self._sampling, prompts, stopping)
        except ModelError as error:
            self._notify(f"Voxtral answers without its fast path. {error}")
        else:
            self._use(found)

    def _use(self, fast_path: FastPath | None) -> None:
        """Answer by `fast_path`, or by the plain one. All share each encoded utterance."""
        self.fast_path = fast_path
        self.transcriber.embedder = self.generator.embedder

    def _rehearse(self, stopping: Flag) -> None:
        """Answer and transcribe noise, because the first use of each kernel and length is slow."""
        import numpy as np

        from voxtui.brains.voxtral.generate import REHEARSED

        random, began = np.random.default_rng(0), time.monotonic()
        for number, seconds in enumerate(REHEARSED):
            if number > 1 and time.monotonic() - began > REHEARSAL_SECONDS:
                break
            noise = random.normal(0, 0.05, seconds * SAMPLE_RATE).astype(np.float32)
            utterance = Utterance(noise, ((0.0, float(seconds)),), 0.0)
            reply = self._speculate((), utterance, stopping, AHEAD_TOKENS)
            for count, _ in enumerate(self.thread.tokens(reply), 1):
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
        self._live = SpokenUtterance(request, recording)
        if not self._is_transcribing:
            self._prepare(request.past, request.cancelled, request.options)

    def _prepare(
        self, past: Past, cancelled: Flag, options: ReplyOptions = DEFAULT_OPTIONS
    ) -> None:
        """Bring the history into the cache, up to the position of the user's voice."""

        def work() -> Generator[int | None, None, None]:
            prompt, clips = self._prompt(past, None, options)
            yield from self.generator.prepare(prompt, clips)

        self.thread.request(ModelWork(self.thread.guarded(work), cancelled))

    def wake(self) -> None:
        live = self._live
        if live is None or self._is_transcribing:
            return
        extent = live.recording.extent
        if live.is_time(extent, self.took, self._config.vad.min_speech_ms / 1000):
            live.speculated_frames = extent.frames
            so_far, request = (live.recording, extent), live.request
            self._speculate(request.past, so_far, request.cancelled, AHEAD_TOKENS, request.options)

    @property
    def _is_transcribing(self) -> bool:
        """True while a transcript is read, which work ahead would cut off."""
        return self._transcript is not None and self._transcript.has_work

    def read(self, request: TurnRequest, progress: Callable[[int, int], object]) -> None:
        """Do nothing: a GPU reads a text in milliseconds, and the transcript comes first."""

    def read_ahead(self, request: TurnRequest) -> None:
        """Do nothing, because a GPU reads a typed text in milliseconds."""

    # Answering.

    def reply(self, request: TurnRequest) -> Generator[UserTranscript | Token | ToolCall]:
        self._live = None
        request.timestamps.path = self.path
        yield from self._reply_by_model(request)
        self.thread.succeeded()

    def _reply_by_model(self, request: TurnRequest) -> Generator[UserTranscript | Token | ToolCall]:
        from voxtui.brains.voxtral.weights import gpu_bytes

        user_input, timestamps = request.user_input, request.timestamps
        released = timestamps.at(Milestone.RELEASED) or time.monotonic()
        if isinstance(user_input, str):
            yield UserTranscript(user_input)
        options, calls = request.options, request.calls
        reply = self._speculate(request.past, user_input, request.cancelled, None, options, calls)
        text = Detokenizer(self.tekken)
        tokens = self.thread.tokens(reply)
        for number, token in enumerate(tokens):
            if number == 0:
                if not isinstance(user_input, str):
                    timestamps.record(Milestone.ENCODED, reply.timing.encoded_at)
                timestamps.record(Milestone.PREFILLED, reply.timing.prefilled_at)
                timestamps.speculative_s += reply.worked_before(released)
                timestamps.drafted = len(reply.computed)
                timestamps.prompt_tokens = reply.timing.prompt_tokens
                for opening in self._opening(options, calls):
                    yield Token(text.text(opening), opening)
            if token == TOOL_CALLS or _is_forced(options, calls):
                written = [token, *tokens]
                timestamps.tokens = len(written)
                # After a call no second one follows: the result is the answer.
                call = options.allowed(self.tekken.read_call(written))
                yield Token(calls[-1].result) if calls else call
                return
            yield Token(text.text(token), token)
            if number == 0:  # after the first token, because the query takes time
                timestamps.gpu_bytes = gpu_bytes()
        if rest := text.rest():
            yield Token(rest)

    def _opening(self, options: ReplyOptions, calls: Sequence[FinishedCall]) -> list[int]:
        """Return the first tokens of a reply about calls that name the source of the results."""
        called = {finished.call.name for finished in calls}
        quoted = any(tool.quoted and tool.name in called for tool in options.tools)
        return self.tekken.encode(QUOTING.opening) if quoted else []

    def _speculate(
        self,
        past: Past,
        user_input: UserInput,
        cancelled: Flag,
        ahead: int | None,
        options: ReplyOptions = DEFAULT_OPTIONS,
        calls: tuple[FinishedCall, ...] = (),
    ) -> ModelWork:
        """Begin a reply, or continue the newest one if it is to the same frames and history."""
        timing = PrefillTimes()

        def work() -> Generator[int | None, None, None]:
            prompt, clips = self._prompt(past, _utterance(user_input), options, calls)
            forced = _is_forced(options, calls)
            prompt += [TOOL_CALLS] if forced else self._opening(options, calls)
            timing.prompt_tokens = len(prompt)
            left = options.limit(self._sampling.max_new_tokens)
            most = max(left, CALL_TOKENS) if options.offered() and not calls else left
            for item in self.generator.reply(prompt, clips, most):
                if item is not None and timing.prefilled_at is None:
                    timing.encoded_at = self.generator.encoded_at
                    timing.prefilled_at = self.generator.prefilled_at
                    left = most if forced or item == TOOL_CALLS else left
                yield item
                left -= item is not None
                if left <= 0:
                    return

        origin = _origin(user_input)
        key = None if origin is None else (tuple(past), origin, options, calls)
        return self.thread.request(
            ModelWork(self.thread.guarded(work), cancelled, ahead, key, timing)
        )

    def language(self, reply: str, timestamps: Timestamps) -> str:
        return self._reply_language.of(reply, timestamps)

    def transcribe(self, utterance: Utterance, cancelled: Flag) -> Iterator[Token]:
        """Yield the words, in `brain.language` or the spoken language. See Brain."""
        most = transcript_limit(utterance.seconds)

        def work() -> Generator[int | None, None, None]:
            with self._conversation.passing():  # no part of a long file is needed again
                clip = self._conversation.clip(utterance)
                language = self._config.brain.language
                spoken = self.tekken.encode(f"lang:{language}") if language else ()
                prompt = transcription(clip, spoken)
                yield from self.transcriber.reply(prompt, [clip], most)

        text = Detokenizer(self.tekken)
        self._transcript = self.thread.request(ModelWork(self.thread.guarded(work), cancelled))
        for token in self.thread.tokens(self._transcript):
            yield Token(text.text(token), token)
        if rest := text.rest():
            yield Token(rest)

    def close(self) -> None:
        if not self._loaded:
            return
        self._loaded = False
        self.thread.close()
        if self.thread.lost:
            never_free((self._plain, self.fast_path, self.transcriber))
        self.fast_path = None
        del self._plain, self.transcriber, self._conversation
        if self._on_gpu and not self.thread.lost:
            import torch

            torch.cuda.empty_cache()  # so that the next brain finds the memory free

    # On the model's thread.

    def _prompt(
        self,
        past: Past,
        user_input: Utterance | str | None,
        options: ReplyOptions,
        calls: Sequence[FinishedCall] = (),
    ) -> tuple[PromptIds, list[PromptClip]]:
        longest = self.generator.longest - max(self._sampling.max_new_tokens, CALL_TOKENS)
        return self._conversation.prompt(past, user_input, options, longest, calls)

    def _recover(self, error: Exception, again: bool) -> bool:
        """Reset all caches after a failure. Return True if that dropped a failing fast path."""
        import torch

        dropped = self.fast_path is not None and (again or is_full(error))
        with contextlib.suppress(RuntimeError):
            if dropped:  # without its cache, 1 GB more are free
                why = sentence_of(error) or first_line(error)
                self._notify(f"Voxtral answers without its fast path from now on. {why}")
                self._use(None)
            self._conversation.forget()
            for loop in (self.generator, self.transcriber):
                loop.forget()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
        return dropped


UserInput = Utterance | tuple[Recording, Extent] | str
"""An utterance, or a part of a recording that would be one if it ended now, or a typed text."""


def _is_forced(options: ReplyOptions, calls: Sequence[FinishedCall]) -> bool:
    """Return True if the reply can only be a call."""
    return options.tool_choice != "auto" and bool(options.offered()) and not calls


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
