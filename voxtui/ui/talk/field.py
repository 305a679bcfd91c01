"""The text field: write, complete commands, and recall earlier texts."""

from __future__ import annotations

from textual import events
from textual.widgets import Input

from voxtui.slash_commands import matching
from voxtui.ui.widgets.boxes import EDITING

KEPT_TEXTS = 100


class Recall:
    """Texts that were sent or abandoned, oldest first, and the position of the shown one."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._place = 0
        """the index of the text that is shown; the number of texts for a new one"""
        self._new = ""
        """the new text, while an earlier one is shown"""
        self.draft = False
        """whether the newest text was abandoned and not sent"""

    def add(self, text: str, draft: bool) -> None:
        begun = draft and text.startswith("/") and " " not in text  # a command of nothing to lose
        if text.strip() and not begun:
            self._texts = [*(t for t in self._texts if t != text), text][-KEPT_TEXTS:]
            self.draft = draft
        self._place, self._new = len(self._texts), ""

    def older(self, shown: str) -> str:
        """Return the text before the shown one; `shown` itself if there is none."""
        if self._place == 0:
            return shown
        if self._place == len(self._texts):
            self._new = shown
        self._place -= 1
        self.draft = False
        return self._texts[self._place]

    def newer(self, shown: str) -> str:
        """Return the text after the shown one; `shown` itself if there is none."""
        if self._place == len(self._texts):
            return shown
        self._place += 1
        return self._new if self._place == len(self._texts) else self._texts[self._place]


class Field(Input):
    """A line of text. The app passes it each key in order.

    While a key waits in the queue of a widget, the app might already act on the next one.
    """

    def __init__(self) -> None:
        super().__init__(compact=True, select_on_focus=False)
        self.recall = Recall()

    def check_consume_key(self, key: str, character: str | None) -> bool:
        """Return False: the app handles each key, so the footer shows those of the app."""
        return False

    @property
    def empty(self) -> bool:
        """True while the field has only white space, so that Space talks."""
        return not self.value.strip()

    def write(self, text: str) -> None:
        self.replace(text, *self.selection)

    def take(self, draft: bool = False) -> str:
        """Empty the field and return its text, which Up recalls. `draft`: it was not sent."""
        text = self.value
        self.recall.add(text, draft)
        self.clear()
        return text

    async def edit(self, key: events.Key) -> bool:
        """Apply an editing key. Return False for any other key."""
        match key.key:
            case "up":
                self._show(self.recall.older(self.value))
            case "down":
                self._show(self.recall.newer(self.value))
            case "tab":
                self._complete()
            case name if name in EDITING:
                await self.app.run_action(EDITING[name], self)  # pyright: ignore[reportUnknownMemberType]
            case _:
                return False
        return True

    def _complete(self) -> None:
        found = matching(self.value)
        if len(found) == 1 and " " not in self.value:
            self._show(f"/{found[0].name} " if found[0].argument else f"/{found[0].name}")

    def _show(self, text: str) -> None:
        self.value = text
        self.cursor_position = len(text)
