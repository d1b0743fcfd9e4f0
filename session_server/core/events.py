"""What happens to a session: past-tense values that the shell feeds to `Session.handle(event, now)`.

Four sources: the client (after `protocol` validated and typed its message), the audio input
(VAD), the engine host (recognition, generation), and the transport. Input positions are samples at INPUT_RATE
on the session's input time line (all audio ever appended); output positions are samples of the
response's own stream at `OUTPUT_RATE`.
"""

from __future__ import annotations

from session_server.core.conversation import Item
from session_server.core.settings import ResponseOverrides, SessionSettings
from session_server.types.audio import Value, WordSpan
from session_server.types.usage import TokenUsage
from session_server.types.vision import VisualEvidence

# -- the client


class SettingsChanged(Value, frozen=True):
    """The merged, validated settings. The shell checked the voice lock (`Session.voice_locked`) first."""

    settings: SessionSettings
    event_id: str | None = None


class AudioAppended(Value, frozen=True):
    """The input time line now ends at `end_sample`."""

    end_sample: int


class InputCommitted(Value, frozen=True):
    event_id: str | None = None


class InputCleared(Value, frozen=True):
    event_id: str | None = None


class ItemCreated(Value, frozen=True):
    """`previous_item_id`: None appends, "root" inserts at the head."""

    item: Item
    previous_item_id: str | None = None
    event_id: str | None = None


class ItemDeleted(Value, frozen=True):
    item_id: str
    event_id: str | None = None


class ItemRetrieved(Value, frozen=True):
    item_id: str
    event_id: str | None = None


class ItemTruncated(Value, frozen=True):
    item_id: str
    content_index: int
    audio_end_ms: int
    event_id: str | None = None


class ResponseRequested(Value, frozen=True):
    """`input_items` replaces the conversation as context (None: the conversation)."""

    overrides: ResponseOverrides
    input_items: tuple[Item, ...] | None = None
    event_id: str | None = None


class ResponseCancelled(Value, frozen=True):
    response_id: str | None = None
    event_id: str | None = None


class OutputCleared(Value, frozen=True):
    """`output_audio_buffer.clear`; an error without the playback extension."""

    event_id: str | None = None


class PlaybackAcked(Value, frozen=True):
    """`playback.ack` (8.2). `played_samples` is already at OUTPUT_RATE, whatever the client's unit was."""

    response_id: str
    item_id: str
    content_index: int
    played_samples: int
    buffered_ms: int | None = None
    underruns: int | None = None
    underrun_ms: int | None = None
    final: bool = False
    event_id: str | None = None


# -- the camera


class FrameTaken(Value, frozen=True):
    """A camera frame passed the gate and the rate. Its bytes stay with the shell under the number `frame`, which grows.

    `at_sample`: where it belongs on the input time line. `captured_ns`: when it was taken, never after now.
    `reason`: change, heartbeat or forced.
    """

    frame: int
    at_sample: int
    captured_ns: int
    reason: str


class FrameAlike(Value, frozen=True):
    """A frame came that looks like the newest taken one, so that what was seen in that still holds."""

    captured_ns: int


class FrameCame(Value, frozen=True):
    """A frame came that shows something new, and sooner than the rate allows to take one."""

    captured_ns: int


class FramesCleared(Value, frozen=True):
    """`input_image_buffer.clear`."""

    event_id: str | None = None


# -- the audio input


class SpeechProbability(Value, frozen=True):
    """One VAD frame that ends at `end_sample`. The echo guard has already set `probability` to 0 in a
    frame that is the server's own voice coming back (then `echo` is true)."""

    end_sample: int
    probability: float
    echo: bool = False


# -- the engine host: recognition and turn model


class TranscriptReady(Value, frozen=True):
    work_id: str
    text: str


class TurnJudged(Value, frozen=True):
    """The turn model's probability that the utterance is complete."""

    work_id: str
    probability: float


class PictureSeen(Value, frozen=True):
    """What is in a picture: as a prompt says it, and what was found. `kinds`: of what is surely there, one for each
    object, sorted; None: the engine names no kinds, and the text stands for the picture itself. `written`: there is text in it."""

    work_id: str
    text: str
    evidence: VisualEvidence | None = None
    kinds: tuple[str, ...] | None = ()
    written: bool = False


class WorkFailed(Value, frozen=True):
    """A recognition or turn-model work item that will never be answered."""

    work_id: str
    code: str
    message: str


# -- the engine host: generation


class TextGenerated(Value, frozen=True):
    """More of what the response says (speech or text modality)."""

    response_id: str
    text: str


class ClauseSpoken(Value, frozen=True):
    """Text `char_start..char_end` will sound in `start_sample..end_sample`; comes before that audio."""

    response_id: str
    char_start: int
    char_end: int
    start_sample: int
    end_sample: int
    words: tuple[WordSpan, ...]
    estimated: bool = False


class AudioGenerated(Value, frozen=True):
    """Consecutive output audio: s16le at OUTPUT_RATE that starts at `start_sample`."""

    response_id: str
    start_sample: int
    pcm: bytes


class CallStarted(Value, frozen=True):
    """The model began to call a function. `index` counts the response's calls from 0."""

    response_id: str
    index: int
    name: str


class CallArguments(Value, frozen=True):
    response_id: str
    index: int
    arguments: str


class CallFinished(Value, frozen=True):
    """The call's arguments are complete and valid JSON."""

    response_id: str
    index: int


class GenerationFinished(Value, frozen=True):
    """Nothing more comes of this response. `reason`: stop, max_output_tokens, content_filter."""

    response_id: str
    reason: str
    usage: TokenUsage


class GenerationFailed(Value, frozen=True):
    response_id: str
    code: str
    message: str


# -- the transport


class AudioWritten(Value, frozen=True):
    """Output audio up to `end_sample` has been handed to the socket: it is `sent`.

    A transport that plays in real time says more: when the listener will have heard it (the instant `heard_ns`, so that a
    report may come later than what it tells of; `estimated`: without reports of the client), and how much silence it had to
    put before it because nothing had come.
    """

    response_id: str
    end_sample: int
    heard_ns: int = 0
    estimated: bool = True
    gap_samples: int = 0


class Disconnected(Value, frozen=True):
    """The connection is gone; every work item is to be cancelled."""


class DrainStarted(Value, frozen=True):
    """The server goes down: no new response; the running one may end."""


class Shutdown(Value, frozen=True):
    """The server ends now: what still runs fails, and the connection closes."""


ClientEvent = (
    SettingsChanged | AudioAppended | InputCommitted | InputCleared | ItemCreated | ItemDeleted
    | ItemRetrieved | ItemTruncated | ResponseRequested | ResponseCancelled | OutputCleared | PlaybackAcked
    | FrameTaken | FrameAlike | FrameCame | FramesCleared
)  # fmt: skip
EngineEvent = (
    TranscriptReady | TurnJudged | PictureSeen | WorkFailed | TextGenerated | ClauseSpoken | AudioGenerated
    | CallStarted | CallArguments | CallFinished | GenerationFinished | GenerationFailed
)  # fmt: skip
Event = (
    ClientEvent | EngineEvent | SpeechProbability | AudioWritten
    | Disconnected | DrainStarted | Shutdown
)  # fmt: skip
