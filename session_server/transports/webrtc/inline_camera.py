"""The camera of the cheap path: frames are put together as their packets come, and decoded only while somebody looks.

Owns what a call holds for its video. aiortc's decoder thread, jitter buffer (which a lost packet stops for 512 more) and queues have
nothing to do. Invariants: while nobody looks, a packet is counted for the receiver reports and let go; whoever begins to look gets
a key frame first, and the client is asked for one, again each ASK_EVERY_S until it comes; a fault ends the video of this call
alone, and is said once, by `failed`. With `keys_only` deltas are let go, and a key frame is asked for each KEYS_EVERY_S.

Nothing is timed but by packets: where none come there is nothing to ask for. Private names: `contract`. Units: seconds of the event
loop's clock.
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol, cast

import av
from aiortc import RTCRtpReceiver
from aiortc.rtcrtpparameters import RTCRtpReceiveParameters
from aiortc.rtcrtpreceiver import StreamStatistics
from aiortc.rtp import RtpPacket

from session_server.transports.webrtc.limits import VIDEO_CLOCK
from session_server.transports.webrtc.reception import bound_jitter, room_for_one
from session_server.transports.webrtc.video_decoder import DecodeThreads, Dropped, VideoDecoder
from session_server.transports.webrtc.video_frames import (
    EncodedFrame,
    FrameAssembler,
    VideoPacket,
)

ASK_EVERY_S = 0.5
KEYS_EVERY_S = 1.0
_LEAST_S = 0.3
"""Between two requests, whatever they are for: browsers make no more key frames than that."""


class Onlooker(Protocol):
    """Whom the frames are for. None of these raises."""

    @property
    def looks(self) -> bool: ...

    def new_stream(self) -> None:
        """What follows has another clock."""
        ...

    def captured_ns(self, rtp_timestamp: int, arrived: float) -> int:
        """When a frame was taken, of which a packet has just come."""
        ...

    def show(self, picture: av.VideoFrame, captured_ns: int) -> None:
        """The newest picture."""
        ...

    def dropped(self, why: Dropped, frames: int) -> None: ...

    def failed(self, fault: BaseException) -> None: ...


class InlineCamera:
    """From the offer to the end of a call."""

    def __init__(
        self,
        receiver: RTCRtpReceiver,
        onlooker: Onlooker,
        threads: DecodeThreads,
        *,
        keys_only: bool,
    ) -> None:
        self._receiver = cast("Any", receiver)
        self._onlooker = onlooker
        self._keys_only = keys_only
        self._loop = asyncio.get_running_loop()
        self._frames = FrameAssembler(keys_only=keys_only)
        self._decoder = VideoDecoder(threads, self)
        self._looking = False
        self._asked_at = -KEYS_EVERY_S
        self._payload_types: frozenset[int] = frozenset()
        self._over = False
        self._receive = receiver.receive
        self._receiver.receive = self._begin
        self._receiver._handle_rtp_packet = self._handle

    def release(self) -> None:
        """Nothing is seen any more. Idempotent."""
        self._over = True
        self._rest()

    async def _begin(self, parameters: RTCRtpReceiveParameters) -> None:
        """aiortc starts its receiver: the connection is up. Its decoder thread has nothing to do, and ends."""
        self._payload_types = frozenset(
            codec.payloadType
            for codec in parameters.codecs
            if codec.mimeType.lower() == "video/vp8" and codec.payloadType is not None
        )
        await self._receive(parameters)
        self._receiver._RTCRtpReceiver__stop_decoder()

    async def _handle(self, packet: RtpPacket, arrival_time_ms: int) -> None:
        """In place of the receiver's own."""
        if self._over or packet.payload_type not in self._payload_types:
            return
        try:
            self._count(packet)
            if self._onlooker.looks:
                await self._look(packet)
            elif self._looking:
                self._rest()
        except Exception as fault:
            self.failed(fault)

    def _count(self, packet: RtpPacket) -> None:
        """aiortc's receiver reports are made of this."""
        streams = self._receiver._RTCRtpReceiver__remote_streams
        stream = streams.get(packet.ssrc)
        if stream is None:
            room_for_one(streams)
            stream = streams[packet.ssrc] = StreamStatistics(VIDEO_CLOCK)
        stream.add(packet)
        bound_jitter(stream)

    async def _look(self, packet: RtpPacket) -> None:
        now, frames = self._loop.time(), self._frames
        self._looking = True
        came = VideoPacket(
            packet.ssrc,
            packet.sequence_number,
            packet.timestamp,
            bool(packet.marker),
            packet.payload,
        )
        before, whole = frames.source, frames.put(came, now)
        if frames.source != before:
            self._onlooker.new_stream()
        if packet.ssrc == frames.source:  # the more packets it sees, the better is the clock
            self._onlooker.captured_ns(packet.timestamp, now)
        for frame in whole:
            captured_ns = self._onlooker.captured_ns(frame.timestamp, now)
            self._decoder.put(EncodedFrame(frame.data, frame.timestamp, captured_ns))
        if frames.ask_again:
            await self._receiver._send_rtcp_nack(packet.ssrc, frames.ask_again)
        if self._key_is_due(now):
            self._asked_at = now
            await self._receiver._send_rtcp_pli(packet.ssrc)

    def _key_is_due(self, now: float) -> bool:
        since = now - self._asked_at
        if self._keys_only:
            return since >= KEYS_EVERY_S
        return self._frames.needs_key and since >= ASK_EVERY_S

    def _rest(self) -> None:
        self._looking = False
        self._asked_at = min(self._asked_at, self._loop.time() - KEYS_EVERY_S + _LEAST_S)
        self._frames.forget()
        self._decoder.rest()

    # -- what the decoder says

    def decoded(self, picture: av.VideoFrame, frame: EncodedFrame) -> None:
        if self._onlooker.looks:
            self._onlooker.show(picture, frame.captured_ns)

    def dropped(self, why: Dropped, frames: int) -> None:
        self._onlooker.dropped(why, frames)

    def cannot_go_on(self) -> None:
        self._frames.start_anew()

    def failed(self, fault: BaseException) -> None:
        """The end of this video. Sources that aiortc's router does not know yet would make it grow: it lets go of the receiver."""
        if self._over:
            return
        self.release()
        self._receiver.transport._unregister_rtp_receiver(self._receiver)
        self._onlooker.failed(fault)
