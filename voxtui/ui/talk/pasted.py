"""Pasted texts, folded beside the text field until they are sent with the next words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from textual import events
from textual.widget import Widget
from textual.widgets import Static

from voxtui.dialogue.history.attachments import BYTES_PER_TOKEN, Attachment, estimated_tokens
from voxtui.errors import strip_control_characters
from voxtui.ui.widgets.boxes import TextBox

FIELD_LINES = 3
"""Maximum lines of a paste that is written into the field, as one line. A longer one is folded."""

FIELD_CHARACTERS = 1000

NAME = "the pasted text"


def pasted_lines(text: str) -> str:
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return strip_control_characters(lines).strip("\n")


def joined_lines(text: str) -> str:
    return strip_control_characters(" ".join(text.splitlines()))


def at_least_tokens(characters: int) -> int:
    return characters // BYTES_PER_TOKEN


def too_long(characters: int, tokens: int, room: int, most: int) -> str:
    taken = f", of which {most - room:,} are taken" if room < most else ""
    return (
        f"Not pasted: {characters:,} characters are at least {tokens:,} tokens, and the most is "
        f"{most:,}{taken}. Paste a part of it, or raise input.max_tokens."
    )


class PastedTexts(Static):
    """Names the pasted texts that wait. A click opens the newest one."""

    ALLOW_SELECT = False

    def __init__(self) -> None:
        super().__init__(id="pasted", markup=False)
        self._texts: list[tuple[Attachment, int]] = []
        self._room = 0
        self._tokens_per_second: float | None = None

    @property
    def waiting(self) -> bool:
        return bool(self._texts)

    @property
    def length(self) -> str:
        """The length of all pasted texts, in plain words."""
        lines = sum(text.text.count("\n") + 1 for text, _ in self._texts)
        characters = sum(len(text.text) for text, _ in self._texts)
        return f"{lines:,} lines" if lines > 1 else f"{characters:,} characters"

    @property
    def tokens(self) -> int:
        return sum(tokens for _, tokens in self._texts)

    @property
    def newest(self) -> str:
        return self._texts[-1][0].text if self._texts else ""

    @property
    def room_used(self) -> str:
        """The tokens of the pasted texts and, if known, the time to read them."""
        speed = self._tokens_per_second
        lasts = f", {self.tokens / speed:.0f} s to read" if speed else ""
        return f"{self.tokens:,} of {self._room:,} tokens{lasts}"

    def add(self, text: str, room: int, tokens_per_second: float | None) -> None:
        self._room, self._tokens_per_second = room, tokens_per_second
        self._texts.append((Attachment(NAME, text), estimated_tokens(text)))
        self._show()

    def take_back(self) -> None:
        self._texts.pop()
        self._show()

    def take(self) -> Sequence[Attachment]:
        taken = [text for text, _ in self._texts]
        if taken:
            self._texts.clear()
            self._show()
        return taken

    def _show(self) -> None:
        self.update(f"[pasted {self.length}]" if self._texts else "")
        self.set_class(bool(self._texts), "shown")

    def on_mouse_down(self, event: events.MouseDown) -> None:
        event.stop()  # else the bar would talk

    async def on_click(self) -> None:
        await self.run_action("screen.open_pasted")


class PastedView(TextBox):
    TITLE = "Pasted text"

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def parts(self) -> Iterator[Widget]:
        yield Static(self._text, markup=False)
