"""The outgoing audio of a call: direct RTP on the cheap path, else a paced track.

Cheap path: the process's ticker makes RTP packets and sends them past aiortc's sender. Owns the RTP
header, sequence numbers and clock of one call. aiortc's sender stays in place for what it does well
(its reports to the client, the answer's SDP) with a track that never yields; its counters are kept,
since its reports are made of them. Frames leave once the connection is up; while there is no way to
the client, time goes on and frames are left out. Private names are in `aiortc_internals`.

Stock path: a frame each 20 ms, for as long as the connection lasts. Frame k is due at
start + k * 20 ms, an absolute deadline; work or a machine that made one late lets the next ones
catch up at once. After a stall of more than STALL_S frames are left out instead (the RTP clock
moves on with them). RTP never stops: where there is no audio there is silence, since a browser
stretches the last sound of a stream that stops. The track gives ready packets, so aiortc packs them
as they are. The RTP clock of the wire begins at aiortc's random start.

Units: seconds of the event loop's clock.
"""

from __future__ import annotations

import asyncio
import fractions
import math
import secrets
import struct
from collections.abc import Callable
from typing import Any, cast

import av
from aiortc import MediaStreamTrack, RTCRtpSender, clock as aiortc_clock
from aiortc.mediastreams import MediaStreamError
from aiortc.rtcrtpparameters import RTCRtpSendParameters
from av.stream import Stream

from session_server.transports.webrtc.limits import FRAME_S, RTP_CLOCK, RTP_STEP
from session_server.transports.webrtc.opus import FrameEncoder
from session_server.transports.webrtc.playout import Playout, PlayoutFrame
from session_server.transports.webrtc.rtp_clock import WRAP, RtpClock
from session_server.transports.webrtc.ticker import STALL_S, Ticker

_HEADER = struct.Struct("!BBHLL")
_VERSION = 0x80
_NTP_SECOND = 1 << 32
LEAST_LOSS_PERCENT = 2
"""Below this, bits that repair lost packets are better spent on the sound."""


class QuietTrack(MediaStreamTrack):
    """For a sender that must not send: it waits until the connection is closed."""

    kind = "audio"

    async def recv(self) -> Any:  # noqa: ANN401 - it gives nothing
        await asyncio.get_running_loop().create_future()
        raise MediaStreamError


class DirectAudio:
    """A `Ticked`. `left` is told of each frame as it goes out, with its lateness; `failed` of what broke."""

    def __init__(
        self,
        sender: RTCRtpSender,
        ticker: Ticker,
        playout: Playout,
        encoder: FrameEncoder,
        left: Callable[[PlayoutFrame, float], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._sender = cast("Any", sender)
        self._ticker = ticker
        self._playout = playout
        self._encoder = encoder
        self._left = left
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._payload_type: int | None = None
        self._released = False
        self._loss_percent = 0
        self._ntp: tuple[int, float] | None = None
        self._gone: tuple[PlayoutFrame, float] | None = None
        """What has left and nobody was told of, and how late it was."""
        self._sequence = secrets.randbelow(1 << 15)
        """Begins in the lower half: SRTP would not survive a wrap within the first packets."""
        self.clock = RtpClock()
        self.clock.origin = secrets.randbelow(WRAP)
        self._send = sender.send
        self._sender.send = self._begin

    def release(self) -> None:
        """No more frames. Idempotent."""
        self._released = True
        self._ticker.remove(self)
        self._encoder.close()

    async def _begin(self, parameters: RTCRtpSendParameters) -> None:
        """aiortc starts its sender: the connection is up."""
        await self._send(parameters)
        self._payload_type = parameters.codecs[0].payloadType
        if not self._released:
            self._ticker.add(self)

    def tick(self, due: float) -> None:
        index = self._index(due)
        transport = self._sender.transport
        pair = transport.transport._connection._nominated.get(1)
        session = transport._tx_srtp
        if pair is None or session is None:
            return
        line = pair.protocol.transport
        if (
            line.is_closing()
        ):  # asyncio's would raise; that nothing comes any more is noticed by others
            return
        if index > self._playout.next_index:
            self._playout.skip_to(index)
        frame = self._playout.take()
        payload = self._encoder.encode(frame.pcm)
        timestamp = self.clock.timestamp(frame.index)
        assert timestamp is not None
        header = _HEADER.pack(
            _VERSION, self._payload_type, self._sequence, timestamp, self._sender._ssrc
        )
        data = session.protect(header + payload)
        now = self._loop.time()
        line.sendto(data, pair.remote_addr)
        self._sequence = (self._sequence + 1) & 0xFFFF
        self._count(timestamp, len(payload), now)
        self._gone = frame, now - due

    def tell(self) -> None:
        gone, self._gone = self._gone, None
        if gone is not None:
            self._left(*gone)

    def expect_loss(self, share: float) -> None:
        """So much of what was sent of late did not come."""
        percent = round(100 * share)
        percent = percent if percent >= LEAST_LOSS_PERCENT else 0
        if percent != self._loss_percent and not self._released:
            self._loss_percent = percent
            self._encoder.expect_loss(percent)

    def broke(self, fault: Exception) -> None:
        self._failed(fault)

    def _index(self, due: float) -> int:
        if self.clock.start is None:
            self.clock.start = due - self._playout.next_index * FRAME_S
        return round((due - self.clock.start) / FRAME_S)

    def _count(self, timestamp: int, size: int, now: float) -> None:
        """What aiortc's sender reports are made of. The time of day is read once, and goes on by the loop's clock."""
        sender = self._sender
        if self._ntp is None:
            self._ntp = aiortc_clock.current_ntp_time(), now
        ntp, at = self._ntp
        sender._RTCRtpSender__ntp_timestamp = ntp + int((now - at) * _NTP_SECOND)
        sender._RTCRtpSender__rtp_timestamp = timestamp
        sender._RTCRtpSender__packet_count += 1
        sender._RTCRtpSender__octet_count += size


SENDER_CLOCK = "_RTCRtpSender__rtp_timestamp"
"""aiortc's RTP timestamp of the last packet; where it is missing, the clock's origin stays unknown."""

_TIME_BASE = fractions.Fraction(1, RTP_CLOCK)


class PacedTrack(MediaStreamTrack):
    """`left` is told of each frame as it goes out, with its lateness in seconds."""

    kind = "audio"

    def __init__(
        self, playout: Playout, encoder: FrameEncoder, left: Callable[[PlayoutFrame, float], None]
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
