"""`voxtui ask`: clips in; text, JSON and marks out."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import click

from voxtui.audio.clips import Clip
from voxtui.commands.headless import headless
from voxtui.dialogue.engine import Engine
from voxtui.dialogue.events import Event, Notice, ReplyText, TurnStarted
from voxtui.dialogue.marks import Mark, Marks, Outcome, Turn
from voxtui.errors import strip_control_characters


@dataclass(frozen=True, slots=True)
class Asking:
    """How the turns are run and reported."""

    as_json: bool = False
    paced: bool = True
    fresh: bool = False
    audible: bool = False


def answer(
    clips: Sequence[Clip],
    make_engine: Callable[[Callable[[Event], object]], Engine],
    asking: Asking,
) -> bool:
    """Speak each clip to the engine and print its answer. Returns whether a turn failed.

    Raises what start-up failed with.
    """
    failed = False
    with headless(make_engine) as asked:
        if not asking.audible and not asking.as_json:
            click.echo("Silent; --play plays the answers.", err=True)
        for clip in clips:
            if asking.fresh:
                asked.engine.new_conversation()
            turn = asked.ask(clip, asking.paced, _shown(asking))
            _report(turn, asking)
            failed |= turn.outcome is Outcome.FAILED
    return failed


def _shown(asking: Asking) -> Callable[[Event], object]:
    """Prints a turn's reply as it comes, and what else the user should know."""
    marks: Marks | None = None

    def see(event: Event) -> None:
        nonlocal marks
        match event:
            case TurnStarted(_, _, started):
                marks = started
            case ReplyText(_, text) if not asking.as_json:
                click.echo(text, nl=False)  # and flush
                if marks is not None:
                    marks.mark(Mark.FIRST_SHOWN)
            case Notice(message):
                click.echo(message, err=True)
            case _:
                pass

    return see


def _report(turn: Turn, asking: Asking) -> None:
    if asking.as_json:
        click.echo(json.dumps(turn.as_json(), ensure_ascii=False))
    elif turn.reply:
        click.echo()
    clip = strip_control_characters(str(turn.clip))
    if turn.outcome is Outcome.NO_SPEECH and not asking.as_json:
        click.echo(f"Nothing was heard in {clip}.", err=True)
    elif turn.outcome is Outcome.FAILED:
        click.echo(f"{clip}: {turn.error}", err=True)
