"""Parameters of WebRTC calls. Seconds and bytes, unless a name says otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

CHANNEL = "oai-events"
"""The data channel that carries the events."""

FRAME_S = 0.02
"""Length of an outgoing audio frame."""

RTP_CLOCK = 48_000
"""The RTP clock of Opus, whatever is encoded."""

RTP_STEP = 960
"""What the RTP clock moves on by in one frame."""


VIDEO_CLOCK = 90_000
"""The RTP clock of every video codec."""

VideoMode = Literal["all", "key_frames", "off"]
"""Which frames of a client's video are decoded; off: its section is answered inactive."""


@dataclass(frozen=True, slots=True)
class WebRtcLimits:
    """Bounds of one call.

    `ice_servers`: `stun:` and `turn:` URLs; the user name and the credential are for the TURN ones. `connect_s`: from
    the answer to the open connection. `silence_s`: nothing at all from the client for so long means that it has
    vanished. `path_delay_ms`: from the wire to the ear, over half the round trip, while the client reports nothing.
    """

    ice_servers: tuple[str, ...] = ()
    turn_username: str | None = None
    turn_credential: str | None = None
    connect_s: float = 15.0
    silence_s: float = 3.0
    close_wait_s: float = 5.0
    outbox_bytes: int = 4 * 1024 * 1024
    max_message_bytes: int = 262_144
    path_delay_ms: int = 80
    video: VideoMode = "all"
