"""Transcribe an utterance while it is spoken, and its final words soon after the release."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import takewhile
from threading import Event as Flag
from typing import Protocol

from voxtui.brains.embedded.recogniser import Heard, joined, stretches
from voxtui.dialogue.data import FRAME_SECONDS, Origin, Samples, Utterance
from voxtui.dialogue.protocols import OnWords, Past, ReplyOptions
from voxtui.dialogue.recording import Extent, Recording
from voxtui.dialogue.timestamps import Milestone, Timestamps
from voxtui.errors import ModelError

PASS_SECONDS = 0.24
"""Length of new speech after which the utterance is transcribed again: two or three syllables."""

FIRST_PASS_SECONDS = 0.4
"""Length of speech before the first pass: less rarely contains a complete word."""


class Recogniser(Protocol):
    """Speech to text. See Moonshine."""

    def load(self) -> None: ...

    def recognise(
        self, samples: Samples, cancelled: Flag | None = None, name: str = ""
    ) -> Heard: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class PartialTranscript:
    """The words of one pass of the recogniser."""

    origin: Origin | None
    """the transcribed frames"""
    heard: Heard
    started_at: float
    ended_at: float


@dataclass(slots=True)
class LiveUtterance:
    """An utterance while the user speaks it."""

    past: Past
    recording: Recording
    cancelled: Flag
    options: ReplyOptions
    on_words: OnWords | None
    released: bool = False
    partials: list[PartialTranscript] = field(default_factory=list[PartialTranscript])
    """the latest two transcripts"""
    transcribed_frames: int = 0
    """the number of frames in the latest pass"""
    fixed: dict[tuple[int, int], Heard] = field(default_factory=dict[tuple[int, int], Heard])
    """the words of stretches that can no longer change"""
    bug: BaseException | None = None
    """an unexpected exception (not a ModelError), raised again in `reply`"""


class LiveTranscription:
    """Transcribes the utterance so far repeatedly, on a thread of its own.

    `pause` is called before each pass and pauses the chat model, because two models at work slow
    each other down. `on_partial(live, text, complete)` is called on the thread after a pass. If not
    `complete`, the last word may still grow, and the full stop after it is a guess.
    """

    def __init__(
        self,
        recogniser: Recogniser,
        pause: Callable[[], object],
        on_partial: Callable[[LiveUtterance, str, bool], object],
    ) -> None:
        self._recogniser = recogniser
        self._pause = pause
        self._on_partial = on_partial
        self._changed = threading.Condition()
        self._live: LiveUtterance | None = None
        self._transcribing = False
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="voxtui-recogniser", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def follow(self, live: LiveUtterance) -> None:
        """Transcribe this utterance from now on, and no other."""
        with self._changed:
            self._live = live

    def wake(self) -> None:
        with self._changed:
            self._changed.notify()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()

    @contextmanager
    def exclusively(self) -> Generator[None]:
        """Start no pass inside the context, because the next utterance may have begun."""
        with self._changed:
            self._changed.wait_for(lambda: not self._transcribing)
            self._transcribing = True
        try:
            yield
        finally:
            with self._changed:
                self._transcribing = False
                self._changed.notify_all()

    def stop(self) -> LiveUtterance | None:
        """Stop the live utterance and return it. It starts no further pass or chat request."""
        with self._changed:
            live, self._live = self._live, None
            if live is not None:
                live.released = True
            # A pass that is running may cover the final samples. If not, it still has to end.
            self._changed.wait_for(lambda: not self._transcribing)
        if live is not None and live.bug is not None:
            raise live.bug
        return live

    def final(
        self,
        utterance: Utterance,
        live: LiveUtterance | None,
        timestamps: Timestamps,
        released: float,
        cancelled: Flag,
        name: str = "",
    ) -> Heard:
        """Transcribe `utterance`, unless a pass has already covered exactly its frames.

        `cancelled` and `name` are those of Moonshine.recognise.
        """
        partials, fixed = (live.partials, live.fixed) if live is not None else ([], {})
        ready = [p for p in partials if p.origin is not None and p.origin == utterance.origin]
        final = ready[-1] if ready else self._pass(utterance, fixed, cancelled, name, live)
        timestamps.record(Milestone.TRANSCRIBED, final.ended_at)
        timestamps.speculative_s += max(0.0, min(released, final.ended_at) - final.started_at)
        return final.heard

    def _pass(
        self,
        utterance: Utterance,
        fixed: dict[tuple[int, int], Heard],
        cancelled: Flag,
        name: str,
        paused: LiveUtterance | None,
    ) -> PartialTranscript:
        """Transcribe `utterance`.

        If its speech has `paused`, the pass mostly confirms the words of the one before, so the
        chat model works on these meanwhile.
        """
        if paused and paused.partials and not paused.partials[-1].heard.is_foreign:
            self._on_partial(paused, paused.partials[-1].heard.text, True)
        else:
            self._pause()
        started = time.monotonic()
        parts = stretches(utterance)
        found: list[Heard] = []
        for part in parts:
            heard = fixed.get(part)
            if heard is None:
                samples = utterance.samples[part[0] : part[1]]
                begin = name if part == parts[0] else ""
                heard = self._recogniser.recognise(samples, cancelled, begin)
            if part != parts[-1]:
                fixed[part] = heard
            found.append(heard)
        return PartialTranscript(utterance.origin, joined(found), started, time.monotonic())

    # On the thread.

    def _run(self) -> None:
        while True:
            with self._changed:
                # Asked once, because other threads cancel the utterance and append to it.
                due = self._changed.wait_for(lambda: self._closed or self._due())
                if self._closed or not isinstance(due, tuple):
                    return
                live, extent = due
                live.transcribed_frames = extent.frames
                self._transcribing = True
            try:
                self._advance(live, extent)
            except ModelError:
                pass  # the final pass raises it, if it fails too
            except BaseException as error:  # noqa: BLE001 - raised again in `reply`
                live.bug = error
            finally:
                with self._changed:
                    self._transcribing = False
                    self._changed.notify_all()

    def _due(self) -> tuple[LiveUtterance, Extent] | None:
        """Return the live utterance and its extent, if enough of it is new for another pass."""
        live = self._live
        if live is None or live.cancelled.is_set() or live.released or self._transcribing:
            return None
        extent = live.recording.extent
        if extent.speech_seconds < FIRST_PASS_SECONDS:
            return None
        new = extent.frames - live.transcribed_frames
        # A pause also counts as new, if the last pass ended at the very last frame of speech.
        if not new or new < extent.quiet_frames:
            return None
        last = live.partials[-1] if live.partials else None
        took = last.ended_at - last.started_at if last is not None else 0.0
        if not extent.quiet_frames and new * FRAME_SECONDS < max(PASS_SECONDS, 1.5 * took):
            return None
        return live, extent

    def _advance(self, live: LiveUtterance, extent: Extent) -> None:
        utterance = live.recording.utterance(extent)
        if utterance is None:
            return
        paused = live if extent.quiet_frames else None
        partial = self._pass(utterance, live.fixed, live.cancelled, live.options.name, paused)
        text, before = partial.heard.text, live.partials[-1].heard.text if live.partials else None
        live.partials = [*live.partials[-1:], partial]
        if live.cancelled.is_set() or partial.heard.is_foreign:
            return
        self._on_partial(live, text, live.recording.extent.quiet_frames > 0)
        # Last, because the screen paints it at the cost of what else wants the interpreter.
        if live.on_words is not None:
            live.on_words(text, _shared(before or "", text))


def _shared(one: str, other: str) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
