"""Parameters of a session, as the core reads them.

Two kinds: `SessionSettings` is what the client chose (the wire's session object, already merged and
validated by `protocol`); `CoreParams` is what the operator chose (filled from YAML by `config`).
Units are in the names; instants and spans of time inside the core are integer nanoseconds.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Annotated, TypeAlias

from session_server.types.audio import PlaybackLimits
from session_server.types.bounds import Within
from session_server.types.tools import Tool, ToolChoice
from session_server.types.vision import VideoLimits

DAY_MS = 86_400_000
SpanMs: TypeAlias = Annotated[int, Within(0, DAY_MS)]
"""A span of time in the core: not negative, at most a day."""


class TurnMode(enum.Enum):
    """Who decides that a turn has ended."""

    MANUAL = "manual"
    SERVER_VAD = "server_vad"
    SEMANTIC_VAD = "semantic_vad"


class Modality(enum.Enum):
    AUDIO = "audio"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class TurnDetection:
    """`audio.input.turn_detection`; MANUAL stands for null."""

    mode: TurnMode = TurnMode.SERVER_VAD
    threshold: float = 0.5
    prefix_padding_ms: int = 300
    silence_ms: int = 500
    idle_timeout_ms: int | None = None
    create_response: bool = True
    interrupt_response: bool = True
    eagerness: str = "auto"


@dataclass(frozen=True, slots=True)
class Hearing:
    """What the engines make of the user's audio. `natively`: the thinker takes the audio itself, so an answer waits for no
    words. `words`: there is recognition, for transcripts. At least one of them holds."""

    natively: bool = False
    words: bool = True


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """What the client chose. A new object replaces the old one whole."""

    turn_detection: TurnDetection = field(default_factory=TurnDetection)
    instructions: str = ""
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = field(default_factory=ToolChoice)
    modality: Modality = Modality.AUDIO
    voice: str = "heart"
    speed: float = 1.0
    max_output_tokens: int | None = None
    transcribe: bool = False
    playback: PlaybackLimits | None = None
    video: VideoLimits | None = None
    server_plays: bool = False
    """The transport plays the audio itself, in real time (WebRTC), and tells of every piece that has left."""
    hearing: Hearing = Hearing()
    """Not the client's choice either: the model graph's."""
    sees: bool = False
    """There is a stage that says what is in a picture. Not the client's choice either."""


@dataclass(frozen=True, slots=True)
class ResponseOverrides:
    """`response.create`'s `response` object: None keeps the session's value.

    `interruptible=False` (our extension of metadata: `interruptible: "false"`) protects a greeting or a legal text.
    `input_items` is None unless the client replaced the conversation's context.
    """

    out_of_band: bool = False
    instructions: str | None = None
    tools: tuple[Tool, ...] | None = None
    tool_choice: ToolChoice | None = None
    modality: Modality | None = None
    voice: str | None = None
    max_output_tokens: int | None = None
    metadata: tuple[tuple[str, str], ...] | None = None
    interruptible: bool = True


@dataclass(frozen=True, slots=True)
class CoreParams:
    """What the operator chose. Defaults come from measurements in docs (endpointing, interruption)."""

    strict_truncate: bool = False
    # pacing
    lead_sent_ms: Annotated[int, Within(40, 60_000)] = 1000
    delta_ms: Annotated[int, Within(20, 100)] = 100
    lead_generated_ms: Annotated[int, Within(40, 120_000)] = 2000
    trust_acks: bool = False
    """A client that says to have played what it has gets more as fast as it is made: for writing files."""
    # voice activity
    speech_off_margin: Annotated[float, Within(0, 1)] = 0.15
    speech_start_ms: SpanMs = 96
    speech_release_ms: SpanMs = 40
    # interruption
    duck_ms: SpanMs = 200
    words_after_ms: SpanMs = 480
    commit_ms: SpanMs = 800
    server_vad_commit_ms: SpanMs = 250
    refractory_ms: SpanMs = 300
    warm_up_ms: SpanMs = 0
    dismiss_silence_ms: SpanMs = 300
    """Silence after speech over an answer that makes it a false interruption, unless its words are awaited."""
    words_wait_ms: SpanMs = 700
    """Longest silence during which the words of speech over an answer are awaited."""
    backchannel_words: frozenset[str] = frozenset(
        {
            "ah", "aha", "alright", "cool", "exactly", "gotcha", "great", "hm", "hmm", "huh", "i", "mhm",
            "mm", "mmhm", "mmm", "nice", "oh", "ok", "okay", "right", "see", "sure", "uh", "uhhuh", "uhhu",
            "um", "wow", "yeah", "yep", "yes", "yup",
        }
    )  # fmt: skip
    # end of turn
    turn_model_after_ms: SpanMs = 200
    complete_silence_ms: SpanMs = 500
    incomplete_silence_ms: SpanMs = 1200
    fallback_silence_ms: SpanMs = 700
    """`semantic_vad` when the turn model does not answer."""
    recognise_after_ms: SpanMs = 100
    draft_after_ms: SpanMs = 150
    speculate: bool = True
    partial_every_ms: SpanMs = 300
    read_along_ms: SpanMs = 0
    """How often the words of a turn that goes on are asked for, so that the thinker reads them; 0: never."""
    # deadlines: how long a state that is not idle may last without news
    input_gap_ms: SpanMs = 1500
    recognition_ms: SpanMs = 10_000
    turn_model_ms: SpanMs = 1_000
    looking_ms: Annotated[int, Within(100, 60_000)] = 5_000
    """Longest wait for what is in a picture; then the answer begins without."""
    frame_ms: Annotated[int, Within(100, 60_000)] = 2_000
    """Longest look at a camera frame."""
    # the camera
    camera_wait_ms: Annotated[int, Within(0, 5_000)] = 300
    """Longest wait of an answer for a fresher picture."""
    camera_fresh_ms: Annotated[int, Within(100, 60_000)] = 1_000
    camera_lost_ms: Annotated[int, Within(200, 600_000)] = 2_000
    camera_still_ms: Annotated[int, Within(100, 60_000)] = 500
    commentary_gap_ms: Annotated[int, Within(1_000, DAY_MS)] = 10_000
    # deadlines of answers
    first_output_ms: SpanMs = 30_000
    output_gap_ms: SpanMs = 15_000
    response_ms: SpanMs = 600_000
    max_session_ms: Annotated[int, Within(0, 7 * DAY_MS)] = 3_600_000
    max_speech_ms: SpanMs = 120_000
    # bounds
    max_items: Annotated[int, Within(2, 1_000_000)] = 1000
    max_input_ms: Annotated[int, Within(1_000, DAY_MS)] = 600_000
    idle_input_ms: SpanMs = 10_000
    """Uncommitted audio kept while turn detection is on and nobody speaks."""
    prompt_items: int = 200
    max_out_of_band: int = 8
