"""Our loop beside transformers' `generate` at the true shape of Voxtral-Mini-3B, on a CPU.

    python -m benchmarks.voxtral.true_shape [--repeats 5] [--json OUT]

Random weights in bfloat16: 15 GB of memory, and half an hour on two cores that multiply bfloat16
themselves (AVX-512 or AMX). The results do not apply to a GPU. They show at this size: the distance
of each stage from the floor of this machine, the tenth turn against the first, and the cost for
`generate` of keeping no history.
"""

# torch and transformers are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import transformers
from transformers import VoxtralConfig

from benchmarks.voxtral.command import machine
from benchmarks.voxtral.measure import AUDIO_TURNS, Row, fastest, spread
from benchmarks.voxtral.random_weights import random_model
from benchmarks.voxtral.report import table
from benchmarks.voxtral.shape import Ceilings, Shape
from benchmarks.voxtral.systems import (
    PREFIX,
    Generate,
    Ours,
    System,
    noise,
    taken,
    words,
)
from voxtui.brains.voxtral.prompt import PromptTurn

SECONDS, CONTEXT = 5, 512

REPLY = 16
"""Number of tokens of a reply, of which each takes most of a second."""

TURNS = 10

CPU = torch.device("cpu")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    transformers.utils.logging.set_verbosity_error()
    torch.set_num_threads(os.cpu_count() or 1)
    about = {**machine(CPU, tiny=False), "dtype": "bfloat16", "threads": torch.get_num_threads()}
    tell(json.dumps(about))
    most = ceilings()
    tell(f"{most.flops / 1e12:.3f} TFLOP/s in a product, {most.bandwidth / 1e9:.1f} GB/s read")
    model = random_model(VoxtralConfig(audio_token_id=24), CPU, torch.bfloat16)
    ours, theirs = Ours("voxtui", *taken(model), 4096), Generate(model, "generate")
    found = {
        "turns": conversation(ours),
        "decode": decode((ours, theirs), arguments.repeats, most),
        "first token": first_tokens((ours, theirs), arguments.repeats, most),
        f"turn {TURNS} of generate": later(theirs),
    }
    if arguments.json:
        rows = {"machine": about, "tflops": most.flops / 1e12, "gb_s": most.bandwidth / 1e9} | found
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


def ceilings() -> Ceilings:
    """Measure this machine in bfloat16: the largest product of the encoder, and reading memory."""
    x, weight = torch.randn(1500, 1280).bfloat16(), torch.randn(1280, 5120).bfloat16()
    flops = 2 * x.numel() * weight.shape[1] / fastest(lambda: x @ weight, CPU)
    block = torch.ones(1 << 29)
    return Ceilings(flops, block.numel() * block.itemsize / fastest(block.sum, CPU))


def moments(tokens: Iterator[object]) -> list[float]:
    """Return the time of each token, in seconds from the call."""
    began = time.perf_counter()
    return [time.perf_counter() - began for _ in tokens]


def conversation(ours: Ours) -> list[Row]:
    """Run the turns of one conversation, each after all before it; the first follows the start."""
    rows: list[Row] = []
    past: list[PromptTurn] = []
    for turn in range(1, TURNS + 1):
        said = noise(SECONDS)
        ours.ready(past)
        before = ours.loop.calls.prefilled
        first, *_ = moments(ours.tokens(past, said, 2))
        new = ours.loop.calls.prefilled - before
        rows.append({"turn": turn, "first token, s": round(first, 2), "prefilled": new})
        tell(f"{rows[-1]}")
        past = [*past, PromptTurn(said, words(REPLY))]
        if len(past) > AUDIO_TURNS:
            past[-1 - AUDIO_TURNS] = PromptTurn("x" * 60, words(REPLY))
    tell(table(rows))
    return rows


def decode(systems: tuple[System, ...], repeats: int, most: Ceilings) -> list[Row]:
    floor = Shape().step(CONTEXT + REPLY // 2).seconds(most)
    found: dict[str, list[float]] = {system.name: [] for system in systems}
    for _ in range(repeats):
        for system in systems:
            at = moments(system.behind(CONTEXT, REPLY))
            found[system.name].append((at[-1] - at[0]) / (len(at) - 1))
    return told([
        {"a token behind 512": name, **spread(times),
         "floor_share": round(floor / statistics.median(times), 3)}
        for name, times in found.items()
    ])  # fmt: skip


def first_tokens(systems: tuple[System, ...], repeats: int, most: Ceilings) -> list[Row]:
    floor = Shape().first_token(SECONDS, PREFIX, most)
    found: dict[str, list[float]] = {system.name: [] for system in systems}
    for _ in range(repeats):
        for system in systems:
            system.ready(())
            found[system.name] += moments(system.tokens((), noise(SECONDS), 2))[:1]
    return told([
        {"first token of 5 s": name, **spread(times),
         "floor_share": round(floor / statistics.median(times), 3)}
        for name, times in found.items()
    ])  # fmt: skip


def later(theirs: Generate) -> list[Row]:
    past = [
        PromptTurn(noise(SECONDS) if i >= TURNS - 1 - AUDIO_TURNS else "x" * 60, words(REPLY))
        for i in range(TURNS - 1)
    ]
    times = moments(theirs.tokens(past, noise(SECONDS), 2))[:1]
    return told([{"turn": TURNS, "system": theirs.name, **spread(times)}])


def told(rows: list[Row]) -> list[Row]:
    tell(table(rows))
    return rows


def tell(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
