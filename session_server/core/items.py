"""Conversation items as values.

An item is immutable; the conversation replaces it by a new one. Audio of a user item is a range on
the input time line (samples at INPUT_RATE); the bytes themselves live in the shell.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace


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
    it was looked at; `report`: the same for a thinker that answers from it, opaque here."""

    image_url: str | None
    detail: str | None = None
    seen: str | None = None
    report: str = ""


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
