"""Turns without a screen: clips in, text, JSON and marks out."""

from __future__ import annotations

import json
import queue
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import click

from voxtui.audio.clips import Clip, speak
from voxtui.engine import TYPED, Engine
from voxtui.errors import DeviceError
from voxtui.turn import (
    MICROPHONE,
    Died,
    Event,
    Loaded,
    LoadFailed,
    Loading,
    Mark,
    Marks,
    Notice,
    Outcome,
    ReplyText,
    Turn,
    TurnFinished,
    TurnStarted,
)


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
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    engine = make_engine(events.put)
    stopped = threading.Event()
    engine.start()
    try:
        _wait_until_loaded(events)
        if not asking.audible and not asking.as_json:
            click.echo(
                "Not played: sound is measured up to first_audio (--play plays it).", err=True
            )
        failed = False
        for clip in map(_named_apart, clips):
            if asking.fresh:
                engine.new_conversation()
            turn = _turn(clip, engine, events, asking, stopped)
            failed |= turn.outcome is Outcome.FAILED
    except Exception:
        stopped.set()
        engine.close()
        raise
    # Not after Ctrl-C: a model that is being loaded cannot be hurried, and the process ends anyway.
    engine.close()
    return failed


def _named_apart(clip: Clip) -> Clip:
    """`clip` under a name that is not taken for the microphone or the keyboard."""
    return replace(clip, name=f"./{clip.name}") if clip.name in (MICROPHONE, TYPED) else clip


def _wait_until_loaded(events: queue.SimpleQueue[Event]) -> None:
    show = sys.stderr.isatty()
    while True:
        match events.get():
            case Loading(step) if show:
                click.echo(f"\r\x1b[KLoading: {step} …", nl=False, err=True)
            case Loaded():
                break
            case LoadFailed(error):
                _clear_line(show)
                raise error
            case Died(error):
                raise error
            case Notice(message, "information"):
                _clear_line(show)
                click.echo(message, err=True)
            case Notice(message):
                _clear_line(show)
                raise DeviceError(message)
            case _:
                pass
    _clear_line(show)


def _clear_line(shown: bool) -> None:
    if shown:
        click.echo("\r\x1b[K", nl=False, err=True)


def _turn(
    clip: Clip,
    engine: Engine,
    events: queue.SimpleQueue[Event],
    asking: Asking,
    stopped: threading.Event,
) -> Turn:
    speaking = threading.Thread(
        target=speak, args=(clip, engine, stopped, asking.paced), name="voxtui-clip", daemon=True
    )
    speaking.start()
    marks: Marks | None = None
    while True:
        match events.get():
            case TurnStarted(_, _, started):
                marks = started
            case ReplyText(_, text) if not asking.as_json:
                click.echo(text, nl=False)  # and flush
                if marks is not None:
                    marks.mark(Mark.FIRST_SHOWN)
            case Notice(message):
                click.echo(message, err=True)
            case TurnFinished(turn):
                speaking.join()
                _report(turn, clip, asking)
                return turn
            case Died(error):
                raise error
            case _:
                pass


def _report(turn: Turn, clip: Clip, asking: Asking) -> None:
    if asking.as_json:
        click.echo(json.dumps(turn.as_json(), ensure_ascii=False))
    elif turn.reply:
        click.echo()
    if turn.outcome is Outcome.NO_SPEECH and not asking.as_json:
        click.echo(f"Nothing was heard in {clip.name}.", err=True)
    elif turn.outcome is Outcome.FAILED:
        click.echo(f"{clip.name}: {turn.error}", err=True)
