"""One response: what was asked for, how far it is, and what the wire shows of it.

Life cycle: DRAFT (speculative, no epoch, nothing announced) or WAITING (announced; a transcript of its context is
still missing) -> RUNNING (generation was started) -> SENDING (generation has finished, audio is still being handed
over) -> ENDED. A response ends once, with exactly one terminal announcement, which `responses` makes.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from session_server.core.actions import ResponseView, Usage
from session_server.core.conversation import Item
from session_server.core.events import EngineEvent
from session_server.core.heard_text import SpokenText
from session_server.core.output_items import OutputItems
from session_server.core.playback_ledger import PlaybackLedger
from session_server.core.settings import Modality, ResponseOverrides, SessionSettings
from session_server.types.tools import Tool, ToolChoice


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
    usage: Usage = field(default_factory=Usage)
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
