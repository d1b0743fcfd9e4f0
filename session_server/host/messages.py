"""The seam between sessions and the engine host: plain messages, nothing shared.

Sessions and I/O live on one side; scheduler, admission and engines on the other. In one process the
messages go through queues; the same values can cross a Unix socket (they are msgspec structs, tagged by
class name). Audio is s16le bytes. Everything that can outlive a turn names its session and response;
chunks also carry lane and epoch, and die at the receiver when the epoch is old.

What a duplex session and its host say to each other beside admission and fences.

Plain messages, as in `messages`; audio is s16le at the model's rate on the way in, at OUTPUT_RATE on the way out. Those of the host are
part of `messages.ToSession`.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from session_server.core.actions import (
    AdoptDraft,
    CancelGeneration,
    CancelWork,
    RaiseFence,
    ReportFrontier,
    StartGeneration,
    WarmPrefix,
)
from session_server.types.audio import WordSpan
from session_server.types.vision import VisualEvidence


class Message(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Base of all messages; every one belongs to a session."""

    session: str


# -- session -> host


class OpenSession(Message, frozen=True, tag=True):
    """Ask for admission. Answered by SessionOpened or SessionRefused."""


class CloseSession(Message, frozen=True, tag=True):
    """The session is over: cancel and free everything of it. Idempotent."""


class Recognise(Message, frozen=True, tag=True):
    """`pcm`: s16le at INPUT_RATE. `due_ns`: when the answer is needed."""

    work_id: str
    pcm: bytes
    partial: bool
    due_ns: int


class JudgeTurn(Message, frozen=True, tag=True):
    work_id: str
    pcm: bytes
    due_ns: int


class LookAt(Message, frozen=True, tag=True):
    """`picture`: JPEG, PNG, WebP or GIF. `due_ns`: when the answer is needed. `read`: text in it is wanted, too. `camera`: a newer
    frame will come; refused (`overloaded`) rather than kept waiting."""

    work_id: str
    picture: bytes
    due_ns: int
    read: bool = True
    camera: bool = False


class UserSpeaks(Message, frozen=True, tag=True):
    """The user began what is taken for a turn: the engine's state of this session will soon be wanted."""


HostRequest = (
    StartGeneration | WarmPrefix | AdoptDraft | CancelGeneration | RaiseFence | CancelWork | ReportFrontier
)  # fmt: skip


class FromSession(Message, frozen=True, tag=True):
    """What the session's core wants done, as it says it; but in its prompts what the user said is s16le at INPUT_RATE, no range."""

    command: HostRequest


# -- host -> session


class SessionOpened(Message, frozen=True, tag=True):
    pass


class SessionRefused(Message, frozen=True, tag=True):
    """`full`: the limit of sessions is reached; else the engines are too busy."""

    reason: str
    retry_after_s: int = 5
    full: bool = False


class RecognitionDone(Message, frozen=True, tag=True):
    work_id: str
    text: str


class TurnJudged(Message, frozen=True, tag=True):
    work_id: str
    probability: float


class PictureSeen(Message, frozen=True, tag=True):
    """What is in a picture: as a prompt says it, and what was found. `kinds`: see `core.events.PictureSeen`."""

    work_id: str
    text: str
    evidence: VisualEvidence
    kinds: tuple[str, ...] | None = ()
    written: bool = False


class WorkFailed(Message, frozen=True, tag=True):
    work_id: str
    code: str
    message: str


class TextChunk(Message, frozen=True, tag=True):
    response: str
    text: str


class Clause(Message, frozen=True, tag=True):
    """Text and audio ranges are absolute within the response. Comes before the clause's first Chunk."""

    response: str
    char_start: int
    char_end: int
    start_sample: int
    end_sample: int
    words: tuple[WordSpan, ...]
    estimated: bool = False


class Chunk(Message, frozen=True, tag=True):
    """Output audio, s16le at `rate`, consecutive: `start_sample` is where the previous chunk ended."""

    response: str
    lane: str
    epoch: int | None
    index: int
    start_sample: int
    rate: int
    pcm: bytes


class CallStarted(Message, frozen=True, tag=True):
    response: str
    index: int
    name: str


class CallArguments(Message, frozen=True, tag=True):
    response: str
    index: int
    arguments: str


class CallFinished(Message, frozen=True, tag=True):
    response: str
    index: int


class Finished(Message, frozen=True, tag=True):
    """Nothing more comes. `reason`: stop, max_output_tokens, content_filter."""

    response: str
    reason: str
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    audio_tokens: int = 0


class Failed(Message, frozen=True, tag=True):
    """The response will not be finished. `code`: server_error or inference_rate_limit_exceeded."""

    response: str
    code: str
    message: str


class DuplexFrame(Message, frozen=True, tag=True):
    """What a duplex model said in one tick, s16le at OUTPUT_RATE. `epoch`: of the default lane, when the tick began;
    `actions`: about the floor, by name (`engines.duplex_engine.TurnAction`)."""

    epoch: int
    pcm: bytes
    text: str = ""
    actions: tuple[str, ...] = ()
    tokens: int = 0


class DuplexLost(Message, frozen=True, tag=True):
    """The duplex model failed; the conversation with it is gone."""

    reason: str


ToHost = (
    OpenSession | CloseSession | Recognise | JudgeTurn | LookAt | UserSpeaks | FromSession
)  # fmt: skip
ToSession = (
    SessionOpened | SessionRefused | RecognitionDone | TurnJudged | PictureSeen | WorkFailed | TextChunk | Clause
    | Chunk | CallStarted | CallArguments | CallFinished | Finished | Failed | DuplexFrame | DuplexLost
)  # fmt: skip
Receive = Callable[[ToSession], None]
"""Takes what the host says to one session: on the event loop's thread, at once."""


def unheard(_message: ToSession) -> None:
    """The `Receive` of sessions that nobody attached."""


class TakeSeat(Message, frozen=True, tag=True):
    """The session is there: its conversation begins. Before this the host only keeps a slot free for it."""

    instructions: str
    voice: str


class Tell(Message, frozen=True, tag=True):
    """What the model is told from now on, in place of what it was told."""

    instructions: str
    voice: str


class HearUser(Message, frozen=True, tag=True):
    """More of what the user says."""

    pcm: bytes


class ClearHeard(Message, frozen=True, tag=True):
    """Forget what waits to be heard."""


DuplexToHost = (
    OpenSession | CloseSession | Recognise | FromSession | TakeSeat | Tell | HearUser | ClearHeard
)  # fmt: skip
