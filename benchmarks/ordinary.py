"""Measure what the examples, the rules and the time cost an ordinary typed turn.

    python -m benchmarks.ordinary [--rounds N] [--json FILE]

Three engines on the embedded brain and voice take turns with each question: without all three, with
the examples, and with the examples, the rules and the time, as on the screen. Each question is
typed key by key in a conversation of its own. Run it on an idle machine with 6 GB of free memory:
six minutes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.conversation import ENDS, FIGURES, person
from voxtui.bench.environment import machine
from voxtui.dialogue.engine_commands import NewConversation
from voxtui.dialogue.timestamps import Turn
from voxtui.settings.schema import BrainConfig, Config
from voxtui.storage.derived_latencies import percentile

OWN = BrainConfig(instruction=f"{BrainConfig().instruction} ")
"""The default instruction as if it were the user's own, so that there are no examples."""

WAYS = {
    "none of them": (Config(brain=OWN), False),
    "examples": (Config(), False),
    "examples, rules and time": (Config(), True),
}
"""The configurations, each with or without rules and time."""

QUESTIONS = [
    question for question in ENDS if not question.startswith(("Is", "And", "Which", "Tell"))
]
"""Questions that need no earlier question."""

SETTLE_SECONDS = 1.0
"""Pause before each question, in which the brain reads what comes before it."""


def measure(rounds: int) -> dict[str, list[Turn]]:
    """Return the turns of each way. The order of the ways is reversed in every second round."""
    done: dict[str, list[Turn]] = {way: [] for way in WAYS}
    with ExitStack() as stack:
        people = {
            way: stack.enter_context(person(config, local=local))
            for way, (config, local) in WAYS.items()
        }
        for number in range(rounds):
            for question in QUESTIONS:
                for way, there in list(people.items())[:: -1 if number % 2 else 1]:
                    there.engine.post(NewConversation())
                    time.sleep(SETTLE_SECONDS)  # the brain reads the empty conversation
                    done[way].append(turn := there.type(question))
                    sys.stderr.write(f"{way}: {turn.ttft_ms or 0:.0f} ms: {turn.reply}\n")
    return done


def report(done: dict[str, list[Turn]]) -> list[str]:
    """Return a Markdown table: a row per way."""
    rows = [
        "| with | turns | first token p50, ms | p95 | first sound p50, ms | p95 |",
        "|---|---|---|---|---|---|",
    ]
    for way, turns in done.items():
        cells: list[str] = []
        for of in FIGURES.values():
            values = known([of(turn) for turn in turns])
            cells += [f"{statistics.median(values):.0f}", f"{percentile(values, 95):.0f}"]
        rows.append(f"| {way} | {len(turns)} | {' | '.join(cells)} |")
    return rows


def known(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    done = measure(arguments.rounds)
    about = machine()
    sys.stdout.write("\n".join([json.dumps(about), *report(done), ""]))
    if arguments.json:
        ways = {way: [turn.as_json() for turn in turns] for way, turns in done.items()}
        arguments.json.write_text(json.dumps({"machine": about, **ways}, indent=1) + "\n")


if __name__ == "__main__":
    main()
