"""The measurements: sections of rows, and a row that fails costs only itself."""

# torch and transformers are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import gc
import math
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, TypeAlias

import torch

from voxtui.bench.voxtral.accuracy import difference, logits
from voxtui.bench.voxtral.shape import H200, Ceilings, Shape, counted, shape_of
from voxtui.bench.voxtral.systems import (
    PREFIX,
    TOKENS,
    Generate,
    Ours,
    System,
    noise,
    random_model,
    taken,
    tiny_config,
    words,
)
from voxtui.brains.voxtral.drafts import Draft, ModelThread
from voxtui.brains.voxtral.ears import Ears
from voxtui.brains.voxtral.graphs import CudaRecorder
from voxtui.brains.voxtral.model import Decoder
from voxtui.brains.voxtral.prompt import Exchange
from voxtui.brains.voxtral.quantized import quantise

SECONDS = (2, 5, 15, 40)
CONTEXTS = (512, 4096, 16_384)
TINY_CONTEXTS = (512, 2048)
TURNS = (1, 5, 10)
AUDIO_TURNS = 5
"""Of so many turns the sound stays in the context; older ones are text."""

DECODED = 2 * TOKENS
"""Tokens of which the rate is taken."""

AHEAD = 8
"""Tokens of a draft."""

WHOLE_SECONDS = 540.0
"""A run ends about then: what is left out says so in its row."""

COMPILING_SECONDS = 120.0
"""What `generate` may need to compile its step: not begun with less than that left."""

Row: TypeAlias = "dict[str, Any]"

PLAIN, GRAPHS, FP8, BOTH = (
    "voxtui", "voxtui, graphs", "voxtui, fp8", "voxtui, fp8 and graphs",
)  # fmt: skip


class Clock:
    """How long it has been running, and what it is at: for the one who waits."""

    def __init__(self, seconds: float) -> None:
        self._began = time.perf_counter()
        self._whole = seconds
        self._until = seconds
        self._section = ""

    @property
    def elapsed(self) -> float:
        return time.perf_counter() - self._began

    @property
    def left(self) -> float:
        """Seconds that the present section may still take."""
        return min(self._until, self._whole) - self.elapsed

    def begin(self, section: str, seconds: float) -> None:
        self._section = section
        self._until = self.elapsed + seconds
        if not sys.stderr.isatty():
            sys.stderr.write(f"{self.elapsed:4.0f} s  {section}\n")

    def at(self, what: str) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\x1b[K{self.elapsed:4.0f} s  {self._section}: {what}")
            sys.stderr.flush()

    def end(self) -> None:
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")


class Bench:
    def __init__(self, device: torch.device, tiny: bool, repeats: int, clock: Clock) -> None:
        from transformers import VoxtralConfig

        self.device = device
        self._tiny = tiny
        self._repeats = repeats
        self._clock = clock
        self._cuda = device.type == "cuda"
        self._contexts = TINY_CONTEXTS if tiny else CONTEXTS
        clock.begin("building the model", WHOLE_SECONDS)
        config: Any = tiny_config() if tiny else VoxtralConfig(audio_token_id=24)  # that is the 3B
        self._model = random_model(config, device)
        size = 2 if self._cuda else 4
        self.shape = shape_of(config, size, size)
        self.ceilings = H200
        self.ours: dict[str, Ours] = {}
        self.theirs = [
            Generate(self._model, "generate, dynamic cache"),
            # Compiling takes a minute for every length of the cache: that is done at the end.
            Generate(
                self._model, "generate, static cache",
                cache_implementation="static", disable_compile=True,
            ),
        ]  # fmt: skip

    def run(self) -> Iterator[tuple[str, list[Row]]]:
        """Every section with its rows, as soon as they are there."""
        sections: list[tuple[str, float, Callable[[], Iterator[Row]]]] = [
            ("ceilings", 30, self._measure_ceilings),
            ("floor", 5, self._floor),
            ("kinds", 120, self._kinds),
            ("ttft", 120, self._first_tokens),
            ("turns", 120, self._turns),
            ("speculation", 30, self._speculation),
            ("decode", 120, self._decode),
            ("memory", 30, self._memory),
            ("stages", 60, self._stages),
            ("kernels", 60, self._kernels),
            ("accuracy of fp8", 30, self._accuracy),
            ("voice", 60, self._voice),
            ("generate, compiled", 240, self._compiled),
        ]
        for name, seconds, section in sections:
            self._clock.begin(name, seconds)
            yield name, list(section())
        self._clock.end()

    def _row(self, about: Row, work: Callable[[], Row], needs: float = 0) -> Row:
        """`about` and what `work` found, or why it found nothing."""
        self._clock.at(", ".join(str(value) for value in about.values()))
        if self._clock.left < needs:
            return about | {"failed": "left out: no time"}
        try:
            return about | work()
        except Exception as error:  # noqa: BLE001 - the other rows go on
            said = (str(error).strip() or type(error).__name__).splitlines()[0]
            gc.collect()
            if self._cuda and torch.cuda.is_available():
                torch.cuda.empty_cache()
            return about | {"failed": said[:120]}

    @property
    def _systems(self) -> list[System]:
        return [*self.ours.values(), *self.theirs]

    def _shape(self, name: str) -> Shape:
        return replace(self.shape, weight_bytes=1) if "fp8" in name else self.shape

    def _share(self, share: float) -> Row:
        """Of the floor; a tiny model is so far from it that the share would say nothing."""
        return {} if self._tiny else {"floor_share": round(share, 3)}

    # The floor.

    def _measure_ceilings(self) -> Iterator[Row]:
        def work() -> Row:
            size = 8192 if self._cuda else 1024
            dtype = self._model.dtype
            square = torch.randn(size, size, device=self.device, dtype=dtype)
            flops = 2 * size**3 / fastest(lambda: square @ square, self.device)
            count = 1 << (32 if self._cuda and not self._tiny else 27)
            block = torch.empty(count, dtype=torch.uint8, device=self.device)
            copy = torch.empty_like(block)
            bandwidth = 2 * count / fastest(lambda: copy.copy_(block), self.device)
            self.ceilings = Ceilings(flops, bandwidth)
            return {"tflops": round(flops / 1e12, 3), "gb_s": round(bandwidth / 1e9, 2)}

        yield self._row({"what": "matrix product, copy"}, work)

    def _floor(self) -> Iterator[Row]:
        yield from counted(self.shape, self.ceilings, PREFIX)

    # Building the kinds of our loop.

    def _kinds(self) -> Iterator[Row]:
        capacity = 4096
        if self._cuda and not self._tiny:  # what is captured cannot grow
            large = torch.cuda.get_device_properties(self.device).total_memory > 60e9
            capacity = 20_480 if large else 8192
        decoders: dict[bool, tuple[Decoder, Ears]] = {}

        def make(name: str, fp8: bool, graphs: bool) -> Row:
            began = time.perf_counter()
            if fp8 not in decoders:
                decoder, ears = taken(self._model)
                if fp8:
                    quantise(decoder)
                decoders[fp8] = decoder, ears
            decoder, ears = decoders[fp8]
            if graphs:
                ears = Ears(ears.encoder)  # what is captured is its own
            system = Ours(name, decoder, ears, capacity)
            if graphs:
                capture(system)
            self.ours[name] = system
            return {"built_s": round(time.perf_counter() - began, 2)}

        for name, fp8, graphs in (
            (PLAIN, False, False), (GRAPHS, False, True), (FP8, True, False), (BOTH, True, True),
        ):  # fmt: skip
            yield self._row({"system": name}, partial(make, name, fp8, graphs))

    # The sections.

    def _first_tokens(self) -> Iterator[Row]:
        for seconds in SECONDS:
            for system in self._systems:
                about = {"seconds": seconds, "system": system.name}
                yield self._row(about, partial(self._first_token, system, seconds))

    def _first_token(self, system: System, seconds: float) -> Row:
        found: list[float] = []
        for _ in self._often(system):
            said = noise(seconds)
            system.ready(())
            (first,) = self._times(system.tokens((), said, 2), 1)
            found.append(first)
        least = self._shape(system.name).first_token(seconds, PREFIX, self.ceilings)
        row = spread(found[2:])
        return row | self._share(least * 1e3 / row["p50_ms"])

    def _turns(self) -> Iterator[Row]:
        """5 s of audio after so many turns before it: its first token, and its whole reply."""
        for turn in TURNS:
            past = [
                Exchange(noise(5) if i >= turn - 1 - AUDIO_TURNS else "x" * 60, words(TOKENS))
                for i in range(turn - 1)
            ]
            for system in self._systems:
                about = {"turn": turn, "system": system.name}
                yield self._row(about, partial(self._turn, system, past))

    def _turn(self, system: System, past: Sequence[Exchange]) -> Row:
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

    def _speculation(self) -> Iterator[Row]:
        """From asking for a reply that was drafted at a pause to having its first token."""
        for system in self.ours.values():
            yield self._row({"system": system.name}, partial(self._kept_draft, system))

    def _kept_draft(self, system: Ours) -> Row:
        thread, waits = ModelThread(), list[float]()
        try:
            for _ in self._often(system):
                drafted = threading.Event()
                draft = Draft(partial(signalling, system, drafted), threading.Event(), AHEAD)
                thread.ask(draft)
                if not drafted.wait(60):
                    raise draft.error or TimeoutError("no draft within a minute")
                began = time.perf_counter()
                draft.claim()
                thread.ask(draft)
                tokens = draft.tokens()
                next(tokens)
                waits.append(time.perf_counter() - began)
                for _ in tokens:
                    pass
        finally:
            thread.close()
        return spread(waits[2:])

    def _decode(self) -> Iterator[Row]:
        """Tokens per second between the first and the last token, behind so much text."""
        for context in self._contexts:
            for system in self._systems:
                about = {"context": context, "system": system.name}
                yield self._row(about, partial(self._rate, system, context))

    def _rate(self, system: System, context: int) -> Row:
        return self._rated(
            system.name, context, lambda: self._times(system.behind(context, DECODED))
        )

    def _rated(self, name: str, context: int, moments: Callable[[], list[float]]) -> Row:
        """The median of three, after one that does not count."""
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

    def _memory(self) -> Iterator[Row]:
        for system in self._systems:
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
        """Each stage by itself, waited for: together they take less."""
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
        """What each stage spends its time in, for a short and a long clip, without graphs."""
        system = self.ours.get(PLAIN)
        if system is None:
            return
        for seconds in (2, 40):
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
        if "failed" in row:
            yield row
        found.sort(key=partial(own_time, cuda=self._cuda), reverse=True)
        for event in found[:6]:
            us = round(own_time(event, self._cuda))
            yield about | {"kernel": event.key[:56], "calls": event.count, "us": us}

    def _accuracy(self) -> Iterator[Row]:
        """What rounding does to the logits of random weights: no measure of answers."""

        def work() -> Row:
            exact, small = (self.ours[name].loop.decoder for name in (PLAIN, FP8))
            ids = words(256)
            return difference(logits(exact, ids), logits(small, ids))

        yield self._row({"weights": "random"}, work)

    def _voice(self) -> Iterator[Row]:
        from voxtui.bench.voxtral.voice import CLAUSE, random_voice

        def work() -> Row:
            with random_voice() as voice:
                firsts: list[float] = []
                for _ in range(self._repeats + 2):
                    settle(self.device)
                    began = time.perf_counter()
                    next(iter(voice.speak(CLAUSE)))
                    firsts.append(time.perf_counter() - began)
                row: Row = spread(firsts[2:])
                system = self._best()
                if system is not None:
                    alone = self._rate(system, 512)["tokens_per_s"]
                    with busy(lambda: list(voice.speak(CLAUSE))):
                        beside = self._rate(system, 512)["tokens_per_s"]
                    row["decode beside it"] = round(beside / alone, 3)
                return row

        yield self._row({"clause": "40 phonemes"}, work)

    def _best(self) -> Ours | None:
        return self.ours.get(GRAPHS, self.ours.get(PLAIN))

    def _compiled(self) -> Iterator[Row]:
        """transformers compiles its step where the cache is static, on CUDA only."""
        if not self._cuda:
            return
        name = "generate, static cache, compiled"
        system = Generate(self._model, name, cache_implementation="static")
        for context in self._contexts:
            moments = partial(system.moments, context, DECODED)
            work = partial(self._rated, name, context, moments)
            yield self._row({"context": context, "system": name}, work, COMPILING_SECONDS)

    # How often, and how long.

    def _often(self, system: System) -> Iterator[int]:
        """At least five times, the first two not counted; as often as asked while time is left."""
        repeats = self._repeats if isinstance(system, Ours) else max(3, self._repeats // 3)
        for number in range(repeats + 2):
            if number >= 5 and self._clock.left < 0:
                return
            yield number

    def _times(self, tokens: Iterator[object], count: int | None = None) -> list[float]:
        """When each of the first `count` tokens came, in seconds from now."""
        settle(self.device)
        began = time.perf_counter()
        at = [time.perf_counter() - began for _ in islice(tokens, count)]
        for _ in tokens:  # to its end: what is left must not run into the next measurement
            pass
        return at


def capture(system: Ours) -> None:
    """Raises RuntimeError where there is no CUDA."""
    for _ in system.loop.capture(CudaRecorder()):
        pass


@contextmanager
def busy(work: Callable[[], object]) -> Generator[None, None, None]:
    """`work` goes on beside, over and over."""
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
    """A reply to 5 s of audio; `drafted` when as much of it is there as a draft goes."""
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
    """Median and p95 (nearest rank), in milliseconds."""
    ordered = sorted(values)
    p95 = ordered[max(0, math.ceil(0.95 * len(ordered)) - 1)]
    return {
        "p50_ms": round(statistics.median(ordered) * 1e3, 3),
        "p95_ms": round(p95 * 1e3, 3),
        "n": len(ordered),
    }


def fastest(work: Callable[[], Any], device: torch.device) -> float:
    """Seconds of the fastest of twelve runs: a ceiling, not a mean."""
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
