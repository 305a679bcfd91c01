"""The measured systems: our loop in each configuration, and transformers' `generate`."""

# torch and transformers are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import copy
import itertools
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import torch
import transformers

from voxtui.brains.voxtral.audio_encoder import AudioEmbedder
from voxtui.brains.voxtral.decoder import Decoder
from voxtui.brains.voxtral.generate import ReplyGenerator, Sampler
from voxtui.brains.voxtral.prompt import EOS, PromptClip, PromptIds, PromptTurn, chat, token_ids
from voxtui.brains.voxtral.weights import parts

RATE = 16_000

TOKENS = 32
"""Exact number of tokens of a reply in this benchmark."""

INSTRUCTION = "x" * 140
"""An instruction with the length of the default one: 35 tokens."""

PREFIX = 38
"""Tokens in the cache before the user's voice: three control tokens and the instruction."""

_numbers = itertools.count(1)


class System(Protocol):
    """Answers an utterance after a past, any number of times."""

    name: str

    def ready(self, past: Sequence[PromptTurn]) -> None:
        """Do the work that precedes the end of the utterance."""
        ...

    def tokens(
        self, past: Sequence[PromptTurn], said: PromptClip, most: int
    ) -> Iterator[object]: ...

    def behind(self, context: int, most: int) -> Iterator[object]:
        """Yield tokens after a context of text."""
        ...


class Streamed:
    """Replaces the tokenizer under TextIteratorStreamer: every token is a separate word."""

    def decode(self, ids: Any, **_: Any) -> str:
        return "".join(f"w{int(i)} " for i in ids)


def taken(model: Any) -> tuple[Decoder, AudioEmbedder]:
    """Return our parts of `model`, which stays usable: unfused weights share its memory."""
    shared: dict[int, Any] = {id(t): t for t in (*model.parameters(), *model.buffers())}
    return parts(copy.deepcopy(model, shared))


def noise(seconds: float) -> PromptClip:
    """Make a clip that no other call returned."""
    number = next(_numbers)
    random = np.random.default_rng(number)
    return PromptClip(number, random.normal(0, 0.1, round(seconds * RATE)).astype(np.float32))


def words(count: int) -> list[int]:
    """Return ids of ordinary text."""
    return [1000 + i % 997 for i in range(count)]


def encode(text: str) -> list[int]:
    """Return a token for every four characters, in place of a tokenizer."""
    return words(-(-len(text) // 4))


def clips_in(past: Sequence[PromptTurn]) -> list[PromptClip]:
    return [exchange.user_input for exchange in past if isinstance(exchange.user_input, PromptClip)]


class Ours:
    def __init__(
        self, name: str, decoder: Decoder, embedder: AudioEmbedder, capacity: int, **sampling: Any
    ) -> None:
        self.name = name
        device = decoder.embedding.device
        vocabulary = decoder.head.shape[0]
        sampler = Sampler(vocabulary, EOS, device, **(sampling | {"min_new_tokens": 2**31}))
        self.loop = ReplyGenerator(decoder, embedder, sampler, capacity)

    def ready(self, past: Sequence[PromptTurn]) -> None:
        """Do the work of a key press."""
        prompt = chat(encode, INSTRUCTION, past, None)
        for _ in self.loop.prepare(prompt, clips_in(past)):
            pass

    def stages(
        self, past: Sequence[PromptTurn], said: PromptClip, most: int
    ) -> Generator[int | None, None, None]:
        """Yield None after each encoded clip, then tokens. Raises if too much was reused."""
        prompt = chat(encode, INSTRUCTION, past, said)
        before = self.loop.calls.prefilled
        yield from self.loop.reply(prompt, [*clips_in(past), said], most)
        new = self.loop.calls.prefilled - before
        if new <= len(list(said.prompt_ids())):
            raise AssertionError(f"only {new} tokens were prefilled")

    def tokens(self, past: Sequence[PromptTurn], said: PromptClip, most: int) -> Iterator[int]:
        return (item for item in self.stages(past, said, most) if item is not None)

    def behind(self, context: int, most: int) -> Iterator[int]:
        prompt = _text(context)
        return (item for item in self.loop.reply(prompt, [], most) if item is not None)


class Generate:
    """transformers as its documentation shows it, with the whole history at every turn."""

    def __init__(self, model: Any, name: str, **options: Any) -> None:
        self.name = name
        self._model = model
        self._options = options
        self._extractor: Any = transformers.WhisperFeatureExtractor(feature_size=128)

    def ready(self, past: Sequence[PromptTurn]) -> None:
        """Do nothing: transformers prepares nothing."""

    def tokens(self, past: Sequence[PromptTurn], said: PromptClip, most: int) -> Iterator[str]:
        prompt = chat(encode, INSTRUCTION, past, said)
        return self._generate(prompt, [*clips_in(past), said], most)

    def behind(self, context: int, most: int) -> Iterator[str]:
        return self._generate(_text(context), [], most)

    def _forget_length(self) -> None:
        """Prevent that transformers makes each static cache as long as the longest so far."""
        self._model._previous_max_cache_length = -1

    def moments(self, context: int, most: int) -> list[float]:
        """Return the time of each token after a context of text, on `time.perf_counter`.

        Runs on this thread, because the graphs of a compiled step belong to the main thread.
        """
        at: list[float] = []

        class Noting(transformers.TextStreamer):
            def on_finalized_text(self, text: str, stream_end: bool = False) -> None:
                if text:
                    at.append(time.perf_counter())

        streamer = Noting(Streamed(), skip_prompt=True)  # type: ignore[arg-type]
        ids = self._ids(_text(context))
        self._forget_length()
        with torch.inference_mode():
            self._model.generate(
                ids, attention_mask=torch.ones_like(ids), streamer=streamer,
                do_sample=False, max_new_tokens=most, min_new_tokens=most, **self._options,
            )  # fmt: skip
        return at

    def _ids(self, prompt: PromptIds) -> torch.Tensor:
        return torch.tensor([token_ids(prompt)], device=self._model.device)

    def _generate(self, prompt: PromptIds, clips: list[PromptClip], most: int) -> Iterator[str]:
        device = self._model.device
        ids = self._ids(prompt)
        self._forget_length()
        options = dict(self._options)
        if clips:
            heard = torch.cat([self._features(c) for c in clips])
            options["input_features"] = heard.to(device, self._model.dtype)
        streamer = transformers.TextIteratorStreamer(Streamed(), skip_prompt=True)  # type: ignore[arg-type]
        failure: list[Exception] = []

        def run() -> None:
            try:
                with torch.inference_mode():
                    self._model.generate(
                        ids, attention_mask=torch.ones_like(ids), streamer=streamer,
                        do_sample=False, max_new_tokens=most, min_new_tokens=most, **options,
                    )  # fmt: skip
            except Exception as error:  # noqa: BLE001 - raised again where the tokens are read
                failure.append(error)
                streamer.end()  # otherwise its reader would wait forever

        thread = threading.Thread(target=run)
        thread.start()
        try:
            for text in streamer:
                if text:
                    yield text
        finally:
            thread.join()
        if failure:
            raise failure[0]

    def _features(self, said: PromptClip) -> torch.Tensor:
        filled = np.pad(said.samples, (0, said.windows * 30 * RATE - len(said.samples)))
        found = self._extractor(
            filled, sampling_rate=RATE, padding=False, truncation=False, return_tensors="pt"
        )
        return found.input_features.reshape(128, -1, 3000).transpose(0, 1)


def _text(context: int) -> PromptIds:
    return [1, 3, *words(context - 3), 4]
