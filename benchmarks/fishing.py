"""Ask for facts about the user that nobody told, and for facts that were told.

    python -m benchmarks.fishing [--set NAME] [--model NAME] [--only FORM] [--json OUT]

Each question of tests/data/answers/NAME.toml (`fishing`, or a stranger's `fishing_fresh`,
`fishing_fresh_b` or `fishing_fresh_c`) is asked in four forms: in the terminal, and by a client of
the server that sent no system message, its own short one, or its own and nothing else about who is
who; ten with a system message that tells the answer. Greedy, so a run can be repeated.
A leak is a word of the prompt's examples that neither the question nor an ordinary answer has. A
claim is an answer that does not say that it does not know.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any

from benchmarks.answers import SETS
from voxtui.brains.embedded.embedded_brain import EmbeddedBrain
from voxtui.brains.prompting import EXAMPLES
from voxtui.dialogue.data import Token
from voxtui.dialogue.dialogue import clock_line
from voxtui.dialogue.protocols import (
    DEFAULT_OPTIONS,
    Brain,
    Past,
    PastTurn,
    ReplyOptions,
    TurnRequest,
)
from voxtui.settings.schema import BrainConfig, Config, EmbeddedBrainConfig, GenerationConfig

TERMINAL = "terminal"

INSTRUCTED = "server, a system message that tells it"

FORMS = {
    TERMINAL: ReplyOptions(clock=clock_line(datetime(2026, 11, 22, 13, 4), ())),
    "server, no system message": DEFAULT_OPTIONS,
    "server, a short system message": ReplyOptions(instruction="You are a helpful assistant."),
    "server, a character": ReplyOptions(
        instruction="You are Bruno, the assistant of a hotel in Vienna. Answer in one sentence."
    ),
}
"""The options of each form."""

ORDINARY = re.compile(
    r"a|about|am|an|and|any|anything|are|around|assistant|at|be|but|can|can't|cannot|did|do|does"
    r"|don't|done|for|from|good|have|haven't|he|help|her|him|his|i|i'm|in|is|it|know|me|meet|my|no"
    r"|not|of|on|only|or|please|she|so|some|sorry|talk|tell|that|the|they|this|to|today|told|what"
    r"|when|where|who|with|you"
    r"|was|you're|your"
)
"""Words that an answer may share with any example."""

UNKNOWN = re.compile(
    r"\b(?:don't|do not|can't|cannot|didn't|haven't|have not|not|no|never|unable|without)\b"
    r"|n't\b|\?\s*$|\b(?:tell|told) me\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Answered:
    form: str
    says: str
    reply: str
    leaks: Sequence[str]
    right: bool
    """whether it says that it does not know (`unknown`), or gives the fact (`told`)"""
    told: bool


def plain(text: str) -> list[str]:
    return re.findall(r"[a-z']+", text.replace("’", "'").lower())


def leaks(reply: str, question: str) -> list[str]:
    """Return the words of `reply` that can only come from the examples."""
    examples = {word for pair in EXAMPLES for text in pair for word in plain(text)}
    suspects = examples - set(plain(question))
    return [w for w in plain(reply) if w in suspects and not ORDINARY.fullmatch(w)]


def read(name: str) -> dict[str, Any]:
    return tomllib.loads((SETS / f"{name}.toml").read_text())


def unknown(brain: Brain, form: str, questions: dict[str, Any]) -> Iterator[Answered]:
    for question in (*questions["unknown"], *questions.get("unknown_later", ())):
        reply = _reply(brain, (), question, FORMS[form])
        right = bool(UNKNOWN.search(reply.replace("’", "'")))
        yield Answered(form, question, reply, leaks(reply, question), right, False)


def told(brain: Brain, form: str, questions: dict[str, Any]) -> Iterator[Answered]:
    for turn in questions["told"]:
        says, asks, needs = turn.values() if "asks" in turn else turn
        options = FORMS[form]
        past: tuple[PastTurn, ...] = ()
        for words in [says] if isinstance(says, str) else says:
            first = _reply(brain, past, words, options)
            past = (*past, PastTurn(words, words, (Token(first),), clock=options.clock))
            options = options.with_clock("(13:05)") if options.clock else options
        reply = _reply(brain, past, asks, options)
        right = bool(re.search(needs, reply, re.IGNORECASE))
        whole = " ".join((*(turn.user_text for turn in past), asks))
        yield Answered(form, whole, reply, leaks(reply, whole), right, True)


def instructed(brain: Brain, questions: dict[str, Any]) -> Iterator[Answered]:
    for row in questions.get("instructed", ()):
        reply = _reply(brain, (), row["asks"], ReplyOptions(instruction=row["instruction"]))
        right = bool(re.search(row["needs"], reply, re.IGNORECASE))
        yield Answered(INSTRUCTED, f"{row['instruction']} {row['asks']}", reply, [], right, True)


def _reply(brain: Brain, past: Past, words: str, options: ReplyOptions) -> str:
    items = brain.reply(TurnRequest(past, words, options=options))
    return "".join(item.text for item in items if isinstance(item, Token)).strip()


def build(model: str) -> EmbeddedBrain:
    config = Config(
        brain=BrainConfig(embedded=EmbeddedBrainConfig(model=model)),
        generation=GenerationConfig(temperature=0.0),
    )
    brain = EmbeddedBrain(config)
    brain.warm_up(lambda step, fraction: None)
    return brain


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--set",
        choices=("fishing", *(f"fishing_fresh{name}" for name in ("", "_b", "_c"))),
        default="fishing",
    )
    parser.add_argument("--model", default="qwen2.5-coder-1.5b")
    parser.add_argument("--only", choices=(*FORMS, INSTRUCTED))
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    done: list[Answered] = []
    questions = read(asked.set)
    rows = ["| form | leaks | says that it does not know | told, right |"]
    rows.append("|---|---|---|---|")
    for form in [asked.only] if asked.only else (*FORMS, INSTRUCTED):
        brain = build(asked.model)
        ours: list[Answered] = []
        try:
            items = chain(unknown(brain, form, questions), told(brain, form, questions))
            for one in instructed(brain, questions) if form == INSTRUCTED else items:
                ours.append(one)
                mark = f"LEAK {','.join(one.leaks)}" if one.leaks else "ok" if one.right else "?"
                sys.stderr.write(f"{form}: {mark}: {one.says}\n    {one.reply}\n")
        finally:
            brain.close()
        done += ours
        fished = [one for one in ours if not one.told]
        rows.append(
            f"| {form} | {sum(bool(one.leaks) for one in fished)} "
            f"| {sum(one.right for one in fished)} "
            f"| {sum(one.right for one in ours if one.told)} |"
        )
    sys.stdout.write("\n".join([*rows, ""]))
    if asked.json:
        rows_json = [asdict(one) for one in done]
        asked.json.write_text(json.dumps(rows_json, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
