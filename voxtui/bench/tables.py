"""Tables of turns: each headline against its target, from the release and the end of speech."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from voxtui.dialogue.timestamps import Outcome, Turn
from voxtui.settings.schema import Targets
from voxtui.storage import derived_latencies as latencies
from voxtui.storage.derived_latencies import Headline, Spread, Verdict, spread

PROCESSING = Headline("Processing", "ms", "processing_ms")
"""The time from the complete utterance to the first token."""

MEASURED = (
    latencies.TTFT, PROCESSING, latencies.FIRST_SOUND, latencies.TOTAL, latencies.SPEED,
)  # fmt: skip

NETWORK = Headline("Network", "ms", "network_ms")
"""The network's share of TTFT, a lower bound; remote brain only."""

HEAD = "p50", "p95", "p99", "min", "max"


def measured_of(turns: Sequence[Turn]) -> Sequence[Headline]:
    remote = any(turn.network_ms is not None for turn in turns)
    return (*MEASURED, NETWORK) if remote else MEASURED


def headline_lines(turns: Sequence[Turn], targets: Targets) -> list[str]:
    headlines = measured_of(turns)
    lines = [table_head("ms from the release")]
    lines += [_line(headline, map(headline.of, turns), targets) for headline in headlines]
    timed = [headline for headline in headlines if headline.mark]
    if any(headline.from_speech_end(turn) is not None for headline in timed for turn in turns):
        lines += ["", table_head("ms from the end of speech")]
        lines += [_line(headline, map(headline.from_speech_end, turns), None) for headline in timed]
    return lines


def outcomes_line(outcomes: Iterable[Outcome]) -> str:
    counted = Counter(outcome.value.replace("_", " ") for outcome in outcomes)
    return ", ".join(f"{count} {outcome}" for outcome, count in counted.most_common())


def row(name: str, times: Spread | None, verdict_and_goal: str = "") -> str:
    values = (times.p50, times.p95, times.p99, times.min, times.max) if times else [None] * 5
    count = times.n if times else 0
    cells = " ".join(f"{number(value):>6}" for value in values)
    return f"{name:<26} {verdict_and_goal:<9} {cells} {count:>6}".rstrip()


def number(value: float | None) -> str:
    """Format `value` with one decimal below 100, else with none; a dash for None."""
    if value is None:
        return "–"
    return f"{value:.1f}" if abs(value) < 99.95 else f"{value:.0f}"


def table_head(title: str) -> str:
    return f"{title:<26} {'goal':<9} {' '.join(f'{name:>6}' for name in HEAD)} {'turns':>6}"


def _line(headline: Headline, values: Iterable[float | None], targets: Targets | None) -> str:
    times = spread(values)
    target = headline.target(targets) if targets else None
    verdict = judge(times, target)
    goal = "" if target is None else f"{verdict.sign if verdict else ' '} ≤ {target:g}"
    return row(f"  {headline.name}", times, goal)


def judge(times: Spread | None, target: float | None) -> Verdict | None:
    """Compare p95 with `target`, because half of the turns may exceed a median."""
    return latencies.verdict(times.p95 if times else None, target)


def headlines_json(turns: Sequence[Turn], targets: Targets) -> dict[str, Any]:
    return {headline.key: _json(turns, headline, targets) for headline in measured_of(turns)}


def _json(turns: Sequence[Turn], headline: Headline, targets: Targets) -> dict[str, Any]:
    values = headline.values(turns)
    found, target = spread(values), headline.target(targets)
    about: dict[str, Any] = {"released": spread_json(found)}
    if headline.mark:
        about["speech_ended"] = spread_json(spread(map(headline.from_speech_end, turns)))
    if target is not None:
        within = sum(value <= target for value in values)
        about["target"] = target
        about["within"] = round(within / len(values), 3) if values else None
        about["verdict"] = judge(found, target)
    return about


def spread_json(times: Spread | None) -> dict[str, float] | None:
    if times is None:
        return None
    return {name: round(value, 1) for name, value in asdict(times).items()}
