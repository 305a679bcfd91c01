"""Find, resume, rename, delete and export stored conversations."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import ClassVar

from rich.cells import cell_len, set_cell_size
from textual import events, on, work
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from voxtui.errors import InputError
from voxtui.storage.conversation_database import Conversations, Summary, export
from voxtui.ui.menu.menu import in_thread
from voxtui.ui.widgets.boxes import SearchList

SHOWN = 200
"""Maximum conversations in the list. Others are found by their words."""

GAP = "  "

NO_MATCH, NOTHING = "No match", "No conversation is stored yet."
NOT_KEPT = "No conversation is stored. The menu has: Keep conversations."


class HistoryScreen(SearchList[int | None]):
    """Lists the newest conversations. Dismissed with the number of the one to resume."""

    TITLE = "History"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "close"),
        Binding("f2,ctrl+r", "rename", priority=True),
        Binding("ctrl+d,shift+delete", "delete", priority=True),
        Binding("ctrl+z", "undo", priority=True),
        Binding("ctrl+e", "export", priority=True),
    ]

    def __init__(
        self, conversations: Conversations, exports: Path, keeps: bool, words: str = ""
    ) -> None:
        """Begin with a search for `words`. `exports` is a folder; `keeps`: new ones are stored."""
        self._keys = Static(markup=False)
        super().__init__(words, self._keys)
        self._nothing = NOTHING if keeps else NOT_KEPT
        self._conversations = conversations
        self._exports = exports
        self._found: list[Summary] = []
        self._instead = ""
        self._deleted: list[Summary] = []
        """conversations that can be restored, the last deleted one first"""
        self._renamed: Summary | None = None
        """the conversation whose new title is being written"""
        self._search = ""
        self._changing = False

    def on_mount(self) -> None:
        self._show_keys()
        self.find()

    def on_unmount(self) -> None:
        if self._deleted:
            self.app.run_worker(self._erase)  # pyright: ignore[reportUnknownMemberType]

    async def _erase(self) -> None:
        """Erase what was deleted here. The next start repeats this, and reports failures."""
        with suppress(InputError):
            await in_thread(partial(self._conversations.erase_deleted, time.time()))

    def on_resize(self, event: events.Resize) -> None:
        self.call_after_refresh(self._draw)

    @on(Input.Changed)
    def _changed(self) -> None:
        if self._renamed is None:
            self.find()

    @work(exclusive=True, group="find")
    async def find(self, keep: int = 0) -> None:
        """Search on a thread of its own; highlight the conversation at index `keep`."""
        words = self._input.value
        try:
            self._found = await in_thread(partial(self._conversations.newest, words, SHOWN))
        except InputError as error:
            self._found, self._instead = [], str(error)
            self._draw()
            return
        self._instead = NO_MATCH if words.strip() else self._nothing
        self._draw(keep)

    def _draw(self, highlighted: int | None = None) -> None:
        if highlighted is None:
            highlighted = self._list.highlighted or 0
        self._list.clear_options()
        if not self._found:
            self._list.add_option(Option(self._instead, disabled=True))
            return
        width = self._list.scrollable_content_region.width - 2
        now = datetime.now()
        dates = [summary.when(now) for summary in self._found]
        lengths = [summary.length for summary in self._found]
        room = width - max(map(len, dates)) - max(map(len, lengths)) - 2 * len(GAP)
        for summary, date, length in zip(self._found, dates, lengths, strict=True):
            title = summary.title
            if cell_len(title) > room:
                title = set_cell_size(title, max(0, room - 1)) + "…"
            times = f"{GAP}{length:>{max(map(len, lengths))}}{GAP}{date:>{max(map(len, dates))}}"
            line = set_cell_size(title, max(0, room))
            self._list.add_option(Option(Content.assemble(line, (times, "$text-muted"))))
        if len(self._found) == SHOWN:
            self._list.add_option(Option("Older ones are found by their words.", disabled=True))
        self._list.highlighted = min(highlighted, len(self._found) - 1)

    def _show_keys(self) -> None:
        if self._renamed is not None:
            self._keys.update("Enter renames   Esc leaves it")
            return
        undo = "  ^Z undoes" if self._deleted else ""
        self._keys.update(
            f"Enter goes on   F2 renames   ^D deletes{undo}   ^E exports   Esc closes"
        )

    @property
    def _highlighted(self) -> Summary | None:
        line = self._list.highlighted
        return self._found[line] if line is not None and line < len(self._found) else None

    def action_close(self) -> None:
        if self._renamed is not None:
            self._end_rename()
        else:
            self.dismiss(None)

    @on(Input.Submitted)
    @on(OptionList.OptionSelected)
    def _choose(self, event: Input.Submitted | OptionList.OptionSelected) -> None:
        event.stop()
        if self._renamed is not None:
            if title := self._input.value.strip():
                self._rename(self._renamed.id, title)
            self._end_rename()
        elif (summary := self._highlighted) is not None:
            self.dismiss(summary.id)

    def action_rename(self) -> None:
        if self._renamed is None and (summary := self._highlighted) is not None:
            self._search, self._renamed = self._input.value, summary
            self._input.value = summary.title
            self._input.action_end()
            self._show_keys()

    def _end_rename(self) -> None:
        place = self._list.highlighted or 0
        with self.prevent(Input.Changed):
            self._input.value = self._search
        self._renamed = None
        self._show_keys()
        self.find(place)

    @work
    async def _rename(self, conversation: int, title: str) -> None:
        if await self._change(partial(self._conversations.rename, conversation, title)):
            self.find(self._list.highlighted or 0)

    @work
    async def action_delete(self) -> None:
        if self._renamed is None and (summary := self._highlighted) is not None:
            place = self._list.highlighted or 0
            if await self._change(partial(self._conversations.delete, summary.id, time.time())):
                self._deleted.insert(0, summary)
                self._show_keys()
                self.find(place)

    @work
    async def action_undo(self) -> None:
        if self._renamed is None and self._deleted:
            summary = self._deleted[0]
            if await self._change(partial(self._conversations.restore, summary.id)):
                self._deleted.remove(summary)
                self._show_keys()
                self.find(self._list.highlighted or 0)

    @work
    async def action_export(self) -> None:
        if self._renamed is None and (summary := self._highlighted) is not None:
            places: list[Path] = []
            await self._change(
                lambda: places.append(export(self._conversations, summary, self._exports))
            )
            for place in places:
                shown = str(place).replace(str(Path.home()), "~", 1)
                self.notify(f"Exported, with your words:\n{shown}")

    async def _change(self, change: Callable[[], object]) -> bool:
        """Call `change` on a thread, because another window may lock the file for seconds.

        Shows the reason of a failure. Does nothing while another change is in progress, because a
        second press of the key is meant for the next conversation.
        """
        if self._changing:
            return False

        self._changing = True
        try:
            await in_thread(change)
        except InputError as error:
            self.notify(str(error), severity="error")
            return False
        finally:
            self._changing = False
        return True
