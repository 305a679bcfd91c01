"""Ask the embedded brain a hundred things of everyday life, and judge two versions blind.

    python -m benchmarks.everyday answer OUT.json [--model NAME] [--set NAME]
    python -m benchmarks.everyday sheet BEFORE.json AFTER.json KEY.json > SHEET.txt
    python -m benchmarks.everyday count KEY.json VERDICTS.txt...

`answer` types a set, each conversation with its history, at temperature 0: benchmarks/everyday.toml
(judge, the default), benchmarks/everyday_build.toml, which is for work on the prompts;
benchmarks/everyday_check.toml, a small set for before and after such work;
benchmarks/everyday_follow.toml, about what was told in earlier turns;
benchmarks/everyday_broad.toml, whose first half chooses between versions of the prompt; or
benchmarks/everyday_fresh.toml, everyday_fresh_b.toml and everyday_fresh_c.toml, strangers' of 26
and 27 November.
`sheet` prints both versions of each conversation as A and B, in an order that KEY.json alone knows.
A reader writes a line for each turn, such as "17 A", "18 AB" or "19 -": which were acceptable.
`count` says how many were accepted of each version, by kind and by reader.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.answers import Conversation, Expected, judge
from voxtui.bench.environment import machine
from voxtui.brains.embedded.embedded_brain import EmbeddedBrain
from voxtui.settings.schema import BrainConfig, Config, EmbeddedBrainConfig, GenerationConfig
from voxtui.skills.assistant_skills import AssistantSkills

SETS = {
    "judge": Path(__file__).with_suffix(".toml"),
    "build": Path(__file__).with_name("everyday_build.toml"),
    "check": Path(__file__).with_name("everyday_check.toml"),
    "follow": Path(__file__).with_name("everyday_follow.toml"),
    "broad": Path(__file__).with_name("everyday_broad.toml"),
    "fresh": Path(__file__).with_name("everyday_fresh.toml"),
    "fresh_b": Path(__file__).with_name("everyday_fresh_b.toml"),
    "fresh_c": Path(__file__).with_name("everyday_fresh_c.toml"),
}


def conversations(name: str = "judge") -> list[dict[str, Any]]:
    return tomllib.loads(SETS[name].read_text())["conversation"]


def answer(out: Path, model: str, name: str) -> None:
    config = Config(
        brain=BrainConfig(embedded=EmbeddedBrainConfig(model=model)),
        generation=GenerationConfig(temperature=0.0),
    )
    talks = [
        Conversation(talk["topic"], [Expected(turn["says"], "") for turn in talk["turns"]])
        for talk in conversations(name)
    ]
    brain = EmbeddedBrain(config)
    try:
        brain.warm_up(lambda step, fraction: None)
        with tempfile.TemporaryDirectory() as folder:
            skills = AssistantSkills(Path(folder), rings=False)
            replies: list[str] = []
            for number, one in enumerate(judge(brain, skills, talks, config), 1):
                replies.append(one.reply.strip())
                sys.stderr.write(f"\r{number}")
    finally:
        brain.close()
    report = {"machine": machine(), "set": name, "model": model, "replies": replies}
    out.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")


def sheet(before: Path, after: Path, key: Path) -> None:
    """Print both versions. A coin toss per conversation decides which one is A."""
    reports = [json.loads(path.read_text()) for path in (before, after)]
    name, versions = reports[0]["set"], [report["replies"] for report in reports]
    coin = random.SystemRandom()
    firsts: list[int] = []
    number = 0
    for talk in conversations(name):
        first = coin.randrange(2)
        sys.stdout.write(f"\n=== {talk['topic']}\n")
        for turn in talk["turns"]:
            firsts.append(first)
            a, b = versions[first][number], versions[1 - first][number]
            number += 1
            sys.stdout.write(
                f"\n{number} > {turn['says']}\n   [{turn['accepts']}]\n  A {a}\n  B {b}\n"
            )
    key.write_text(json.dumps({"set": name, "firsts": firsts}))


def count(key: Path, readers: list[Path]) -> None:
    known = json.loads(key.read_text())
    firsts = known["firsts"]
    topics = [talk["topic"] for talk in conversations(known["set"]) for _ in talk["turns"]]
    for reader in readers:
        accepted = (Counter[str](), Counter[str]())
        for line in reader.read_text().splitlines():
            number, marks = line.split()
            turn = int(number) - 1
            for version, letter in enumerate("AB" if firsts[turn] == 0 else "BA"):
                accepted[version][topics[turn]] += letter in marks
        sys.stdout.write(
            f"\n{reader.stem}\n\n| kind | turns | before | after |\n|---|---|---|---|\n"
        )
        rows = [
            (topic, topics.count(topic), *(c[topic] for c in accepted))
            for topic in dict.fromkeys(topics)
        ]
        for row in [*rows, ("all", len(topics), *(c.total() for c in accepted))]:
            sys.stdout.write("| " + " | ".join(map(str, row)) + " |\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parts = parser.add_subparsers(dest="part", required=True)
    answers = parts.add_parser("answer")
    answers.add_argument("out", type=Path)
    answers.add_argument("--model", default="qwen2.5-coder-1.5b")
    answers.add_argument("--set", choices=SETS, default="judge")
    pair = parts.add_parser("sheet")
    for name in ("before", "after", "key"):
        pair.add_argument(name, type=Path)
    counted = parts.add_parser("count")
    counted.add_argument("key", type=Path)
    counted.add_argument("readers", type=Path, nargs="+")
    asked = parser.parse_args()
    if asked.part == "answer":
        answer(asked.out, asked.model, asked.set)
    elif asked.part == "sheet":
        sheet(asked.before, asked.after, asked.key)
    else:
        count(asked.key, asked.readers)


if __name__ == "__main__":
    main()
