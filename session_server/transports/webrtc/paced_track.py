"""The outgoing track: a frame each 20 ms on absolute deadlines, for as long as the connection lasts.

Frame k is due at start + k * 20 ms; work or a machine that made one late lets the next ones catch up at once. After a stall
of more than STALL_S frames are left out instead (the RTP clock moves on with them). RTP never stops: where there is no audio
there is silence, since a browser stretches the last sound of a stream that stops.

The track gives ready packets, so aiortc packs them as they are. The RTP clock of the wire is `origin` + 960 for each
frame, where `origin` is aiortc's random start.
"""

from __future__ import annotations

import asyncio
import fractions
import math
from collections.abc import Callable

import av
from aiortc import MediaStreamTrack, RTCRtpSender
from aiortc.mediastreams import MediaStreamError
from av.stream import Stream

from session_server.transports.webrtc.limits import FRAME_S, RTP_CLOCK, RTP_STEP
from session_server.transports.webrtc.opus import FrameEncoder
from session_server.transports.webrtc.playout import Frame, Playout

STALL_S = 0.1
SENDER_CLOCK = "_RTCRtpSender__rtp_timestamp"
"""aiortc's RTP timestamp of the last packet; where it is missing, `origin` stays unknown."""

_TIME_BASE = fractions.Fraction(1, RTP_CLOCK)
_WRAP = 1 << 32


class PacedTrack(MediaStreamTrack):
    """`left` is told of each frame as it goes out, with its lateness in seconds."""

    kind = "audio"

    def __init__(
        self, playout: Playout, encoder: FrameEncoder, left: Callable[[Frame, float], None]
    ) -> None:
        super().__init__()
        self._playout = playout
        self._encoder: FrameEncoder | None = encoder
        self._left = left
        self._start: float | None = None
        self._last_pts: int | None = None
        self.sender: RTCRtpSender | None = None
        self.origin: int | None = None
        """RTP timestamp of frame 0; None until the first packet is out."""

    def due(self, index: int) -> float | None:
        """When frame `index` leaves, or left, by the loop's clock; None before the first one."""
        return None if self._start is None else self._start + index * FRAME_S

    def timestamp(self, index: int) -> int | None:
        """The RTP timestamp of a frame."""
        return None if self.origin is None else (self.origin + index * RTP_STEP) % _WRAP

    def frame_at(self, rtp_timestamp: int) -> tuple[int, int] | None:
        """The frame that a timestamp lies in, near the newest one, and how far in, in ticks of the RTP clock."""
        newest = self._playout.next_index
        at_newest = self.timestamp(newest)
        if at_newest is None:
            return None
        away = (rtp_timestamp - at_newest + _WRAP // 2) % _WRAP - _WRAP // 2
        frames, into = divmod(away, RTP_STEP)
        return newest + frames, into

    def release(self) -> None:
        """The connection is closed: free the encoder now, not when the garbage is collected."""
        self._encoder = None

    async def recv(self) -> av.Packet[Stream]:
        """The next packet, when it is due."""
        loop = asyncio.get_running_loop()
        if self._start is None:
            self._start = loop.time() - self._playout.next_index * FRAME_S
        self._learn_origin()
        await self._wait_until_due(loop, self._start)
        if self._encoder is None:
            raise MediaStreamError
        frame = self._playout.take()
        packet: av.Packet[Stream] = av.Packet(self._encoder.encode(frame.pcm))
        packet.pts = self._last_pts = frame.index * RTP_STEP
        packet.time_base = _TIME_BASE
        self._left(frame, loop.time() - (self._start + frame.index * FRAME_S))
        return packet

    async def _wait_until_due(self, loop: asyncio.AbstractEventLoop, start: float) -> None:
        wait = start + self._playout.next_index * FRAME_S - loop.time()
        if wait < -STALL_S:
            self._playout.skip_to(math.ceil((loop.time() - start) / FRAME_S))
            wait = start + self._playout.next_index * FRAME_S - loop.time()
        if wait > 0:
            await asyncio.sleep(wait)

    def _learn_origin(self) -> None:
        if self.origin is None and self._last_pts is not None:
            last = getattr(self.sender, SENDER_CLOCK, None)
            if last is not None:
                self.origin = (last - self._last_pts) % _WRAP
