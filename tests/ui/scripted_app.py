"""The screen as a separate program, on a scripted engine that notes its commands.

    python -m tests.ui.scripted_app LOG [--key f8] [--die | --hang] [--pieces N]

As soon as the key goes down, `--die` raises an error on the engine thread, and `--hang` blocks the
event loop for ever. `--pieces`: the answer comes at once, in so many pieces of two words.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

from tests.fakes import ScriptedEngine, noted
from voxtui.dialogue.engine_commands import Cancel, Command, Release, Silence, Talk, Typing
from voxtui.dialogue.events import (
    Died,
    Event,
    ReplyText,
    State,
    StateChanged,
    TurnFinished,
    TurnStarted,
    UserWords,
)
from voxtui.dialogue.protocols import Past
from voxtui.dialogue.timestamps import Milestone, Outcome, Timestamps, Turn
from voxtui.settings.schema import Config, UiConfig
from voxtui.terminal.native_stderr import native_stderr_in
from voxtui.ui.app import VoxtuiApp
from voxtui.ui.driver.keyboard import KeyboardAnswer
from voxtui.ui.driver.restore import terminal_restored


class NotingEngine(ScriptedEngine):
    """Loads at once, and answers as soon as the key is up."""

    def __init__(self, emit: Callable[[Event], object], options: argparse.Namespace) -> None:
        super().__init__(emit)
        self._log: Path = options.log
        self._options = options
        self._timestamps = Timestamps()

    def note(self, name: str, *values: object) -> None:
        with self._log.open("a") as log:
            log.write(json.dumps([name, *values, time.monotonic()]) + "\n")

    def start(self, past: Past = ()) -> None:
        self.load()
        self.note("ready", os.getpid())

    def post(self, command: Command) -> int:
        match command:
            case Talk(at, source):
                return self.talk(at, source)
            case Release(at):
                self.release(at)
            case Cancel():
                self.cancel()
            case Typing() | Silence():
                return super().post(command)
            case _:
                self.note(*noted(command))
        return self.turns + 1

    def talk(self, at: float | None, source: str) -> int:
        self.note("talk", at)
        while self._options.hang:
            time.sleep(1)
        if self._options.die:
            self.report(Died(ZeroDivisionError("a bug")))
            return 1
        self.turns += 1
        self._timestamps = Timestamps()
        self.report(
            TurnStarted(self.turns, source, self._timestamps), StateChanged(State.LISTENING)
        )
        return self.turns

    def release(self, at: float | None) -> None:
        self.note("release", at)
        self._timestamps.record(Milestone.RELEASED, at)
        number = self.turns
        self.report(
            StateChanged(State.THINKING), UserWords(number, "What is the capital of France?")
        )
        for _ in range(self._options.pieces):
            self.report(ReplyText(number, "two words "))
        self.report(ReplyText(number, "The capital of France is Paris."))
        turn_ = Turn(number, "scripted", Outcome.ANSWERED, {"released": 0.0, "first_token": 0.08})
        self.report(TurnFinished(turn_), StateChanged(State.READY))

    def cancel(self) -> None:
        self.note("cancel")
        turn = Turn(self.turns, "scripted", Outcome.CANCELLED, {})
        self.report(TurnFinished(turn), StateChanged(State.READY))


class NotingApp(VoxtuiApp):
    def __init__(self, options: argparse.Namespace) -> None:
        config = Config(ui=UiConfig(talk_key=options.key))
        super().__init__(lambda emit: NotingEngine(emit, options), config)

    def on_keyboard_answer(self, answer: KeyboardAnswer) -> None:
        super().on_keyboard_answer(answer)
        engine = self.session.engine
        assert isinstance(engine, NotingEngine)
        engine.note("releases" if answer.releases else "no releases")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("log", type=Path)
    parser.add_argument("--key", default="space")
    parser.add_argument("--die", action="store_true")
    parser.add_argument("--hang", action="store_true")
    parser.add_argument("--pieces", type=int, default=0)
    options = parser.parse_args()
    app = NotingApp(options)
    with native_stderr_in(options.log.with_suffix(".native")), terminal_restored():
        app.run()
    raise SystemExit(app.return_code)


if __name__ == "__main__":
    main()
