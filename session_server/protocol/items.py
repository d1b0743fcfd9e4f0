"""Conversation items on the wire: typed structs that are encoded as they stand, and the way in.

What stock clients rely on, and these structs give by construction: a message always has `content`;
`input_audio` content always has the key `transcript`; `audio` and `detail` are absent rather than null;
`status` is in_progress, completed or incomplete. `audio` holds raw bytes in the session's input format;
the encoder writes them as base64.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from session_server.protocol import error_codes
from session_server.protocol.frames import MAX_ECHO
from session_server.protocol.values import (
    Fields,
    Json,
    array_of,
    audio,
    identifier,
    image_data_url,
    option,
    short_text,
    text,
)

MAX_ITEM_ID = 32
MAX_PARTS = 64
STATUSES = ("completed", "incomplete", "in_progress")


class InputText(
    msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="type", tag="input_text"
):
    """Text of a user or of the system."""

    text: str


class InputAudioPayload(
    msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="type", tag="input_audio"
):
    """Speech of a user. `audio` None: the key is absent."""

    transcript: str | None
    audio: bytes | None = None


class InputImage(
    msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="type", tag="input_image"
):
    """A picture from a user. `image_url` is a data URL; null once it is too big to echo."""

    image_url: str | None
    detail: str | None = None


class OutputText(
    msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="type", tag="output_text"
):
    """Text of the assistant."""

    text: str


class OutputAudio(
    msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="type", tag="output_audio"
):
    """Speech of the assistant, as words."""

    transcript: str


Content = InputText | InputAudioPayload | InputImage | OutputText | OutputAudio


class MessagePayload(msgspec.Struct, frozen=True, tag_field="type", tag="message"):
    """`id` is None only in what a client sent without one."""

    id: str | None
    role: str
    status: str
    content: tuple[Content, ...]
    object: str = "realtime.item"


class FunctionCallPayload(
    msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="function_call"
):
    """A call of the client's function. `arguments` is JSON text; `call_id` None: to be made up."""

    id: str | None
    call_id: str | None
    name: str
    arguments: str
    status: str
    object: str = "realtime.item"


class FunctionCallOutputPayload(
    msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="function_call_output"
):
    """What the client's function returned."""

    id: str | None
    call_id: str
    output: str
    status: str
    object: str = "realtime.item"


class ItemReference(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="item_reference"):
    """Stands for an item of the conversation; only in `response.input`."""

    id: str


Item = MessagePayload | FunctionCallPayload | FunctionCallOutputPayload


def item(value: Json, path: str) -> Item:
    """An item that a client adds."""
    parsed = _one_of(value, path, ("message", "function_call", "function_call_output"))
    assert not isinstance(parsed, ItemReference)
    return parsed


def item_or_reference(value: Json, path: str) -> Item | ItemReference:
    """An entry of `response.input`."""
    return _one_of(
        value, path, ("message", "function_call", "function_call_output", "item_reference")
    )


def _one_of(value: Json, path: str, kinds: tuple[str, ...]) -> Item | ItemReference:
    fields = Fields(value, path)
    kind = fields.required("type", option(kinds))
    if kind == "item_reference":
        return ItemReference(fields.required("id", identifier))
    parsed = _PARSERS[kind](fields)
    size = len(msgspec.json.encode(without_payloads(parsed)))
    if size > MAX_ECHO:
        raise error_codes.too_big(path, MAX_ECHO, size)
    return parsed


def without_payloads(item: Item) -> Item:
    """The item as it is echoed when its audio or pictures would break the frame limit."""
    if not isinstance(item, MessagePayload):
        return item
    return msgspec.structs.replace(item, content=tuple(map(_bare, item.content)))


def _bare(content: Content) -> Content:
    match content:
        case InputAudioPayload():
            return InputAudioPayload(content.transcript)
        case InputImage():
            return InputImage(None, content.detail)
        case _:
            return content


def _item_id(fields: Fields) -> str | None:
    found = fields.optional("id", short_text(MAX_ITEM_ID))
    if found == "":
        raise error_codes.invalid_value(fields.path("id"), "An item id may not be empty.")
    return found


def _status(fields: Fields) -> str:
    """A client's item is whole as it comes: only `incomplete` says something."""
    status = fields.optional("status", option(STATUSES))
    return "incomplete" if status == "incomplete" else "completed"


def _message(fields: Fields) -> MessagePayload:
    item_id = _item_id(fields)
    role = fields.required("role", option(tuple(_CONTENT)))

    def content(value: Json, path: str) -> Content:
        part = Fields(value, path)
        return _PARTS[part.required("type", option(_CONTENT[role]))](part)

    parts = fields.required("content", array_of(content, MAX_PARTS))
    return MessagePayload(item_id, role, _status(fields), parts)


def _call(fields: Fields) -> FunctionCallPayload:
    return FunctionCallPayload(
        _item_id(fields),
        fields.optional("call_id", identifier),
        fields.required("name", identifier),
        fields.required("arguments", text),
        _status(fields),
    )


def _call_output(fields: Fields) -> FunctionCallOutputPayload:
    return FunctionCallOutputPayload(
        _item_id(fields),
        fields.required("call_id", identifier),
        fields.required("output", text),
        _status(fields),
    )


def _input_audio(part: Fields) -> InputAudioPayload:
    transcript = part.optional("transcript", text)
    sound = part.optional("audio", audio)
    if sound is None and transcript is None:
        raise error_codes.missing(part.path("audio"))
    return InputAudioPayload(transcript, sound)


def _output_audio(part: Fields) -> OutputAudio:
    """History from a client: only the words of it are kept."""
    part.optional("audio", audio)
    return OutputAudio(part.optional("transcript", text) or "")


def _input_image(part: Fields) -> InputImage:
    return InputImage(
        part.required("image_url", image_data_url),
        part.optional("detail", option(("auto", "low", "high"))),
    )


_CONTENT = {
    "user": ("input_text", "input_audio", "input_image"),
    "assistant": ("output_text", "output_audio"),
    "system": ("input_text",),
}
_PARTS: dict[str, Callable[[Fields], Content]] = {
    "input_text": lambda part: InputText(part.required("text", text)),
    "input_audio": _input_audio,
    "input_image": _input_image,
    "output_text": lambda part: OutputText(part.required("text", text)),
    "output_audio": _output_audio,
}
_PARSERS: dict[str, Callable[[Fields], Item]] = {
    "message": _message,
    "function_call": _call,
    "function_call_output": _call_output,
}
