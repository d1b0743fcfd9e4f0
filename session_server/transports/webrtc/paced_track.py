"""The outgoing track of the stock path: a frame each 20 ms on absolute deadlines, for as long as the connection lasts.

Frame k is due at start + k * 20 ms; work or a machine that made one late lets the next ones catch up at once. After a stall
of more than STALL_S frames are left out instead (the RTP clock moves on with them). RTP never stops: where there is no audio
there is silence, since a browser stretches the last sound of a stream that stops.

The track gives ready packets, so aiortc packs them as they are. The RTP clock of the wire begins at aiortc's random start.
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
from session_server.transports.webrtc.rtp_clock import WRAP, RtpClock
from session_server.transports.webrtc.ticker import STALL_S

SENDER_CLOCK = "_RTCRtpSender__rtp_timestamp"
"""aiortc's RTP timestamp of the last packet; where it is missing, the clock's origin stays unknown."""

_TIME_BASE = fractions.Fraction(1, RTP_CLOCK)


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
        self._last_pts: int | None = None
        self.clock = RtpClock()
        self.sender: RTCRtpSender | None = None

    def release(self) -> None:
        """The connection is closed: free the encoder now, not when the garbage is collected."""
        if self._encoder is not None:
            self._encoder.close()
        self._encoder = None

    async def recv(self) -> av.Packet[Stream]:
        """The next packet, when it is due."""
        loop = asyncio.get_running_loop()
        if self.clock.start is None:
            self.clock.start = loop.time() - self._playout.next_index * FRAME_S
        self._learn_origin()
        await self._wait_until_due(loop, self.clock.start)
        if self._encoder is None:
            raise MediaStreamError
        frame = self._playout.take()
        packet: av.Packet[Stream] = av.Packet(self._encoder.encode(frame.pcm))
        packet.pts = self._last_pts = frame.index * RTP_STEP
        packet.time_base = _TIME_BASE
        self._left(frame, loop.time() - (self.clock.start + frame.index * FRAME_S))
        return packet

    async def _wait_until_due(self, loop: asyncio.AbstractEventLoop, start: float) -> None:
        wait = start + self._playout.next_index * FRAME_S - loop.time()
        if wait < -STALL_S:
            self._playout.skip_to(math.ceil((loop.time() - start) / FRAME_S))
            wait = start + self._playout.next_index * FRAME_S - loop.time()
        if wait > 0:
            await asyncio.sleep(wait)

    def _learn_origin(self) -> None:
        if self.clock.origin is None and self._last_pts is not None:
            last = getattr(self.sender, SENDER_CLOCK, None)
            if last is not None:
                self.clock.origin = (last - self._last_pts) % WRAP
