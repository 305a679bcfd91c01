"""The latency panel: this turn against its targets, the last turns, and the stages."""

from __future__ import annotations

from dataclasses import replace

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widgets import Digits, Static

from voxtui.dialogue.marks import Mark, Marks, Outcome, Turn
from voxtui.records.metrics import TIMES, Headline, PlaybackLead, SessionTimes, Verdict
from voxtui.settings.schema import Targets
from voxtui.ui.panel.history import History
from voxtui.ui.panel.numbers import NO_TURN, Numbers
from voxtui.ui.panel.waterfall import Waterfall

VALUE_DIGITS = 4


class Card(Vertical):
    """One headline in large digits, and its verdict."""

    def __init__(self, headline: Headline, targets: Targets) -> None:
        super().__init__()
        self._headline = headline
        self.targets = targets
        self._name = Static(f"{headline.name} ms", classes="name")
        self._digits = Digits("-".ljust(VALUE_DIGITS))
        self._verdict = Static(markup=False)

    def compose(self) -> ComposeResult:
        yield self._name
        yield self._digits
        yield self._verdict

    def show(self, turn: Turn) -> None:
        value = self._headline.of(turn)
        target = self._headline.goal(turn, self.targets)
        kept = self._headline.verdict(turn, self.targets)
        text, unit = _four_digits(value)
        text = text.ljust(VALUE_DIGITS)  # a constant length needs no new layout
        if text != self._digits.value:
            self._digits.update(text)
        self._name.update(f"{self._headline.name} {unit}", layout=False)
        goal = f"≤ {target:.0f}"
        found = f"{kept.sign} {kept}, {goal}" if kept else f"  goal {goal}"
        self._verdict.update(found, layout=False)
        self.set_class(kept is Verdict.WITHIN, "within")
        self.set_class(kept is Verdict.OVER, "over")


def _four_digits(value: float | None) -> tuple[str, str]:
    """Return milliseconds as at most four characters, and their unit."""
    if value is None:
        return "-", "ms"
    if value < 9999.5:
        return f"{value:.0f}", "ms"
    seconds = value / 1000
    return (f"{seconds:.1f}" if seconds < 99.95 else f"{seconds:.0f}"), "s"


class LatencyPanel(Vertical):
    """The times of this turn, live, and those of the last turns."""

    def __init__(self, targets: Targets) -> None:
        super().__init__()
        self._session = SessionTimes()
        self._cards = [Card(headline, targets) for headline in TIMES]
        self._numbers = Numbers(targets)
        self._waterfall = Waterfall(targets)
        self._history = History(targets)
        self._turn = self._finished = NO_TURN
        self._speculative_s = 0.0
        self._typed = False
        """of the turn in progress"""
        self._lead = PlaybackLead()

    def compose(self) -> ComposeResult:
        with Horizontal(id="cards"):
            yield from self._cards
        yield self._numbers
        yield self._waterfall
        yield self._history

    def on_mount(self) -> None:
        self._show()

    def on_resize(self) -> None:
        self._show()

    def judge_by(self, targets: Targets) -> None:
        """Compare turns with `targets` from now on."""
        for part in (*self._cards, self._numbers, self._waterfall, self._history):
            part.targets = targets
        self._history.refresh()
        self._waterfall.refresh()
        self._show()

    def devices_add(self, ms: float | None) -> None:
        """Set the measured delay of the speaker, which adds to the first sound; None: unknown."""
        self._numbers.device_ms = ms
        self._numbers.set_class(ms is not None, "measured")
        self._show()

    @property
    def turn(self) -> Turn:
        """The turn on display. Marks may still be added to it."""
        return self._turn

    def models_loaded(self) -> None:
        """Count the next turn as a cold one."""
        self._session.models_loaded()

    def begin(self, typed: bool) -> None:
        """Begin the next turn."""
        self._typed = typed
        self._lead, self._numbers.queue = PlaybackLead(), ""

    def follow(self, marks: Marks, now: float) -> None:
        """Show the marks reached so far. The previous turn stays until the release."""
        reached = marks.since_release()
        queue = self._queue(marks, now)
        shown, self._numbers.queue = self._numbers.queue, queue
        if reached and reached != self._turn.marks:
            self._turn = Turn(0, "", Outcome.ANSWERED, reached, typed=self._typed)
            self._speculative_s = marks.speculative_s
            self._show()
        elif queue != shown:
            self._numbers.show(self._turn, self._session)

    def _queue(self, marks: Marks, now: float) -> str:
        """Return how far the voice is ahead of the speaker; empty after the last sound."""
        over = marks.at(Mark.LAST_SOUND) or marks.at(Mark.CANCELLED)
        if over is not None or marks.at(Mark.FIRST_AUDIO) is None:
            return ""
        first_sound = marks.at(Mark.FIRST_SOUND)
        ahead = self._lead.update(marks.speech_s, now - first_sound if first_sound else 0.0)
        waited = self._lead.underrun_s
        late = f", {waited:.1f} s too late" if waited >= 0.05 else ""
        return f"voice: {ahead:.1f} s ahead{late}"

    def finish(self, turn: Turn) -> None:
        """Add a finished turn. One that ended before an answer is shown only if it failed."""
        self._session.add(turn)
        if turn.outcome is Outcome.FAILED or Mark.FIRST_TOKEN in turn.marks:
            self._finished = turn
        self._turn, self._speculative_s = self._finished, self._finished.speculative_s
        self._numbers.queue = ""
        self._history.show(self._session)
        self._show()

    def complete(self, marks: Marks) -> None:
        """Add late marks to the finished turn on display."""
        reached = {**marks.since_release(), **self._turn.marks}
        self._turn = self._finished = replace(self._turn, marks=reached)
        self._show()

    def _show(self) -> None:
        for card in self._cards:
            card.show(self._turn)
        self._numbers.show(self._turn, self._session)
        self._waterfall.show(self._turn, self._speculative_s)
