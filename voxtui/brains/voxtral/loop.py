"""Prompt in, tokens out: one sequence, one cache, each token the moment it exists."""

# torch and transformers are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from itertools import groupby
from typing import TypeAlias

import torch
from torch import Tensor

from voxtui.brains.voxtral.ears import Ears
from voxtui.brains.voxtral.model import Cache, Decoder
from voxtui.brains.voxtral.prompt import EOS, Clip, Elements, clip_of, token_ids
from voxtui.brains.voxtral.sampling import BROKEN, Sampler

GROWTH = 1024
"""Places a cache grows by."""

Stamp: TypeAlias = "float | torch.cuda.Event"


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


class Loop:
    """Answers prompts of which only what is new is computed. One thread at a time.

    `queue_ahead`: the next step is handed to the device before the host has read the last token;
    on a device that computes at once that would only make it late.
    """

    def __init__(
        self, decoder: Decoder, ears: Ears, sampler: Sampler, capacity: int,
        queue_ahead: bool | None = None,
    ) -> None:  # fmt: skip
        self.decoder = decoder
        self.ears = ears
        self.sampler = sampler
        self.cache = Cache(decoder, capacity)
        self.calls = Calls()
        self.encoded_at: float | None = None
        self.prefilled_at: float | None = None
        device = decoder.embedding.device
        self._cuda = device.type == "cuda"
        self._queue_ahead = self._cuda if queue_ahead is None else queue_ahead
        self._token = torch.zeros(1, dtype=torch.long, device=device)
        self._place = torch.zeros(1, dtype=torch.long, device=device)
        self._next_place = 0
        """the same number, known to the host without asking the device"""
        self._ring = [torch.zeros(1, dtype=torch.long, pin_memory=self._cuda) for _ in range(4)]

    def forget(self) -> None:
        """Start over with an empty cache, as after an error."""
        self.cache = Cache(self.decoder, self.cache.capacity)

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
        encoded = self._stamp()
        with torch.inference_mode():
            self._fit(len(prompt) + most)
            self.sampler.start(token_ids(prompt))
            hidden = self._prefill(prompt)
            self._take(self.sampler.pick(self.decoder.logits(hidden)), len(prompt))
        held = self.cache.held
        for count in range(1, most + 1):
            read = self._published()
            if ahead := self._queue_ahead and count < most:
                self._step()
            token = read()
            if count == 1:
                self._note(encoded)
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
        if places > self.decoder.longest:
            raise TooLong
        if places <= self.cache.capacity:
            return
        small = self.cache
        capacity = min(-(-places // GROWTH) * GROWTH, self.decoder.longest)
        self.cache = Cache(self.decoder, capacity)
        self.cache.keys[:, :, : small.capacity] = small.keys
        self.cache.values[:, :, : small.capacity] = small.values
        self.cache.held = small.held

    def _prefill(self, prompt: Elements) -> Tensor:
        """The hidden state of the last place of `prompt`, of which only what is new is computed."""
        start = self.cache.keep(prompt)
        new = prompt[start:]
        places = torch.arange(start, len(prompt), device=self._place.device)
        x = self._embedded(new)
        hidden = self.decoder.run(x, places, self.cache, len(prompt), masked=len(new) > 1)
        self.cache.held += new
        self.calls.prefills += 1
        self.calls.prefilled += len(new)
        return hidden[-1]

    def _embedded(self, elements: Elements) -> Tensor:
        ids = torch.tensor(token_ids(elements), device=self._place.device)
        x = self.decoder.embed(ids)
        at = 0
        for number, run in groupby(elements, lambda e: clip_of(e)[0] if e < 0 else None):
            places = list(run)
            if number is not None:
                first = clip_of(places[0])[1]
                x[at : at + len(places)] = self.ears.part(number, first, first + len(places))
            at += len(places)
        return x

    def _take(self, token: Tensor, place: int) -> None:
        self._token.copy_(token)
        self._place.fill_(place)
        self._next_place = place

    def _step(self) -> None:
        """The token after the last one; its keys and values go to the next place."""
        with torch.inference_mode():
            self._next_place += 1
            x = self.decoder.embed(self._token)
            hidden = self.decoder.run(x, self._place, self.cache, self._next_place, masked=False)
            self._token.copy_(self.sampler.pick(self.decoder.logits(hidden[0])))
            self._place += 1
        self.calls.steps += 1

    def _published(self) -> Callable[[], int]:
        """A way to read the latest token later, while the device goes on."""
        slot = self._ring[self.calls.steps % len(self._ring)]
        slot.copy_(self._token, non_blocking=True)
        if not self._cuda:
            return lambda: int(slot)
        copied = torch.cuda.Event()
        copied.record()

        def read() -> int:
            copied.synchronize()
            return int(slot)

        return read

    def _stamp(self) -> Stamp:
        if not self._cuda:
            return time.monotonic()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _note(self, encoded: Stamp) -> None:
        """The first token is here: when was the audio encoded?"""
        self.prefilled_at = time.monotonic()
        if not isinstance(encoded, torch.cuda.Event):
            self.encoded_at = encoded
            return
        now = torch.cuda.Event(enable_timing=True)
        now.record()
        now.synchronize()
        self.encoded_at = time.monotonic() - encoded.elapsed_time(now) / 1000
