"""The other side of the pipe of `trial`: measures one fast path beside the plain one.

The layers have the true shapes and random weights. Two of them are compared; for the times they
repeat to the depth of the model, so that a token reads as many bytes as in use.
"""

# torch and transformers are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import copy
import math
import os
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, TypeVar

import numpy as np
import torch

from voxtui.brains.voxtral import fp8, graphs, step
from voxtui.brains.voxtral.audio_tower import AudioTower
from voxtui.brains.voxtral.decoder import Decoder
from voxtui.brains.voxtral.embedder import AudioEmbedder
from voxtui.brains.voxtral.equality import Comparison, relative_bound
from voxtui.brains.voxtral.failures import first_line, is_full
from voxtui.brains.voxtral.generate import NotNumbers, ReplyGenerator
from voxtui.brains.voxtral.prompt import BEGIN_AUDIO, BOS, END_INST, EOS, INST, Clip, PromptIds
from voxtui.brains.voxtral.random_weights import random_model, tiny_config, true_config
from voxtui.brains.voxtral.sampling import Sampler
from voxtui.brains.voxtral.trial import Found, Setup, Signal
from voxtui.brains.voxtral.verdict import Result, Times
from voxtui.brains.voxtral.weights import best_device, parts
from voxtui.errors import ModelError

MEMORY = 2e9
"""Bytes of GPU memory that a process may take."""

LAYERS = 2
"""Distinct layers of the decoder and of the encoder."""

SMALL_VOCABULARY = 512
"""Of the model that transformers makes, whose embedding and last layer are replaced."""

BURST = 33
"""Tokens of a timing."""

SAMPLE_RATE = 16_000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Scale:
    """How much to compare and to time."""

    contexts: tuple[int, ...]
    """of short replies: around the edges of buckets and of the parts that a kernel cuts"""
    steps: int
    """of the longest reply"""
    capacity: int
    timed_context: int
    timed_capacity: int
    repeats: int
    """timings of each kind"""


TRUE = Scale((3, 31, 32, 33, 64, 129, 500, 511, 1022, 1100, 1600), 2000, 2560, 500, 1024, 20)
TINY = Scale((3, 33, 500), 40, 1024, 100, 512, 3)


class OutOfTime(Exception):
    """The GPU time is used up."""


class Leader(Sampler):
    """Takes the likeliest token, but never ends."""

    def __init__(self, vocabulary: int, device: torch.device) -> None:
        super().__init__(vocabulary, EOS, device, min_new_tokens=2**31)


class Follower(Leader):
    """Takes the token that the plain path took, whatever its own logits are."""

    def __init__(self, vocabulary: int, device: torch.device) -> None:
        super().__init__(vocabulary, device)
        self.token = torch.zeros((), dtype=torch.long, device=device)

    def _choose(self, logits: torch.Tensor) -> torch.Tensor:
        return self.token * 1  # a copy, because the result is written to


class Gate:
    """Closed while the user talks. Ends the process once the other end of the pipe is closed."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._open = threading.Event()
        self._open.set()
        self.pauses = 0
        threading.Thread(target=self._listen, name="voxtui-gate", daemon=True).start()

    def wait(self) -> None:
        self._open.wait()

    def _listen(self) -> None:
        try:
            while True:
                if self._pipe.recv() is Signal.PAUSE:
                    self._open.clear()
                    self.pauses += 1
                else:
                    self._open.set()
        except (EOFError, OSError):
            os._exit(1)


class Budget:
    """Counts GPU time, and lets work begin only while the gate is open."""

    def __init__(self, seconds: float, gate: Gate, alive: Callable[[], object]) -> None:
        self.spent = 0.0
        self._seconds = seconds
        self._gate = gate
        self._alive = alive
        self._said = -math.inf

    def run(self, work: Callable[[], T]) -> T:
        """Run `work`, which takes milliseconds. Raises OutOfTime."""
        self._gate.wait()
        began = time.perf_counter()
        if began - self._said > 1.0:
            self._alive()
            self._said = began
        found = work()
        self.spent += time.perf_counter() - began
        if self.spent > self._seconds:
            raise OutOfTime
        return found

    def measure(self, work: Callable[[], T]) -> T:
        """Run `work`, and again if a pause disturbed it. Raises OutOfTime."""
        while True:
            self._gate.wait()
            pauses = self._gate.pauses
            found = self.run(work)
            if self._gate.pauses == pauses:
                return found


def serve(pipe: Connection) -> None:
    """Try the path that the pipe names, send what was found, and end the process."""
    with suppress(EOFError, OSError):
        setup: Setup = pipe.recv()
        pipe.send(Signal.ALIVE)
        with suppress(OSError):
            os.nice(10)
        gate = Gate(pipe)
        budget = Budget(setup.seconds, gate, lambda: pipe.send(Signal.ALIVE))
        pipe.send(Found(judge(setup, budget), budget.spent))
    os._exit(0)  # CUDA may be unusable by now, and its clean-up would crash or wait


def judge(setup: Setup, budget: Budget) -> Result:
    """Return what this machine makes of the path. Raises no error of the path."""
    path, measuring = setup.path, None
    try:
        measuring = Measuring(setup, budget)
        return measuring.result()
    except OutOfTime:
        return Result(path, "not tried", f"It did not fit into {setup.seconds:.0f} s of GPU time.")
    except NotNumbers:
        return Result(path, "different", "A logit is not a number.")
    except MemoryError:
        return Result(path, "not tried", "The machine has too little memory.", inconclusive=1)
    except Exception as error:  # noqa: BLE001 - whatever it is, the path is not used
        if is_full(error):
            return Result(path, "not tried", f"It needs {MEMORY / 1e9:g} GB of free GPU memory.")
        why = f"{first_line(error)}."
        if measuring is None:  # the path was not reached
            return Result(path, "not tried", f"The trial could not begin: {why}", inconclusive=1)
        return Result(path, "failed", why)


class Measuring:
    """The plain path and a fast one, on the same weights. Until `result` the fast one is unused."""

    def __init__(self, setup: Setup, budget: Budget) -> None:
        self._setup, self._budget = setup, budget
        self._scale = TINY if setup.tiny else TRUE
        self._device = device = best_device()
        if device.type != "cuda" and not setup.tiny:
            raise ModelError("there is no CUDA device")
        self._random = np.random.default_rng(0)
        self._clips = 0
        if device.type == "cuda":
            whole = torch.cuda.get_device_properties(device).total_memory
            torch.cuda.set_per_process_memory_fraction(min(1.0, MEMORY / whole))
        config: Any = tiny_config() if setup.tiny else true_config()
        text, audio = config.text_config, config.audio_config
        self._depth = text.num_hidden_layers, audio.num_hidden_layers
        text.num_hidden_layers = audio.num_hidden_layers = LAYERS
        text.initializer_range = text.hidden_size**-0.5
        vocabulary, text.vocab_size = text.vocab_size, SMALL_VOCABULARY
        step.keep_compiled_kernels()
        self._plain, self._embedder = parts(random_model(config, device))
        torch.cuda.empty_cache()  # the pieces of joined weights
        # One tensor for both ends of the model, because two would take 1.6 GB.
        ends = self._plain.embedding.new_empty(vocabulary, text.hidden_size)
        self._plain.embedding = self._plain.head = ends.normal_(0, text.initializer_range)
        if setup.fp8:
            fp8.quantise(self._plain)
        self._fast = copy.copy(self._plain)
        self._plain = fp8.without_kernels(self._plain)

    def result(self) -> Result:
        if kernels := step.kernels_of(self._setup.path):
            step.enable(self._fast, kernels)
        comparison = self._compare()
        if comparison.why:
            return self._result("different", comparison)
        torch.cuda.empty_cache()  # a capture cannot take back what torch keeps for other streams
        plain = self._times(captured=False)
        torch.cuda.empty_cache()
        fast = self._times(captured=True)
        return self._result("equal", comparison, plain, fast)

    def _result(
        self, state: Any, compared: Comparison,
        plain: tuple[Times, Times] | None = None, fast: tuple[Times, Times] | None = None,
    ) -> Result:  # fmt: skip
        plain_token, plain_first = plain or (None, None)
        token, first = fast or (None, None)
        return Result(
            self._setup.path, state, compared.why, token, first, plain_token, plain_first,
            compared.steps, compared.worst, compared.flips,
        )  # fmt: skip

    # Equality.

    def _compare(self) -> Comparison:
        vocabulary, device = self._plain.head.shape[0], self._device
        capacity = self._scale.capacity
        leader, follower = Leader(vocabulary, device), Follower(vocabulary, device)
        plain = ReplyGenerator(self._plain, self._embedder, leader, capacity, queue_ahead=False)
        tower = AudioEmbedder(self._embedder.encoder)  # its graphs have their own memory
        fast = ReplyGenerator(self._fast, tower, follower, capacity, queue_ahead=False)
        for _ in fast.capture(graphs.CudaRecorder()):
            self._budget.run(lambda: None)
        comparison = Comparison()
        for context in self._scale.contexts:
            if not self._follow(plain, fast, comparison, self._text(context), [], 9):
                return comparison
        prompt, clip = self._spoken(10)
        self._follow(plain, fast, comparison, prompt, [clip], self._scale.steps)
        return comparison

    def _follow(
        self, plain: ReplyGenerator, fast: ReplyGenerator, comparison: Comparison,
        prompt: PromptIds, clips: list[Clip], steps: int,
    ) -> bool:  # fmt: skip
        """Let `fast` compute each step of a reply of `plain`. Return True while it is equal."""
        follower = fast.sampler
        assert isinstance(follower, Follower)
        encoded = len(self._embedder.encoder.layers) if clips else 0
        relative = relative_bound(self._plain, len(prompt) + steps, encoded)
        leading = self._tokens(plain, prompt, clips, steps)
        following = self._tokens(fast, prompt, clips, steps)
        for token in leading:
            with torch.inference_mode():
                follower.token.fill_(token)
            next(following)
            with torch.inference_mode():
                if not comparison.add(plain.sampler.logits, follower.logits, relative):
                    return False
        return True

    def _tokens(
        self, loop: ReplyGenerator, prompt: PromptIds, clips: list[Clip], most: int
    ) -> Generator[int, None, None]:
        """Yield tokens, each of which counts as GPU time."""
        items = loop.reply(prompt, clips, most)
        while True:
            try:
                item = self._budget.run(lambda: next(items))
            except StopIteration:
                return
            if item is not None:
                yield item

    # Times.

    def _times(self, captured: bool) -> tuple[Times, Times]:
        """Return the times of a token, and of the first token of a spoken turn."""
        loop = self._deep(self._fast if captured else self._plain)
        if captured:
            for _ in loop.capture(graphs.CudaRecorder()):
                self._budget.run(lambda: None)
        text = self._text(self._scale.timed_context)
        tokens = self._repeat(lambda: _burst(loop, text))
        first = self._repeat(lambda: self._first_token(loop))
        return tokens, first

    def _repeat(self, work: Callable[[], float]) -> Times:
        for _ in range(2):  # the first use of each kernel is slow
            self._budget.measure(work)
        times = sorted(self._budget.measure(work) * 1e3 for _ in range(self._scale.repeats))
        edge = len(times) // 20
        return Times(times[len(times) // 2], times[edge], times[-1 - edge])

    def _deep(self, shallow: Decoder) -> ReplyGenerator:
        """Return a loop with the depth of the model, whose layers repeat."""
        layers, encoder_layers = self._depth
        decoder = copy.copy(shallow)
        decoder.layers = [shallow.layers[i % LAYERS] for i in range(layers)]
        tower: AudioTower = copy.copy(self._embedder.encoder)
        tower.layers = [tower.layers[i % LAYERS] for i in range(encoder_layers)]
        sampler = Sampler(
            decoder.head.shape[0], EOS, self._device,
            temperature=0.2, top_p=0.95, min_new_tokens=2**31,
        )  # fmt: skip
        return ReplyGenerator(decoder, AudioEmbedder(tower), sampler, self._scale.timed_capacity)

    def _first_token(self, loop: ReplyGenerator) -> float:
        prompt, clip = self._spoken(5)
        for _ in loop.prepare(prompt[: prompt.index(BEGIN_AUDIO)], []):
            pass
        began = time.perf_counter()
        next(item for item in loop.reply(prompt, [clip], 1) if item is not None)
        return time.perf_counter() - began

    # Prompts.

    def _text(self, context: int) -> PromptIds:
        """Return a prompt of that length, which no other call returned."""
        high = min(4000, self._plain.head.shape[0])
        ids = self._random.integers(1000, high, max(context - 3, 0)).tolist()
        return [BOS, INST, *ids, END_INST][:context]

    def _spoken(self, seconds: float) -> tuple[PromptIds, Clip]:
        """Return the prompt of a spoken turn with noise, which no other call returned."""
        self._clips += 1
        noise = self._random.normal(0, 0.1, round(seconds * SAMPLE_RATE)).astype(np.float32)
        clip = Clip(self._clips, noise)
        return [BOS, INST, BEGIN_AUDIO, *clip.prompt_ids(), END_INST], clip


def _burst(loop: ReplyGenerator, prompt: PromptIds) -> float:
    """Return the seconds of a token, the first one left out."""
    moments = [time.perf_counter() for _ in _items(loop.reply(prompt, [], BURST))]
    return (moments[-1] - moments[0]) / (len(moments) - 1)


def _items(items: Iterator[int | None]) -> Iterator[int]:
    return (item for item in items if item is not None)
