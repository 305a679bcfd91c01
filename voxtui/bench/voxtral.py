"""Our Voxtral loop beside `model.generate` with a streamer: the same random weights, in one run.

    python -m voxtui.bench.voxtral [--tiny] [--repeats N] [--json OUT]

No checkpoint, no tokenizer and no network: the true 3B shape (`--tiny`: 0.4 million weights, a
rehearsal) with random weights and a fixed number of tokens. TTFT counts from the samples being in
host memory to the first token in host memory; the instruction is in our cache as it is when a key
goes down, and generate is timed from the samples too, its features included. The floor is what the
shape counts up to at the ceilings of memory bandwidth and matrix products measured in the same run.
"""

# torch and transformers are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import argparse
import copy
import datetime
import json
import math
import os
import platform
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from voxtui.brains.voxtral.drafts import Draft, ModelThread
from voxtui.brains.voxtral.loop import Loop
from voxtui.brains.voxtral.prompt import EOS, WINDOW_TOKENS, Clip, Exchange, chat, token_ids
from voxtui.brains.voxtral.sampling import Sampler
from voxtui.brains.voxtral.weights import best_device, best_dtype, parts

SECONDS = (2, 5, 15, 40)
CONTEXTS = (512, 4096, 16_384)
TINY_CONTEXTS = (512, 2048)
TURNS = (1, 5, 10)
AUDIO_TURNS = 5
"""Of so many turns the sound stays in the context; older ones are text."""

TOKENS = 32
"""A reply in this benchmark: no more, no fewer."""

RATE = 16_000


class Streamed:
    """Stands in for a tokenizer under TextIteratorStreamer: every token is a word of its own."""

    def decode(self, ids: Any, **_: Any) -> str:
        return "".join(f"w{int(i)} " for i in ids)


def random_model(tiny: bool, device: torch.device) -> Any:
    from transformers import LlamaConfig, VoxtralConfig, VoxtralForConditionalGeneration
    from transformers.models.voxtral.configuration_voxtral import VoxtralEncoderConfig

    if tiny:
        text = LlamaConfig(
            vocab_size=4096, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, head_dim=16,
            max_position_embeddings=131_072,
        )  # fmt: skip
        audio = VoxtralEncoderConfig(
            hidden_size=32, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2
        )
        config = VoxtralConfig(text_config=text, audio_config=audio, audio_token_id=24)
    else:
        config = VoxtralConfig(audio_token_id=24)  # the defaults are the 3B
    dtype = best_dtype(device)
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype if isinstance(dtype, torch.dtype) else torch.float32)
    try:
        with device:
            model: Any = VoxtralForConditionalGeneration(config)
    finally:
        torch.set_default_dtype(before)
    model.generation_config.update(bos_token_id=1, eos_token_id=EOS, pad_token_id=11)
    return model.eval()


def clip(number: int, seconds: float) -> Clip:
    random = np.random.default_rng(number)
    return Clip(number, random.normal(0, 0.1, round(seconds * RATE)).astype(np.float32))


def words(count: int) -> list[int]:
    """Ids of ordinary text."""
    return [1000 + i % 997 for i in range(count)]


def encode(text: str) -> list[int]:
    """A stand-in for the tokenizer: a token for every four characters."""
    return words(-(-len(text) // 4))


INSTRUCTION = "x" * 140
"""As long as the default one: 35 tokens."""


class Ours:
    name = "voxtui"

    def __init__(self, model: Any) -> None:
        decoder, ears = parts(model)
        device = decoder.embedding.device
        sampler = Sampler(decoder.head.shape[0], EOS, device, min_new_tokens=TOKENS)
        self.loop = Loop(decoder, ears, sampler, 4096)

    def prepare(self, past: list[Exchange]) -> None:
        """What happens when the key goes down."""
        clips = [e.said for e in past if isinstance(e.said, Clip)]
        for _ in self.loop.prepare(chat(encode, INSTRUCTION, past, None), clips):
            pass

    def forget(self, said: Clip) -> None:
        """`said` as if it had never been heard, the history as it was."""
        self.loop.ears.forget_all_but(self.loop.ears.known - {said.number})

    def tokens(self, prompt: list[int], clips: list[Clip]) -> Iterator[int]:
        return (token for token in self.loop.reply(prompt, clips, TOKENS) if token is not None)


class Generate:
    """transformers as its documentation shows it, with the whole history at every turn."""

    def __init__(self, model: Any, cache: str | None) -> None:
        self.name = f"generate, {cache or 'dynamic'} cache"
        self._model = model
        self._cache = cache
        self._extractor: Any = transformers.WhisperFeatureExtractor(feature_size=128)

    def tokens(self, prompt: list[int], clips: list[Clip]) -> Iterator[str]:
        device = self._model.device
        ids = torch.tensor([token_ids(prompt)], device=device)
        options: dict[str, Any] = {"cache_implementation": self._cache} if self._cache else {}
        if clips:
            heard = torch.cat([self._features(c) for c in clips])
            options["input_features"] = heard.to(device, self._model.dtype)
        streamer = transformers.TextIteratorStreamer(Streamed(), skip_prompt=True)  # type: ignore[arg-type]

        def run() -> None:
            with torch.inference_mode():
                self._model.generate(
                    ids, attention_mask=torch.ones_like(ids), streamer=streamer, do_sample=False,
                    max_new_tokens=TOKENS, min_new_tokens=TOKENS, **options,
                )  # fmt: skip

        thread = threading.Thread(target=run)
        thread.start()
        for text in streamer:
            if text:
                yield text
        thread.join()

    def _features(self, said: Clip) -> torch.Tensor:
        filled = np.pad(said.samples, (0, said.windows * 30 * RATE - len(said.samples)))
        found = self._extractor(
            filled, sampling_rate=RATE, padding=False, truncation=False, return_tensors="pt"
        )
        return found.input_features.reshape(128, -1, 3000).transpose(0, 1)


def settle(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def times(tokens: Iterator[Any], device: torch.device) -> list[float]:
    """When each token came, in seconds from now."""
    settle(device)
    began = time.perf_counter()
    return [time.perf_counter() - began for _ in tokens]


def spread(values: list[float]) -> dict[str, float]:
    """Median and p95 (nearest rank), in milliseconds."""
    ordered = sorted(values)
    p95 = ordered[max(0, math.ceil(0.95 * len(ordered)) - 1)]
    return {
        "p50_ms": round(statistics.median(ordered) * 1e3, 3),
        "p95_ms": round(p95 * 1e3, 3),
        "n": len(ordered),
    }


class Bench:
    def __init__(self, tiny: bool, repeats: int) -> None:
        self.device = best_device()
        model = random_model(tiny, self.device)
        self.ours = Ours(copy.deepcopy(model))
        self.theirs = [Generate(model, None), Generate(model, "static")]
        self.repeats = repeats
        self.config = model.config
        self.contexts = TINY_CONTEXTS if tiny else CONTEXTS

    def run(self) -> dict[str, Any]:
        found = {
            "ttft": self.first_tokens(),
            "turns": self.turns(),
            "speculation": self.speculation(),
            "decode": self.decode(),
            "floor": self.floor(),
            "memory_mb": self.memory(),
            "kernels": self.kernels(),
        }
        found["ratios"] = ratios(found)
        return found

    def first_tokens(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        for seconds in SECONDS:
            said = clip(1, seconds)
            prompt = chat(encode, INSTRUCTION, [], said)
            rows += self._systems({"seconds": seconds}, [], prompt, said, [said])
        return rows

    def turns(self) -> list[dict[str, Any]]:
        """The time to the first token of 5 s of audio after so many turns before it."""
        rows: list[dict[str, Any]] = []
        for turn in TURNS:
            past = [
                Exchange(
                    clip(10 + i, 5) if i >= turn - 1 - AUDIO_TURNS else "x" * 60, words(TOKENS)
                )
                for i in range(turn - 1)
            ]
            said = clip(100, 5)
            clips = [e.said for e in past if isinstance(e.said, Clip)]
            prompt = chat(encode, INSTRUCTION, past, said)
            rows += self._systems({"turn": turn}, past, prompt, said, [*clips, said])
        return rows

    def _systems(
        self, about: dict[str, Any], past: list[Exchange], prompt: list[int], said: Clip,
        clips: list[Clip],
    ) -> list[dict[str, Any]]:  # fmt: skip
        firsts: list[float] = []
        for _ in range(self.repeats + 2):
            self.ours.forget(said)
            self.ours.prepare(past)
            firsts.append(times(self.ours.tokens(prompt, clips), self.device)[0])
        rows = [{**about, "system": self.ours.name, **spread(firsts[2:])}]
        for system in self.theirs:
            firsts = [
                times(system.tokens(prompt, clips), self.device)[0]
                for _ in range(max(3, self.repeats // 3) + 1)
            ]
            rows.append({**about, "system": system.name, **spread(firsts[1:])})
        return rows

    def speculation(self) -> dict[str, Any]:
        """From asking for a reply that was drafted at a pause to having its first token."""
        said = clip(1, 5)
        prompt = chat(encode, INSTRUCTION, [], said)
        thread, waits = ModelThread(), list[float]()
        try:
            for _ in range(self.repeats):
                self.ours.forget(said)
                draft = Draft(
                    lambda: self.ours.loop.reply(prompt, [said], TOKENS), threading.Event(), 8
                )
                thread.ask(draft)
                while draft.wanting:
                    time.sleep(0.001)
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
        return spread(waits)

    def decode(self) -> list[dict[str, Any]]:
        """Tokens per second between the first and the last token, behind so much text."""
        rows: list[dict[str, Any]] = []
        for context in self.contexts:
            prompt = [1, 3, *words(context - 3), 4]
            for system in (self.ours, *self.theirs):
                rates: list[float] = []
                for _ in range(4):
                    at = times(system.tokens(prompt, []), self.device)
                    rates.append((len(at) - 1) / (at[-1] - at[0]))
                rate = statistics.median(rates[1:])
                rows.append(
                    {"context": context, "system": system.name, "tokens_per_s": round(rate, 1)}
                )
        return rows

    def floor(self) -> dict[str, Any]:
        """What the shape counts up to, at this machine's ceilings."""
        size = 8192 if self.device.type == "cuda" else 1024
        decoder = self.ours.loop.decoder
        square = torch.randn(size, size, device=self.device, dtype=decoder.embedding.dtype)
        flops = 2 * size**3 / best(lambda: square @ square, self.device)
        block = torch.empty((1 << 30) if self.device.type == "cuda" else (1 << 27),
                            dtype=torch.uint8, device=self.device)  # fmt: skip
        bandwidth = 2 * block.numel() / best(lambda: block.clone(), self.device)
        step = sum(w.numel() * w.element_size() for w in decoder.weights) / bandwidth
        work = encoder_flops(self.config.audio_config, self.config.text_config)
        work += 2 * (WINDOW_TOKENS + 1) * sum(w.numel() for w in decoder.weights[1:])
        return {
            "matmul_tflops": round(flops / 1e12, 3),
            "bandwidth_gb_s": round(bandwidth / 1e9, 2),
            "step_ms": round(step * 1e3, 4),
            "first_token_ms": round((work / flops + step) * 1e3, 4),
        }

    def memory(self) -> float:
        if self.device.type == "cuda":
            return round(torch.cuda.max_memory_allocated() / 1e6)
        import resource

        return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3)

    def kernels(self) -> list[dict[str, Any]]:
        """Where the time of each stage goes, for a short and a long clip."""
        from torch.profiler import ProfilerActivity, profile

        cuda = self.device.type == "cuda"
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
        rows: list[dict[str, Any]] = []
        for seconds in (2, 40):
            said = clip(1, seconds)
            self.ours.forget(said)
            self.ours.prepare([])
            reply = self.ours.loop.reply(chat(encode, INSTRUCTION, [], said), [said], TOKENS)
            for stage in ("encoder", "prefill", "step"):
                with profile(activities=activities) as profiled:
                    next(reply)
                    settle(self.device)
                events: list[Any] = list(profiled.key_averages())
                events.sort(key=partial(own_time, cuda=cuda), reverse=True)
                for event in events[:5]:
                    rows.append(
                        {"clip_s": seconds, "stage": stage, "kernel": event.key[:48],
                         "calls": event.count, "us": round(own_time(event, cuda))}
                    )  # fmt: skip
            reply.close()
        return rows


def own_time(event: Any, cuda: bool) -> float:
    return float(event.self_device_time_total if cuda else event.self_cpu_time_total)


def best(work: Callable[[], Any], device: torch.device) -> float:
    """Seconds of the fastest of twelve runs: a ceiling, not a mean."""
    found: list[float] = []
    for _ in range(12):
        settle(device)
        began = time.perf_counter()
        work()
        settle(device)
        found.append(time.perf_counter() - began)
    return min(found)


def encoder_flops(audio: Any, text: Any) -> float:
    """Of one window: two convolutions, the layers with their attention, the projector."""
    d, places = audio.hidden_size, 1500
    convolutions = 2 * 3 * (3000 * 128 * d + places * d * d)
    layer = 2 * places * (4 * d * d + 2 * d * audio.intermediate_size) + 4 * places**2 * d
    projector = 2 * WINDOW_TOKENS * text.hidden_size * (audio.intermediate_size + text.hidden_size)
    return convolutions + audio.num_hidden_layers * layer + projector


def ratios(found: dict[str, Any]) -> dict[str, float]:
    """Ours to the better of the two ways of `generate`: TTFT of 5 s, and tokens per second."""

    def of(rows: list[dict[str, Any]], value: str, **about: Any) -> tuple[float, list[float]]:
        rows = [row for row in rows if about.items() <= row.items()]
        ours = next(row[value] for row in rows if row["system"] == Ours.name)
        return ours, [row[value] for row in rows if row["system"] != Ours.name]

    ours, theirs = of(found["ttft"], "p50_ms", seconds=5)
    late, _ = of(found["turns"], "p50_ms", turn=TURNS[-1])
    early, _ = of(found["turns"], "p50_ms", turn=1)
    last, their_last = of(found["turns"], "p50_ms", turn=TURNS[-1])
    rate, their_rates = of(found["decode"], "tokens_per_s", context=CONTEXTS[0])
    return {
        "ttft, 5 s, ours / generate": round(ours / min(theirs), 3),
        "ttft, turn 10, ours / generate": round(last / min(their_last), 3),
        "ttft, ours, turn 1 / turn 10": round(early / late, 3),
        "decode, ours / generate": round(rate / max(their_rates), 2),
        "decode, share of the floor": round(rate * found["floor"]["step_ms"] / 1e3, 3),
        "ttft, 5 s, floor / ours": round(found["floor"]["first_token_ms"] / ours, 3),
    }


def table(rows: list[dict[str, Any]]) -> str:
    names = list(rows[0])
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    lines += ["| " + " | ".join(str(row[name]) for name in names) + " |" for row in rows]
    return "\n".join(lines)


def report(about: dict[str, Any], found: dict[str, Any]) -> str:
    facts = [{"what": name, "value": value} for name, value in found["ratios"].items()]
    facts += [{"what": name, "value": value} for name, value in found["floor"].items()]
    facts.append({"what": "memory_mb", "value": found["memory_mb"]})
    facts.append({"what": "ttft of a kept draft, p50_ms", "value": found["speculation"]["p50_ms"]})
    facts.append({"what": "ttft of a kept draft, p95_ms", "value": found["speculation"]["p95_ms"]})
    parts_ = [
        json.dumps(about),
        "Time to the first token, by seconds of audio:", table(found["ttft"]),
        "Time to the first token of 5 s, by turn:", table(found["turns"]),
        "Decode, by tokens of context:", table(found["decode"]),
        "Ratios, floor, memory:", table(facts),
        "Where the time goes:", table(found["kernels"]),
        "Not measured, because it does not exist yet: captured graphs, quantised weights.",
    ]  # fmt: skip
    return "\n\n".join(parts_)


def machine(device: torch.device, tiny: bool) -> dict[str, Any]:
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    return {
        "date": datetime.date.today().isoformat(),
        "shape": "tiny" if tiny else "Voxtral-Mini-3B",
        "device": name,
        "cores": os.cpu_count(),
        "load_at_start": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tiny", action="store_true", help="a rehearsal, on any machine")
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    transformers.utils.logging.set_verbosity_error()
    about = machine(best_device(), arguments.tiny)
    found = Bench(arguments.tiny, arguments.repeats).run()
    sys.stdout.write(report(about, found) + "\n")
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": about, **found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
