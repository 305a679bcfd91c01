"""What is said before the first turn: what loads, what was found; and the sample clips."""

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
"""A label, and what stands beside it."""

DONE, UNDER_WAY, FAILED = "✓", "◌", "✗"

COMPLAINT = "Mic!"
"""The label of a microphone that is probably silent."""

HOW_LOUD = "The bar below shows how loud you are."


def first_steps(mode: Mode | None, key: str, ears: Line, sends_to: str) -> list[Line]:
    """All that has to be known before the first word. `mode` None: there is no microphone."""
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
        ears,
        ("Data", f"{where}, and only `s` stores words{here}."),
        ("Keys", "? lists them; Ctrl+P: voice, brain, devices, theme."),
    ]


def ears(microphone: str | None, level: str, silence: str | None) -> Line:
    """What listens, how loud it is, or why it is probably silent."""
    if microphone is None:
        return "Mic", "None in use. Type with /, or plug one in and press Ctrl+P."
    if silence:
        return COMPLAINT, silence
    return "Mic", f"{microphone}, {level}." if level else f"{microphone}. {HOW_LOUD}"


class Steps:
    """Start-up, step by step."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self.latest = ""
        """the step under way, and how much of it is done"""

    def add(self, step: str, fraction: float | None) -> list[Line]:
        """The lines to show: the latest step is under way, the ones before it are done."""
        if step not in self._names:
            self._names.append(step)
        self.latest = step if fraction is None else f"{step} {fraction:.0%}"
        done = [(DONE, name) for name in self._names if name != step]
        return [*done, (UNDER_WAY, self.latest)]

    def failed(self) -> list[Line]:
        """The lines to show: the latest step is the one that failed."""
        signs = [DONE] * (len(self._names) - 1) + [FAILED]
        return list(zip(signs, self._names, strict=False))  # there may be no step yet


def summary(loaded: Loaded) -> list[Line]:
    """Who is talking, and with what."""
    mouth = f"speaker {loaded.speaker}" if loaded.speaker else "no speaker, text only"
    return [(DONE, loaded.brain), (DONE, f"voice {loaded.voice}, {mouth}")]


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

    def offer(self, offered: bool) -> None:
        self.set_class(offered, "offered")

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.post_message(self.Chosen(event.option_index + 1))
