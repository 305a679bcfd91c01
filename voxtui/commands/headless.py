"""Turns without a screen: each clip is fed to the engine as one turn."""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import click

from voxtui.audio.clips import Clip, speak
from voxtui.dialogue.engine import Engine
from voxtui.dialogue.engine_commands import SendText
from voxtui.dialogue.events import Died, Event, Loaded, LoadFailed, Loading, Notice, TurnFinished
from voxtui.dialogue.timestamps import Turn
from voxtui.errors import DeviceError
from voxtui.session.user_session import MakeEngine


@dataclass(frozen=True, slots=True)
class Headless:
    engine: Engine
    loaded: Loaded
    _events: queue.SimpleQueue[Event]
    _stopped: threading.Event

    def events(
        self, question: Clip | str, paced: bool = True, held: float | None = None
    ) -> Iterator[Event]:
        """Ask `question`, and yield every event up to TurnFinished. Raises the error of a Died.

        The key is released after `held` seconds of a clip.
        """
        clip: threading.Thread | None = None
        if isinstance(question, str):
            self.engine.post(SendText(question))
        else:
            heard = (question, self.engine, self._stopped, paced, held)
            clip = threading.Thread(target=speak, args=heard, name="voxtui-clip", daemon=True)
            clip.start()
        while True:
            event = self._events.get()
            if isinstance(event, Died):
                raise event.error
            yield event
            if isinstance(event, TurnFinished):
                if clip is not None:
                    clip.join()  # else the next clip of this name would get the rest of it
                return

    def ask(self, question: Clip | str, paced: bool = True, held: float | None = None) -> Turn:
        *_, last = self.events(question, paced, held)
        assert isinstance(last, TurnFinished)
        return last.turn


@contextmanager
def headless(make_engine: MakeEngine, quiet: bool = False) -> Generator[Headless]:
    """Start an engine, show the loading on a terminal unless `quiet`, and close it at the end.

    `quiet` hides notices, too. Raises DeviceError if a device cannot be opened.
    """
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    engine = make_engine(events.put)
    stopped = threading.Event()
    engine.start()
    try:
        yield Headless(engine, _wait_until_loaded(events, quiet), events, stopped)
    except Exception:
        stopped.set()
        engine.close()
        raise
    # Not after Ctrl-C: a model that loads cannot be stopped, and the process ends anyway.
    engine.close()


def _wait_until_loaded(events: queue.SimpleQueue[Event], quiet: bool) -> Loaded:
    try:
        while True:
            match events.get():
                case Loading() | Notice(_, "information") if quiet:
                    pass
                case Loading(step):
                    show_step(f"Loading: {step} …")
                case Loaded() as loaded:
                    return loaded
                case LoadFailed(error) | Died(error):
                    raise error
                case Notice(message, "information"):
                    show_step("")
                    click.echo(message, err=True)
                case Notice(message):
                    raise DeviceError(message)
                case _:
                    pass
    finally:
        if not quiet:
            show_step("")


def show_step(line: str) -> None:
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{line}", nl=False, err=True)
