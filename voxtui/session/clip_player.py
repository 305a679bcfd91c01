"""Play sample clips as if a person spoke them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from voxtui.errors import InputError
from voxtui.session.user_session import ClipEnded, NotAllowed, UserSessionEvent

if TYPE_CHECKING:
    from voxtui.audio.clips import FrameSink


def open_clip(path: Path, max_seconds: float) -> Callable[[FrameSink, threading.Event], object]:
    """Read a clip and return a function that speaks it in real time. Raises InputError."""
    from voxtui.audio.clips import load_clip, speak

    return partial(speak, load_clip(path, max_seconds))


class ClipPlayer:
    def __init__(
        self,
        clips: Sequence[tuple[str, Path]],
        listener: FrameSink,
        max_seconds: float,
        deliver: Callable[[UserSessionEvent], object],
    ) -> None:
        self.names = [name for name, _ in clips]
        self._paths = [path for _, path in clips]
        self._max_seconds = max_seconds
        self._listener = listener
        self._deliver = deliver
        self._running: set[threading.Event] = set()

    @property
    def playing(self) -> bool:
        return bool(self._running)

    def check(self, number: int) -> None:
        """Raise NotAllowed, with the names of the clips, if there is no clip `number` (from 1)."""
        if not self.names:
            raise NotAllowed("There are no sample clips.")
        if not 0 < number <= len(self.names):
            clips = ", ".join(f"{n} {name}" for n, name in enumerate(self.names, 1))
            what = f"There is no sample clip {number}." if number else "Which sample clip?"
            raise NotAllowed(f"{what} There are: {clips}.")

    def play(self, number: int) -> None:
        """Read a clip, stop any other clip, and speak it. Returns at once."""
        stopped = threading.Event()
        earlier = tuple(self._running)
        self._running.add(stopped)
        threading.Thread(
            target=self._play,
            args=(self._paths[number - 1], stopped, earlier),
            name="voxtui-clip",
            daemon=True,
        ).start()

    def stop(self) -> None:
        for stopped in self._running:
            stopped.set()

    def take(self, ended: ClipEnded) -> None:
        self._running.discard(ended.clip)

    def _play(
        self, path: Path, stopped: threading.Event, earlier: Sequence[threading.Event]
    ) -> None:
        error = ""
        try:
            speak = open_clip(path, self._max_seconds)  # an unreadable clip stops no other one
            for clip in earlier:
                clip.set()
            speak(self._listener, stopped)
        except (InputError, NotAllowed) as why:
            error = str(why)
        self._deliver(ClipEnded(stopped, error))
