"""What is shown before the first turn: what loads, what was found, and the sample clips."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList, Static

from voxtui.errors import VoxtuiError
from voxtui.turn import Loaded


class Startup(Vertical):
    """Start-up, step by step; then who is talking, and with what."""

    class ClipChosen(Message):
        """A sample clip was picked from the list; they count from 1."""

        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number

    def __init__(self, clips: Sequence[str]) -> None:
        super().__init__()
        self._clips = clips
        self._steps: dict[str, float | None] = {}
        self._lines = Static(markup=False)

    def compose(self) -> ComposeResult:
        yield Static("Talk to your computer, and hear it answer.", classes="welcome")
        yield self._lines

    def show_step(self, step: str, fraction: float | None) -> None:
        """The latest step is under way, the ones before it are done."""
        self._steps[step] = fraction
        self._show([_step(name, self._steps[name], name == step) for name in self._steps])

    def show_loaded(self, loaded: Loaded) -> None:
        ears = f"microphone {loaded.microphone}" if loaded.microphone else "no microphone"
        mouth = f"speaker {loaded.speaker}" if loaded.speaker else "no speaker, text only"
        voice = f"voice {loaded.voice}"
        self._show([f"✓ {loaded.brain}", f"✓ {' · '.join((voice, ears, mouth))}"])
        if loaded.microphone is None:
            self._offer_clips()

    def show_failed(self, error: VoxtuiError) -> None:
        done = [_step(name, self._steps[name], False) for name in list(self._steps)[:-1]]
        self._show([*done, *(f"✗ {name}" for name in list(self._steps)[-1:])])

    def _show(self, lines: Sequence[str]) -> None:
        self._lines.update(Content("\n".join(lines)))

    def _offer_clips(self) -> None:
        if not self._clips:
            self.mount(Static("There is no microphone here: type with /.", classes="offer"))
            return
        self.mount(
            Static("There is no microphone here. Speak a sample instead:", classes="offer"),
            OptionList(
                *(f"{n}  {name}" for n, name in enumerate(self._clips, 1)),
                markup=False,
                compact=True,
            ),
        )

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.post_message(self.ClipChosen(event.option_index + 1))


def _step(name: str, fraction: float | None, under_way: bool) -> str:
    if not under_way:
        return f"✓ {name}"
    return f"◌ {name}" if fraction is None else f"◌ {name} {fraction:.0%}"
