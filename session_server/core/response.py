"""One response: what was asked for, how far it is, and what the wire shows of it.

Life cycle: DRAFT (speculative, no epoch, nothing announced) or WAITING (announced; a transcript of its context is
still missing) -> RUNNING (generation was started) -> SENDING (generation has finished, audio is still being handed
over) -> ENDED. A response ends once, with exactly one terminal announcement, which `responses` makes.

Pending responses are announced and not generated yet. Owns, for each announced automatic response, the ids of its turns: those that asked for it (a queued
one answers several), and those whose answer was cut off by speech before any of it was heard. It
also decides whether there is anything to answer: a turn of which nothing is known counts as having
words. A response waits for words and pictures of its context, and for the camera.

Invariants: a response that the client asked for has no turns here, so it is never without reason.
Each wait ends, since every open work has a deadline; a picture that arrives while a response waits
is waited for, too, but for no longer than one may take in all; the camera holds up an answer for
`camera_wait_ms` at most.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field

from session_server.core.actions import ResponseView
from session_server.core.camera import Camera
from session_server.core.context import Context, Timer
from session_server.core.conversation import InputAudioContent, Item, Message
from session_server.core.events import EngineEvent
from session_server.core.heard_text import SpokenText
from session_server.core.host_requests import WorkKind, Works
from session_server.core.output_items import OutputItems
from session_server.core.playback_ledger import PlaybackLedger
from session_server.core.settings import Modality, ResponseOverrides, SessionSettings
from session_server.types.tools import Tool, ToolChoice
from session_server.types.usage import TokenUsage


class ResponsePhase(enum.Enum):
    DRAFT = "draft"
    WAITING = "waiting"
    RUNNING = "running"
    SENDING = "sending"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class ResponsePlan:
    """The session's settings with the overrides of one response: what is to be generated."""

    out_of_band: bool
    instructions: str
    tools: tuple[Tool, ...]
    tool_choice: ToolChoice
    modality: Modality
    voice: str
    speed: float
    max_output_tokens: int | None
    metadata: tuple[tuple[str, str], ...] | None
    interruptible: bool
    input_items: tuple[Item, ...] | None


def plan(
    settings: SessionSettings,
    overrides: ResponseOverrides,
    input_items: tuple[Item, ...] | None = None,
) -> ResponsePlan:
    """`overrides` win where they are not None."""
    choice, tokens = overrides.tool_choice, overrides.max_output_tokens
    return ResponsePlan(
        out_of_band=overrides.out_of_band,
        instructions=settings.instructions
        if overrides.instructions is None
        else overrides.instructions,
        tools=settings.tools if overrides.tools is None else overrides.tools,
        tool_choice=settings.tool_choice if choice is None else choice,
        modality=overrides.modality or settings.modality,
        voice=overrides.voice or settings.voice,
        speed=settings.speed,
        max_output_tokens=settings.max_output_tokens if tokens is None else tokens,
        metadata=overrides.metadata,
        interruptible=overrides.interruptible,
        input_items=input_items,
    )


@dataclass(slots=True)
class Response:
    """A response's state. `epoch` is None as long as it is a draft."""

    id: str
    lane: str
    epoch: int | None
    plan: ResponsePlan
    phase: ResponsePhase
    output: OutputItems
    ledger: PlaybackLedger
    spoken: SpokenText = field(default_factory=SpokenText)
    waiting_for: set[str] = field(default_factory=set)
    """Ids of items of which something is still missing."""
    pictures_until_ns: int = 0
    """Until then a picture that came meanwhile is waited for."""
    awaits_camera: bool = False
    heard_until: int | None = None
    """Where the speech that it answers ended, on the input time line; None: it answers something else."""
    change: str = ""
    """What the camera has shown that it is to speak of, unasked."""
    held: list[EngineEvent] = field(default_factory=list)
    """What a draft's generation brought; replayed when it is adopted."""
    turn_end_ns: int | None = None
    finish_reason: str = "stop"
    usage: TokenUsage = field(default_factory=TokenUsage)
    started_output: bool = False
    """Its playback has begun, as far as a client with the playback extension was told."""
    told_play: bool = False
    muted: bool = False
    news_ns: int = 0
    """When it last made progress."""
    reported_ns: int | None = None
    reported_played: int = 0
    """The last report of its frontier: when, and the samples that were played."""
    client_cut: int | None = None
    """Where the client truncated it, in samples."""
    settling: bool = False
    """Cut by the server; a final acknowledgement may still move the cut forward."""
    settled_at: int = 0
    """The server's own cut, in samples."""
    text_fixed: bool = False

    @property
    def ended(self) -> bool:
        return self.phase is ResponsePhase.ENDED

    @property
    def spoken_aloud(self) -> bool:
        return self.plan.modality is Modality.AUDIO

    def view(
        self,
        status: str,
        reason: str | None = None,
        error: tuple[str, str] | None = None,
    ) -> ResponseView:
        final = status != "in_progress"
        return ResponseView(
            id=self.id,
            status=status,
            out_of_band=self.plan.out_of_band,
            modality=self.plan.modality,
            voice=self.plan.voice,
            max_output_tokens=self.plan.max_output_tokens,
            metadata=self.plan.metadata,
            output=self.output.items() if final else (),
            reason=reason,
            error_code=error[0] if error else None,
            error_message=error[1] if error else None,
            usage=self.usage if final else None,
        )


class TurnsToAnswer:
    """The turns of the automatic responses that are not over, and those of the next one."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._next: set[str] | None = set()
        """None: the next one answers more than turns, whatever their words."""
        self._of: dict[str, set[str]] = {}

    def ask(self, item_id: str | None) -> None:
        """A turn wants an automatic response; None: the user's silence does."""
        if item_id is None:
            self._next = None
        elif self._next is not None:
            self._next.add(item_id)

    def take(self, response_id: str) -> None:
        """An automatic response begins: it answers all that has asked."""
        turns, self._next = self._next, set()
        if turns is not None:
            self._of[response_id] = turns

    def forget(self) -> None:
        """Another response has the conversation up to here for its context."""
        self._next = set()

    def leave(self, response_id: str) -> None:
        """Speech cut this response off unheard: the next one answers its turns as well."""
        turns = self._of.get(response_id)
        self._next = None if turns is None or self._next is None else self._next | turns

    def end(self, response_id: str) -> None:
        self._of.pop(response_id, None)

    def are_empty(self, response_id: str) -> bool:
        """Every turn of this response is known to be without words."""
        turns = self._of.get(response_id)
        return bool(turns) and all(map(self._is_empty, turns or ()))

    def _is_empty(self, item_id: str) -> bool:
        item = self._context.conversation.get(item_id)
        return isinstance(item, Message) and all(
            isinstance(part, InputAudioContent)
            and part.transcript is not None
            and not part.transcript.strip()
            for part in item.content
        )


class WaitingAnswers:
    """Of one session."""

    def __init__(self, context: Context, works: Works, camera: Camera) -> None:
        self._context = context
        self._works = works
        self._camera = camera

    def must_wait(self, response: Response) -> bool:
        """Whether something of its context is not known yet, when it begins."""
        context = self._context
        response.waiting_for = self._missing(response, *self._kinds())
        response.pictures_until_ns = context.in_ms(context.params.looking_ms)
        if response.plan.input_items is None and self._camera.must_wait(response.heard_until):
            response.awaits_camera = True
            due = context.in_ms(context.params.camera_wait_ms)
            context.timers.set(Timer.CAMERA, due, response.id)
        return not self._is_ready(response)

    def know(self, item_id: str, live: Iterable[Response]) -> list[Response]:
        """Those that waited for what has come of this item, or will not come any more."""
        if item_id in self._works.pending(*self._kinds()):
            return []
        those = [response for response in live if item_id in response.waiting_for]
        for response in those:
            response.waiting_for.discard(item_id)
        return those

    def is_ready(self, response: Response) -> bool:
        """Whether it may begin, now that something came."""
        if not response.waiting_for and self._context.now < response.pictures_until_ns:
            response.waiting_for = self._missing(response, WorkKind.PICTURE)
        return self._is_ready(response)

    def look_again(self, live: Iterable[Response]) -> list[Response]:
        """The camera's evidence has changed: those that waited for that and need not any more."""
        those = [r for r in live if r.awaits_camera and not self._camera.must_wait(r.heard_until)]
        for response in those:
            self.give_up_camera(response)
        return those

    def give_up_camera(self, response: Response) -> None:
        """It has waited long enough, or has what it waited for."""
        response.awaits_camera = False
        self._context.timers.clear(Timer.CAMERA, response.id)

    def _missing(self, response: Response, *kinds: WorkKind) -> set[str]:
        """Speech that goes on is no item yet, and missing from no prompt."""
        wanted = response.plan.input_items
        ids = None if wanted is None else {item.id for item in wanted}
        conversation = self._context.conversation
        return {
            item_id
            for item_id in self._works.pending(*kinds)
            if (item_id in conversation if ids is None else item_id in ids)
        }

    def _kinds(self) -> tuple[WorkKind, ...]:
        if self._context.settings.hearing.natively:
            return (WorkKind.PICTURE,)
        return (WorkKind.PICTURE, WorkKind.TRANSCRIPT)

    @staticmethod
    def _is_ready(response: Response) -> bool:
        return not response.waiting_for and not response.awaits_camera
