"""A process of the trial that follows a script."""

from __future__ import annotations

from multiprocessing import Pipe
from typing import Any

from voxtui.brains.voxtral.trial import Child


class ScriptedChild:
    """Stands in for the process of a trial: sends messages, then ends with `code`, or hangs."""

    def __init__(self, *messages: Any, code: int | None = 0) -> None:
        self.pipe, self.theirs = Pipe()
        self._code = code
        self.killed = False
        for message in messages:
            self.theirs.send(message)
        if code is not None:
            self.theirs.close()

    def child(self) -> Child:
        return Child(self.pipe, self._kill, lambda: self._code or 0)

    def received(self) -> list[Any]:
        found: list[Any] = []
        while self.theirs.poll():
            try:
                found.append(self.theirs.recv())
            except EOFError:
                break
        return found

    def _kill(self) -> None:
        self.killed = True

    def close(self) -> None:
        for end in (self.pipe, self.theirs):
            end.close()
