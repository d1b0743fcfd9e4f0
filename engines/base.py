"""The contract between the stage runtime and an engine.

A *stepped* engine runs one stage. It holds *jobs*; a job is one unit of work that lasts several steps
(a prompt being answered, a clause being spoken, an utterance being recognised). Every method is called
from one thread, the stage's runner thread, one call at a time; an engine needs no locks. Calls on an
unknown or released key are harmless: cancellation races with everything.

    start(key, job)        claims state for a job
    feed(key, payload)     appends input (codec: acoustic frames; vocoder: spectra)
    step(batch)            advances each named job by at most `max_units`; one result per request
    release(key)           frees the job's state; idempotent

The runtime chooses every batch and every chunk size; an engine never reorders or holds back.
Payloads between stages are opaque to the runtime: it only counts their units and whether they are the
last. Units are tokens for the thinker, frames of `unit_samples / unit_rate` seconds for the speech stages.

A failure of one job is reported in its `StepResult.error`; an exception from `step` fails the whole
batch, and the runtime restarts the engine (`close`, `load`).

The book-keeping that engines share is `engines.jobs`.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from session_server.types.audio import Value, WordSpan
from session_server.types.prompt import PromptMessage
from session_server.types.tools import Tool
from session_server.types.vision import (
    PICTURE_MARK as PICTURE_MARK,
    CameraView as CameraView,
    EmbeddedPicture as EmbeddedPicture,
    PictureJob as PictureJob,
    SeenObject as SeenObject,
    UnseenPicture as UnseenPicture,
    VisualEvidence as VisualEvidence,
)


class Stage(enum.Enum):
    """The stages of a model graph."""

    ASR = "asr"
    TURN = "turn"
    VISION = "vision"
    THINKER = "thinker"
    TALKER = "talker"
    CODEC = "codec"
    VOCODER = "vocoder"

    __hash__ = object.__hash__  # members are single: the name need not be hashed at each look-up


HOST = "host"
"""This machine's processors."""
ELSEWHERE = "elsewhere"
"""Another machine, or a server that is not this one's."""


def device_place(device: str) -> str:
    """What `Capabilities.runs_on` says for an engine whose option `device` is that, in torch's words."""
    return HOST if device.partition(":")[0] == "cpu" else device


class JobKey(NamedTuple):
    """Names a job. `part` counts a response's jobs of one stage (clauses) from 0; `work` is the response's
    id, or that of a recognition; ids are never reused, so a late result cannot land elsewhere."""

    session: str
    work: str
    part: int = 0


@dataclass(frozen=True, slots=True)
class ChunkShape:
    """How a vocoder makes chunks: of a multiple of `units`, once `ahead` more units are there behind them, both but for the end of
    the input; in `steps` steps, the first of which says how many units it takes by `max_units`, and the last gives them."""

    units: int = 1
    ahead: int = 0
    steps: int = 1


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an engine can do.

    `slots`: jobs that may be started and not released (None: unbounded but for memory).
    `unit_samples`, `unit_rate`: length of one unit of output audio in samples at a rate; 0 where units
    are not audio. `context_tokens`: longest prompt and answer together, thinker only.
    `samples_behind`: audio that the stage holds back until its last input (overlap-add).
    `streams_text`: a talker that takes text as it is written and gives AcousticFrames, a unit or a few each step; its
    graph has no codec, and frames go straight to the vocoder.
    `hears`: a thinker that takes the user's audio itself (`PromptMessage.audio`); its graph may do without ASR.
    `sees`: a vision stage that gives `EmbeddedPicture`, and a thinker that takes it (`PromptMessage.images`).
    """

    stage: Stage
    max_batch: int
    slots: int | None = None
    unit_samples: int = 0
    unit_rate: int = 0
    context_tokens: int = 0
    samples_behind: int = 0
    can_export: bool = False
    chunk: ChunkShape = ChunkShape()
    """A vocoder's."""
    streams_text: bool = False
    groups_frames: bool = False
    """A talker with `streams_text` whose frames come in groups; how many at once it is told by `GroupSize`."""
    hears: bool = False
    sees: bool = False
    token_bytes: int = 0
    """Size of one context token's state, where `can_export`."""
    runs_on: str = HOST
    """Where its work is done: HOST, ELSEWHERE, or the name of a device (`cuda:1`). Only what is done on the host takes of its
    processors."""
    own_thread: bool = False
    """All of a step's work is done on the thread that calls it: what the step costs a processor is that thread's time,
    however long it waited for one."""
    holds: bool = False
    """A streaming engine: an answer at its grant keeps its state and costs no steps (`engines.streaming`)."""
    reprioritises: bool = False
    """A streaming engine: the urgency of an answer under way can be changed."""
    warms: bool = False
    """A streaming engine: the beginning of a prompt can be read before the prompt is there."""


class StepRequest(Value, frozen=True):
    """Advance `key` by at most `max_units` (prefill tokens, or frames; a decode step is one token)."""

    key: JobKey
    max_units: int


class StepResult(Value, frozen=True):
    """`output` is stage-specific (below) or None; `units` were done; `finished`: the job has no more to give."""

    key: JobKey
    output: object | None = None
    units: int = 0
    finished: bool = False
    error: str | None = None


class NoCapacity(Exception):
    """`start` found no free slot. The runtime retries when one is released."""


@runtime_checkable
class SteppedEngine(Protocol):
    """Runs one stage; see the module docstring for the rules of the calls."""

    @property
    def capabilities(self) -> Capabilities: ...

    def load(self) -> None:
        """Read models and warm up. Raises ModelsMissing or EngineFault with one clear line."""
        ...

    def start(self, key: JobKey, job: object) -> None:
        """Raises NoCapacity, or ValueError for a job that can never run."""
        ...

    def feed(self, key: JobKey, payload: object, last: bool) -> None: ...

    def step(self, batch: Sequence[StepRequest]) -> list[StepResult]: ...

    def release(self, key: JobKey) -> None: ...

    def close(self) -> None: ...


@runtime_checkable
class MovableState(Protocol):
    """An engine whose sessions' state can be moved while no job uses it (`can_export`).

    The state of a session is what its slot knows after its last job. Calls come from the stage's thread, between steps.
    """

    def state_bytes(self, session: str) -> int:
        """Size of the session's state, as an export would give it, roughly; 0 when there is none."""
        ...

    def export_state(self, session: str) -> bytes | None:
        """A copy of the state; None when there is none."""
        ...

    def import_state(self, session: str, state: bytes) -> None:
        """Bring an exported state back, bit for bit. Raises NoCapacity, or ValueError for a damaged state."""
        ...

    def forget(self, session: str) -> None:
        """Free the session's idle state."""
        ...


# -- ASR and turn model: one step, whole result


@dataclass(frozen=True, slots=True)
class UtteranceJob:
    """Audio to recognise or to judge: s16le bytes at INPUT_RATE. `partial`: the utterance goes on."""

    pcm: bytes
    partial: bool = False


@dataclass(frozen=True, slots=True)
class Transcript:
    """Output of ASR."""

    text: str


@dataclass(frozen=True, slots=True)
class TurnJudgement:
    """Output of the turn model: probability that the speaker has finished."""

    probability: float


# -- thinker


@dataclass(frozen=True, slots=True)
class ThinkJob:
    """A prompt to answer.

    `tool_choice`: none, auto, required, or `function` with `tool_name`. Forced calls are decoded under a
    grammar, so the text is one `<tool_call>{"name": ..., "arguments": {...}}</tool_call>` that is valid
    for its schema. `max_tokens` None: the engine's default for spoken answers, lifted when a long answer was
    asked for. Prompts that outgrow the slot are trimmed at message borders: instructions and the most
    recent messages stay. `voice`: the talker's, for a thinker whose engine speaks as well.
    """

    instructions: str
    messages: tuple[PromptMessage, ...]
    tools: tuple[Tool, ...] = ()
    tool_choice: str = "auto"
    tool_name: str | None = None
    max_tokens: int | None = None
    spoken: bool = True
    voice: str = ""
    warm: bool = False
    """Only read instructions and messages, as far as the next user message; the job ends without text."""


class TokenOutput(Value, frozen=True):
    """Output of one thinker step. `text` is None while the prompt is still being read; it holds only whole
    characters. On the last step `reason` is stop or max_output_tokens and the counts are set.

    `payloads`: opaque, for a talker that reads more than text; they go to the talker with the text that they belong to, those
    of a function call to nobody."""

    text: str | None
    reason: str | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    payloads: tuple[object, ...] = ()


# -- talker, codec, vocoder


@dataclass(frozen=True, slots=True)
class ClauseJob:
    """Text for the talker. `last`: the answer ends with this clause."""

    text: str
    voice: str
    speed: float = 1.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Speech:
    """Output of the talker: a clause's acoustic frames.

    `frames` is opaque and goes to the codec by `feed`; `units` frames become exactly `samples` samples.
    `words` index the clause's own text and audio. A clause with nothing to say has `units == 0`.
    """

    frames: object
    units: int
    samples: int
    words: tuple[WordSpan, ...] = ()
    estimated: bool = False


@dataclass(frozen=True, slots=True)
class TalkJob:
    """A whole answer for a talker with `streams_text`: pieces of text come by `feed`."""

    voice: str
    speed: float = 1.0
    seed: int = 0


class TalkPiece(Value, frozen=True):
    """A piece of text for a talker with `streams_text`, with the thinker's payloads of its tokens, where there are any;
    without them the text alone is fed."""

    text: str
    payloads: tuple[object, ...]


class GroupSize(Value, frozen=True):
    """Fed to a talker with `groups_frames`: frames that are wanted at once from here on."""

    units: int


class AcousticFrames(Value, frozen=True):
    """Output of a talker with `streams_text`. `pieces`: fed pieces of text that this step has used up; one that has
    used up all waits for more, or for the end of the text."""

    payload: object
    units: int
    pieces: int = 0


@dataclass(frozen=True, slots=True)
class SpeechJob:
    """A job of codec or vocoder: input comes by `feed`."""

    voice: str
    seed: int = 0


class Spectra(Value, frozen=True):
    """Output of the codec: opaque, `units` frames, for the vocoder's `feed`."""

    payload: object
    units: int


class Pcm(Value, frozen=True):
    """Output of the vocoder: s16le mono at the vocoder's `unit_rate`."""

    pcm: bytes
