"""Judge the embedded brain's answers in small conversations and to questions of knowledge.

    python -m benchmarks.answers [--set build|judge|facts] [--part PART] [--model NAME] [--json OUT]

Each turn is typed and has the earlier turns of its conversation as history, like in the product.
Patterns decide (tests/data/answers), at temperature 0, so a run can be repeated. `build` is for
work on the prompts, `judge` only for the verdict before and after; `facts` are a stranger's.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import tempfile
import threading
import time
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from voxtui.bench.environment import machine
from voxtui.brains.embedded.embedded_brain import EmbeddedBrain
from voxtui.dialogue.data import Token
from voxtui.dialogue.dialogue import clock_line
from voxtui.dialogue.history.history import History
from voxtui.dialogue.live_config import LiveConfig
from voxtui.dialogue.protocols import (
    Brain,
    PastTurn,
    ReplyOptions,
    SkillAnswer,
    SkillRequest,
    Skills,
    TurnRequest,
)
from voxtui.dialogue.timestamps import Timestamps
from voxtui.settings.schema import BrainConfig, Config, EmbeddedBrainConfig, GenerationConfig
from voxtui.skills.assistant_skills import AssistantSkills

SETS = Path(__file__).parents[1] / "tests/data/answers"

KNOWLEDGE = "knowledge"

LONGEST_WORDS = 60
"""Maximum words of a short spoken answer: 60 take 24 s to say."""

LOOP = re.compile(r"\b(\w+(?:\W+\w+){4,})(?:\W+(?:\w+\W+){0,6}?\1\b){2}", re.IGNORECASE)
"""Matches five words or more that occur three times, with up to six words between."""

UNSPEAKABLE = re.compile(r"[\[\]{}<>]|```|^\s*(?:[-*#]|\d+\.)\s", re.MULTILINE)
"""Matches placeholders, code and lists."""


@dataclass(frozen=True)
class Expected:
    """One turn, and the rules for its reply."""

    says: str
    needs: str
    forbids: str = ""
    longest: int = LONGEST_WORDS

    def complaint(self, reply: str) -> str:
        """Return why `reply` is wrong; empty if it is right."""
        reply = reply.replace("’", "'").strip()
        if not re.search(self.needs, reply, re.IGNORECASE):
            return "does not say what it must"
        if self.forbids and (found := re.search(self.forbids, reply, re.IGNORECASE)):
            return f"says “{found[0]}”"
        if found := UNSPEAKABLE.search(reply):
            return f"has “{found[0].strip()}”"
        if LOOP.search(reply):
            return "repeats itself"
        words = len(reply.split())
        return f"has {words} words" if words > self.longest else ""


@dataclass(frozen=True)
class Conversation:
    topic: str
    turns: Sequence[Expected]


@dataclass(frozen=True)
class Judged:
    """A reply and its verdict."""

    topic: str
    says: str
    reply: str
    complaint: str
    """the reason for which the reply is wrong; empty if it is right"""
    ttft_ms: float
    """milliseconds from the typed text to the first token, whatever else this machine does"""


def read(name: str) -> list[Conversation]:
    """Return the conversations of a set, and its questions as conversations of one turn."""
    table = tomllib.loads((SETS / f"{name}.toml").read_text())
    talks: list[Conversation] = []
    for talk in table["conversation"]:
        longest = talk.get("longest", LONGEST_WORDS)
        turns = [Expected(**turn, longest=longest) for turn in talk["turns"]]
        talks.append(Conversation(talk["topic"], turns))
    return [*talks, *(Conversation(KNOWLEDGE, [Expected(**one)]) for one in table["question"])]


def part(talks: Sequence[Conversation], name: str) -> list[Conversation]:
    """Return the conversations of a part: `conversations`, `knowledge`, or `all`."""
    return [
        talk for talk in talks if name == "all" or (talk.topic == KNOWLEDGE) == (name == KNOWLEDGE)
    ]


NOW = datetime(2026, 11, 22, 13, 4)
"""The time that the brain is told in each turn, as in the program."""


def judge(
    brain: Brain, skills: Skills, talks: Sequence[Conversation], config: Config
) -> Iterator[Judged]:
    for talk in talks:
        history = History(LiveConfig(config))
        for turn in talk.turns:
            started, first = time.monotonic(), None
            options = ReplyOptions(clock=clock_line(NOW, history.past))
            tokens: list[Token] = []
            told = skills.answer(
                SkillRequest(turn.says, False, history.past, brain.sends_to, config)
            )
            items = (
                told.tokens()
                if isinstance(told, SkillAnswer)
                else brain.reply(
                    TurnRequest(history.past, turn.says, Timestamps(), threading.Event(), options)
                )
            )
            for item in items:
                if isinstance(item, Token):
                    first = first or time.monotonic()
                    tokens.append(item)
            reply = "".join(token.text for token in tokens)
            number, clock = len(history.past), options.clock
            past = PastTurn(turn.says, turn.says, tuple(tokens), number=number, clock=clock)
            history.add(past, reply)
            ttft = round(((first or time.monotonic()) - started) * 1000, 1)
            yield Judged(talk.topic, turn.says, reply, turn.complaint(reply), ttft)


def summary(judged: Sequence[Judged]) -> list[dict[str, Any]]:
    """Return a row per topic, then one for all conversations, and last the one for knowledge."""
    rows: list[dict[str, Any]] = []
    for topic in dict.fromkeys(one.topic for one in judged if one.topic != KNOWLEDGE):
        rows.append(_row(topic, [one for one in judged if one.topic == topic]))
    rows.append(_row("all conversations", [one for one in judged if one.topic != KNOWLEDGE]))
    rows.append(_row(KNOWLEDGE, [one for one in judged if one.topic == KNOWLEDGE]))
    return rows


def _row(name: str, judged: Sequence[Judged]) -> dict[str, Any]:
    return {
        "topic": name,
        "n": len(judged),
        "right": sum(not one.complaint for one in judged),
        "ttft_ms_median": round(statistics.median(one.ttft_ms for one in judged)) if judged else 0,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--set", choices=("build", "judge", "facts"), default="build")
    parser.add_argument("--part", choices=("all", "conversations", KNOWLEDGE), default="all")
    parser.add_argument("--model", default="qwen2.5-coder-1.5b")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    config = Config(
        brain=BrainConfig(embedded=EmbeddedBrainConfig(model=asked.model)),
        generation=GenerationConfig(temperature=0.0),
    )
    brain = EmbeddedBrain(config)
    judged: list[Judged] = []
    try:
        brain.warm_up(lambda step, fraction: None)
        with tempfile.TemporaryDirectory() as folder:
            skills = AssistantSkills(Path(folder), rings=False)
            for one in judge(brain, skills, part(read(asked.set), asked.part), config):
                judged.append(one)
                sys.stdout.write(f"{one.complaint or 'right'}: {one.says}\n    {one.reply}\n")
                sys.stdout.flush()
    finally:
        brain.close()
    rows = summary(judged)
    sys.stdout.write("\n| " + " | ".join(rows[0]) + " |\n" + "|---" * len(rows[0]) + "|\n")
    for row in rows:
        sys.stdout.write("| " + " | ".join(str(value) for value in row.values()) + " |\n")
    if asked.json:
        report = {"machine": machine(), "set": asked.set, "model": asked.model, "rows": rows}
        report["replies"] = [asdict(one) for one in judged]
        asked.json.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
