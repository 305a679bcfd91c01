"""Show the turn in progress in the conversation and in the panel."""

from __future__ import annotations

import time
from dataclasses import replace

from textual.message import Message
from textual.timer import Timer

from voxtui.dialogue.data import TYPED
from voxtui.dialogue.events import TurnStarted
from voxtui.dialogue.timestamps import Milestone, Timestamps, Turn
from voxtui.storage.derived_latencies import PlaybackLead, characters_at
from voxtui.ui.conversation.paragraph import Paragraph
from voxtui.ui.conversation.transcript import Transcript
from voxtui.ui.conversation.turn_view import TurnView
from voxtui.ui.panel.formatting import figure
from voxtui.ui.panel.panel import LatencyPanel

WORDS_FIRST_SECONDS = 1 / 60
"""Time after an utterance in which only words are painted. A speculated reply may come at once, and
other painting would delay its first words."""

KEPT_TURNS = 1000
"""Maximum number of selectable turns, about as many as the conversation shows."""

PANEL_WAITS_SECONDS = 0.5
"""Maximum wait of the panel, the largest widget to paint, for the first words."""


class TurnViews:
    class RestIsDue(Message):
        """The first words did not come in time, so the rest must be painted now."""

    def __init__(self, transcript: Transcript, panel: LatencyPanel) -> None:
        self.view: TurnView | None = None
        self.timestamps: Timestamps | None = None
        self.number = 0
        """the number of the newest turn, or 0 before the first one"""
        self.over = 0
        self._finished: dict[int, tuple[TurnView, Turn]] = {}
        self._forgotten = self._finished
        self._removed: tuple[TurnView, Turn, int] | None = None
        """the turn that was removed last, and its index in the transcript"""
        self.selected: int | None = None
        self.transcript = transcript
        self.panel = panel
        self._lead = PlaybackLead()
        self._replaces: int | None = None
        """the number of the turn that the turn in progress replaces when it is answered"""
        self._began_at = 0.0
        self._first: tuple[Paragraph, Timestamps] | None = None
        """the first entry of a reply and the turn's timestamps, until the entry is painted"""
        self._words_first: Timer | None = None
        """the timer that runs while only words are painted"""
        self._words_due = 0.0
        """monotonic seconds until which the panel waits for the first words of a reply"""

    @property
    def words_first(self) -> bool:
        return self._words_first is not None

    @property
    def any(self) -> bool:
        return bool(self._finished)

    @property
    def spoken_seconds(self) -> float:
        released = self.timestamps.at(Milestone.RELEASED) if self.timestamps else None
        return max(0.0, (released or time.monotonic()) - self._began_at)

    @property
    def stalls(self) -> bool:
        """True while the speaker takes no sound of the turn in progress."""
        return self.timestamps is not None and self.timestamps.stalls

    def begin(self, started: TurnStarted) -> None:
        self.number, self.timestamps = started.turn, started.timestamps
        self.panel.begin(started.source == TYPED)
        self._began_at = time.monotonic()
        self._first = None
        self.select(None)
        self._lead = PlaybackLead()
        self._replaces = started.replaces
        self.view = TurnView(self.transcript, started.source, started.turn)
        if started.source != TYPED:
            self.view.show_speaking(0.0)

    def forget(self) -> None:
        """Begin a conversation without turns."""
        self.view = self.timestamps = self._first = self._removed = None
        self.select(None)
        if self.transcript.clear():
            self._forgotten = self._finished
        self._finished = {}
        self.panel.recall()

    def restore(self) -> None:
        """Bring back the turns before `forget`."""
        self.transcript.restore()
        self._finished = self._forgotten
        for _, turn in [*self._finished.values()][-1:]:
            self.panel.recall(turn)

    def select(self, number: int | None) -> None:
        """Show the times of this turn; None stands for the turn in progress or the newest one."""
        before, self.selected = self.selected, number
        if before != number:
            self.transcript.select(number or 0)
            self.panel.select(self._finished[number][1] if number is not None else None)

    def remove(self, number: int) -> None:
        self.select(None)
        view, turn = self._finished.pop(number)
        self._removed = view, turn, self.transcript.place(view.entries[0])
        view.discard()

    def put_back(self) -> None:
        if self._removed is not None:
            view, turn, place = self._removed
            self._removed = None
            self.transcript.insert(place, view.entries)
            self._finished = dict(sorted({**self._finished, view.number: (view, turn)}.items()))

    def step(self, by: int) -> None:
        """Select the turn before or after the selected one; after the newest one, none."""
        numbers = [*self._finished]
        at = len(numbers) if self.selected is None else numbers.index(self.selected)
        at = max(at + by, 0)
        self.select(numbers[at] if at < len(numbers) else None)

    def pick(self, number: int) -> None:
        if number in self._finished:
            self.select(number)

    def expect_reply(self) -> None:
        """Paint only words for WORDS_FIRST_SECONDS."""
        self._show_spoken()
        if self.view:
            self.view.expect_reply()
        self._words_due = time.monotonic() + PANEL_WAITS_SECONDS
        self._words_first = self.transcript.set_timer(WORDS_FIRST_SECONDS, self._stop_waiting)

    def wait_no_more(self) -> None:
        if self._words_first is not None:
            self._words_first.stop()
            self._words_first = None

    def _stop_waiting(self) -> None:
        self.wait_no_more()
        self.transcript.post_message(self.RestIsDue())

    def show_reply(self, turn: int, text: str) -> None:
        view = self.view_of(turn)
        if view is None:
            return
        begins = view.append(text)
        if begins and view.reply and self.timestamps:
            self._first = (view.reply, self.timestamps)
        self.transcript.paint()

    def cut(self, turn: int, heard: str) -> None:
        if view := self.view_of(turn):
            view.cut(heard)
            if not heard:  # the history keeps the turn before, too
                self._replaces = None

    def finish(self, turn: Turn) -> bool:
        view = self.view_of(turn.number)
        if view is None:
            return False
        self._show_spoken()
        view.finish(turn)
        self.panel.finish(turn)
        if turn.reply and (replaced := self._finished.pop(self._replaces or 0, None)):
            if self.selected == self._replaces:
                self.select(None)
            replaced[0].discard()
        if Milestone.FIRST_TOKEN in turn.timestamps:
            self._finished[turn.number] = (view, turn)
            view.show_figure(figure(turn))
            if len(self._finished) > KEPT_TURNS:
                oldest = next(iter(self._finished))
                if oldest == self.selected:
                    self.select(None)
                del self._finished[oldest]
        if self.timestamps and self.timestamps.at(Milestone.FIRST_SHOWN):
            self._complete(self.timestamps)  # painted after the engine had noted the turn
        self.timestamps = None
        self.over += 1
        return True

    def painted(self) -> Timestamps | None:
        """Return the timestamps of a reply whose first word was just painted, once."""
        if self._first is None or not self._first[0].painted:
            return None
        _, timestamps = self._first
        self._first, self._words_due = None, 0.0
        return timestamps

    def first_shown(self, timestamps: Timestamps) -> None:
        """Complete the panel once FIRST_SHOWN of a reply is in its timestamps."""
        if self.timestamps is None:  # a short reply is over before its first word is painted
            self._complete(timestamps)

    def _complete(self, timestamps: Timestamps) -> None:
        self.panel.complete(timestamps)
        if self.number in self._finished:
            view, turn = self._finished[self.number]
            turn = replace(turn, timestamps={**timestamps.since_release(), **turn.timestamps})
            self._finished[self.number] = (view, turn)

    def tick(self, listening: bool) -> None:
        if self.timestamps is None or self.view is None:
            return
        if listening:
            self.view.show_speaking(self.spoken_seconds)
        now, made = time.monotonic(), self.timestamps.speech_s
        first_sound = self.timestamps.at(Milestone.FIRST_SOUND)
        ahead = self._lead.update(made, now - first_sound if first_sound else 0.0)
        if now >= self._words_due:
            self.panel.follow(self.timestamps, ahead, self._lead.underrun_s)
        if first_sound is not None:
            self.view.light(characters_at(tuple(self.timestamps.spoken), made - ahead))

    def view_of(self, turn: int) -> TurnView | None:
        return self.view if turn == self.number else None

    def _show_spoken(self) -> None:
        if self.view is not None and self.view.source != TYPED:
            self.view.show_spoken(self.spoken_seconds)
