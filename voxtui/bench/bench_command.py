"""`voxtui bench`: measure, report, compare and judge."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import click

from voxtui.audio.clips import load_clip
from voxtui.audio.file_speaker import NullSpeaker
from voxtui.bench import compare as comparison
from voxtui.bench.environment import machine
from voxtui.bench.measure import measure
from voxtui.bench.report import as_json, budgets, check, report
from voxtui.bench.tables import MEASURED
from voxtui.commands.devices_command import can_play
from voxtui.dialogue.components.sound_devices import Devices
from voxtui.dialogue.protocols import Speaker
from voxtui.dialogue.timestamps import Outcome
from voxtui.errors import InputError
from voxtui.settings.schema import Config
from voxtui.terminal.native_stderr import native_log, native_stderr_in
from voxtui.wiring import build_engine, build_speaker, sample_clips, target_clips


@dataclass(frozen=True, slots=True)
class BenchOptions:
    runs: int | None = None
    warm_up: int = 1
    play: bool = False
    as_json: bool = False
    compare: Path | None = None
    """an earlier report by --json"""
    budgets: Sequence[str] = ()
    """limits as NAME=MS"""
    check: bool = False


def run(config: Config, files: Sequence[Path], options: BenchOptions) -> bool:
    """Measure and report turns. Return True if all limits were met. Raises VoxtuiError."""
    limits = parse_limits(options.budgets)
    old = comparison.load(options.compare) if options.compare else None
    paths = files or (target_clips() if options.check else [path for _, path in sample_clips()])
    with native_stderr_in(native_log()):
        clips = [load_clip(path, config.audio.max_utterance_s) for path in paths]
    runs = options.runs or (5 if options.check else 3)
    play = options.play and can_play(config.audio)
    speaker: Speaker = build_speaker(config.audio.output) if play else NullSpeaker()
    about = machine()
    with native_stderr_in(native_log()):
        measured = measure(
            clips,
            runs,
            options.warm_up,
            lambda emit: build_engine(config, emit, Devices(speaker=speaker)),
        )
    brain = next((turn.brain for turn in measured.turns), config.brain.name)
    targets = config.targets.resolved(brain)
    whole = as_json(measured, about, targets)
    if options.as_json:
        click.echo(json.dumps(whole, ensure_ascii=False))
    lines = report(measured, about, targets)
    if old and options.compare:
        lines += ["", *comparison.compare(old, options.compare, measured.turns, whole)]
    judged = budgets(measured, limits)
    if options.check:
        judged += check(measured, targets)
    if judged:
        failed = sum(not judgement.passed for judgement in judged)
        verdict = f"FAIL: {failed} of {len(judged)}" if failed else "PASS"
        lines += ["", *map(str, judged), verdict]
    click.echo("\n".join(lines), err=options.as_json)
    answered = all(turn.outcome is not Outcome.FAILED for turn in measured.turns)
    return answered and all(judgement.passed for judgement in judged)


def parse_limits(budgets: Sequence[str]) -> dict[str, float]:
    """Parse budgets: `ttft=100` becomes {"ttft": 100.0}. Raises InputError."""
    names = [headline.key for headline in MEASURED if headline.unit == "ms"]
    limits: dict[str, float] = {}
    for budget in budgets:
        name, _, text = budget.partition("=")
        if name not in names:
            raise InputError(f"--budget {budget}: the names are {', '.join(names)}.")
        limits[name] = 0.0
        with suppress(ValueError):
            limits[name] = float(text)
        if not 0 < limits[name] < float("inf"):
            raise InputError(f"--budget {budget}: is not of the form {name}=MILLISECONDS.")
    return limits
