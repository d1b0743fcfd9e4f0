"""What a duplex model brings to its session: one event for each tick, and its loss.

`epoch` is the default lane's, as the host knew it when the tick began: what was made before a fence is stale. Actions are
those of `engines.duplex.base.TurnAction`, by name.
"""

from __future__ import annotations

from session_server.types.audio import Value

TAKE = "take"
YIELD = "yield"
GIVE_WAY = "give_way"
HEAR = "hear"


class AssistantSpoke(Value, frozen=True):
    """One frame of what the model says, s16le at OUTPUT_RATE. `tokens`: of text."""

    epoch: int
    pcm: bytes
    text: str = ""
    actions: tuple[str, ...] = ()
    tokens: int = 0


class AssistantLost(Value, frozen=True):
    """The model's conversation is gone: its engine failed. It begins anew when the engine is back."""

    message: str


DuplexEvent = AssistantSpoke | AssistantLost
