"""Run turns over clips in real time, on the same engine as the screen."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

import click

from voxtui.audio.clips import Clip
from voxtui.commands.headless import headless
from voxtui.dialogue.engine_commands import NewConversation
from voxtui.dialogue.timestamps import Turn
from voxtui.session.user_session import MakeEngine


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


def measure(clips: Sequence[Clip], runs: int, warm_up: int, make_engine: MakeEngine) -> Measured:
    """Run every clip once per run, each as a conversation of its own, with a progress bar.

    `warm_up` turns come first, over the clips in order. Raises the error of a failed start.
    """
    clips = _named_apart(clips)
    rounds = [[clips[n % len(clips)] for n in range(warm_up)], *[clips] * runs]
    total, hidden = sum(_ms(clip) for run in rounds for clip in run), not sys.stderr.isatty()
    turns: list[list[Turn]] = []
    with (
        headless(make_engine) as started,
        # Drawn between turns only, because drawing takes processor time from the measurement.
        click.progressbar(length=total, file=sys.stderr, hidden=hidden) as bar,
    ):
        for number, run in enumerate(rounds):
            turns.append([])
            for clip in run:
                name = f"run {number} of {runs}" if number else "warm-up"
                bar.label = f"{name}: {clip.name}".ljust(36)
                bar.render_progress()
                started.engine.post(NewConversation())
                turns[-1].append(started.ask(clip))
                bar.update(_ms(clip))
        loaded = started.loaded
    return Measured(
        loaded.brain, loaded.voice, loaded.speaker or "none", clips, turns[0], turns[1:]
    )


def _ms(clip: Clip) -> int:
    return round(clip.seconds * 1000)


def _named_apart(clips: Sequence[Clip]) -> list[Clip]:
    """Return `clips`, with a number after each name that an earlier clip already has."""
    names = [clip.name for clip in clips]
    return [
        replace(clip, name=f"{clip.name} ({names[:n].count(clip.name) + 1})")
        if clip.name in names[:n]
        else clip
        for n, clip in enumerate(clips)
    ]
