"""What clients send: one struct per event, and the decoder that makes them of text frames.

Invariant: `decode_client_event` raises nothing but `ClientFault`, which carries the client's `event_id`
whenever that can be read. Fields that an event does not know are ignored at its top level and inside
items; inside `session` and `response` they are faults. `session` and `response` stay JSON here: what
they mean depends on the session (`session_update.apply_update`, `response_config.parse_response`).
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from session_server.protocol import error_codes
from session_server.protocol.items import Item, item
from session_server.protocol.values import (
    MAX_ID,
    Fields,
    Json,
    JsonObject,
    audio,
    boolean,
    identifier,
    integer_between,
    json_object,
    natural,
    option,
    read_json,
    text,
)
from session_server.types.errors import ClientFault


class SessionUpdate(msgspec.Struct, frozen=True):
    session: JsonObject
    event_id: str | None = None


class InputAudioAppend(msgspec.Struct, frozen=True, gc=False):
    """`audio`: raw bytes in the session's input format; any length."""

    audio: bytes
    event_id: str | None = None


class InputAudioCommit(msgspec.Struct, frozen=True, gc=False):
    event_id: str | None = None


class InputAudioClear(msgspec.Struct, frozen=True, gc=False):
    event_id: str | None = None


class OutputAudioClear(msgspec.Struct, frozen=True, gc=False):
    event_id: str | None = None


class ItemCreate(msgspec.Struct, frozen=True):
    """`previous_item_id`: None appends, "root" inserts at the head."""

    item: Item
    previous_item_id: str | None = None
    event_id: str | None = None


class ItemDelete(msgspec.Struct, frozen=True, gc=False):
    item_id: str
    event_id: str | None = None


class ItemRetrieve(msgspec.Struct, frozen=True, gc=False):
    item_id: str
    event_id: str | None = None


class ItemTruncate(msgspec.Struct, frozen=True, gc=False):
    item_id: str
    content_index: int
    audio_end_ms: int
    event_id: str | None = None


class ResponseCreate(msgspec.Struct, frozen=True):
    """`response` is empty where the client left it out."""

    response: JsonObject
    event_id: str | None = None


class ResponseCancel(msgspec.Struct, frozen=True, gc=False):
    response_id: str | None = None
    event_id: str | None = None


class InputImageAppend(msgspec.Struct, frozen=True, gc=False):
    """A camera frame. `image` stays base64 here: how large it may be depends on the session (`values.camera_frame`).
    `timestamp_ms`: on the input time line; None: its present end."""

    image: str
    timestamp_ms: int | None = None
    detail: str = "auto"
    event_id: str | None = None


class InputImageClear(msgspec.Struct, frozen=True, gc=False):
    event_id: str | None = None


class PlaybackAck(msgspec.Struct, frozen=True, gc=False):
    """How far a content part has been played, cumulative. Exactly one of `played_samples` (at the output
    format's rate), `played_ms` and `rtp_timestamp` (what is being played, over WebRTC) is set."""

    response_id: str
    item_id: str
    content_index: int
    played_samples: int | None
    played_ms: int | None
    buffered_ms: int | None = None
    underruns: int | None = None
    underrun_ms: int | None = None
    final: bool = False
    event_id: str | None = None
    rtp_timestamp: int | None = None
    output_latency_ms: int | None = None


ClientEvent = (
    SessionUpdate | InputAudioAppend | InputAudioCommit | InputAudioClear | OutputAudioClear | ItemCreate
    | ItemDelete | ItemRetrieve | ItemTruncate | ResponseCreate | ResponseCancel | PlaybackAck
    | InputImageAppend | InputImageClear
)  # fmt: skip


def decode_client_event(
    frame: str | bytes, *, playback: bool = False, video: bool = False
) -> ClientEvent:
    """The event in a frame; bytes are a binary frame. `playback`, `video`: the extensions that the client opted in to."""
    if isinstance(frame, bytes):
        raise error_codes.binary_frame()
    message = read_json(frame)
    if not isinstance(message, dict):
        raise error_codes.invalid_event("An event is a JSON object with a 'type'.")
    event_id = _readable_id(message.get("event_id"))
    try:
        return _event(message, event_id, _OPTED_IN[playback, video])
    except ClientFault as fault:
        fault.event_id = event_id
        raise


def _readable_id(value: Json) -> str | None:
    return value if isinstance(value, str) and len(value) <= MAX_ID else None


def _event(message: JsonObject, event_id: str | None, parsers: _Parsers) -> ClientEvent:
    fields = Fields(message, "")
    if event_id is None:
        fields.optional("event_id", identifier)
    kind = message.get("type")
    if not isinstance(kind, str):
        raise error_codes.invalid_event("An event needs a 'type', which is a string.")
    parse = parsers.get(kind)
    if parse is None:
        raise error_codes.unknown_event(kind, parsers)
    return parse(fields, event_id)


def _truncate(fields: Fields, event_id: str | None) -> ItemTruncate:
    return ItemTruncate(
        fields.required("item_id", identifier),
        fields.required("content_index", natural),
        fields.required("audio_end_ms", natural),
        event_id,
    )


def _item_create(fields: Fields, event_id: str | None) -> ItemCreate:
    return ItemCreate(
        fields.required("item", item), fields.optional("previous_item_id", identifier), event_id
    )


def _playback_ack(fields: Fields, event_id: str | None) -> PlaybackAck:
    samples = fields.optional("played_samples", natural)
    ms = fields.optional("played_ms", natural)
    response_id = fields.required("response_id", identifier)
    item_id = fields.required("item_id", identifier)
    timestamp = None
    if samples is None and ms is None:
        timestamp = fields.optional("rtp_timestamp", integer_between(0, MAX_RTP_TIMESTAMP))
        if timestamp is None:
            raise error_codes.missing("played_samples")
    return PlaybackAck(
        response_id,
        item_id,
        fields.optional("content_index", natural) or 0,
        samples,
        ms if samples is None else None,
        fields.optional("buffered_ms", natural),
        fields.optional("underruns", natural),
        fields.optional("underrun_ms", natural),
        fields.optional("final", boolean) or False,
        event_id,
        timestamp,
        fields.optional("output_latency_ms", integer_between(0, MAX_LATENCY_MS)),
    )


def _image_append(fields: Fields, event_id: str | None) -> InputImageAppend:
    return InputImageAppend(
        fields.required("image", text),
        fields.optional("timestamp_ms", natural),
        fields.optional("detail", option(DETAILS)) or "auto",
        event_id,
    )


DETAILS = ("auto", "low", "high")
MAX_RTP_TIMESTAMP = (1 << 32) - 1
MAX_LATENCY_MS = 10_000
_Parsers = dict[str, Callable[[Fields, str | None], ClientEvent]]
_PARSERS: _Parsers = {
    "session.update": lambda f, i: SessionUpdate(f.required("session", json_object), i),
    "input_audio_buffer.append": lambda f, i: InputAudioAppend(f.required("audio", audio), i),
    "input_audio_buffer.commit": lambda _, i: InputAudioCommit(i),
    "input_audio_buffer.clear": lambda _, i: InputAudioClear(i),
    "output_audio_buffer.clear": lambda _, i: OutputAudioClear(i),
    "conversation.item.create": _item_create,
    "conversation.item.delete": lambda f, i: ItemDelete(f.required("item_id", identifier), i),
    "conversation.item.retrieve": lambda f, i: ItemRetrieve(f.required("item_id", identifier), i),
    "conversation.item.truncate": _truncate,
    "response.create": lambda f, i: ResponseCreate(f.optional("response", json_object) or {}, i),
    "response.cancel": lambda f, i: ResponseCancel(f.optional("response_id", identifier), i),
}
_PLAYBACK: _Parsers = {"playback.ack": _playback_ack}
_VIDEO: _Parsers = {
    "input_image_buffer.append": _image_append,
    "input_image_buffer.clear": lambda _, i: InputImageClear(i),
}
_OPTED_IN: dict[tuple[bool, bool], _Parsers] = {
    (playback, video): _PARSERS | (_PLAYBACK if playback else {}) | (_VIDEO if video else {})
    for playback in (False, True)
    for video in (False, True)
}
