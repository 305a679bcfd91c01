"""The items of a session, in their order."""

from __future__ import annotations

from collections.abc import Callable

from voxtui.serve.realtime.events import Item
from voxtui.serve.realtime.settings import invalid

MOST_ITEMS = 1000


class Conversation:
    """`emit` sends an event by its type and fields."""

    def __init__(self, emit: Callable[..., object]) -> None:
        self._emit = emit
        self._items: list[Item] = []

    @property
    def last_id(self) -> str | None:
        return self._items[-1].id if self._items else None

    @property
    def told(self) -> list[str]:
        """Return the texts of system items."""
        return [item.text or "" for item in self._items if item.role == "system"]

    def find(self, name: str, code: str) -> Item:
        """Return the item of an id. Raises Refusal with `code`."""
        for item in self._items:
            if item.id == name:
                return item
        raise invalid(f"There is no item {name!r}.", "item_id", code)

    def before(self, item: Item | None) -> str | None:
        """Return the id of the item before this one."""
        place = self._items.index(item) if item in self._items else 0
        return self._items[place - 1].id if place else None

    def place(self, item: Item, previous: str | None) -> tuple[int, int | None]:
        """Return where a new item goes, and the turn before it; None: at the end. Raises Refusal.

        `previous`: the id that the client gives; "root" is the beginning.
        """
        if any(other.id == item.id for other in self._items):
            raise invalid(f"There is an item {item.id!r} already.", "item.id")
        if len(self._items) >= MOST_ITEMS:
            raise invalid(f"A conversation holds {MOST_ITEMS} items at most.", "item")
        if previous is None:
            return len(self._items), None
        if previous == "root":
            return 0, None
        place = self._items.index(self.find(previous, "item_create_invalid_item_id")) + 1
        turns = [other.turn for other in self._items[:place] if other.turn is not None]
        return place, turns[-1] if turns and place < len(self._items) else None

    def begins(self, place: int) -> bool:
        """Return True if an item at `place` is the first of several."""
        return place == 0 and bool(self._items)

    def add(self, item: Item, place: int | None = None) -> None:
        """Add an item, at the end or at `place`, and show it."""
        place = len(self._items) if place is None else place
        previous = self._items[place - 1].id if place else None
        self._items.insert(place, item)
        shown = item.as_json()
        for what in ("added", "done"):
            self._emit(f"conversation.item.{what}", item=shown, previous_item_id=previous)

    def append(self, item: Item) -> None:
        """Add an item that its response shows."""
        self._items.append(item)

    def remove(self, item: Item) -> None:
        self._items.remove(item)
