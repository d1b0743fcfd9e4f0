"""What the server sends: one struct per event, encoded by `frames.encode`.

Field names and order are the wire's. Every event has an `event_id`, unique in its session. A field with a
default of None is null on the wire where nothing is given. Items are `protocol.items`; a session is what
`session_config.to_wire` gives; the objects inside responses are those of `response_objects`, under the same
names here. Audio deltas have their own fast way, `frames.AudioDeltas`.
"""

from __future__ import annotations

import msgspec

from session_server.protocol import response_objects
from session_server.protocol.items import Item
from session_server.protocol.values import JsonObject
from session_server.types.errors import ClientFault

CachedTokens = response_objects.CachedTokens
InputTokens = response_objects.InputTokens
OutputTokens = response_objects.OutputTokens
Part = response_objects.PartPayload
Response = response_objects.ResponsePayload
ResponseAudio = response_objects.ResponseAudio
ResponseAudioOutput = response_objects.ResponseAudioOutput
ResponseError = response_objects.ResponseError
StatusDetails = response_objects.StatusDetailsPayload
Usage = response_objects.UsagePayload
part_of = response_objects.part_of
usage_of = response_objects.usage_of


class ServerEvent(msgspec.Struct, frozen=True, tag_field="type"):
    """Base of all server events."""

    event_id: str


# -- errors, session, limits


class ErrorDetail(msgspec.Struct, frozen=True, gc=False):
    """`event_id`: the client's, of the event that was at fault."""

    type: str
    code: str | None
    message: str
    param: str | None = None
    event_id: str | None = None


class Error(ServerEvent, frozen=True, tag="error"):
    error: ErrorDetail


def error_of(fault: ClientFault, event_id: str) -> Error:
    """The event that tells a client of its fault."""
    detail = ErrorDetail(fault.type, fault.code, fault.message, fault.param, fault.event_id)
    return Error(event_id, detail)


class SessionCreated(ServerEvent, frozen=True, tag="session.created"):
    session: JsonObject


class SessionUpdated(ServerEvent, frozen=True, tag="session.updated"):
    session: JsonObject


class RateLimit(msgspec.Struct, frozen=True, gc=False):
    """`name`: requests or tokens."""

    name: str
    limit: int
    remaining: int
    reset_seconds: float


class RateLimitsUpdated(ServerEvent, frozen=True, tag="rate_limits.updated"):
    rate_limits: tuple[RateLimit, ...] = ()


# -- conversation


class ConversationPayload(msgspec.Struct, frozen=True, gc=False):
    id: str
    object: str = "realtime.conversation"


class ConversationCreated(ServerEvent, frozen=True, tag="conversation.created"):
    conversation: ConversationPayload


class ItemAdded(ServerEvent, frozen=True, tag="conversation.item.added"):
    item: Item
    previous_item_id: str | None


class ItemDone(ServerEvent, frozen=True, tag="conversation.item.done"):
    item: Item
    previous_item_id: str | None


class ItemRetrievedEvent(ServerEvent, frozen=True, tag="conversation.item.retrieved"):
    item: Item


class ItemDeletedEvent(ServerEvent, frozen=True, tag="conversation.item.deleted"):
    item_id: str


class ItemTruncatedEvent(ServerEvent, frozen=True, tag="conversation.item.truncated"):
    item_id: str
    content_index: int
    audio_end_ms: int


# -- transcription of the user's speech


class DurationUsage(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="duration"):
    """Cost of a transcription, in seconds of audio."""

    seconds: float


class TranscriptionDelta(
    ServerEvent, frozen=True, tag="conversation.item.input_audio_transcription.delta"
):
    item_id: str
    content_index: int
    delta: str


class TranscriptionCompleted(
    ServerEvent, frozen=True, tag="conversation.item.input_audio_transcription.completed"
):
    item_id: str
    content_index: int
    transcript: str
    usage: DurationUsage


class TranscriptionError(msgspec.Struct, frozen=True, gc=False):
    type: str
    code: str
    message: str
    param: str | None = None


class TranscriptionFailed(
    ServerEvent, frozen=True, tag="conversation.item.input_audio_transcription.failed"
):
    item_id: str
    content_index: int
    error: TranscriptionError


class TranscriptionSegment(
    ServerEvent, frozen=True, tag="conversation.item.input_audio_transcription.segment"
):
    """`start`, `end`: seconds in the item's audio."""

    item_id: str
    content_index: int
    id: str
    text: str
    speaker: str
    start: float
    end: float


# -- input audio buffer


class InputCommittedEvent(ServerEvent, frozen=True, tag="input_audio_buffer.committed"):
    item_id: str
    previous_item_id: str | None


class InputClearedEvent(ServerEvent, frozen=True, tag="input_audio_buffer.cleared"):
    pass


class SpeechStartedEvent(ServerEvent, frozen=True, tag="input_audio_buffer.speech_started"):
    item_id: str
    audio_start_ms: int


class SpeechStopped(ServerEvent, frozen=True, tag="input_audio_buffer.speech_stopped"):
    item_id: str
    audio_end_ms: int


class TimeoutTriggered(ServerEvent, frozen=True, tag="input_audio_buffer.timeout_triggered"):
    item_id: str
    audio_start_ms: int
    audio_end_ms: int


# -- output audio buffer (where the server owns playback, and with the playback extension)


class OutputStarted(ServerEvent, frozen=True, tag="output_audio_buffer.started"):
    response_id: str


class OutputStopped(ServerEvent, frozen=True, tag="output_audio_buffer.stopped"):
    response_id: str


class OutputClearedEvent(ServerEvent, frozen=True, tag="output_audio_buffer.cleared"):
    """`response_id` is empty only if the session never had a response."""

    response_id: str


# -- responses


class ResponseCreatedEvent(ServerEvent, frozen=True, tag="response.created"):
    response: Response


class ResponseDoneEvent(ServerEvent, frozen=True, tag="response.done"):
    response: Response


class OutputItemAdded(ServerEvent, frozen=True, tag="response.output_item.added"):
    response_id: str
    output_index: int
    item: Item


class OutputItemDone(ServerEvent, frozen=True, tag="response.output_item.done"):
    response_id: str
    output_index: int
    item: Item


class PartEvent(ServerEvent, frozen=True):
    """Base of the events of one content part."""

    response_id: str
    item_id: str
    output_index: int
    content_index: int


class PartAdded(PartEvent, frozen=True, tag="response.content_part.added"):
    part: Part


class PartDone(PartEvent, frozen=True, tag="response.content_part.done"):
    part: Part


class TextDelta(PartEvent, frozen=True, tag="response.output_text.delta"):
    delta: str


class TextDone(PartEvent, frozen=True, tag="response.output_text.done"):
    text: str


class TranscriptDelta(PartEvent, frozen=True, tag="response.output_audio_transcript.delta"):
    delta: str


class TranscriptDone(PartEvent, frozen=True, tag="response.output_audio_transcript.done"):
    transcript: str


class AudioDelta(PartEvent, frozen=True, tag="response.output_audio.delta"):
    """`delta`: raw bytes in the session's output format."""

    delta: bytes


class AudioDone(PartEvent, frozen=True, tag="response.output_audio.done"):
    pass


class ArgumentsDelta(ServerEvent, frozen=True, tag="response.function_call_arguments.delta"):
    response_id: str
    item_id: str
    output_index: int
    call_id: str
    delta: str


class ArgumentsDone(ServerEvent, frozen=True, tag="response.function_call_arguments.done"):
    response_id: str
    item_id: str
    output_index: int
    call_id: str
    name: str
    arguments: str


# -- the video extension


class InputImageCleared(ServerEvent, frozen=True, tag="input_image_buffer.cleared"):
    pass


class InputImageSeen(ServerEvent, frozen=True, tag="input_image_buffer.seen"):
    """What was found in a frame (our addition, sent where `extensions.video.report` asks for it). `reason`: why it was looked at:
    change, heartbeat or forced. `seen`: objects with boxes as shares of width and height, texts, colours, light."""

    timestamp_ms: int
    reason: str
    seen: JsonObject


# -- the playback extension


class PlaybackAcknowledged(ServerEvent, frozen=True, tag="playback.acknowledged"):
    """`reason`: clamped (accepted), or why not: stale, late, unknown, final. Counts are at the output format's rate."""

    client_event_id: str | None
    response_id: str
    item_id: str
    content_index: int
    accepted: bool
    reason: str | None
    played_samples: int
    played_ms: int
    sent_samples: int
    generated_samples: int
    history_committed: bool


class PlaybackMute(ServerEvent, frozen=True, tag="playback.mute"):
    response_id: str
    epoch: int
    reversible: bool


class PlaybackPlay(ServerEvent, frozen=True, tag="playback.play"):
    """`rtp_timestamp`: of the packet with which the audio begins, where it goes over RTP."""

    response_id: str
    epoch: int
    rtp_timestamp: int | msgspec.UnsetType = msgspec.UNSET
