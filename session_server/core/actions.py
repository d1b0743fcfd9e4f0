"""Actions: what a session wants done, as values that `Session.handle` returns.

Actions are imperative and in the order to carry out. Two kinds. *Announcements* become exactly one
wire event each, in this order, without buffering or merging; the shell only encodes them.
*Commands* go to the engine host, the transport, the timer or the metrics. Commands are defined
here; the announcements of `announcements` are gathered here with them.
"""

from __future__ import annotations

from session_server.core.announcements import (
    AnnounceAudioDone as AnnounceAudioDone,
    AnnounceCallDelta as AnnounceCallDelta,
    AnnounceCallDone as AnnounceCallDone,
    AnnounceCommitted as AnnounceCommitted,
    AnnounceError as AnnounceError,
    AnnounceFramesCleared as AnnounceFramesCleared,
    AnnounceFrameSeen as AnnounceFrameSeen,
    AnnounceIdleTimeout as AnnounceIdleTimeout,
    AnnounceInputCleared as AnnounceInputCleared,
    AnnounceItemAdded as AnnounceItemAdded,
    AnnounceItemDeleted as AnnounceItemDeleted,
    AnnounceItemDone as AnnounceItemDone,
    AnnounceItemRetrieved as AnnounceItemRetrieved,
    Announcement as Announcement,
    AnnounceMute as AnnounceMute,
    AnnounceOutputCleared as AnnounceOutputCleared,
    AnnounceOutputItemAdded as AnnounceOutputItemAdded,
    AnnounceOutputItemDone as AnnounceOutputItemDone,
    AnnounceOutputStarted as AnnounceOutputStarted,
    AnnounceOutputStopped as AnnounceOutputStopped,
    AnnouncePartAdded as AnnouncePartAdded,
    AnnouncePartDone as AnnouncePartDone,
    AnnouncePlay as AnnouncePlay,
    AnnouncePlaybackAcknowledged as AnnouncePlaybackAcknowledged,
    AnnounceRateLimits as AnnounceRateLimits,
    AnnounceResponseCreated as AnnounceResponseCreated,
    AnnounceResponseDone as AnnounceResponseDone,
    AnnounceSettings as AnnounceSettings,
    AnnounceSpeechStarted as AnnounceSpeechStarted,
    AnnounceSpeechStopped as AnnounceSpeechStopped,
    AnnounceTextDelta as AnnounceTextDelta,
    AnnounceTextDone as AnnounceTextDone,
    AnnounceTranscript as AnnounceTranscript,
    AnnounceTranscriptDelta as AnnounceTranscriptDelta,
    AnnounceTranscriptFailed as AnnounceTranscriptFailed,
    AnnounceTruncated as AnnounceTruncated,
    PartAddress as PartAddress,
    ResponseView as ResponseView,
)
from session_server.core.settings import Modality
from session_server.types.audio import PlaybackSnapshot, Value
from session_server.types.prompt import PromptMessage
from session_server.types.tools import Tool, ToolChoice

# -- commands: transport


class SendAudio(Value, frozen=True):
    """Hand this audio to the client now (s16le at OUTPUT_RATE). Becomes `output_audio.delta`; the shell
    answers with `AudioWritten` once the frame is with the socket."""

    part: PartAddress
    epoch: int
    start_sample: int
    pcm: bytes


class PurgeAudio(Value, frozen=True):
    """Drop every `SendAudio` of this response that is still queued in the transport. Runs at once."""

    response_id: str


class HoldAudio(Value, frozen=True):
    """Where the server plays: send silence from now on, and keep what is queued."""


class ReleaseAudio(Value, frozen=True):
    """Go on after `HoldAudio`; with a response, again from this sample of it: the listener was mute."""

    response_id: str | None = None
    from_sample: int = 0


class CloseConnection(Value, frozen=True):
    code: int
    reason: str


# -- commands: engine host; a tagged one is what the host gets, as it is


class RecogniseRange(Value, frozen=True):
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


class JudgeRange(Value, frozen=True):
    """Ask the turn model about the utterance that ends at `end_sample`."""

    work_id: str
    start_sample: int
    end_sample: int


class AnalyseImage(Value, frozen=True):
    """Say what is in a picture (a data URL)."""

    work_id: str
    image_url: str


class LookAtFrame(Value, frozen=True):
    """Say what is in the camera's frame number `frame`. `read`: text in it, too."""

    work_id: str
    frame: int
    read: bool


class ForgetFrames(Value, frozen=True):
    """Frames with a smaller number are not wanted any more."""

    before: int


class SetFrameRate(Value, frozen=True):
    """So many frames a second may be taken from here on."""

    fps: float


class WantFrame(Value, frozen=True):
    """Take a frame whatever it shows, and whatever the rate: the newest that has come since the last taken one, or else the next."""


class StartGeneration(Value, frozen=True, tag=True):
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


class WarmPrefix(Value, frozen=True, tag=True):
    """The user speaks: read what the prompt of the answer will begin with already, which may end with the words so far. Best
    effort; the next one and StartGeneration end it."""

    work_id: str
    instructions: str
    messages: tuple[PromptMessage, ...]
    tools: tuple[Tool, ...]
    tool_choice: ToolChoice


class AdoptDraft(Value, frozen=True, tag=True):
    """`turn_end_ns`: when the turn that it answers was decided."""

    response_id: str
    lane: str
    epoch: int
    turn_end_ns: int | None = None


class CancelGeneration(Value, frozen=True, tag=True):
    """Stop this response everywhere. Idempotent."""

    response_id: str


class RaiseFence(Value, frozen=True, tag=True):
    """The lane's epoch is now `epoch`: work and audio of an older one is stale."""

    lane: str
    epoch: int


class CancelWork(Value, frozen=True, tag=True):
    """Recognition or turn-model work whose answer nobody wants any more."""

    work_id: str


class ReportFrontier(Value, frozen=True, tag=True):
    """Where the listener is, for the scheduler. `paused` while a duck holds the response back."""

    response_id: str
    snapshot: PlaybackSnapshot
    paused: bool = False


class ForgetInput(Value, frozen=True):
    """Input audio before `before_sample` is not needed any more."""

    before_sample: int


# -- commands: measurement


class Count(Value, frozen=True):
    """Something worth a metric. `name` is a key of observability.metrics; `label` its enum value."""

    name: str
    label: str | None = None
    value: float = 1.0


Command = (
    SendAudio | PurgeAudio | HoldAudio | ReleaseAudio | CloseConnection | RecogniseRange | JudgeRange | AnalyseImage | LookAtFrame
    | ForgetFrames | SetFrameRate | WantFrame | StartGeneration | AdoptDraft | CancelGeneration | WarmPrefix | RaiseFence | CancelWork | ReportFrontier | ForgetInput | Count
)  # fmt: skip


Action = Announcement | Command
