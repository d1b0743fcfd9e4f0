"""The conversation: items as values, in order, each known by its id.

An item is immutable; the conversation replaces it by a new one. The bytes of a user item's audio
live in the shell; the item names a range of them.

Invariants: ids are unique; at most `bound` items live (the oldest that are final leave first);
`version` grows with every change that a prompt could show.

Units: audio of a user item is a range on the input time line, in samples at INPUT_RATE.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, replace

from session_server.types.vision import VisualEvidence


class Role(enum.Enum):
    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


class ItemStatus(enum.Enum):
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    INCOMPLETE = "incomplete"


@dataclass(frozen=True, slots=True)
class TextContent:
    """`input_text` of a user or system, `output_text` of an assistant."""

    text: str


@dataclass(frozen=True, slots=True)
class InputAudioContent:
    """User audio: a range of the input time line, or `appended=False` for audio that came inside the item."""

    start_sample: int
    end_sample: int
    transcript: str | None = None
    appended: bool = True


@dataclass(frozen=True, slots=True)
class OutputAudioContent:
    """Assistant speech: the words that count as said (after a truncation: as heard)."""

    transcript: str


@dataclass(frozen=True, slots=True)
class ImageContent:
    """A picture; `image_url` is a data URL, None once its payload was given up. `seen`: what a prompt says of it, None before
    it was looked at; `evidence`: what was found, for a thinker that answers from it."""

    image_url: str | None
    detail: str | None = None
    seen: str | None = None
    evidence: VisualEvidence | None = None


Content = TextContent | InputAudioContent | OutputAudioContent | ImageContent


@dataclass(frozen=True, slots=True)
class Message:
    id: str
    role: Role
    status: ItemStatus
    content: tuple[Content, ...]


@dataclass(frozen=True, slots=True)
class FunctionCall:
    id: str
    call_id: str
    name: str
    arguments: str
    status: ItemStatus


@dataclass(frozen=True, slots=True)
class FunctionCallOutput:
    id: str
    call_id: str
    output: str
    status: ItemStatus = ItemStatus.COMPLETED


Item = Message | FunctionCall | FunctionCallOutput

MOST_PICTURES = 256 * 1024
"""Characters of an item's data URLs. More fit into no frame, so nobody could be shown them again."""


def without_big_pictures(item: Item) -> Item:
    """The item as it is kept: pictures that could not be echoed are not."""
    if not isinstance(item, Message):
        return item
    urls = (part.image_url or "" for part in item.content if isinstance(part, ImageContent))
    if sum(map(len, urls)) <= MOST_PICTURES:
        return item
    return replace(item, content=tuple(map(_without_picture, item.content)))


def _without_picture(part: Content) -> Content:
    return replace(part, image_url=None) if isinstance(part, ImageContent) else part


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
