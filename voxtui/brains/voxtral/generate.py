"""Token generation from a prompt: sampling, and the loop over one sequence with one KV cache."""

# torch and transformers are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass

import torch
from torch import Tensor

from voxtui.brains.voxtral.audio_encoder import AudioEmbedder
from voxtui.brains.voxtral.decoder import Cache, Decoder, on_device
from voxtui.brains.voxtral.graphs import Graphs, Record, Work
from voxtui.brains.voxtral.prompt import EOS, PromptClip, PromptIds, clip_of, token_ids

GROWTH = 1024
"""Tokens by which a cache grows."""

PREFILL_BUCKETS = (64, 384, 768)
"""Lengths for which prefills are captured: a typed turn, one window of sound, two windows. A longer
prompt is prefilled in parts of the last length."""

REHEARSED = (1, 1, 5, 15, 40)
"""Lengths in seconds of the utterances that are answered at warm-up."""

KV_BUCKET, LINEAR_UP_TO = 512, 4096
"""Steps of the KV lengths for which graphs are captured: multiples of KV_BUCKET up to LINEAR_UP_TO,
then powers of two. Masked positions still cost time, so the steps are small."""

BROKEN = -1
"""The token id for logits that are not numbers."""


class NotNumbers(Exception):
    """The model's output contains NaN or infinity."""


class PromptTooLong(Exception):
    """The prompt and its reply exceed the model's context."""


class Sampler:
    """Samples the tokens of one reply. All state stays in fixed tensors for captured steps.

    Order and arithmetic are those of transformers' `generate`: repetition penalty, minimum length,
    temperature, top_k, top_p; then a race of exponentials, which is what `torch.multinomial` does.
    """

    def __init__(
        self,
        vocabulary: int,
        end: int,
        device: torch.device,
        *,
        temperature: float = 0.0,
        top_p: float = 1.0,
        top_k: int = 0,
        repetition_penalty: float = 1.0,
        min_new_tokens: int = 0,
        seed: int = 0,
    ) -> None:
        self.generator = torch.Generator(device)
        self.temperature = temperature
        self.top_p = top_p
        self.top_k = min(top_k, vocabulary)
        self.repetition_penalty = repetition_penalty
        self._least = min_new_tokens
        self._seed = seed
        self._seen = torch.zeros(vocabulary, dtype=torch.bool, device=device)
        self._count = torch.zeros((), dtype=torch.long, device=device)
        self._end = torch.zeros(vocabulary, dtype=torch.bool, device=device)
        self._end[end] = True
        self._race = torch.ones(vocabulary, device=device)
        self.logits = torch.zeros(vocabulary, device=device)
        """the logits of the latest pick, as the model computed them"""
        self._broken = torch.full((1,), BROKEN, device=device)
        self.takes_likeliest = False
        """whether to take the likeliest token instead of drawing one, also in captured steps"""

    def start(self, prompt: list[int]) -> None:
        """Begin a reply to these token ids. The same prompt gives the same choices."""
        self._count.zero_()
        if self.temperature:
            self.generator.manual_seed(self._seed + len(prompt))
        if self.repetition_penalty != 1.0:
            self._seen.zero_()
            self._seen.index_fill_(0, on_device(prompt, self._seen.device), True)

    def draw(self) -> None:
        """Draw for the next pick, separately: a captured step cannot hold a generator."""
        if self.takes_likeliest:
            self._race.fill_(1.0)
        elif self.temperature:
            self._race.exponential_(1.0, generator=self.generator)

    def pick(self, logits: Tensor) -> Tensor:
        """Choose a token id, shape (1,), from (vocabulary,) logits; BROKEN for NaN or infinity."""
        self.logits.copy_(logits)  # to float32
        sound = self.logits.isfinite().all()
        token = self._choose(self.process(self.logits)).view(1)
        self._count += 1
        if self.repetition_penalty != 1.0:
            self._seen.index_fill_(0, token, True)
        return torch.where(sound, token, self._broken)

    def process(self, logits: Tensor) -> Tensor:
        if self.repetition_penalty != 1.0:
            penalised = torch.where(
                logits < 0, logits * self.repetition_penalty, logits / self.repetition_penalty
            )
            logits = torch.where(self._seen, penalised, logits)
        if self._least:
            too_early = self._end & (self._count < self._least)
            logits = logits.masked_fill(too_early, -torch.inf)
        if not self.temperature:
            return logits
        logits = logits / self.temperature
        if self.top_k:
            floor = logits.topk(self.top_k).values[-1]
            logits = logits.masked_fill(logits < floor, -torch.inf)
        if self.top_p < 1.0:
            ordered, positions = logits.sort()
            unlikely = ordered.softmax(-1).cumsum(-1) <= 1 - self.top_p
            unlikely[-1:].fill_(False)  # `= False` would copy it from the host, as no graph can
            removed = torch.zeros_like(unlikely).scatter(0, positions, unlikely)
            logits = logits.masked_fill(removed, -torch.inf)
        return logits

    def _choose(self, logits: Tensor) -> Tensor:
        if not self.temperature:
            return logits.argmax()
        return (logits.softmax(-1) / self._race).argmax()


@dataclass(slots=True)
class RunCounts:
    prefills: int = 0
    prefilled: int = 0
    """the number of tokens"""
    steps: int = 0


class ReplyGenerator:
    """Generates replies, and computes only what is new in a prompt. One thread at a time.

    With `queue_ahead` it launches the next step before the host has read the last token. On a CPU,
    which computes at once, that would only delay the token.
    """

    def __init__(
        self, decoder: Decoder, embedder: AudioEmbedder, sampler: Sampler, capacity: int,
        queue_ahead: bool | None = None,
    ) -> None:  # fmt: skip
        self.decoder = decoder
        self.embedder = embedder
        self.sampler = sampler
        self.cache = Cache(decoder, capacity)
        self.calls = RunCounts()
        self.encoded_at: float | None = None
        self.prefilled_at: float | None = None
        self._device = device = decoder.embedding.device
        self._cuda = device.type == "cuda"
        self.queue_ahead = self._cuda if queue_ahead is None else queue_ahead
        self.graphs = Graphs()
        self.kv_buckets: list[int] = []
        """the KV lengths of the captured graphs; empty if nothing is captured"""
        # Tensors that graphs read and write, besides the cache and the sampler's state.
        self.embeddings = decoder.embedding.new_zeros(
            PREFILL_BUCKETS[-1], decoder.embedding.shape[1]
        )
        self._positions = torch.zeros(PREFILL_BUCKETS[-1], dtype=torch.long, device=device)
        self._last = torch.zeros(1, dtype=torch.long, device=device)
        self._hidden = self.embeddings.new_zeros(1, self.embeddings.shape[1])
        self.token = torch.zeros(1, dtype=torch.long, device=device)
        self._position = torch.zeros(1, dtype=torch.long, device=device)
        self._next_position = 0
        """the value of `_position` on the host, so that no copy from the device is needed"""
        self._ring = [torch.zeros(1, dtype=torch.long, pin_memory=self._cuda) for _ in range(4)]

    @property
    def longest(self) -> int:
        return self.cache.capacity if self.kv_buckets else self.decoder.longest

    def forget(self) -> None:
        with torch.inference_mode():  # as a cache that grew was created
            self.cache.clear()
            self.embeddings.zero_()

    def capture(self, record: Record) -> Generator[float, None, None]:
        """Capture all launches of a turn. Yields the fraction done after each part.

        Empties the cache, which then keeps its size. Raises the errors of `record`.
        """
        kv_buckets = [min(KV_BUCKET, self.cache.capacity)]
        while (last := kv_buckets[-1]) < self.cache.capacity:
            kv_buckets.append(
                min(last + KV_BUCKET if last < LINEAR_UP_TO else 2 * last, self.cache.capacity)
            )
        parts: list[tuple[str, Work, tuple[int, ...]]] = [("first", self._choose_first, ())]
        parts += [("step", self._take_step, (span, True)) for span in self._of_steps(kv_buckets)]
        parts += [
            ("prefill", self._fill, (count, span, True))
            for count in PREFILL_BUCKETS
            for span in kv_buckets
            if count <= span
        ]
        with torch.inference_mode():
            self.embedder.capture(record)
        for number, (name, work, shape) in enumerate(parts, 1):
            with torch.inference_mode():
                self._positions.copy_(torch.arange(len(self._positions)))
                self._position.zero_()
                self.graphs.capture(record, name, work, *shape)
            yield number / len(parts)
        self.kv_buckets = kv_buckets
        self.forget()

    def prepare(self, prompt: PromptIds, clips: list[PromptClip]) -> Generator[None, None, None]:
        """Prefill `prompt` ahead of time. Yields between the stages."""
        rows = yield from self._encode(clips)
        with torch.inference_mode():
            self._fit(len(prompt) + 1)
            if self.cache.held[: len(prompt)] != prompt:
                self._prefill(prompt, rows)

    def reply(
        self, prompt: PromptIds, clips: list[PromptClip], most: int
    ) -> Generator[int | None, None, None]:
        """Yield at most `most` tokens of the reply to `prompt`; None between earlier stages.

        Sets `encoded_at` and `prefilled_at` with the first token. Raises NotNumbers, PromptTooLong.
        """
        rows = yield from self._encode(clips)
        self.encoded_at = time.monotonic()
        encoded = self._event()
        with torch.inference_mode():
            self._fit(len(prompt) + most)
            self.sampler.start(token_ids(prompt))
            self._prefill(prompt, rows)
            self.sampler.draw()
            self.graphs.run("first", self._choose_first)
            self._position.fill_(len(prompt))
            self._next_position = len(prompt)
        prefilled = self._event()
        held = self.cache.held
        for count in range(1, most + 1):
            read = self._published()
            if ahead := self.queue_ahead and count < most:
                self._step()
            token = read()
            if count == 1:
                self._note(encoded, prefilled)
            if token == BROKEN:
                raise NotNumbers
            if ahead:
                held.append(token)
            if token == EOS:
                return
            yield token
            if count < most and not ahead:
                self._step()
                held.append(token)

    def _encode(self, clips: list[PromptClip]) -> Generator[None, None, dict[int, Tensor]]:
        """Return the embeddings of each clip by its number. Yields after each clip."""
        rows: dict[int, Tensor] = {}
        for clip in clips:
            with torch.inference_mode():
                rows[clip.number] = self.embedder.rows(clip)
            yield
        return rows

    def _fit(self, positions: int) -> None:
        if positions > self.longest:
            raise PromptTooLong
        if positions <= self.cache.capacity:
            return
        small = self.cache
        capacity = min(-(-positions // GROWTH) * GROWTH, self.decoder.longest)
        self.cache = Cache(self.decoder, capacity)
        self.cache.kv[:, :, : small.capacity] = small.kv
        self.cache.held = small.held

    def _prefill(self, prompt: PromptIds, rows: dict[int, Tensor]) -> None:
        """Bring `prompt` into the cache. Computes only what is new."""
        start = self.cache.truncate_to_common_prefix(prompt)
        for first in range(start, len(prompt), PREFILL_BUCKETS[-1]):
            new = prompt[first : first + PREFILL_BUCKETS[-1]]
            count, span, masked = self._shape(first, len(new))
            self._embed(new, rows)
            torch.arange(first, first + count, out=self._positions[:count])
            self._last.fill_(len(new) - 1)
            self.graphs.run("prefill", self._fill, count, span, masked)
            self.cache.held += new
        self.calls.prefills += 1
        self.calls.prefilled += len(prompt) - start

    def _shape(self, first: int, new: int) -> tuple[int, int, bool]:
        """Return how many positions to compute and to attend to, and whether a mask is needed.

        Uses the shape of a graph if one fits: surplus positions are masked, and overwritten later.
        """
        if self.kv_buckets:
            for count in PREFILL_BUCKETS:
                if new <= count <= self.cache.capacity - first:
                    return count, _least(self.kv_buckets, first + count), True
        return new, first + new, new > 1

    def _of_steps(self, kv_buckets: list[int]) -> list[int]:
        """Return the KV lengths of captured steps. Kernels need one: they read the used part."""
        return kv_buckets if self.decoder.decode_step is None else kv_buckets[-1:]

    def _embed(self, prompt_ids: PromptIds, rows: dict[int, Tensor]) -> None:
        ids = on_device(token_ids(prompt_ids), self._device)
        self.embeddings[: len(prompt_ids)].copy_(self.decoder.embed(ids))
        at = 0
        while at < len(prompt_ids):
            if prompt_ids[at] >= 0:
                at += 1
                continue
            # The ids of a clip are consecutive.
            number, first = clip_of(prompt_ids[at])
            part = rows[number][first : first + len(prompt_ids) - at]
            self.embeddings[at : at + len(part)].copy_(part)
            at += len(part)

    def _step(self) -> None:
        """Compute the next token. Stores the keys and values of the last one."""
        self._next_position += 1
        span = _least(self._of_steps(self.kv_buckets), self._next_position)
        with torch.inference_mode():
            self.sampler.draw()
            self.graphs.run("step", self._take_step, span, bool(self.kv_buckets))
        self.calls.steps += 1

    def run_steps(self, count: int) -> None:
        """Compute `count` further tokens, which nobody reads, and wait for them. For timings."""
        for _ in range(count):
            self._step()
        self._published()()

    # Operations that are captured: from fixed tensors to fixed tensors.

    def _fill(self, count: int, span: int, masked: bool) -> None:
        x, positions = self.embeddings[:count], self._positions[:count]
        hidden = self.decoder.run(x, positions, self.cache, span, masked)
        self._hidden.copy_(hidden.index_select(0, self._last))

    def _choose_first(self) -> None:
        self.token.copy_(self.sampler.pick(self.decoder.logits(self._hidden[0])))

    def _take_step(self, span: int, masked: bool) -> None:
        x = self.decoder.embed(self.token)
        hidden = self.decoder.run(x, self._position, self.cache, span, masked)
        self.token.copy_(self.sampler.pick(self.decoder.logits(hidden[0])))
        self._position += 1

    def _published(self) -> Callable[[], int]:
        """Return a function that waits for the latest token, while the device continues."""
        slot = self._ring[self.calls.steps % len(self._ring)]
        slot.copy_(self.token, non_blocking=True)
        if not self._cuda:
            return lambda: int(slot)
        copied = torch.cuda.Event()
        copied.record()

        def read() -> int:
            copied.synchronize()
            return int(slot)

        return read

    def _event(self) -> torch.cuda.Event | None:
        """Record the present time on the device's clock; None on a CPU."""
        if not self._cuda:
            return None
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _note(self, encoded: torch.cuda.Event | None, prefilled: torch.cuda.Event | None) -> None:
        self.prefilled_at = time.monotonic()
        if encoded is not None and prefilled is not None:
            self.encoded_at = self.prefilled_at - encoded.elapsed_time(prefilled) / 1000


def _least(kv_buckets: list[int], end: int) -> int:
    """Return the smallest bucket that holds `end` positions; `end` if none does."""
    return next((span for span in kv_buckets if span >= end), end)
