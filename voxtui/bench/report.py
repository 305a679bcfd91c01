"""Report a measurement as text and as JSON, and judge it against limits."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from voxtui import __version__
from voxtui.bench import tables
from voxtui.bench.measure import Measured
from voxtui.dialogue.timestamps import Outcome, Turn
from voxtui.settings.schema import Targets
from voxtui.storage import derived_latencies as latencies

UNSTEADY = 0.2
"""Maximum `share` of a steady measurement."""

UNSTEADY_MS = 10.0
"""Half distance in ms up to which a measurement is always steady."""


def stage_spreads(turns: Sequence[Turn]) -> dict[str, latencies.Spread]:
    times: dict[str, list[float]] = {}
    for turn in turns:
        for stage in latencies.stages(turn.timestamps, turn.speculative_s):
            times.setdefault(stage.name, []).append(stage.seconds * 1000)
    return {name: about for name in times if (about := latencies.spread(times[name]))}


@dataclass(frozen=True, slots=True)
class Steadiness:
    medians: Sequence[float]
    """p50 of each run in ms"""
    share: float
    """half the distance of the outermost medians over their median"""
    steady: bool


def steadiness(runs: Sequence[Sequence[Turn]], headline: latencies.Headline) -> Steadiness | None:
    spreads = [latencies.spread(map(headline.of, run)) for run in runs]
    medians = [found.p50 for found in spreads if found]
    if len(medians) < 2:
        return None
    half = (max(medians) - min(medians)) / 2
    share = half / statistics.median(medians)
    return Steadiness(medians, share, half <= UNSTEADY_MS or share <= UNSTEADY)


def report(measured: Measured, machine: Mapping[str, Any], targets: Targets) -> list[str]:
    turns = measured.turns
    lines = [
        f"{measured.brain}; voice {measured.voice}; speaker: {measured.speaker}",
        f"{machine['cpu']}, Python {machine['python']}, {machine['date']}",
        f"{_count(measured.clips, 'clip')}, {_count(measured.runs, 'run')}: "
        + tables.outcomes_line(turn.outcome for turn in turns),
        "",
        *tables.headline_lines(turns, targets),
        "",
        tables.table_head("ms per stage"),
        *(tables.row(f"  {name}", found) for name, found in stage_spreads(turns).items()),
        "",
    ]
    for headline in tables.MEASURED:
        if steady := steadiness(measured.runs, headline):
            medians = " ".join(tables.number(median) for median in steady.medians)
            lines.append(f"p50 of each run, {headline.name}: {medians} (± {steady.share:.0%})")
    if measured.warm_up:
        lines.append(_warm_up(measured.warm_up))
    failed = {turn.error for turn in turns if turn.error}
    return [*lines, *(f"Failed: {error}" for error in failed)]


def _count(things: Sequence[object], name: str) -> str:
    return f"1 {name}" if len(things) == 1 else f"{len(things)} {name}s"


def _warm_up(turns: Sequence[Turn]) -> str:
    parts: list[str] = []
    for headline in (latencies.TTFT, latencies.FIRST_SOUND):
        values = [tables.number(headline.of(turn)) for turn in turns]
        parts.append(f"{headline.name} {' '.join(values)}")
    return f"Warm-up, not counted above: {', '.join(parts)}"


def as_json(measured: Measured, machine: Mapping[str, Any], targets: Targets) -> dict[str, Any]:
    """Return the report as JSON. Its field names are stable; fields may be added."""
    turns = measured.turns
    return {
        "voxtui": __version__,
        "machine": machine,
        "brain": measured.brain,
        "voice": measured.voice,
        "speaker": measured.speaker,
        "targets": msgspec.to_builtins(targets),
        "clips": [{"name": c.name, "seconds": round(c.seconds, 3)} for c in measured.clips],
        "headlines": tables.headlines_json(turns, targets),
        "stages": {name: tables.spread_json(found) for name, found in stage_spreads(turns).items()},
        "steadiness": {
            headline.key: {
                "p50_of_runs": [round(median, 1) for median in steady.medians],
                "share": round(steady.share, 3),
            }
            for headline in tables.MEASURED
            if (steady := steadiness(measured.runs, headline))
        },
        "warm_up": [turn.as_json() for turn in measured.warm_up],
        "turns": [
            {"run": count, **turn.as_json()}
            for count, run in enumerate(measured.runs, 1)
            for turn in run
        ],
    }


@dataclass(frozen=True, slots=True)
class Judgement:
    name: str
    passed: bool
    why: str

    def __str__(self) -> str:
        return f"{'PASS' if self.passed else 'FAIL'}  {self.name:<44} {self.why}"


def check(measured: Measured, targets: Targets) -> list[Judgement]:
    judged: list[Judgement] = []
    for clip in measured.clips:
        turns = [turn for turn in measured.turns if turn.clip == clip.name]
        for headline in tables.MEASURED:
            target = headline.target(targets)
            if target is not None:
                name = f"{headline.name}, {clip.name}, {clip.seconds:.1f} s"
                judged.append(_judge(name, latencies.spread(map(headline.of, turns)), target))
    for headline in (latencies.TTFT, latencies.FIRST_SOUND):
        if steady := steadiness(measured.runs, headline):
            why = f"p50 of {len(steady.medians)} runs within ± {steady.share:.0%}"
            judged.append(Judgement(f"{headline.name}, stability", steady.steady, why))
    answered = sum(turn.outcome is Outcome.ANSWERED for turn in measured.turns)
    count = len(measured.turns)
    return [*judged, Judgement("Answered", answered == count, f"{answered} of {count} turns")]


def budgets(measured: Measured, limits: Mapping[str, float]) -> list[Judgement]:
    by_key = {headline.key: headline for headline in tables.MEASURED}
    return [
        _judge(f"budget {key}", latencies.spread(map(by_key[key].of, measured.turns)), limit)
        for key, limit in limits.items()
    ]


def _judge(name: str, times: latencies.Spread | None, limit: float) -> Judgement:
    passed = tables.judge(times, limit) is latencies.Verdict.WITHIN
    value = f"p95 {tables.number(times.p95)} ms" if times else "no turn reached it"
    return Judgement(name, passed, f"{value}, at most {limit:g} ms")
