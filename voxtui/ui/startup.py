"""The first lines of the screen: how to talk, the loading, the parts; and the sample clips."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import OptionList, Static

from voxtui.dialogue.events import Loaded
from voxtui.ui.talkkey import Mode

TITLE = "Talk to your computer, and hear it answer."

Line: TypeAlias = tuple[str, str]
"""A label and the text beside it."""

DONE, UNDER_WAY, FAILED = "✓", "◌", "✗"

NO_SIGNAL = "No signal."
"""Precedes the diagnosis of a microphone that is probably silent."""

HOW_LOUD = "The bar below shows how loud you are."


def first_steps(mode: Mode | None, key: str, microphone: Line, sends_to: str) -> list[Line]:
    """Return the lines that a new user needs first. `mode` None: no microphone is in use."""
    match mode:
        case Mode.HOLD | Mode.MOUSE:
            talk = [("Talk", f"Hold {key}, speak, let go.")]
        case Mode.TOGGLE:
            talk = [("Talk", f"Press {key}, speak, press it again.")]
        case Mode.HANDS_FREE:
            talk = [("Talk", "Just speak; a pause ends it.")]
        case None:
            talk = []
    where = f"Your voice and words go to {sends_to}" if sends_to else "Nothing leaves this machine"
    here = " here" if sends_to else ""
    return [
        *talk,
        microphone,
        ("Data", f"{where}, and only `s` stores words{here}."),
        ("Keys", "? lists them; Ctrl+P: voice, brain, devices, theme."),
    ]


def microphone_line(microphone: str | None, level: str, diagnosis: str | None) -> Line:
    """Return the microphone's name with its level, or with the reason why it is silent."""
    if microphone is None:
        return "Mic", "None in use. Type with /, or plug one in and press Ctrl+P."
    if diagnosis:
        return "Mic", f"{NO_SIGNAL} {diagnosis}"
    return "Mic", f"{microphone}, {level}." if level else f"{microphone}. {HOW_LOUD}"


class Steps:
    """The steps of loading."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self.latest = ""
        """the step in progress, with its percentage"""

    def add(self, step: str, fraction: float | None) -> list[Line]:
        """Return the lines to show: the latest step is in progress, the others are done."""
        if step not in self._names:
            self._names.append(step)
        self.latest = step if fraction is None else f"{step} {fraction:.0%}"
        done = [(DONE, name) for name in self._names if name != step]
        return [*done, (UNDER_WAY, self.latest)]

    def failed(self) -> list[Line]:
        """Return the lines to show: the latest step failed."""
        signs = [DONE] * (len(self._names) - 1) + [FAILED]
        return list(zip(signs, self._names, strict=False))  # there may be no step yet


def summary(loaded: Loaded) -> list[Line]:
    """Return the parts in use, as lines."""
    speaker = f"speaker {loaded.speaker}" if loaded.speaker else "no speaker, text only"
    return [(DONE, loaded.brain), (DONE, f"voice {loaded.voice}, {speaker}")]


class Samples(Vertical):
    """A list of the sample clips, shown while no microphone is in use."""

    class Chosen(Message):
        """A clip was picked from the list. Clips count from 1."""

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

    def offer(self, offered: bool) -> None:
        self.set_class(offered, "offered")

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.post_message(self.Chosen(event.option_index + 1))
