"""The measurements: sections of rows. A row that fails does not stop the others."""

# torch and transformers are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import copy
import gc
import inspect
import math
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import torch

from benchmarks.voxtral.accuracy import difference, logits
from benchmarks.voxtral.random_weights import random_model, tiny_config, true_config
from benchmarks.voxtral.report import NOT_MEASURED
from benchmarks.voxtral.shape import H200, Ceilings, Shape, counted, shape_of
from benchmarks.voxtral.systems import (
    PREFIX,
    TOKENS,
    Generate,
    Ours,
    System,
    noise,
    taken,
    words,
)
from benchmarks.voxtral.torch_products import linear
from voxtui.brains.speculation import SpeculationThread
from voxtui.brains.voxtral.audio_encoder import AudioEmbedder
from voxtui.brains.voxtral.decoder import Cache, Decoder
from voxtui.brains.voxtral.fast_path import use_kernels
from voxtui.brains.voxtral.generate import REHEARSED
from voxtui.brains.voxtral.graphs import CudaRecorder
from voxtui.brains.voxtral.model_thread import ModelWork
from voxtui.brains.voxtral.prompt import PromptTurn
from voxtui.brains.voxtral.weights import Fp8Weight, quantise
from voxtui.dialogue.prefetch import SWITCH_SECONDS

if TYPE_CHECKING:
    from voxtui.voices.kokoro import KokoroVoice

SECONDS = (5, 2, 15, 40)
"""Lengths in seconds of the utterances; the first is that of the goals. The same holds for turns.
"""
CONTEXTS = (512, 4096, 16_384)
TINY_CONTEXTS = (512, 2048)
TURNS = (1, 10, 5)
AUDIO_TURNS = 5
"""Number of turns whose sound stays in the context; older ones are text."""

DECODED = 2 * TOKENS
"""Number of tokens over which the rate is measured."""

AHEAD = 8
"""Number of tokens of a speculative reply."""

SECTIONS_SECONDS = 900.0
"""Length of the run for which the limits of the sections are set. A slow machine needs more."""

COMPILING_SECONDS = 120.0
"""Maximum time of `generate` for compiling its step. Earlier rows leave this time free, because a
goal depends on it; with less time left the row is left out."""

CACHE_BYTES = 256e6
"""Bytes beyond the cache of any GPU, so that repeated reads come from its memory."""

Row: TypeAlias = "dict[str, Any]"

NO_GPU: Row = {NOT_MEASURED: "needs a CUDA GPU"}

Work: TypeAlias = "Callable[[torch.Tensor], torch.Tensor]"
"""Computes the attention over the keys and values of a layer."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A configuration of our loop."""

    name: str
    graphs: bool = False
    fp8: bool = False
    kernels: bool = False
    sampled: bool = False
    """whether to sample tokens with the preset `balanced`, instead of the likeliest one"""


BALANCED = {"temperature": 0.2, "top_p": 0.95}


PLAIN, GRAPHS, FP8 = "voxtui", "voxtui, graphs", "voxtui, fp8"

SAFE = (Kind(PLAIN), Kind(GRAPHS, graphs=True))
"""Configurations without our kernels: a faulty kernel would end the run, so they come first."""

VARIANTS = (
    Kind("voxtui, graphs, sampled", graphs=True, sampled=True),
    Kind("voxtui, graphs, kernels", graphs=True, kernels=True),
    Kind(FP8, fp8=True),
    Kind("voxtui, graphs, fp8", graphs=True, fp8=True),
    Kind("voxtui, graphs, kernels, fp8", graphs=True, fp8=True, kernels=True),
)

BLOCKS = ((4, 1024, 4), (2, 1024, 4), (8, 1024, 4), (4, 2048, 8), (2, 2048, 4))
CUTS = ((32, 32), (16, 64), (32, 64), (64, 32))
"""Shapes of kernels, as `kernels.BLOCK` and `kernels.CUT`; the first of each is in use."""

REPLAYS = 20
"""Number of replays per timing, so that the final synchronisation is amortised."""


class Clock:
    """Prints the elapsed time and the current measurement. The run may take about `seconds`.

    Each row for which no time is left reports that it was left out.
    """

    def __init__(self, seconds: float) -> None:
        self._began = time.perf_counter()
        self._whole = seconds
        self._until = seconds
        self._section = ""

    @property
    def elapsed(self) -> float:
        return time.perf_counter() - self._began

    @property
    def rest(self) -> float:
        """Return the seconds that the whole run may still take."""
        return self._whole - self.elapsed

    @property
    def scale(self) -> float:
        """Return the factor by which a section may take longer than usual."""
        return max(1.0, self._whole / SECTIONS_SECONDS)

    @property
    def left(self) -> float:
        """Return the seconds that the present section may still take."""
        return min(self._until - self.elapsed, self.rest)

    def begin(self, section: str, seconds: float) -> None:
        self._section = section
        self._until = self.elapsed + seconds
        if not sys.stderr.isatty():
            sys.stderr.write(f"{self.elapsed:4.0f} s  {section}, {seconds:.0f} s at most\n")
            sys.stderr.flush()

    def at(self, what: str) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\x1b[K{self.elapsed:4.0f} s  {self._section}: {what}")
            sys.stderr.flush()

    def end(self) -> None:
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")


class Bench:
    def __init__(self, device: torch.device, tiny: bool, repeats: int, clock: Clock) -> None:

        self.device = device
        self._tiny = tiny
        self._repeats = repeats
        self._clock = clock
        self._cuda = device.type == "cuda"
        self._contexts = TINY_CONTEXTS if tiny else CONTEXTS
        clock.begin("building the model", clock.rest)
        config: Any = tiny_config() if tiny else true_config()
        self._model = random_model(config, device)
        size = 2 if self._cuda else 4
        self.shape = shape_of(config, size, size)
        self.ceilings = H200
        self._capacity = 4096
        if self._cuda and not tiny:  # captured memory cannot grow
            large = torch.cuda.get_device_properties(device).total_memory > 60e9
            self._capacity = 20_480 if large else 8192
        self._decoders: dict[bool, tuple[Decoder, AudioEmbedder]] = {}
        """the decoders without fp8 weights and with them, by `fp8`"""
        self._measured: list[System] = []
        self.ours: dict[str, Ours] = {}
        self.theirs = [
            Generate(self._model, "generate, dynamic cache"),
            # Compiled at the end, because it takes a minute for every length of the cache.
            Generate(
                self._model, "generate, static cache",
                cache_implementation="static", disable_compile=True,
            ),
        ]  # fmt: skip

    def run(self) -> Iterator[tuple[str, Row]]:
        """Yield every row with its section.

        First come the rows of the goals, then those that may fail, then those that change the
        following ones.

        A section appears again if it is measured for the variants too.
        """
        sections: list[tuple[str, float, Callable[[], Iterator[Row]]]] = [
            ("ceilings", 15, self._measure_ceilings),
            ("floor", 5, self._floor),
            ("kinds", 60, partial(self.kinds, SAFE, self.theirs)),
            ("decode", 60, self._decode),
            ("ttft", 60, self._first_tokens),
            ("speculation", 20, self.speculation),
            ("turns", 60, self._turns),
            ("voice", 45, self._voice),
            ("kinds", 90, partial(self.kinds, VARIANTS, [])),
            ("decode", 40, self._decode),
            ("ttft", 40, self._first_tokens),
            ("speculation", 10, self.speculation),
            ("turns", 25, self._turns),
            ("accuracy of fp8", 15, self._accuracy),
            ("memory", 15, self.memory),
            ("stages", 20, self._stages),
            ("parts", 70, self.step_parts),
            # Last, because compiling clears the workspaces of cuBLAS that captured graphs write to,
            # and a profiler that has run once slows every launch down.
            ("generate, compiled", 150, self._compiled),
            ("kernels", 30, self._kernels),
        ]
        sys.setswitchinterval(SWITCH_SECONDS)  # as voxtui has it, for both sides
        for name, seconds, section in sections:
            last = name in ("generate, compiled", "kernels")
            kept = 0 if last else COMPILING_SECONDS
            rest = max(0.0, self._clock.rest - kept)
            self._clock.begin(name, min(seconds * self._clock.scale, rest))
            empty = True
            for row in section():
                empty = False
                yield name, row
            if empty:
                yield name, {NOT_MEASURED: "none of its configurations was built"}
        self._clock.end()

    def _row(self, about: Row, work: Callable[[], Row], needs: float = 0) -> Row:
        """Return `about` with the results of `work`, or with its error."""
        self._clock.at(", ".join(str(value) for value in about.values()))
        if self._clock.left < needs:
            return about | {NOT_MEASURED: "left out: no time"}
        try:
            return about | work()
        except Exception as error:  # noqa: BLE001 - the other rows go on
            said = (str(error).strip() or type(error).__name__).splitlines()[0]
            gc.collect()
            with suppress(RuntimeError):  # after the loss of the device every row reports it
                torch.cuda.empty_cache()
            return about | {NOT_MEASURED: said[:120]}

    def _shape(self, name: str) -> Shape:
        return replace(self.shape, weight_bytes=1) if "fp8" in name else self.shape

    def _share(self, share: float) -> Row:
        """Return the share of the floor; for a tiny model it would mean nothing."""
        return {} if self._tiny else {"floor_share": round(share, 3)}

    # The floor.

    def _measure_ceilings(self) -> Iterator[Row]:
        def work() -> Row:
            large = self._cuda and not self._tiny
            size = 8192 if large else 1024
            dtype = self._model.dtype
            square = torch.randn(size, size, device=self.device, dtype=dtype)
            flops = 2 * size**3 / fastest(lambda: square @ square, self.device)
            count = 1 << (32 if large else 27)
            block = torch.empty(count, dtype=torch.uint8, device=self.device)
            copy = torch.empty_like(block)
            bandwidth = 2 * count / fastest(lambda: copy.copy_(block), self.device)
            self.ceilings = Ceilings(flops, bandwidth)
            return {"tflops": round(flops / 1e12, 3), "gb_s": round(bandwidth / 1e9, 2)}

        yield self._row({"what": "matrix product, copy"}, work)

    def _floor(self) -> Iterator[Row]:
        yield from counted(self.shape, self.ceilings, PREFIX)

    # Building the kinds of our loop.

    def kinds(self, kinds: Sequence[Kind], beside: Sequence[System]) -> Iterator[Row]:
        """Make the systems. From then on they, and those `beside` them, are measured."""
        self._measured = list(beside)
        for kind in kinds:
            yield self._row({"system": kind.name}, partial(self._make, kind))
        made = [self.ours[kind.name] for kind in kinds if kind.name in self.ours]
        self._measured = [*made, *beside]

    def _make(self, kind: Kind) -> Row:
        began = time.perf_counter()
        if kind.fp8 not in self._decoders:
            decoder, embedder = taken(self._model)
            if kind.fp8:
                quantise(decoder)
            self._decoders[kind.fp8] = decoder, embedder
        decoder, embedder = self._decoders[kind.fp8]
        if kind.kernels:
            decoder = copy.copy(decoder)
            use_kernels(decoder)
        if kind.graphs:
            embedder = AudioEmbedder(embedder.encoder)  # its graphs need their own memory
        sampling = BALANCED if kind.sampled else {}
        system = Ours(kind.name, decoder, embedder, self._capacity, **sampling)
        if kind.graphs:
            capture(system)
        self.ours[kind.name] = system
        return {"built_s": round(time.perf_counter() - began, 2)} | self._first_turn(system)

    def _first_turn(self, system: Ours) -> Row:
        """Compare the first turn after the warm-up with the eleven after it."""
        for seconds in REHEARSED:
            self._asked(system, seconds, AHEAD)
        first, *later = (self._asked(system, 5, 2) for _ in range(12))
        return {
            "first_turn_ms": round(first * 1e3, 3),
            "later_turns_ms": round(statistics.median(later) * 1e3, 3),
        }

    # The sections.

    def _first_tokens(self) -> Iterator[Row]:
        for seconds in SECONDS:
            for system in self._measured:
                about = {"seconds": seconds, "system": system.name}
                yield self._row(about, partial(self._first_token, system, seconds))

    def _first_token(self, system: System, seconds: float) -> Row:
        found: list[float] = []
        for _ in self._often(system):
            found.append(self._asked(system, seconds, 2))
        least = self._shape(system.name).first_token(seconds, PREFIX, self.ceilings)
        row = spread(found[2:])
        return row | self._share(least * 1e3 / row["p50_ms"])

    def _turns(self) -> Iterator[Row]:
        """Time the first token and the whole reply to 5 s of audio, for each number of TURNS."""
        for turn in TURNS:
            past = [
                PromptTurn(noise(5) if i >= turn - 1 - AUDIO_TURNS else "x" * 60, words(TOKENS))
                for i in range(turn - 1)
            ]
            for system in self._measured:
                about = {"turn": turn, "system": system.name}
                yield self._row(about, partial(self._turn, system, past))

    def _turn(self, system: System, past: Sequence[PromptTurn]) -> Row:
        firsts: list[float] = []
        wholes: list[float] = []
        for _ in self._often(system):
            said = noise(5)
            system.ready(past)
            at = self._times(system.tokens(past, said, TOKENS))
            firsts.append(at[0])
            wholes.append(at[-1])
        whole = statistics.median(wholes[2:]) * 1e3
        return spread(firsts[2:]) | {"whole_turn_ms": round(whole, 3)}

    def speculation(self) -> Iterator[Row]:
        """Time the first token of a reply that was speculated at a pause, from its request."""
        for system in self._measured:
            if isinstance(system, Ours):
                yield self._row({"system": system.name}, partial(self._kept_draft, system))

    def _kept_draft(self, system: Ours) -> Row:
        thread, waits = SpeculationThread("voxtui-benchmark"), list[float]()
        try:
            for _ in self._often(system):
                drafted, cancelled = threading.Event(), threading.Event()
                work = partial(signalling, system, drafted)
                draft = thread.request(ModelWork(work, cancelled, AHEAD, "key"))
                if not drafted.wait(60):
                    raise draft.error or TimeoutError("no draft within a minute")
                began = time.perf_counter()
                thread.request(ModelWork(work, cancelled, None, "key"))
                tokens = draft.tokens()
                next(tokens)
                waits.append(time.perf_counter() - began)
                for _ in tokens:
                    pass
        finally:
            thread.close()
        return spread(waits[2:])

    def _decode(self) -> Iterator[Row]:
        """Measure tokens per second from the first to the last token, after a context of text."""
        for context in self._contexts:
            for system in self._measured:
                about = {"context": context, "system": system.name}
                yield self._row(about, partial(self._rate, system, context))

    def _rate(self, system: System, context: int) -> Row:
        return self._rated(
            system.name, context, lambda: self._times(system.behind(context, DECODED))
        )

    def _rated(self, name: str, context: int, moments: Callable[[], list[float]]) -> Row:
        """Return the median of three runs, after one that does not count."""
        rates: list[float] = []
        for _ in range(4):
            at = moments()
            rates.append((len(at) - 1) / (at[-1] - at[0]))
        rate = statistics.median(rates[1:])
        least = self._shape(name).step(context + DECODED // 2).seconds(self.ceilings)
        return {
            "tokens_per_s": round(rate, 1),
            "ms_per_token": round(1e3 / rate, 3),
            **self._share(rate * least),
        }

    def step_parts(self) -> Iterator[Row]:
        """Time the parts of a step, each variant alone, in microseconds per layer.

        A part is done for every layer in turn, which have more weights than a GPU has cache.
        """
        products: dict[str, Callable[[torch.Tensor, Any], torch.Tensor]] = {"torch": linear}
        looks: dict[str, Callable[[Decoder, torch.Tensor, int], Work]] = {"torch, masked": masked}
        if self._cuda:
            products |= {f"kernel {block}": partial(product, block=block) for block in BLOCKS}
            looks["torch, varlen"] = varlen
            looks |= {f"kernel {cut}": partial(split, cut=cut) for cut in CUTS}
        for context in self._contexts if PLAIN in self.ours else ():
            for name, look in looks.items():
                about = {"part": f"attention behind {context}", "way": name}
                yield self._row(about, partial(self._attention, look, context))
        for kind in (kind for kind in (PLAIN, FP8) if kind in self.ours):
            for part in ("qkv", "out", "gate_up", "down"):
                for name, way in products.items():
                    about = {"part": part, "system": kind, "way": name}
                    yield self._row(about, partial(self._product, kind, part, way))

    def _product(
        self, kind: str, name: str, way: Callable[[torch.Tensor, Any], torch.Tensor]
    ) -> Row:
        weights = [getattr(layer, name) for layer in self.ours[kind].loop.decoder.layers]
        x = self._drawn(1, self._columns(name))

        def work() -> None:
            for weight in weights:
                way(x, weight)

        return self._part(work, sum(w.numel() * w.element_size() for w in weights))

    def _columns(self, name: str) -> int:
        shape = self.shape
        return {"out": shape.heads * shape.head_size, "down": shape.inner}.get(name, shape.width)

    def _attention(self, way: Callable[[Decoder, torch.Tensor, int], Work], context: int) -> Row:
        decoder = self.ours[PLAIN].loop.decoder
        least_bytes = context * self.shape.place_bytes
        rounds = 1 if self._tiny else max(1, math.ceil(CACHE_BYTES / least_bytes))
        caches = [Cache(decoder, context) for _ in range(rounds)]
        for cache in caches:
            cache.kv.copy_(self._drawn(*cache.kv.shape[1:]))
        qkv = self._drawn(1, (decoder.heads + 2 * decoder.kv_heads) * decoder.head_size)
        look_up = way(decoder, qkv, context)

        def work() -> None:
            for cache in caches:
                for kv in cache.kv:
                    look_up(kv)

        return self._part(work, least_bytes, rounds)

    def _part(self, work: Callable[[], None], least_bytes: float, rounds: int = 1) -> Row:
        """Time `work`, which runs the part for every layer and reads that many bytes each time."""
        with torch.inference_mode():
            replay = CudaRecorder()(work) if self._cuda else work

            def often() -> None:
                for _ in range(REPLAYS):
                    replay()

            seconds = fastest(often, self.device) / REPLAYS / rounds
        share = least_bytes / self.ceilings.bandwidth / seconds
        return {"us": round(seconds * 1e6 / self.shape.layers, 2)} | self._share(share)

    def _drawn(self, *shape: int) -> torch.Tensor:
        return torch.randn(shape).to(self.device, self._model.dtype)

    def memory(self) -> Iterator[Row]:
        for system in (*self.ours.values(), *self.theirs):
            yield self._row({"system": system.name}, partial(self._memory_of, system))

    def _memory_of(self, system: System) -> Row:
        shape = self._shape(system.name)
        layers = shape.layers * shape.layer_weights
        weights = layers * shape.weight_bytes + (shape.weights - layers) * shape.float_bytes
        row = {"weights_mb": round(weights / 1e6, 1), "cache_mb": 0.0}
        if isinstance(system, Ours):
            cache = system.loop.cache
            row["cache_mb"] = round(2 * cache.keys.numel() * cache.keys.element_size() / 1e6, 1)
        if not self._cuda:
            import resource

            most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
            return row | {"whole_process_mb": round(most)}
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        system.ready(())
        self._times(system.tokens((), noise(5), TOKENS))
        return row | {"turn_mb": round((torch.cuda.max_memory_allocated() - before) / 1e6, 1)}

    def _stages(self) -> Iterator[Row]:
        """Time each stage with its own synchronisation; together they take less."""
        for seconds in (2, 40):
            for system in self.ours.values():
                about = {"clip_s": seconds, "system": system.name}
                yield self._row(about, partial(self._stages_of, system, seconds))

    def _stages_of(self, system: Ours, seconds: float) -> Row:
        found: dict[str, list[float]] = {"encoder_ms": [], "prefill_ms": [], "step_ms": []}
        for _ in range(6):
            system.ready(())
            with closing(system.stages((), noise(seconds), AHEAD)) as stages:
                for times in found.values():
                    settle(self.device)
                    began = time.perf_counter()
                    next(stages)
                    settle(self.device)
                    times.append(time.perf_counter() - began)
        return {name: round(statistics.median(times[1:]) * 1e3, 3) for name, times in found.items()}

    def _kernels(self) -> Iterator[Row]:
        """Profile each stage for a short and a long clip, without graphs."""
        system = self.ours.get(PLAIN)
        if system is None:
            return
        for seconds in (2, 40):
            with suppress(RuntimeError):  # of a lost device; the rows below report it
                system.ready(())
            with closing(system.stages((), noise(seconds), AHEAD)) as stages:
                for stage in ("encoder", "prefill", "step"):
                    yield from self._profiled({"clip_s": seconds, "stage": stage}, stages)

    def _profiled(self, about: Row, stages: Iterator[int | None]) -> Iterator[Row]:
        found: list[Any] = []

        def work() -> Row:
            os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # it would write to the terminal
            from torch.profiler import ProfilerActivity, profile

            activities = [ProfilerActivity.CPU]
            if self._cuda:
                activities.append(ProfilerActivity.CUDA)
            with profile(activities=activities, acc_events=True) as profiled:
                next(stages)
                settle(self.device)
            found.extend(profiled.key_averages())
            return {}

        row = self._row(about, work)
        if NOT_MEASURED in row:
            yield row
        found.sort(key=partial(own_time, cuda=self._cuda), reverse=True)
        for event in found[:6]:
            us = round(own_time(event, self._cuda))
            yield about | {"kernel": event.key[:56], "calls": event.count, "us": us}

    def _accuracy(self) -> Iterator[Row]:
        """Measure how rounding changes the logits of random weights. Says nothing about answers."""

        def work() -> Row:
            if lacking := [name for name in (PLAIN, FP8) if name not in self.ours]:
                raise RuntimeError(f"{lacking[0]} was not built")
            exact, small = (self.ours[name].loop.decoder for name in (PLAIN, FP8))
            ids = words(256)
            return difference(logits(exact, ids), logits(small, ids))

        yield self._row({"weights": "random"}, work)

    def _voice(self) -> Iterator[Row]:
        from benchmarks.voxtral.voice import CLAUSE, random_voice

        def work() -> Row:
            with random_voice() as voice:
                firsts = [self._spoken(voice, CLAUSE) for _ in range(self._repeats + 2)]
                # Convolutions are planned for each length they have not seen.
                fresh = [self._spoken(voice, "So " * n + CLAUSE) for n in range(1, 6)]
                row: Row = spread(firsts[2:])
                row["a length for the first time, p50_ms"] = spread(fresh)["p50_ms"]
                system = self._best()
                if system is not None:
                    alone = self._rate(system, 512)["tokens_per_s"]
                    with busy(lambda: list(voice.speak(CLAUSE))):
                        beside = self._rate(system, 512)["tokens_per_s"]
                    row["decode beside it"] = round(beside / alone, 3)
                return row

        yield self._row({"clause": "40 phonemes"}, work)

    def _spoken(self, voice: KokoroVoice, clause: str) -> float:
        settle(self.device)
        began = time.perf_counter()
        next(iter(voice.speak(clause)))
        return time.perf_counter() - began

    def _best(self) -> Ours | None:
        return self.ours.get(GRAPHS, self.ours.get(PLAIN))

    def _compiled(self) -> Iterator[Row]:
        """Measure the step that transformers compiles: with a static cache, on CUDA only."""
        if not self._cuda:
            yield NO_GPU
            return
        name = "generate, static cache, compiled"
        system = Generate(self._model, name, cache_implementation="static")
        for context in self._contexts:
            moments = partial(system.moments, context, DECODED)
            work = partial(self._rated, name, context, moments)
            yield self._row({"context": context, "system": name}, work, COMPILING_SECONDS)

    # How often, and how long.

    def _asked(self, system: System, seconds: float, most: int) -> float:
        """Return the seconds to the first of `most` tokens that answer `seconds` of noise."""
        said = noise(seconds)
        system.ready(())
        (first,) = self._times(system.tokens((), said, most), 1)
        return first

    def _often(self, system: System) -> Iterator[int]:
        """Yield the number of each repeat: at least five, all of them while time is left."""
        repeats = self._repeats if isinstance(system, Ours) else max(3, self._repeats // 3)
        for number in range(repeats + 2):
            if number >= 5 and self._clock.left < 0:
                return
            yield number

    def _times(self, tokens: Iterator[object], count: int | None = None) -> list[float]:
        """Return the time of each of the first `count` tokens, in seconds from the call."""
        settle(self.device)
        began = time.perf_counter()
        at = [time.perf_counter() - began for _ in islice(tokens, count)]
        for _ in tokens:  # to its end, so that no rest runs into the next measurement
            pass
        return at


# Variants of a step's attention at the last position of a context that is in the cache.


def masked(decoder: Decoder, qkv: torch.Tensor, context: int) -> Work:
    """Attend with torch as a captured step does: a mask hides unused positions."""
    position = torch.tensor([context - 1], device=qkv.device)
    cos, sin = decoder.cos[position][:, None], decoder.sin[position][:, None]
    mask = qkv.new_zeros(decoder.heads // decoder.kv_heads, context)
    return lambda kv: decoder.attend(qkv, position, cos, sin, kv, context, mask)


def varlen(decoder: Decoder, qkv: torch.Tensor, context: int) -> Work:
    """Attend with torch's function for lengths on the device, without rotation and write."""
    from torch.nn.attention.varlen import varlen_attn

    query = qkv.view(1, -1, decoder.head_size)[:, : decoder.heads]
    one, used = (torch.tensor([0, n], dtype=torch.int32).to(qkv.device) for n in (1, context))
    # torch 2.11 accepts grouped heads without the argument, which it lacks.
    grouped = "enable_gqa" in inspect.signature(varlen_attn).parameters
    more: Any = {"enable_gqa": True} if grouped else {}

    def look_up(kv: torch.Tensor) -> torch.Tensor:
        keys, values = kv.transpose(0, 1).chunk(2, dim=1)
        return cast("torch.Tensor", varlen_attn(query, keys, values, one, used, 1, context, **more))

    return look_up


def split(decoder: Decoder, qkv: torch.Tensor, context: int, cut: tuple[int, int]) -> Work:
    """Attend with our kernel."""
    from voxtui.brains.voxtral.kernels import attend

    position = torch.tensor([context - 1], device=qkv.device)
    return lambda kv: attend(qkv, position, decoder.cos, decoder.sin, kv, decoder.heads, cut)


def product(x: torch.Tensor, weight: Any, block: tuple[int, int, int]) -> torch.Tensor:
    from voxtui.brains.voxtral.kernels import product

    if isinstance(weight, Fp8Weight):
        return product(x, weight.values, weight.scales, block=block)
    return product(x, weight, block=block)


def capture(system: Ours) -> None:
    """Raise RuntimeError without CUDA."""
    gc.collect()
    gc.freeze()  # some versions of torch collect garbage before each capture
    for _ in system.loop.capture(CudaRecorder()):
        pass


@contextmanager
def busy(work: Callable[[], object]) -> Generator[None, None, None]:
    """Repeat `work` on another thread within the block."""
    over = threading.Event()

    def run() -> None:
        while not over.is_set():
            work()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def signalling(system: Ours, drafted: threading.Event) -> Generator[int | None, None, None]:
    """Reply to 5 s of audio. Sets `drafted` once the speculative tokens are computed."""
    system.ready(())
    count = 0
    for item in system.stages((), noise(5), TOKENS):
        count += item is not None
        if count == AHEAD:
            drafted.set()
        yield item


def settle(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def spread(values: list[float]) -> Row:
    """Return median and p95 (nearest rank), in milliseconds."""
    ordered = sorted(values)
    p95 = ordered[max(0, math.ceil(0.95 * len(ordered)) - 1)]
    return {
        "p50_ms": round(statistics.median(ordered) * 1e3, 3),
        "p95_ms": round(p95 * 1e3, 3),
        "n": len(ordered),
    }


def fastest(work: Callable[[], Any], device: torch.device) -> float:
    """Return the seconds of the fastest of twelve runs: a ceiling, not a mean."""
    found: list[float] = []
    for _ in range(12):
        settle(device)
        began = time.perf_counter()
        work()
        settle(device)
        found.append(time.perf_counter() - began)
    return min(found)


def own_time(event: Any, cuda: bool) -> float:
    return float(event.self_device_time_total if cuda else event.self_cpu_time_total)
