"""A response and its content parts as the server shows them; objects inside `server_events`.

Field names and order are the wire's. Fields of a `Part` and of `StatusDetailsPayload` are absent where nothing is
given, as one client insists for the first; those of a `Response` are null.
"""

from __future__ import annotations

import msgspec

from session_server.protocol.items import Item
from session_server.protocol.values import JsonObject


class ResponseError(msgspec.Struct, frozen=True, gc=False):
    type: str
    code: str
    message: str


class StatusDetailsPayload(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """`type` is the response's status; `reason`: turn_detected, client_cancelled, max_output_tokens,
    content_filter; `error` where it failed."""

    type: str
    reason: str | None = None
    error: ResponseError | None = None


class CachedTokens(msgspec.Struct, frozen=True, gc=False):
    text_tokens: int = 0
    audio_tokens: int = 0
    image_tokens: int = 0


class InputTokens(msgspec.Struct, frozen=True, gc=False):
    text_tokens: int = 0
    audio_tokens: int = 0
    image_tokens: int = 0
    cached_tokens: int = 0
    cached_tokens_details: CachedTokens = CachedTokens()


class OutputTokens(msgspec.Struct, frozen=True, gc=False):
    text_tokens: int = 0
    audio_tokens: int = 0


class UsagePayload(msgspec.Struct, frozen=True, gc=False):
    total_tokens: int
    input_tokens: int
    output_tokens: int
    input_token_details: InputTokens
    output_token_details: OutputTokens


def usage_of(
    *,
    input_text: int = 0,
    input_audio: int = 0,
    input_image: int = 0,
    input_cached: int = 0,
    output_text: int = 0,
    output_audio: int = 0,
) -> UsagePayload:
    """Token counts of a response. Cached tokens are a share of the input's text tokens."""
    read = input_text + input_audio + input_image
    written = output_text + output_audio
    cached = CachedTokens(text_tokens=input_cached)
    return UsagePayload(
        read + written,
        read,
        written,
        InputTokens(input_text, input_audio, input_image, input_cached, cached),
        OutputTokens(output_text, output_audio),
    )


class ResponseAudioOutput(msgspec.Struct, frozen=True):
    """`format` as the session shows it (`session_config.format_object`)."""

    format: JsonObject
    voice: str


class ResponseAudio(msgspec.Struct, frozen=True):
    output: ResponseAudioOutput


class ResponsePayload(msgspec.Struct, frozen=True):
    """`conversation_id` is null out of band. `max_output_tokens`: a number or "inf"."""

    id: str
    status: str
    output_modalities: tuple[str, ...]
    max_output_tokens: int | str
    audio: ResponseAudio
    conversation_id: str | None = None
    status_details: StatusDetailsPayload | None = None
    output: tuple[Item, ...] = ()
    usage: UsagePayload | None = None
    metadata: dict[str, str] | None = None
    object: str = "realtime.response"


class PartPayload(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """`type` is audio (then `transcript`) or text (then `text`)."""

    type: str
    text: str | None = None
    transcript: str | None = None


def part_of(*, spoken: bool, text: str) -> PartPayload:
    """A content part as `response.content_part.*` shows it."""
    return PartPayload("audio", transcript=text) if spoken else PartPayload("text", text=text)
