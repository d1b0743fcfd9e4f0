"""Announcements: actions that become exactly one wire event each, in the order given, never merged.

Milliseconds are final wire values. `actions` gathers these with the commands.
"""

from __future__ import annotations

from session_server.core.conversation import Item
from session_server.core.settings import Modality
from session_server.types.audio import PlaybackSnapshot, Value
from session_server.types.usage import TokenUsage
from session_server.types.vision import VisualEvidence

# -- announcements: input


class AnnounceSettings(Value, frozen=True):
    """`session.updated` with the whole effective session."""


class AnnounceSpeechStarted(Value, frozen=True):
    item_id: str
    audio_start_ms: int


class AnnounceSpeechStopped(Value, frozen=True):
    item_id: str
    audio_end_ms: int


class AnnounceCommitted(Value, frozen=True):
    item_id: str
    previous_item_id: str | None


class AnnounceInputCleared(Value, frozen=True):
    pass


class AnnounceIdleTimeout(Value, frozen=True):
    item_id: str
    audio_start_ms: int
    audio_end_ms: int


class AnnounceTranscriptDelta(Value, frozen=True):
    item_id: str
    content_index: int
    delta: str


class AnnounceTranscript(Value, frozen=True):
    """`...transcription.completed`; `seconds` of audio recognised, for usage."""

    item_id: str
    content_index: int
    transcript: str
    seconds: float


class AnnounceTranscriptFailed(Value, frozen=True):
    item_id: str
    content_index: int
    code: str
    message: str


# -- announcements: conversation


class AnnounceItemAdded(Value, frozen=True):
    item: Item
    previous_item_id: str | None


class AnnounceItemDone(Value, frozen=True):
    item: Item
    previous_item_id: str | None


class AnnounceItemDeleted(Value, frozen=True):
    item_id: str


class AnnounceItemRetrieved(Value, frozen=True):
    item: Item


class AnnounceTruncated(Value, frozen=True):
    item_id: str
    content_index: int
    audio_end_ms: int


# -- announcements: responses


class ResponseView(Value, frozen=True):
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
    usage: TokenUsage | None = None


class AnnounceResponseCreated(Value, frozen=True):
    response: ResponseView


class AnnounceRateLimits(Value, frozen=True):
    pass


class AnnounceResponseDone(Value, frozen=True):
    response: ResponseView


class AnnounceOutputItemAdded(Value, frozen=True):
    response_id: str
    output_index: int
    item: Item


class AnnounceOutputItemDone(Value, frozen=True):
    response_id: str
    output_index: int
    item: Item


class PartAddress(Value, frozen=True):
    """Where a content part lives; carried by every announcement about it."""

    response_id: str
    item_id: str
    output_index: int
    content_index: int


class AnnouncePartAdded(Value, frozen=True):
    part: PartAddress
    modality: Modality


class AnnounceTextDelta(Value, frozen=True):
    """`output_audio_transcript.delta` (AUDIO) or `output_text.delta` (TEXT)."""

    part: PartAddress
    modality: Modality
    delta: str


class AnnounceTextDone(Value, frozen=True):
    part: PartAddress
    modality: Modality
    text: str


class AnnounceAudioDone(Value, frozen=True):
    part: PartAddress


class AnnouncePartDone(Value, frozen=True):
    part: PartAddress
    modality: Modality
    text: str


class AnnounceCallDelta(Value, frozen=True):
    part: PartAddress
    call_id: str
    delta: str


class AnnounceCallDone(Value, frozen=True):
    part: PartAddress
    call_id: str
    name: str
    arguments: str


# -- announcements: the camera


class AnnounceFramesCleared(Value, frozen=True):
    pass


class AnnounceFrameSeen(Value, frozen=True):
    """What was found in a camera frame; only to clients that asked to be told. `at_ms`: on the input time line."""

    at_ms: int
    reason: str
    evidence: VisualEvidence


# -- announcements: errors and the playback extension


class AnnounceError(Value, frozen=True):
    code: str
    message: str
    param: str | None = None
    event_id: str | None = None
    type: str = "invalid_request_error"


class AnnouncePlaybackAcknowledged(Value, frozen=True):
    client_event_id: str | None
    response_id: str
    item_id: str
    content_index: int
    accepted: bool
    reason: str | None
    snapshot: PlaybackSnapshot
    history_committed: bool


class AnnounceOutputStarted(Value, frozen=True):
    response_id: str


class AnnounceOutputStopped(Value, frozen=True):
    response_id: str


class AnnounceOutputCleared(Value, frozen=True):
    response_id: str | None


class AnnounceMute(Value, frozen=True):
    response_id: str
    epoch: int
    reversible: bool


class AnnouncePlay(Value, frozen=True):
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
    | AnnounceFramesCleared | AnnounceFrameSeen
)  # fmt: skip
