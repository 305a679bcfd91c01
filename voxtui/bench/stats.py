"""`voxtui stats`: how long past turns took, by brain and by day."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from itertools import groupby
from pathlib import Path
from typing import Any

import click

from voxtui.bench.tables import headline_lines, headlines_json, judge, number, outcomes_line
from voxtui.dialogue.timestamps import Milestone, Turn
from voxtui.settings.schema import Config, Targets, TargetsConfig
from voxtui.storage.derived_latencies import TIMES, Headline, spread
from voxtui.storage.metrics_files import MetricsLine, Past, metrics_folder, read


@dataclass(frozen=True, slots=True)
class Group:
    """Spoken or typed turns of one brain and `path`, on one day or on all of them."""

    brain: str
    path: str
    typed: bool
    day: date | None
    lines: Sequence[MetricsLine]

    @property
    def timed(self) -> Sequence[Turn]:
        """The turns without those that waited for a person's key, which no brain can hasten."""
        turns = (line.turn for line in self.lines)
        return [turn for turn in turns if Milestone.CONFIRMED not in turn.timestamps]


def groups(lines: Sequence[MetricsLine]) -> list[Group]:
    """Return for each brain all its turns, then those of each day (local time), oldest first.

    Typed turns form groups of their own, because they have other targets. So do the turns of each
    way of computing (`path`).
    """
    kinds: dict[tuple[str, str, bool], list[MetricsLine]] = {}
    for line in lines:
        kinds.setdefault((line.brain, line.path, line.turn.typed), []).append(line)
    made: list[Group] = []
    for kind, alike in kinds.items():
        made.append(Group(*kind, None, alike))
        made += [Group(*kind, day, [*lines]) for day, lines in groupby(alike, _day)]
    return made


def _day(line: MetricsLine) -> date:
    return line.at.astimezone().date()


def run(config: Config, as_json: bool) -> None:
    path = metrics_folder()
    past = read(path)
    if not past.lines and not as_json:
        why = "" if config.metrics.enabled else " None are stored: metrics.enabled is false."
        click.echo(f"{path}: no turns yet.{why}", err=True)
    elif as_json:
        click.echo(json.dumps(_json(past, path, config.targets), ensure_ascii=False))
    else:
        click.echo("\n".join(_report(past, path, config.targets)))


def _report(past: Past, path: Path, targets: TargetsConfig) -> list[str]:
    lines = [f"{path}: turns: {len(past.lines)}, sessions: {_sessions(past.lines)}"]
    if past.damaged:
        lines.append(f"Damaged lines, left out: {past.damaged}")
    names = "".join(f" {headline.name:^19}" for headline in TIMES)
    heads = f"   {'p50':>5} {'p95':>5} {'p99':>5}" * len(TIMES)
    for group in groups(past.lines):
        own = _targets(group, targets)
        if group.day is None:
            lines += ["", _title(group), *headline_lines(group.timed, own), ""]
            lines += [f"{'':16}{names}".rstrip(), f"{'ms':<10} {'turns':>5}{heads}"]
        else:
            cells = "".join(_cell(group.timed, headline, own) for headline in TIMES)
            lines.append(f"{group.day} {len(group.lines):>5}{cells}")
    return lines


def _title(group: Group) -> str:
    typed = ", typed" if group.typed else ""
    path = f", {group.path}" if group.path else ""
    return f"{group.brain}{path}{typed}: {outcomes_line(line.outcome for line in group.lines)}"


def _targets(group: Group, targets: TargetsConfig) -> Targets:
    return targets.resolved(group.brain).judging(group.typed)


def _cell(turns: Sequence[Turn], headline: Headline, targets: Targets) -> str:
    times = spread(map(headline.of, turns))
    verdict = judge(times, headline.target(targets))
    values = (times.p50, times.p95, times.p99) if times else (None,) * 3
    sign = verdict.sign if verdict else " "
    return f" {sign} " + " ".join(f"{number(value):>5}" for value in values)


def _sessions(lines: Sequence[MetricsLine]) -> int:
    return len({line.session for line in lines})


def _json(past: Past, path: Path, targets: TargetsConfig) -> dict[str, Any]:
    return {
        "file": str(path),
        "turns": len(past.lines),
        "sessions": _sessions(past.lines),
        "damaged": past.damaged,
        "groups": [_group_json(group, targets) for group in groups(past.lines)],
    }


def _group_json(group: Group, targets: TargetsConfig) -> dict[str, Any]:
    return {
        "brain": group.brain,
        "path": group.path,
        "typed": group.typed,
        "day": group.day.isoformat() if group.day else None,
        "turns": len(group.lines),
        "outcomes": Counter(line.outcome.value for line in group.lines),
        "headlines": headlines_json(group.timed, _targets(group, targets)),
    }
