"""The items of a session in order, and the client's changes to them."""

from __future__ import annotations

import itertools
from collections import deque
from typing import TYPE_CHECKING

from voxtui.dialogue.data import FinishedCall, Token, ToolCall
from voxtui.dialogue.engine_commands import AddResult, InsertTurn, RemovePart, Truncate
from voxtui.dialogue.protocols import PastTurn
from voxtui.dialogue.turn.turn_taking import SPOKEN_TURNS
from voxtui.serve.function_tools import tool_name
from voxtui.serve.realtime.protocol import (
    CreateItem,
    Item,
    TruncateItem,
    item_of,
)
from voxtui.serve.realtime.session_settings import LONGEST_TEXT, invalid

if TYPE_CHECKING:
    from voxtui.dialogue.engine import Engine
    from voxtui.serve.realtime.output_buffer import Client

MOST_ITEMS = 1000


class Conversation:
    """Reports its items to `client`, and updates the history of `engine`."""

    def __init__(self, client: Client, engine: Engine) -> None:
        self._show = client.send
        self._engine = engine
        self._items: list[Item] = []
        self._inserted = itertools.count(-1, -1)
        self._spoken: deque[Item] = deque(maxlen=SPOKEN_TURNS)
        self._truncating: list[tuple[Item, int]] = []
        """truncated items and their milliseconds, until the engine reports their heard part"""

    @property
    def last_id(self) -> str | None:
        return self._items[-1].id if self._items else None

    @property
    def system_texts(self) -> list[str]:
        return [item.text or "" for item in self._items if item.role == "system"]

    def before(self, item: Item | None) -> str | None:
        place = self._items.index(item) if item in self._items else 0
        return self._items[place - 1].id if place else None

    def add(self, item: Item, place: int | None = None) -> None:
        """Add an item, at the end or at `place`, and report it."""
        place = len(self._items) if place is None else place
        previous = self._items[place - 1].id if place else None
        self._items.insert(place, item)
        shown = item.as_json()
        for what in ("added", "done"):
            self._show(f"conversation.item.{what}", item=shown, previous_item_id=previous)

    def append(self, item: Item) -> None:
        """Append an item that its response reports."""
        self._items.append(item)
        if item.kind == "audio":
            self._spoken.append(item)

    # The client. These raise HttpError.

    def create(self, event: CreateItem) -> Item:
        """Add a text, a call or its result. Return its item."""
        item = item_of(event.item)
        place, after = self._place(item, event.previous_item_id)
        if (
            item.role == "system"
            and sum(map(len, [*self.system_texts, item.text or ""])) > LONGEST_TEXT
        ):
            raise invalid(
                f"All system items hold {LONGEST_TEXT} characters at most.", "item.content"
            )
        if item.kind == "function_call_output":
            call = self._call(item.call_id)
            made = ToolCall(tool_name(call.name), call.text or "", call.call_id)
            self._engine.post(AddResult(FinishedCall(made, item.text or "")))
        elif item.role != "system" and item.kind == "text":
            first = place == 0 and bool(self._items)
            item.turn = next(self._inserted)
            said, reply = item.text or "", ()
            if item.role == "assistant":
                said, reply = "", (Token(said),)
            turn = PastTurn(said, None, reply, number=item.turn)
            self._engine.post(InsertTurn(turn, after, first))
        self.add(item, place)
        return item

    def retrieve(self, name: str) -> None:
        item = self._find(name, "item_retrieve_invalid_item_id")
        self._show("conversation.item.retrieved", item=item.as_json())

    def delete(self, name: str) -> Item:
        item = self._find(name, "item_delete_invalid_item_id")
        if item.status == "in_progress":
            raise invalid("The item is still being created. Cancel its response first.", "item_id")
        self._items.remove(item)
        if item.turn is not None:
            self._engine.post(RemovePart(item.turn, user=item.role == "user"))
        self._show("conversation.item.deleted", item_id=item.id)
        return item

    def truncatable(self, event: TruncateItem) -> Item:
        """Return the item that the client wants to truncate. Raises HttpError."""
        item = self._find(event.item_id, "item_truncate_invalid_item_id")
        if item not in self._spoken:
            raise invalid(
                "Only the latest spoken answers can be truncated.", "item_id",
                "item_truncate_invalid_item_id",
            )  # fmt: skip
        if event.content_index != 0:
            raise invalid(
                "content_index must be 0, because the item has one part.", "content_index"
            )
        if not 0 <= event.audio_end_ms <= round(item.seconds * 1000):
            raise invalid(
                f"The audio of the item lasts {item.seconds * 1000:.0f} ms.", "audio_end_ms"
            )
        return item

    def cut(self, item: Item, ms: int) -> None:
        """Reduce a spoken answer to what was heard in its first `ms`. `was_cut` follows."""
        if item in self._spoken and item.turn is not None:
            self._truncating.append((item, ms))
            self._engine.post(Truncate(item.turn, ms / 1000))

    def was_cut(self, turn: int, text: str) -> None:
        """Report that `text` was heard of the answer of `turn`."""
        for waiting in self._truncating:
            item, ms = waiting
            if item.turn == turn:
                self._truncating.remove(waiting)
                item.text = text
                self._show(
                    "conversation.item.truncated",
                    item_id=item.id, content_index=0, audio_end_ms=ms,
                )  # fmt: skip
                return

    def _call(self, call_id: str) -> Item:
        for item in self._items:
            if item.kind == "function_call" and item.call_id == call_id:
                return item
        raise invalid(f"There is no call {call_id!r}.", "item.call_id")

    def _find(self, name: str, code: str) -> Item:
        """Return the item with this id. Raises HttpError with `code`."""
        for item in self._items:
            if item.id == name:
                return item
        raise invalid(f"There is no item {name!r}.", "item_id", code)

    def _place(self, item: Item, previous: str | None) -> tuple[int, int | None]:
        """Return the place of a new item, and the turn before it, if any. Raises HttpError.

        The client names the item before it by `previous`; "root" is the beginning.
        """
        if any(other.id == item.id for other in self._items):
            raise invalid(f"There is an item {item.id!r} already.", "item.id")
        if len(self._items) >= MOST_ITEMS:
            raise invalid(f"A conversation holds {MOST_ITEMS} items at most.", "item")
        if previous is None:
            return len(self._items), None
        if previous == "root":
            return 0, None
        place = self._items.index(self._find(previous, "item_create_invalid_item_id")) + 1
        turns = [other.turn for other in self._items[:place] if other.turn is not None]
        return place, turns[-1] if turns and place < len(self._items) else None
