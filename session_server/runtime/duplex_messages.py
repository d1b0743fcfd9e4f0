"""What a duplex session and its host say to each other beside admission and fences.

Plain messages, as in `messages`; audio is s16le at the model's rate on the way in, at OUTPUT_RATE on the way out. Those of the host are
part of `messages.ToSession`.
"""

from __future__ import annotations

from session_server.runtime.messages import (
    CancelWork,
    CloseSession,
    Fence,
    Message,
    OpenSession,
    Recognise,
)


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
    OpenSession | CloseSession | Fence | Recognise | CancelWork | TakeSeat | Tell | HearUser | ClearHeard
)  # fmt: skip
