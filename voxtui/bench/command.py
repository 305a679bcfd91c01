"""`voxtui bench`: measure, report, draw, compare and judge."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from voxtui.bench import compare as comparison
from voxtui.bench import plot as picture
from voxtui.bench.machine import machine
from voxtui.bench.measure import MakeEngine, Plan, measure
from voxtui.bench.report import as_json, budgets, check, report
from voxtui.bench.tables import MEASURED
from voxtui.dialogue.marks import Outcome
from voxtui.errors import InputError
from voxtui.settings.schema import Config


@dataclass(frozen=True, slots=True)
class Asked:
    """What is wanted beside the report."""

    as_json: bool = False
    plot: Path | None = None
    compare: Path | None = None
    budgets: Mapping[str, float] | None = None
    """headline's key -> ms"""
    check: bool = False

    def refuse_early(self) -> None:
        """Raises InputError for what could not be done after minutes of measuring."""
        if self.plot:
            picture.ready(self.plot)
        if self.compare:
            comparison.load(self.compare)


def limits(said: Sequence[str]) -> dict[str, float]:
    """`ttft=100` -> {"ttft": 100.0}. Raises InputError."""
    names = [headline.key for headline in MEASURED if headline.unit == "ms"]
    found: dict[str, float] = {}
    for budget in said:
        name, equals, text = budget.partition("=")
        if name not in names:
            raise InputError(f"--budget {budget}: the names are {', '.join(names)}.")
        try:
            found[name] = float(text) if equals else float("nan")
        except ValueError:
            found[name] = float("nan")
        if not 0 < found[name] < float("inf"):
            raise InputError(f"--budget {budget}: is not of the form {name}=MILLISECONDS.")
    return found


def run(plan: Plan, make_engine: MakeEngine, config: Config, asked: Asked) -> bool:
    """Measure and print. Returns whether all that was asked for was kept."""
    about = machine()
    old = comparison.load(asked.compare) if asked.compare else None
    measured = measure(plan, make_engine)
    said = as_json(measured, about, config.targets)
    if asked.as_json:
        click.echo(json.dumps(said, ensure_ascii=False))
    lines = report(measured, about, config.targets)
    if old and asked.compare:
        lines += ["", *comparison.compare(old, asked.compare, measured.turns, said)]
    judged = budgets(measured, asked.budgets or {})
    if asked.check:
        judged += check(measured, config.targets)
    if judged:
        failed = sum(not judgement.passed for judgement in judged)
        verdict = f"FAIL: {failed} of {len(judged)}" if failed else "PASS"
        lines += ["", *map(str, judged), verdict]
    click.echo("\n".join(lines), err=asked.as_json)
    if asked.plot:
        picture.plot(measured, config.targets, asked.plot)
        click.echo(f"Picture: {asked.plot}", err=asked.as_json)
    answered = all(turn.outcome is not Outcome.FAILED for turn in measured.turns)
    return answered and all(judgement.passed for judgement in judged)
