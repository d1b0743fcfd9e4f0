"""The clock of an outgoing stream: frame k is due at start + k * 20 ms, and carries the RTP timestamp origin + k * 960.

Pure; seconds, and ticks of the RTP clock, which wraps at 2**32.
"""

from __future__ import annotations

from session_server.transports.webrtc.limits import FRAME_S, RTP_STEP

WRAP = 1 << 32


class RtpClock:
    """`start` and `origin` are None until they are known: before the first frame, and before the first packet is out."""

    def __init__(self) -> None:
        self.start: float | None = None
        self.origin: int | None = None

    def due(self, index: int) -> float | None:
        """When frame `index` leaves, or left."""
        return None if self.start is None else self.start + index * FRAME_S

    def timestamp(self, index: int) -> int | None:
        """The RTP timestamp of a frame."""
        return None if self.origin is None else (self.origin + index * RTP_STEP) % WRAP

    def frame_at(self, rtp_timestamp: int, near: int) -> tuple[int, int] | None:
        """The frame that a timestamp lies in, the one nearest to `near`, and how far in, in ticks."""
        at = self.timestamp(near)
        if at is None:
            return None
        away = (rtp_timestamp - at + WRAP // 2) % WRAP - WRAP // 2
        frames, into = divmod(away, RTP_STEP)
        return near + frames, into
