"""What happens to a session: past-tense values that the shell feeds to `Session.handle(event, now)`.

Four sources: the client (after `protocol` validated and typed its message), the ears (VAD), the
engine host (recognition, generation), and the transport. Input positions are samples at INPUT_RATE
on the session's input time line (all audio ever appended); output positions are samples of the
response's own stream at `OUTPUT_RATE`.
"""

from __future__ import annotations

from dataclasses import dataclass

from session_server.core.items import Item
from session_server.core.settings import ResponseOverrides, SessionSettings
from session_server.media import WordSpan

# -- the client


@dataclass(frozen=True, slots=True)
class SettingsChanged:
    """The merged, validated settings. The shell checked the voice lock (`Session.voice_locked`) first."""

    settings: SessionSettings
    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class AudioAppended:
    """The input time line now ends at `end_sample`."""

    end_sample: int


@dataclass(frozen=True, slots=True)
class InputCommitted:
    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class InputCleared:
    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class ItemCreated:
    """`previous_item_id`: None appends, "root" inserts at the head."""

    item: Item
    previous_item_id: str | None = None
    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class ItemDeleted:
    item_id: str
    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class ItemRetrieved:
    item_id: str
    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class ItemTruncated:
    item_id: str
    content_index: int
    audio_end_ms: int
    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class ResponseRequested:
    """`input_items` replaces the conversation as context (None: the conversation)."""

    overrides: ResponseOverrides
    input_items: tuple[Item, ...] | None = None
    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class ResponseCancelled:
    response_id: str | None = None
    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class OutputCleared:
    """`output_audio_buffer.clear`; an error without the playback extension."""

    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class PlaybackAcked:
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


# -- the ears


@dataclass(frozen=True, slots=True)
class SpeechProbability:
    """One VAD frame that ends at `end_sample`. The echo guard has already set `probability` to 0 in a
    frame that is the server's own voice coming back (then `echo` is true)."""

    end_sample: int
    probability: float
    echo: bool = False


# -- the engine host: recognition and turn model


@dataclass(frozen=True, slots=True)
class TranscriptReady:
    work_id: str
    text: str


@dataclass(frozen=True, slots=True)
class TurnJudged:
    """The turn model's probability that the utterance is complete."""

    work_id: str
    probability: float


@dataclass(frozen=True, slots=True)
class WorkFailed:
    """A recognition or turn-model work item that will never be answered."""

    work_id: str
    code: str
    message: str


# -- the engine host: generation


@dataclass(frozen=True, slots=True)
class TextGenerated:
    """More of what the response says (speech or text modality)."""

    response_id: str
    text: str


@dataclass(frozen=True, slots=True)
class ClauseSpoken:
    """Text `char_start..char_end` will sound in `start_sample..end_sample`; comes before that audio."""

    response_id: str
    char_start: int
    char_end: int
    start_sample: int
    end_sample: int
    words: tuple[WordSpan, ...]
    estimated: bool = False


@dataclass(frozen=True, slots=True)
class AudioGenerated:
    """Consecutive output audio: s16le at OUTPUT_RATE that starts at `start_sample`."""

    response_id: str
    start_sample: int
    pcm: bytes


@dataclass(frozen=True, slots=True)
class CallStarted:
    """The model began to call a function. `index` counts the response's calls from 0."""

    response_id: str
    index: int
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    response_id: str
    index: int
    arguments: str


@dataclass(frozen=True, slots=True)
class CallFinished:
    """The call's arguments are complete and valid JSON."""

    response_id: str
    index: int


@dataclass(frozen=True, slots=True)
class TokenUsage:
    input_text: int = 0
    input_audio: int = 0
    input_cached: int = 0
    output_text: int = 0
    output_audio: int = 0


@dataclass(frozen=True, slots=True)
class GenerationFinished:
    """Nothing more comes of this response. `reason`: stop, max_output_tokens, content_filter."""

    response_id: str
    reason: str
    usage: TokenUsage


@dataclass(frozen=True, slots=True)
class GenerationFailed:
    response_id: str
    code: str
    message: str


# -- the transport


@dataclass(frozen=True, slots=True)
class AudioWritten:
    """Output audio up to `end_sample` has been handed to the socket: it is `sent`.

    A transport that plays in real time says more: when the listener will have heard it (`heard_in_ms` from now;
    `estimated`: without reports of the client), and how much silence it had to put before it because nothing had come.
    """

    response_id: str
    end_sample: int
    heard_in_ms: int = 0
    estimated: bool = True
    gap_samples: int = 0


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The connection is gone; every work item is to be cancelled."""


@dataclass(frozen=True, slots=True)
class DrainStarted:
    """The server goes down: no new response; the running one may end."""


@dataclass(frozen=True, slots=True)
class Shutdown:
    """The server ends now: what still runs fails, and the connection closes."""


ClientEvent = (
    SettingsChanged | AudioAppended | InputCommitted | InputCleared | ItemCreated | ItemDeleted
    | ItemRetrieved | ItemTruncated | ResponseRequested | ResponseCancelled | OutputCleared | PlaybackAcked
)  # fmt: skip
EngineEvent = (
    TranscriptReady | TurnJudged | WorkFailed | TextGenerated | ClauseSpoken | AudioGenerated
    | CallStarted | CallArguments | CallFinished | GenerationFinished | GenerationFailed
)  # fmt: skip
Event = (
    ClientEvent | EngineEvent | SpeechProbability | AudioWritten
    | Disconnected | DrainStarted | Shutdown
)  # fmt: skip
