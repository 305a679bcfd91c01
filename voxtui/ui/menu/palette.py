"""The palette: choices in sections, filtered by typing, with previews."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.timer import Timer
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from voxtui.ui.widgets.boxes import SearchList

PREVIEWED = "ui.theme"

TITLE_CELLS, ABOUT_CELLS = 28, 34
"""Widths of the columns. A longer text takes the space of the next column."""

PREVIEW_SECONDS = 0.12
"""Delay before a highlighted line is previewed, because a theme takes time to apply."""


@dataclass(frozen=True, slots=True)
class Entry:
    section: str
    title: str
    about: str = ""
    chosen: bool = False
    question: str = ""
    action: str = ""
    """an action of the app or of its screen, such as `screen.new`"""
    key: str = ""
    value: Any = None
    shortcut: str = ""
    """the key with the same effect outside the menu, as the footer writes it"""
    folds: str = ""


def closeness(word: str, name: str) -> float:
    """Return how close together the letters of `word` stand in `name`, in their order; 0: not all.

    Takes the first place of each letter. Textual's own search compares all places, whose number
    grows exponentially: a long word stopped the window.
    """
    if (place := name.find(word)) >= 0:
        return 3.0 if place == 0 or not name[place - 1].isalnum() else 2.0
    places: list[int] = []
    for letter in word:
        if (place := name.find(letter, place + 1)) < 0:
            return 0.0
        places.append(place)
    return len(word) / (places[-1] - places[0] + 1)


class Palette(SearchList[Entry | None]):
    """Lists entries by section; Enter selects one, Esc changes nothing."""

    TITLE, SUB_TITLE = "Menu", "Esc closes"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,ctrl+p", "close", "Close")]

    class Previewed(Message):
        """Show the effect of `entry` while it is highlighted; None ends that."""

        def __init__(self, entry: Entry | None) -> None:
            super().__init__()
            self.entry = entry

    def __init__(
        self,
        sections: Sequence[str],
        entries: Sequence[Entry],
        more: Awaitable[Sequence[Entry]],
        names: Mapping[str, str],
        query: str = "",
    ) -> None:
        """Show `entries` in the order of `sections`. Dismissed with the chosen entry.

        `more` yields entries that take time to find. Without a search, the values of a config key
        in `names` are folded into one line with that name.
        """
        super().__init__(query)
        self._sections = sections
        self._entries = list(entries)
        self._more = more
        self._lines: list[Entry | None] = []
        """the entry of each line, or None for the name of a section"""
        self._names = names
        self._narrowed = False
        """whether a question, or the values of one config key, are shown"""
        self._previewed = False
        self._waiting: Timer | None = None

    def on_mount(self) -> None:
        self._show()
        self.run_worker(self._add_more())

    async def _add_more(self) -> None:
        found = [*await self._more, *self._entries]
        if not self._narrowed:
            self._entries = sorted(found, key=lambda entry: self._sections.index(entry.section))
            self._show()

    @on(Input.Changed)
    def _show(self) -> None:
        words = self._input.value.casefold().split()
        best, section = 0.0, ""
        self._lines, highlighted = [], None
        for entry, score in self._matching(words) if words else self._folded():
            if entry.section != section:
                section = entry.section
                self._lines.append(None)
            if score > best:
                best, highlighted = score, len(self._lines)
            self._lines.append(entry)
        self._list.clear_options()
        if not self._lines:
            self._list.add_option(Option("No match", disabled=True))
        self._list.add_options(self._option(i) for i in range(len(self._lines)))
        self._list.highlighted = highlighted

    def _matching(self, words: Sequence[str]) -> Sequence[tuple[Entry, float]]:
        fuzzy: list[tuple[Entry, float]] = []
        exact: list[tuple[Entry, float]] = []
        for entry in self._entries:
            name = f"{entry.section} {entry.title}".casefold()
            scores = [closeness(word, name) for word in words]
            if all(scores):
                fuzzy.append((entry, sum(scores)))
                if all(word in name for word in words):
                    exact.append(fuzzy[-1])
        return exact or fuzzy

    def _folded(self) -> Iterator[tuple[Entry, float]]:
        folded: set[str] = set()
        for entry in self._entries:
            name = "" if self._narrowed else self._names.get(entry.key, "")
            if not name:
                yield entry, 1.0 + (self._narrowed and entry.chosen)
            elif entry.key not in folded:
                folded.add(entry.key)
                values = (
                    each.title for each in self._entries if each.key == entry.key and each.chosen
                )
                value = next(values, "").removeprefix(name).lstrip(": ")
                yield Entry(entry.section, name, value, shortcut="›", folds=entry.key), 1.0

    def _option(self, line: int) -> Option:
        entry = self._lines[line]
        if entry is None:
            below = self._lines[line + 1]
            assert below is not None
            return Option(Content.styled(below.section, "bold"), disabled=True)
        mark = "✓" if entry.chosen else " "
        longest = max(len(each.title) for each in self._lines if each is not None)
        title = f"{mark} {entry.title:<{min(longest, TITLE_CELLS)}}"
        about = f"  {entry.about:<{ABOUT_CELLS}}" if entry.about or entry.shortcut else ""
        shortcut = f"  {entry.shortcut}" if entry.shortcut else ""
        return Option(Content.assemble(title, (about, "$text-muted"), (shortcut, "bold")))

    @property
    def _highlighted(self) -> Entry | None:
        line = self._list.highlighted
        return self._lines[line] if line is not None and line < len(self._lines) else None

    @on(OptionList.OptionHighlighted)
    def _preview_soon(self) -> None:
        if self._waiting is not None:
            self._waiting.stop()
        self._waiting = self.set_timer(PREVIEW_SECONDS, self._preview)

    def _preview(self) -> None:
        entry = self._highlighted
        if entry is not None and entry.key == PREVIEWED:
            self._previewed = True
            self.post_message(self.Previewed(entry))
        else:
            self._undo_preview()

    def _undo_preview(self) -> None:
        if self._previewed:
            self._previewed = False
            self.post_message(self.Previewed(None))

    def action_close(self) -> None:
        self._undo_preview()
        self.dismiss()

    @on(Input.Submitted)
    @on(OptionList.OptionSelected)
    def _choose(self, event: Input.Submitted | OptionList.OptionSelected) -> None:
        event.stop()
        entry = self._highlighted
        if entry is None:
            return
        if entry.question:
            yes = replace(entry, section=entry.question, title="Yes", about="", question="")
            self._narrow([Entry(entry.question, "No"), yes])
            return
        if entry.folds:
            self._narrow([each for each in self._entries if each.key == entry.folds])
            return
        if entry.key != PREVIEWED:
            self._undo_preview()
        self.dismiss(entry)

    def _narrow(self, entries: Sequence[Entry]) -> None:
        self._narrowed, self._entries = True, list(entries)
        self._input.value = ""
        self._show()
