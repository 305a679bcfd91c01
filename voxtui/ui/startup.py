"""What is said before the first turn: what loads, what was found; and the sample clips."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import OptionList, Static

from voxtui.turn import Loaded

TITLE = "Talk to your computer, and hear it answer."

FIRST_STEPS = (
    "· The bar below: which key talks, and how loud the microphone is.",
    "· Private: nothing leaves this machine, and only `s` stores words.",
    "· ? lists the keys, Ctrl+P what can be chosen.",
)


class Steps:
    """Start-up, step by step."""

    def __init__(self) -> None:
        self._done: dict[str, float | None] = {}

    def add(self, step: str, fraction: float | None) -> list[str]:
        """The lines to show: the latest step is under way, the ones before it are done."""
        self._done[step] = fraction
        return [TITLE, *FIRST_STEPS, *(self._line(name, name == step) for name in self._done)]

    def failed(self) -> list[str]:
        *done, last = list(self._done) or [""]
        return [TITLE, *(f"✓ {name}" for name in done), *([f"✗ {last}"] if last else [])]

    def _line(self, name: str, under_way: bool) -> str:
        if not under_way:
            return f"✓ {name}"
        fraction = self._done[name]
        return f"◌ {name}" if fraction is None else f"◌ {name} {fraction:.0%}"


def summary(loaded: Loaded) -> list[str]:
    """Who is talking, and with what."""
    ears = f"microphone {loaded.microphone}" if loaded.microphone else "no microphone"
    mouth = f"speaker {loaded.speaker}" if loaded.speaker else "no speaker, text only"
    parts = " · ".join((f"voice {loaded.voice}", ears, mouth))
    return [TITLE, *FIRST_STEPS, f"✓ {loaded.brain}", f"✓ {parts}"]


class Samples(Vertical):
    """The sample clips to choose from where there is no microphone."""

    class Chosen(Message):
        """A clip was picked from the list; they count from 1."""

        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__()
        self._names = names

    def compose(self) -> ComposeResult:
        if not self._names:
            yield Static("No microphone? Type with /.")
            return
        yield Static("No microphone? Speak a sample:")
        options = (f"{n}  {name}" for n, name in enumerate(self._names, 1))
        yield OptionList(*options, markup=False, compact=True)

    def offer(self) -> None:
        self.add_class("offered")

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.post_message(self.Chosen(event.option_index + 1))
