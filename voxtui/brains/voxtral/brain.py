"""Voxtral as a brain: the user's voice enters the context as sound and stays there as sound.

While the key is held, the history is brought into the KV cache. At each pause the utterance so far
is encoded, prefilled and answered for a few tokens. At release this speculation becomes the answer
if, and only if, the trimmed utterance consists of the same frames.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import math
import os
import threading
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Event as Flag
from typing import TYPE_CHECKING, TypeVar

from voxtui.brains.prompting import instruction
from voxtui.brains.reply_language import ReplyLanguage
from voxtui.brains.speculation import SpeculationThread
from voxtui.brains.voxtral.failures import (
    check_free_memory,
    first_line,
    is_failure,
    is_full,
    is_sticky,
    keep_for_good,
    sentence_of,
    weights_unusable,
)
from voxtui.brains.voxtral.loading import report_while
from voxtui.brains.voxtral.prompt import (
    EOS,
    Clip,
    Exchange,
    PromptIds,
    chat,
    transcription,
    without_trailing_zeros,
)
from voxtui.brains.voxtral.proving import Proving
from voxtui.brains.voxtral.text import Detokenizer, Tekken
from voxtui.brains.voxtral.verdict import FastPath, key_of, verdict_file
from voxtui.brains.voxtral.work import ModelWork, Timing, VoxtralReply
from voxtui.dialogue.data import (
    FRAME_SECONDS,
    SAMPLE_RATE,
    Origin,
    Token,
    UserTranscript,
    Utterance,
)
from voxtui.dialogue.interfaces import AS_CONFIGURED, Manner, OnWords, Past, PastTurn, Progress
from voxtui.dialogue.marks import Mark, Marks
from voxtui.dialogue.recording import Extent, Recording
from voxtui.errors import ModelError, ModelLost, how_to_install
from voxtui.models import cuda

if TYPE_CHECKING:
    # The benchmark of random weights imports this module without msgspec.
    from voxtui.brains.voxtral.decoder import Decoder
    from voxtui.brains.voxtral.embedder import AudioEmbedder
    from voxtui.brains.voxtral.generate import ReplyGenerator
    from voxtui.settings.schema import Config, Sampling

AHEAD_TOKENS = 8
"""Maximum tokens of a reply that are computed before the release, to limit the extra work."""

SCHEDULE_SECONDS = 0.5
"""Speech without a pause after which the utterance so far is answered anyway: this keeps the GPU
from lowering its clocks, and encodes each complete window early."""

SLOW_SECONDS = 0.25
"""A machine that takes longer for an utterance prefills only the history, because a speculative
reply would still be running at the release."""

SHARE = 0.25
"""Largest share of the key's hold time that speculative replies may take."""

REHEARSAL_SECONDS = 3.0
"""No further rehearsal begins after this time, because on a CPU each takes many seconds."""

CAPACITY = 4096
"""Tokens of cache at first: five spoken turns, their replies, and some text."""

CAPTURED_CAPACITY = 8192
"""Tokens of the cache of a fast path (1 GB). It cannot grow, because graphs use its address."""

WRITING_CAPACITY = 1024

WORDS_PER_SECOND = 10
"""A transcript has fewer tokens than this for each second, however fast the speech."""

FAILURES = 2
"""Failed turns in a row after which the model counts as lost."""

CHECK_EVERY = 1000
"""Tokens of a fast path, of which one is computed plainly as well."""

LONGEST_SPEECH_SECONDS = 120.0
"""Time after which speech counts as over even if no last sound was noted."""

RESTART = "Restart voxtui to load Voxtral again."


@dataclass(slots=True)
class LiveUtterance:
    """An utterance while it is being spoken."""

    past: Past
    recording: Recording
    cancelled: Flag
    manner: Manner
    speculated_frames: int = 0
    """frames that the latest speculative reply covers"""


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
        self._numbers = itertools.count()
        self._clips: list[tuple[Utterance, Clip]] = []
        self._live: LiveUtterance | None = None
        self.took = math.inf
        """seconds for an utterance; the fastest so far"""
        self._failures = 0
        self._lost = False
        """the device is unusable until the process ends"""
        self._thread: SpeculationThread | None = None
        self._device = "not loaded"
        self.path: FastPath | None = None
        """the fast path that answers; None: the plain one"""
        self._proving: Proving | None = None
        self._unchecked = CHECK_EVERY
        """tokens since a token of the fast path was compared; the first reply is checked"""
        self._working = 0
        """replies and transcriptions under way"""
        self._sounding: tuple[Marks, Flag] | None = None
        """of the last turn, which may still be heard"""
        self._closing = Flag()
        self._between_turns = threading.Lock()
        """guards the beginning of a turn and of a switch, so that neither ends the other's work"""

    @property
    def description(self) -> str:
        path = f", {self.path}" if self.path else ""
        return f"voxtral: {self._directory.name} on {self._device}{path}"

    # Start-up.

    def warm_up(self, progress: Progress, manner: Manner = AS_CONFIGURED) -> None:
        if self._download is not None:
            self._fetch(self._download, progress)
        report_while(progress, "Voxtral", lambda stopping: self._load())
        self._reply_language.warm_up()
        self._thread = SpeculationThread("voxtui-voxtral")
        report_while(progress, "warming up", self._rehearse)
        if self._proving is not None:
            self._use_what_is_proved(self._proving, progress)

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
        try:
            import torch

            from voxtui.brains.voxtral import fp8 as quantized
            from voxtui.brains.voxtral import weights

            self.tekken = Tekken(self._directory)
        except ImportError as error:
            raise ModelError("Voxtral is not installed.", how_to_install("voxtral")) from error
        except (OSError, ValueError, KeyError) as error:
            raise weights_unusable(self._directory, error) from error
        device = weights.best_device()
        if device.type == "cuda":
            self._device = self._device_name = torch.cuda.get_device_name(device)
        else:
            self._device = "the CPU"
            if cuda.is_likely():
                self._notify(f"Voxtral runs on the CPU, slowly. {cuda.why_unusable()}".rstrip())
            # One core stays free for the sound.
            torch.set_num_threads(max(1, (os.cpu_count() or 2) - 1))
        quantized_weights = self._config.brain.voxtral.quantization == "fp8"
        if quantized_weights:
            quantized.check(device)
        try:
            decoder, embedder = weights.load(self._directory, device)
            if quantized_weights and not self._quantise(decoder, embedder):
                del decoder, embedder  # the GPU may have no room for both
                decoder, embedder = weights.load(self._directory, device)
            self.generator = self._loop(decoder, embedder, self._sampling, CAPACITY)
            self._plain = self.generator
            self.transcriber = self._loop(decoder, embedder, _greedy(), WRITING_CAPACITY)
        except Exception as error:
            if is_full(error):
                raise ModelError(
                    f"Too little free memory on {self._device} for Voxtral.",
                    "`nvidia-smi` shows what uses it.",
                ) from error
            raise weights_unusable(self._directory, error) from error
        if device.type == "cuda" and self._config.brain.voxtral.fast == "auto":
            key = key_of(self._device_name, self._config.brain.voxtral.quantization)
            self._proving = Proving(key, verdict_file(), self, self._notify)

    def _quantise(self, decoder: Decoder, embedder: AudioEmbedder) -> bool:
        """Apply fp8 weights. Return False, with a sentence, if they do not work or hear worse.

        `decoder` may then hold them all the same.
        """
        from voxtui.brains.voxtral import fp8, step
        from voxtui.brains.voxtral.accuracy import AccuracyCheck

        try:
            step.keep_compiled_kernels()
            check = AccuracyCheck(decoder, embedder)
            fp8.quantise(decoder)
            check.verify(decoder)
        except ModelError as error:
            self._notify(f"Voxtral runs without fp8. {error.message}")
            return False
        self._device += ", fp8 weights"
        return True

    def _loop(
        self, decoder: Decoder, embedder: AudioEmbedder, sampling: Sampling, capacity: int
    ) -> ReplyGenerator:
        from voxtui.brains.voxtral.generate import ReplyGenerator
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
        return ReplyGenerator(decoder, embedder, sampler, capacity)

    # Fast paths.

    def _use_what_is_proved(self, proving: Proving, progress: Progress) -> None:
        """Switch to the fastest path of the verdict. `trial_first`: complete that before."""
        if self._trial_first and not proving.is_complete:
            report_while(progress, "trying fast paths", proving.try_paths)
        if fastest := proving.verdict.fastest:
            report_while(
                progress, f"capturing the path {fastest.path}",
                lambda stopping: self.switch(fastest.path),
            )  # fmt: skip
        if self.path is not None:
            report_while(progress, "warming up", self._rehearse)

    @property
    def busy(self) -> bool:
        """Return True while a turn is under way, from the key's press to the last sound."""
        live, sounding = self._live, self._sounding
        if self._working or (live is not None and not live.cancelled.is_set()):
            return True
        if sounding is None:
            return False
        marks, cancelled = sounding
        began = marks.at(Mark.FIRST_AUDIO)
        if began is None or cancelled.is_set() or marks.at(Mark.LAST_SOUND) is not None:
            return False
        return time.monotonic() - began < LONGEST_SPEECH_SECONDS

    @contextlib.contextmanager
    def _turn(self) -> Generator[None]:
        """Keep a switch from beginning within the block."""
        with self._between_turns:
            self._working += 1
        try:
            yield
        finally:
            with self._between_turns:
                self._working -= 1

    def switch(self, path: FastPath) -> bool:
        """Answer by `path` from the next turn on. Return False if a turn interrupted that.

        If the path fails, the plain one stays, and the user gets a sentence. Any thread but the
        model's. Raises ModelLost if the device is unusable afterwards.
        """
        switched = False

        def work() -> Generator[int | None, None, None]:
            nonlocal switched
            try:
                loop = yield from self._captured(path)
            except Exception as error:  # noqa: BLE001 - reported; works without
                why = "The GPU has no memory for it" if is_full(error) else first_line(error)
                self._notify(f"Voxtral answers without the path `{path}`: {why}.")
                self.generator.forget()  # raises if the device is lost
            else:
                self.generator, self.path = loop, path
            switched = True

        return self._run_between_turns(work) and switched

    def check(self) -> bool:
        """Compute a token plainly as well, and drop the fast path if it differs.

        Return False if a turn interrupted that. Any thread but the model's.
        """
        checked = False

        def work() -> Generator[int | None, None, None]:
            nonlocal checked
            yield None
            held = self.generator.cache.held
            if self.path is not None and held and held[-1] >= 0:
                from voxtui.brains.voxtral import fp8
                from voxtui.brains.voxtral.equality import compare_last

                layers = len(self.generator.embedder.encoder.layers)
                plain = fp8.without_kernels(self._plain.decoder)
                found = compare_last(self.generator, plain, layers)
                if found.why:
                    self._drop(f"A token differed from the plain path. {found.why}", True)
            checked = True

        return self._run_between_turns(self._guarded(work)) and checked

    def _run_between_turns(self, work: Callable[[], Generator[int | None, None, None]]) -> bool:
        """Run `work` on the model's thread. Return False during a turn; a new one ends the work."""
        with self._between_turns:
            if self.busy:
                return False
            request = self._request(ModelWork(work, self._closing))
        for _ in self._tokens(request):
            pass
        return True

    def _captured(self, path: FastPath) -> Generator[None, None, ReplyGenerator]:
        """Capture `path`, on the model's thread. Yields where a turn may interrupt it."""
        from voxtui.brains.voxtral import graphs, step

        self._use_plain()  # never two fast paths: see CudaRecorder
        decoder, embedder = copy.copy(self._plain.decoder), self._plain.embedder
        check_free_memory(decoder.embedding.device)
        captured = False
        try:
            step.keep_compiled_kernels()
            if kernels := step.kernels_of(path):
                step.enable(decoder, kernels)
            loop = self._loop(decoder, embedder, self._sampling, CAPTURED_CAPACITY)
            for _ in loop.capture(graphs.CudaRecorder()):
                yield
            captured = True
        finally:
            if not captured:  # it failed, or a turn has priority
                embedder.graphs.clear()
        return loop

    def _drop(self, why: str, for_good: bool) -> None:
        """Answer by the plain path from now on. `for_good`: after the next start too.

        On the model's thread.
        """
        path = self.path
        self._use_plain()
        if path is not None and self._proving is not None:
            self._proving.drop(path, why, for_good)

    def _use_plain(self) -> None:
        """Answer by the plain path, and let go of the graphs and the cache of a fast one."""
        self.path, self.generator = None, self._plain
        self.generator.embedder.graphs.clear()

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
            for count, _ in enumerate(self._tokens(reply), 1):
                if count == AHEAD_TOKENS:
                    break
            self.took = min(self.took, reply.worked_before(time.monotonic()))
            for count, _ in enumerate(self.transcribe(utterance, stopping)):
                if count == AHEAD_TOKENS:
                    break
        self._prepare((), Flag())

    # While the key is held.

    def listen(
        self,
        past: Past,
        recording: Recording,
        cancelled: Flag,
        manner: Manner = AS_CONFIGURED,
        on_words: OnWords | None = None,
    ) -> None:
        with self._between_turns:
            self._live = LiveUtterance(past, recording, cancelled, manner)
        self._prepare(past, cancelled, manner)

    def _prepare(self, past: Past, cancelled: Flag, manner: Manner = AS_CONFIGURED) -> None:
        """Bring the history into the cache, up to the position of the user's voice."""

        def work() -> Generator[int | None, None, None]:
            prompt, clips = self._prompt(past, None, manner)
            yield from self.generator.prepare(prompt, clips)

        self._request(ModelWork(self._guarded(work), cancelled))

    def wake(self) -> None:
        live = self._live
        if live is None:
            return
        extent = live.recording.extent
        if self._is_time(live, extent):
            live.speculated_frames = extent.frames
            so_far = live.recording, extent
            self._speculate(live.past, so_far, live.cancelled, AHEAD_TOKENS, live.manner)

    def read(
        self,
        past: Past,
        progress: Callable[[int, int], object],
        cancelled: Flag,
        manner: Manner = AS_CONFIGURED,
    ) -> None:
        """Do nothing: a GPU reads a text in milliseconds, and the transcript comes first."""

    def read_ahead(
        self, past: Past, text: str, cancelled: Flag, manner: Manner = AS_CONFIGURED
    ) -> None:
        """Do nothing, because a GPU reads a typed text in milliseconds."""

    def _is_time(self, live: LiveUtterance, extent: Extent) -> bool:
        """Return True at a pause, and after speech without one, if the machine is fast enough."""
        if extent.speech_seconds < self._config.vad.min_speech_ms / 1000:
            return False
        if self.took > SLOW_SECONDS:
            return False
        new = extent.frames - live.speculated_frames
        if new * FRAME_SECONDS < self.took / SHARE:
            return False
        if not extent.quiet_frames:
            return new * FRAME_SECONDS >= SCHEDULE_SECONDS
        return new >= extent.quiet_frames  # once in a pause

    # Answering.

    def reply(
        self,
        past: Past,
        user_input: Utterance | str,
        marks: Marks,
        cancelled: Flag,
        manner: Manner = AS_CONFIGURED,
    ) -> Generator[UserTranscript | Token]:
        with self._turn():
            self._live = None
            self._sounding = marks, cancelled
            marks.path = self.path or ""
            for item in self._reply_by_model(past, user_input, marks, cancelled, manner):
                yield item
                self._unchecked += self.path is not None
            self._failures = 0
        if self._proving is not None:
            check = self.path is not None and self._unchecked >= CHECK_EVERY
            self._unchecked = 0 if check else self._unchecked
            self._proving.after_turn(check)

    def _reply_by_model(
        self, past: Past, user_input: Utterance | str, marks: Marks, cancelled: Flag, manner: Manner
    ) -> Generator[UserTranscript | Token]:
        from voxtui.brains.voxtral import weights

        released = marks.at(Mark.RELEASED) or time.monotonic()
        if isinstance(user_input, str):
            yield UserTranscript(user_input)
        reply = self._speculate(past, user_input, cancelled, None, manner)
        text = Detokenizer(self.tekken)
        tokens = self._tokens(reply)
        for number, token in enumerate(tokens):
            if number == 0:
                if not isinstance(user_input, str):
                    marks.mark(Mark.ENCODED, reply.timing.encoded_at)
                marks.mark(Mark.PREFILLED, reply.timing.prefilled_at)
                marks.speculative_s += reply.worked_before(released)
                marks.drafted = len(reply.computed)
            yield Token(text.text(token), token)
            if number == 0:  # after the first token, because the query takes time
                marks.gpu_bytes = weights.gpu_bytes()
        if rest := text.rest():
            yield Token(rest)

    def _speculate(
        self,
        past: Past,
        user_input: UserInput,
        cancelled: Flag,
        ahead: int | None,
        manner: Manner = AS_CONFIGURED,
    ) -> VoxtralReply:
        """Begin a reply, or continue the newest one if it is to the same frames and history."""
        timing = Timing()

        def work() -> Generator[int | None, None, None]:
            prompt, clips = self._prompt(past, _utterance(user_input), manner)
            most = manner.limit(self._sampling.max_new_tokens)
            for item in self.generator.reply(prompt, clips, most):
                if item is not None and timing.prefilled_at is None:
                    timing.encoded_at = self.generator.encoded_at
                    timing.prefilled_at = self.generator.prefilled_at
                yield item

        origin = _origin(user_input)
        key = None if origin is None else (tuple(past), origin, manner)
        return self._request(VoxtralReply(self._guarded(work), timing, cancelled, ahead, key))

    def _request(self, work: Work) -> Work:
        if self._thread is None:
            raise ModelError("Voxtral is not loaded.")
        return self._thread.request(work)

    def _tokens(self, work: ModelWork) -> Iterator[int]:
        try:
            yield from work.tokens()
        except Exception as error:
            raise self._explained(error) from error

    def language(self, reply: str, marks: Marks) -> str:
        return self._reply_language.of(reply, marks)

    def transcribe(self, utterance: Utterance, cancelled: Flag) -> Iterator[Token]:
        """Yield the words, in `brain.language` or the language that is spoken. See Brain."""
        most = 16 + int(utterance.seconds * WORDS_PER_SECOND)

        def work() -> Generator[int | None, None, None]:
            before = list(self._clips)
            clip = self._clip(utterance)
            language = self._config.brain.language or None
            prompt = transcription(self.tekken.encode, clip, language)
            try:
                yield from self.transcriber.reply(prompt, [clip], most)
            finally:  # a long file is transcribed in many parts, none of which is needed again
                self._clips = before
                self.generator.embedder.forget_all_but({clip.number for _, clip in before})

        text = Detokenizer(self.tekken)
        with self._turn():
            written = self._request(ModelWork(self._guarded(work), cancelled))
            for token in self._tokens(written):
                yield Token(text.text(token), token)
            if rest := text.rest():
                yield Token(rest)

    @property
    def newest(self) -> ModelWork | None:
        """The work that was requested last, for tests and benchmarks to wait for."""
        newest = self._thread.newest if self._thread is not None else None
        return newest if isinstance(newest, ModelWork) else None

    def close(self) -> None:
        self._closing.set()
        if self._proving is not None:
            self._proving.close()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.close()
            if self._lost:
                keep_for_good((self.generator, self._plain, self.transcriber))
            del self.generator, self._plain, self.transcriber

    # On the model's thread.

    def _prompt(
        self, past: Past, user_input: Utterance | str | None, manner: Manner = AS_CONFIGURED
    ) -> tuple[PromptIds, list[Clip]]:
        """Return the prompt and its clips. Drops the oldest turns of a past that is too long."""
        told = self.instruction if manner.instruction is None else manner.instruction
        longest = self.generator.longest - self._sampling.max_new_tokens
        while True:
            exchanges = [
                Exchange(self._prompt_part(turn.user_input), self._reply(turn), turn.clock)
                for turn in past
            ]
            now = None if user_input is None else self._prompt_part(user_input)
            prompt = chat(self.tekken.encode, told, exchanges, now, manner.clock)
            if len(prompt) <= longest or not past:
                break
            past = past[1:]
        clips = [s for s in (*(e.user_input for e in exchanges), now) if isinstance(s, Clip)]
        numbers = {clip.number for clip in clips}
        self._clips = [(whose, clip) for whose, clip in self._clips if clip.number in numbers]
        self.generator.embedder.forget_all_but(numbers)
        return prompt, clips

    def _prompt_part(self, user_input: Utterance | str) -> Clip | str:
        return user_input if isinstance(user_input, str) else self._clip(user_input)

    def _reply(self, turn: PastTurn) -> list[int]:
        """Return the tokens of a reply. Encodes its text only if another brain wrote it."""
        ids = [token.id for token in turn.reply if token.id is not None]
        return ids or self.tekken.encode(turn.reply_text)

    def _clip(self, utterance: Utterance) -> Clip:
        """Return the clip of an utterance, the same one each time."""
        for whose, clip in self._clips:
            if whose.is_same(utterance):
                return clip
        clip = Clip(next(self._numbers), without_trailing_zeros(utterance.samples))
        self._clips.append((utterance, clip))
        return clip

    def _guarded(
        self, work: Callable[[], Generator[int | None, None, None]]
    ) -> Callable[[], Generator[int | None, None, None]]:
        """Return `work`, changed to reset all caches if it fails."""

        def guarded() -> Generator[int | None, None, None]:
            try:
                yield from work()
            except Exception as error:
                again = self._failures + is_failure(error) >= FAILURES and not is_sticky(error)
                if self.path is not None and (again or is_full(error)):
                    self._failures = 0
                    # Without its cache, 1 GB more are free.
                    self._drop(sentence_of(error) or first_line(error), not is_full(error))
                with contextlib.suppress(RuntimeError):
                    self._recover()
                raise

        return guarded

    def _recover(self) -> None:
        import torch

        self._clips = []
        self.generator.embedder.forget_all_but(set())
        for loop in (self.generator, self.transcriber):
            loop.forget()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    # Failures.

    def _explained(self, error: Exception) -> Exception:
        """Return a ModelError with one sentence for `error`; `error` itself if it is a bug."""
        sentence = sentence_of(error)
        if sentence is None:
            return error
        self._failures += is_failure(error)
        self._lost |= is_sticky(error)
        if self._failures < FAILURES and not self._lost:
            return ModelError(sentence)
        return ModelLost(sentence, RESTART)


def _greedy() -> Sampling:
    from voxtui.settings.schema import Sampling

    return Sampling(0, 0, 0.0, 1.0, 0, 1.0)


T = TypeVar("T")
Work = TypeVar("Work", bound=ModelWork)
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
