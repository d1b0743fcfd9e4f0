"""The conversation: items in order, each known by its id.

Items are immutable values; the conversation replaces them. Invariants: ids are unique; at most `bound` items
live (the oldest that are final leave first); `version` grows with every change that a prompt could show.
"""

from __future__ import annotations

from collections.abc import Iterator

from session_server.core.items import FunctionCall, Item


class Conversation:
    """Ordered items of the default conversation."""

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._items: dict[str, Item] = {}
        self._order: list[str] = []
        self.version = 0

    def __len__(self) -> int:
        return len(self._order)

    def __contains__(self, item_id: str) -> bool:
        return item_id in self._items

    def __iter__(self) -> Iterator[Item]:
        return (self._items[item_id] for item_id in self._order)

    def get(self, item_id: str) -> Item | None:
        return self._items.get(item_id)

    def last_id(self) -> str | None:
        return self._order[-1] if self._order else None

    def add(self, item: Item, after: str | None = None) -> str | None:
        """Insert behind `after` (None: at the end, "root": at the head); returns the id before it, or None.

        The caller has checked that the id is new and that `after` exists.
        """
        if after is None:
            at = len(self._order)
        elif after == "root":
            at = 0
        else:
            at = self._order.index(after) + 1
        self._order.insert(at, item.id)
        self._items[item.id] = item
        self.version += 1
        return self._order[at - 1] if at else None

    def replace(self, item: Item) -> None:
        if item.id in self._items:
            self._items[item.id] = item
            self.version += 1

    def previous_of(self, item_id: str) -> str | None:
        at = self._order.index(item_id)
        return self._order[at - 1] if at else None

    def delete(self, item_id: str) -> None:
        del self._items[item_id]
        self._order.remove(item_id)
        self.version += 1

    def surplus(self, busy: set[str]) -> list[str]:
        """Ids of the oldest items above the bound, none of those in `busy`."""
        excess = len(self._order) - self._bound
        if excess <= 0:
            return []
        return [item_id for item_id in self._order if item_id not in busy][:excess]

    def call(self, call_id: str) -> FunctionCall | None:
        """The function call with this call id."""
        for item_id in reversed(self._order):
            item = self._items[item_id]
            if isinstance(item, FunctionCall) and item.call_id == call_id:
                return item
        return None
