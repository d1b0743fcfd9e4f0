"""Announcements: actions that become exactly one wire event each, in the order given, never merged.

Milliseconds are final wire values. `actions` gathers these with the commands.
"""

from __future__ import annotations

from dataclasses import dataclass

from session_server.core.items import Item
from session_server.core.settings import Modality
from session_server.media import PlaybackSnapshot

# -- announcements: input


@dataclass(frozen=True, slots=True)
class AnnounceSettings:
    """`session.updated` with the whole effective session."""


@dataclass(frozen=True, slots=True)
class AnnounceSpeechStarted:
    item_id: str
    audio_start_ms: int


@dataclass(frozen=True, slots=True)
class AnnounceSpeechStopped:
    item_id: str
    audio_end_ms: int


@dataclass(frozen=True, slots=True)
class AnnounceCommitted:
    item_id: str
    previous_item_id: str | None


@dataclass(frozen=True, slots=True)
class AnnounceInputCleared:
    pass


@dataclass(frozen=True, slots=True)
class AnnounceIdleTimeout:
    item_id: str
    audio_start_ms: int
    audio_end_ms: int


@dataclass(frozen=True, slots=True)
class AnnounceTranscriptDelta:
    item_id: str
    content_index: int
    delta: str


@dataclass(frozen=True, slots=True)
class AnnounceTranscript:
    """`...transcription.completed`; `seconds` of audio recognised, for usage."""

    item_id: str
    content_index: int
    transcript: str
    seconds: float


@dataclass(frozen=True, slots=True)
class AnnounceTranscriptFailed:
    item_id: str
    content_index: int
    code: str
    message: str


# -- announcements: conversation


@dataclass(frozen=True, slots=True)
class AnnounceItemAdded:
    item: Item
    previous_item_id: str | None


@dataclass(frozen=True, slots=True)
class AnnounceItemDone:
    item: Item
    previous_item_id: str | None


@dataclass(frozen=True, slots=True)
class AnnounceItemDeleted:
    item_id: str


@dataclass(frozen=True, slots=True)
class AnnounceItemRetrieved:
    item: Item


@dataclass(frozen=True, slots=True)
class AnnounceTruncated:
    item_id: str
    content_index: int
    audio_end_ms: int


# -- announcements: responses


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of `response.done`."""

    input_text: int = 0
    input_audio: int = 0
    input_cached: int = 0
    output_text: int = 0
    output_audio: int = 0


@dataclass(frozen=True, slots=True)
class ResponseView:
    """A response as the wire shows it. `status`: in_progress, completed, cancelled, incomplete, failed."""

    id: str
    status: str
    out_of_band: bool
    modality: Modality
    voice: str
    max_output_tokens: int | None
    metadata: tuple[tuple[str, str], ...] | None
    output: tuple[Item, ...] = ()
    reason: str | None = None
    error_code: str | None = None
    error_message: str | None = None
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class AnnounceResponseCreated:
    response: ResponseView


@dataclass(frozen=True, slots=True)
class AnnounceRateLimits:
    pass


@dataclass(frozen=True, slots=True)
class AnnounceResponseDone:
    response: ResponseView


@dataclass(frozen=True, slots=True)
class AnnounceOutputItemAdded:
    response_id: str
    output_index: int
    item: Item


@dataclass(frozen=True, slots=True)
class AnnounceOutputItemDone:
    response_id: str
    output_index: int
    item: Item


@dataclass(frozen=True, slots=True)
class PartAddress:
    """Where a content part lives; carried by every announcement about it."""

    response_id: str
    item_id: str
    output_index: int
    content_index: int


@dataclass(frozen=True, slots=True)
class AnnouncePartAdded:
    part: PartAddress
    modality: Modality


@dataclass(frozen=True, slots=True)
class AnnounceTextDelta:
    """`output_audio_transcript.delta` (AUDIO) or `output_text.delta` (TEXT)."""

    part: PartAddress
    modality: Modality
    delta: str


@dataclass(frozen=True, slots=True)
class AnnounceTextDone:
    part: PartAddress
    modality: Modality
    text: str


@dataclass(frozen=True, slots=True)
class AnnounceAudioDone:
    part: PartAddress


@dataclass(frozen=True, slots=True)
class AnnouncePartDone:
    part: PartAddress
    modality: Modality
    text: str


@dataclass(frozen=True, slots=True)
class AnnounceCallDelta:
    part: PartAddress
    call_id: str
    delta: str


@dataclass(frozen=True, slots=True)
class AnnounceCallDone:
    part: PartAddress
    call_id: str
    name: str
    arguments: str


# -- announcements: errors and the playback extension


@dataclass(frozen=True, slots=True)
class AnnounceError:
    code: str
    message: str
    param: str | None = None
    event_id: str | None = None
    type: str = "invalid_request_error"


@dataclass(frozen=True, slots=True)
class AnnouncePlaybackAcknowledged:
    client_event_id: str | None
    response_id: str
    item_id: str
    content_index: int
    accepted: bool
    reason: str | None
    snapshot: PlaybackSnapshot
    history_committed: bool


@dataclass(frozen=True, slots=True)
class AnnounceOutputStarted:
    response_id: str


@dataclass(frozen=True, slots=True)
class AnnounceOutputStopped:
    response_id: str


@dataclass(frozen=True, slots=True)
class AnnounceOutputCleared:
    response_id: str | None


@dataclass(frozen=True, slots=True)
class AnnounceMute:
    response_id: str
    epoch: int
    reversible: bool


@dataclass(frozen=True, slots=True)
class AnnouncePlay:
    response_id: str
    epoch: int


Announcement = (
    AnnounceSettings | AnnounceSpeechStarted | AnnounceSpeechStopped | AnnounceCommitted | AnnounceInputCleared
    | AnnounceIdleTimeout | AnnounceTranscriptDelta | AnnounceTranscript | AnnounceTranscriptFailed
    | AnnounceItemAdded | AnnounceItemDone | AnnounceItemDeleted | AnnounceItemRetrieved | AnnounceTruncated
    | AnnounceResponseCreated | AnnounceRateLimits | AnnounceResponseDone | AnnounceOutputItemAdded
    | AnnounceOutputItemDone | AnnouncePartAdded | AnnounceTextDelta | AnnounceTextDone | AnnounceAudioDone
    | AnnouncePartDone | AnnounceCallDelta | AnnounceCallDone | AnnounceError | AnnouncePlaybackAcknowledged
    | AnnounceOutputStarted | AnnounceOutputStopped | AnnounceOutputCleared | AnnounceMute | AnnouncePlay
)  # fmt: skip
