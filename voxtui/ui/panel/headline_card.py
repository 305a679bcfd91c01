"""One headline in large digits, and its verdict."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Digits, Static

from voxtui.storage.turn_metrics import Headline, Verdict
from voxtui.ui.panel.formatting import TurnTimes, plain_goal

VALUE_DIGITS = 4


class HeadlineCard(Vertical):
    def __init__(self, headline: Headline, name: str = "") -> None:
        super().__init__()
        self._headline = headline
        self._heading = name or headline.name
        self._plain = bool(name)
        self._name = Static(f"{self._heading} ms", classes="name", markup=False)
        self._digits = Digits("-".ljust(VALUE_DIGITS))
        self._verdict = Static(markup=False)

    def compose(self) -> ComposeResult:
        yield self._name
        yield self._digits
        yield self._verdict

    def show(self, times: TurnTimes) -> None:
        target = self._headline.goal(times.turn, times.targets)
        verdict = self._headline.verdict(times.turn, times.targets)
        text, unit = _four_digits(self._headline.of(times.turn))
        text = text.ljust(VALUE_DIGITS)  # a constant length needs no new layout
        if text != self._digits.value:
            self._digits.update(text)
        self._show_text(self._name, f"{self._heading} {unit}")
        if self._plain:
            found = f"{verdict.sign if verdict else ' '} {plain_goal(target)}"
        else:
            found = (
                f"{verdict.sign} {verdict}, ≤ {target:.0f}" if verdict else f"  goal ≤ {target:.0f}"
            )
        self._show_text(self._verdict, found)
        self._digits.set_class(verdict is Verdict.WITHIN, "within")
        self._digits.set_class(verdict is Verdict.OVER, "over")

    def _show_text(self, line: Static, text: str) -> None:
        if text != line.content:
            line.update(text, layout=False)


def _four_digits(value: float | None) -> tuple[str, str]:
    if value is None:
        return "-", "ms"
    if value < 9999.5:
        return f"{value:.0f}", "ms"
    seconds = value / 1000
    return (f"{seconds:.1f}" if seconds < 99.95 else f"{seconds:.0f}"), "s"
