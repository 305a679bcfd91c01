"""`voxtui bench`: turns over clips in real time, through the engine that the screen runs on."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from voxtui.audio.clips import Clip
from voxtui.engine import Engine
from voxtui.headless import headless
from voxtui.turn import Event, Turn

MakeEngine = Callable[[Callable[[Event], object]], Engine]


@dataclass(frozen=True, slots=True)
class Plan:
    """Every clip once a run, each a conversation of its own."""

    clips: Sequence[Clip]
    runs: int
    warm_up: int
    """turns before the first run, which count apart; the clips in turn"""


@dataclass(frozen=True, slots=True)
class Measured:
    brain: str
    voice: str
    speaker: str
    clips: Sequence[Clip]
    warm_up: Sequence[Turn]
    runs: Sequence[Sequence[Turn]]

    @property
    def turns(self) -> list[Turn]:
        return [turn for run in self.runs for turn in run]


def measure(plan: Plan, make_engine: MakeEngine) -> Measured:
    """Raises what start-up failed with."""
    clips = _named_apart(plan.clips)
    rounds = [[clips[n % len(clips)] for n in range(plan.warm_up)], *[clips] * plan.runs]
    with _progress() as progress:
        bar = progress.add_task(
            "Loading", total=sum(clip.seconds for run in rounds for clip in run)
        )

        def loading(step: str | None) -> None:
            progress.update(bar, description=f"Loading: {step}" if step else "")

        with headless(make_engine, loading) as asked:
            runs: list[list[Turn]] = []
            for number, run in enumerate(rounds):
                runs.append([])
                for clip in run:
                    name = f"run {number} of {plan.runs}" if number else "warm-up"
                    progress.update(bar, description=f"{name}: {clip.name}")
                    asked.engine.new_conversation()
                    runs[-1].append(asked.ask(clip))
                    progress.advance(bar, clip.seconds)
            loaded = asked.loaded
    return Measured(loaded.brain, loaded.voice, loaded.speaker or "none", clips, runs[0], runs[1:])


def _progress() -> Progress:
    """Drawn twice a second: what is measured has the processor."""
    return Progress(
        TextColumn("{task.description:<36}", markup=False),
        BarColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        refresh_per_second=2,
        transient=True,
        disable=not sys.stderr.isatty(),
    )


def _named_apart(clips: Sequence[Clip]) -> list[Clip]:
    """Two files of one name are two clips."""
    names = [clip.name for clip in clips]
    return [
        replace(clip, name=f"{clip.name} ({names[:n].count(clip.name) + 1})")
        if clip.name in names[:n]
        else clip
        for n, clip in enumerate(clips)
    ]
