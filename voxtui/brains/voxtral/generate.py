"""Prompt in, tokens out: one sequence, one cache, each token the moment it exists."""

# torch and transformers are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass

import torch

from voxtui.brains.voxtral.decoder import Cache, Decoder, on_device
from voxtui.brains.voxtral.embedder import AudioEmbedder
from voxtui.brains.voxtral.graphs import Graphs, Record, Work
from voxtui.brains.voxtral.prompt import EOS, Clip, Elements, clip_of, token_ids
from voxtui.brains.voxtral.sampling import BROKEN, Sampler

GROWTH = 1024
"""Places a cache grows by."""

CHUNKS = (64, 384, 768)
"""Places a captured prefill takes: for a typed turn, one window of sound, two. Nothing takes more
than the last at a time."""

REHEARSED = (1, 1, 5, 15, 40)
"""Seconds of the utterances that are tried before anybody speaks."""

SPAN, COARSE = 512, 4096
"""Places of the cache that captured work looks at: a multiple of the first, since what it looks at
in vain takes its time too; beyond the second, twice as many each."""


class NotNumbers(Exception):
    """The model's output holds NaN or infinity."""


class TooLong(Exception):
    """The prompt and its reply do not fit into the model's context."""


@dataclass(slots=True)
class Calls:
    """How often the model ran."""

    prefills: int = 0
    prefilled: int = 0
    """tokens"""
    steps: int = 0


class ReplyGenerator:
    """Answers prompts of which only what is new is computed. One thread at a time.

    `queue_ahead`: the next step is handed to the device before the host has read the last token;
    on a device that computes at once that would only make it late.
    """

    def __init__(
        self, decoder: Decoder, ears: AudioEmbedder, sampler: Sampler, capacity: int,
        queue_ahead: bool | None = None,
    ) -> None:  # fmt: skip
        self.decoder = decoder
        self.ears = ears
        self.sampler = sampler
        self.cache = Cache(decoder, capacity)
        self.calls = Calls()
        self.encoded_at: float | None = None
        self.prefilled_at: float | None = None
        self._device = device = decoder.embedding.device
        self._cuda = device.type == "cuda"
        self._queue_ahead = self._cuda if queue_ahead is None else queue_ahead
        self._graphs = Graphs()
        self.spans: list[int] = []
        """how many places captured work looks at; none: nothing is captured"""
        # What captured work reads and writes, besides the cache and the sampler's state.
        self._x = decoder.embedding.new_zeros(CHUNKS[-1], decoder.embedding.shape[1])
        self._places = torch.zeros(CHUNKS[-1], dtype=torch.long, device=device)
        self._last = torch.zeros(1, dtype=torch.long, device=device)
        self._hidden = self._x.new_zeros(1, self._x.shape[1])
        self.token = torch.zeros(1, dtype=torch.long, device=device)
        self._place = torch.zeros(1, dtype=torch.long, device=device)
        self._next_place = 0
        """the same number, known to the host without asking the device"""
        self._ring = [torch.zeros(1, dtype=torch.long, pin_memory=self._cuda) for _ in range(4)]

    @property
    def longest(self) -> int:
        """Places a prompt and its reply may take."""
        return self.cache.capacity if self.spans else self.decoder.longest

    def forget(self) -> None:
        """Start over with an empty cache, as after an error."""
        with torch.inference_mode():  # in which a cache that grew was made
            self.cache.clear()
            self._x.zero_()

    def capture(self, record: Record) -> Generator[float, None, None]:
        """Capture whatever a turn launches; tells after each part how much of it is done.

        Forgets the cache, which then keeps its size. Raises what `record` does.
        """
        spans = [min(SPAN, self.cache.capacity)]
        while (last := spans[-1]) < self.cache.capacity:
            spans.append(min(last + SPAN if last < COARSE else 2 * last, self.cache.capacity))
        parts: list[tuple[str, Work, tuple[int, ...]]] = [("first", self._choose_first, ())]
        parts += [("step", self._take_step, (span, True)) for span in self._of_steps(spans)]
        parts += [
            ("prefill", self._fill, (count, span, True))
            for count in CHUNKS
            for span in spans
            if count <= span
        ]
        with torch.inference_mode():
            self.ears.capture(record)
        for number, (name, work, shape) in enumerate(parts, 1):
            with torch.inference_mode():
                self._places.copy_(torch.arange(len(self._places)))
                self._place.zero_()
                self._graphs.capture(record, name, work, *shape)
            yield number / len(parts)
        self.spans = spans
        self.forget()

    def release(self) -> None:
        """Give up what was captured."""
        self.spans = []
        self._graphs.clear()
        self.ears.graphs.clear()
        self.forget()

    def prepare(self, prompt: Elements, clips: list[Clip]) -> Generator[None, None, None]:
        """Bring `prompt` into the cache ahead of time; pauses between its stages."""
        yield from self._encode(clips)
        with torch.inference_mode():
            self._fit(len(prompt) + 1)
            if self.cache.held[: len(prompt)] != prompt:
                self._prefill(prompt)

    def reply(
        self, prompt: Elements, clips: list[Clip], most: int
    ) -> Generator[int | None, None, None]:
        """The tokens of the reply to `prompt`, at most `most`; None between the stages before.

        Sets `encoded_at` and `prefilled_at` with the first token. Raises NotNumbers, TooLong.
        """
        yield from self._encode(clips)
        self.encoded_at = time.monotonic()
        encoded = self._event()
        with torch.inference_mode():
            self._fit(len(prompt) + most)
            self.sampler.start(token_ids(prompt))
            self._prefill(prompt)
            self.sampler.draw()
            self._graphs.run("first", self._choose_first)
            self._place.fill_(len(prompt))
            self._next_place = len(prompt)
        prefilled = self._event()
        held = self.cache.held
        for count in range(1, most + 1):
            read = self._published()
            if ahead := self._queue_ahead and count < most:
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

    def _encode(self, clips: list[Clip]) -> Generator[None, None, None]:
        for clip in clips:
            with torch.inference_mode():
                self.ears.rows(clip)
            yield

    def _fit(self, places: int) -> None:
        """Room for `places`. Raises TooLong."""
        if places > self.longest:
            raise TooLong
        if places <= self.cache.capacity:
            return
        small = self.cache
        capacity = min(-(-places // GROWTH) * GROWTH, self.decoder.longest)
        self.cache = Cache(self.decoder, capacity)
        self.cache.both[:, :, : small.capacity] = small.both
        self.cache.held = small.held

    def _prefill(self, prompt: Elements) -> None:
        """Bring `prompt` into the cache, of which only what is new is computed."""
        start = self.cache.keep(prompt)
        for first in range(start, len(prompt), CHUNKS[-1]):
            new = prompt[first : first + CHUNKS[-1]]
            count, span, masked = self._shape(first, len(new))
            self._embed(new)
            torch.arange(first, first + count, out=self._places[:count])
            self._last.fill_(len(new) - 1)
            self._graphs.run("prefill", self._fill, count, span, masked)
            self.cache.held += new
        self.calls.prefills += 1
        self.calls.prefilled += len(prompt) - start

    def _shape(self, first: int, new: int) -> tuple[int, int, bool]:
        """How many places to compute and to look at, and whether some of these are to be hidden.

        As captured, if that fits: what is computed too much is hidden, and overwritten later.
        """
        if self.spans:
            for count in CHUNKS:
                if new <= count <= self.cache.capacity - first:
                    return count, _least(self.spans, first + count), True
        return new, first + new, new > 1

    def _of_steps(self, spans: list[int]) -> list[int]:
        """Which of `spans` steps are captured for: kernels look at what is used of any."""
        return spans if self.decoder.single is None else spans[-1:]

    def _embed(self, elements: Elements) -> None:
        """Embeddings of `elements`, to where captured work finds them."""
        ids = on_device(token_ids(elements), self._device)
        self._x[: len(elements)].copy_(self.decoder.embed(ids))
        at = 0
        while at < len(elements):
            if elements[at] >= 0:
                at += 1
                continue
            # The elements of a clip stand in a row.
            number, first = clip_of(elements[at])
            rows = self.ears.part(number, first, first + len(elements) - at)
            self._x[at : at + len(rows)].copy_(rows)
            at += len(rows)

    def _step(self) -> None:
        """The token after the last one, whose keys and values go to the next place."""
        self._next_place += 1
        span = _least(self._of_steps(self.spans), self._next_place)
        with torch.inference_mode():
            self.sampler.draw()
            self._graphs.run("step", self._take_step, span, bool(self.spans))
        self.calls.steps += 1

    # Work that is captured: from fixed tensors to fixed tensors.

    def _fill(self, count: int, span: int, masked: bool) -> None:
        x, places = self._x[:count], self._places[:count]
        hidden = self.decoder.run(x, places, self.cache, span, masked)
        self._hidden.copy_(hidden.index_select(0, self._last))

    def _choose_first(self) -> None:
        self.token.copy_(self.sampler.pick(self.decoder.logits(self._hidden[0])))

    def _take_step(self, span: int, masked: bool) -> None:
        x = self.decoder.embed(self.token)
        hidden = self.decoder.run(x, self._place, self.cache, span, masked)
        self.token.copy_(self.sampler.pick(self.decoder.logits(hidden[0])))
        self._place += 1

    def _published(self) -> Callable[[], int]:
        """A way to read the latest token later, while the device goes on."""
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
        """Now, on the device's own clock, if it has one."""
        if not self._cuda:
            return None
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _note(self, encoded: torch.cuda.Event | None, prefilled: torch.cuda.Event | None) -> None:
        """The first token has been read, so what came before it is done: when?"""
        self.prefilled_at = time.monotonic()
        if encoded is not None and prefilled is not None:
            self.encoded_at = self.prefilled_at - encoded.elapsed_time(prefilled) / 1000


def _least(spans: list[int], end: int) -> int:
    """The least of `spans` that holds `end` places; if there is none, just as many."""
    return next((span for span in spans if span >= end), end)
