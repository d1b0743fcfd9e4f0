"""What a session wants done: imperative values that `Session.handle` returns, in the order to carry out.

Two kinds. *Announcements* become exactly one wire event each, in this order, without buffering or
merging (the shell only spells them). *Commands* go to the engine host, the transport or the timer.
Milliseconds in announcements are final wire values.
"""

from __future__ import annotations

from dataclasses import dataclass

from session_server.core.items import Item
from session_server.core.settings import Modality, Tool, ToolChoice
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


# -- commands: transport


@dataclass(frozen=True, slots=True)
class SendAudio:
    """Hand this audio to the client now (s16le at OUTPUT_RATE). Becomes `output_audio.delta`; the shell
    answers with `AudioWritten` once the frame is with the socket."""

    part: PartAddress
    epoch: int
    start_sample: int
    pcm: bytes


@dataclass(frozen=True, slots=True)
class PurgeAudio:
    """Drop every `SendAudio` of this response that is still queued in the transport. Runs at once."""

    response_id: str


@dataclass(frozen=True, slots=True)
class CloseConnection:
    code: int
    reason: str


# -- commands: engine host


@dataclass(frozen=True, slots=True)
class Recognise:
    """Transcribe input audio `start_sample..end_sample`. `partial` may be dropped under load.

    With `item_id` the audio is not on the input time line: it is the one that came inside that item, in
    `content_index`, and the range counts its own samples at INPUT_RATE (`end_sample` may be beyond its end).
    """

    work_id: str
    start_sample: int
    end_sample: int
    partial: bool
    item_id: str | None = None
    content_index: int = 0


@dataclass(frozen=True, slots=True)
class JudgeTurn:
    """Ask the turn model about the utterance that ends at `end_sample`."""

    work_id: str
    start_sample: int
    end_sample: int


@dataclass(frozen=True, slots=True)
class PromptMessage:
    """One entry of the prompt. `kind`: message, call (content = JSON arguments), result.

    `interrupted`: an assistant message that the listener cut off; `content` is what was heard of it.
    """

    role: str
    content: str
    kind: str = "message"
    name: str | None = None
    call_id: str | None = None
    interrupted: bool = False


@dataclass(frozen=True, slots=True)
class StartGeneration:
    """Begin a response. `epoch` is None for a draft: it may run, and nothing of it may be sent yet."""

    response_id: str
    lane: str
    epoch: int | None
    instructions: str
    messages: tuple[PromptMessage, ...]
    tools: tuple[Tool, ...]
    tool_choice: ToolChoice
    modality: Modality
    voice: str
    speed: float
    max_output_tokens: int | None
    turn_end_ns: int | None = None


@dataclass(frozen=True, slots=True)
class AdoptDraft:
    response_id: str
    lane: str
    epoch: int


@dataclass(frozen=True, slots=True)
class CancelGeneration:
    """Stop this response everywhere. Idempotent."""

    response_id: str


@dataclass(frozen=True, slots=True)
class RaiseFence:
    """The lane's epoch is now `epoch`: work and audio of an older one is stale."""

    lane: str
    epoch: int


@dataclass(frozen=True, slots=True)
class CancelWork:
    """Recognition or turn-model work whose answer nobody wants any more."""

    work_id: str


@dataclass(frozen=True, slots=True)
class ReportFrontier:
    """Where the listener is, for the scheduler. `paused` while a duck holds the response back."""

    response_id: str
    snapshot: PlaybackSnapshot
    paused: bool = False


@dataclass(frozen=True, slots=True)
class ForgetInput:
    """Input audio before `before_sample` is not needed any more."""

    before_sample: int


# -- commands: measurement


@dataclass(frozen=True, slots=True)
class Count:
    """Something worth a metric. `name` is a key of observability.metrics; `label` its enum value."""

    name: str
    label: str | None = None
    value: float = 1.0


Announcement = (
    AnnounceSettings | AnnounceSpeechStarted | AnnounceSpeechStopped | AnnounceCommitted | AnnounceInputCleared
    | AnnounceIdleTimeout | AnnounceTranscriptDelta | AnnounceTranscript | AnnounceTranscriptFailed
    | AnnounceItemAdded | AnnounceItemDone | AnnounceItemDeleted | AnnounceItemRetrieved | AnnounceTruncated
    | AnnounceResponseCreated | AnnounceRateLimits | AnnounceResponseDone | AnnounceOutputItemAdded
    | AnnounceOutputItemDone | AnnouncePartAdded | AnnounceTextDelta | AnnounceTextDone | AnnounceAudioDone
    | AnnouncePartDone | AnnounceCallDelta | AnnounceCallDone | AnnounceError | AnnouncePlaybackAcknowledged
    | AnnounceOutputStarted | AnnounceOutputStopped | AnnounceOutputCleared | AnnounceMute | AnnouncePlay
)  # fmt: skip
Command = (
    SendAudio | PurgeAudio | CloseConnection | Recognise | JudgeTurn | StartGeneration | AdoptDraft
    | CancelGeneration | RaiseFence | CancelWork | ReportFrontier | ForgetInput | Count
)  # fmt: skip
Action = Announcement | Command
