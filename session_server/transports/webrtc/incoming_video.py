"""The cameras of the calls: what those of one process share, and one call's, on either path.

`cheap`, on private parts of aiortc (`aiortc_internals`): frames are put together as their packets
come, and decoded only while they are wanted. aiortc's decoder thread, jitter buffer (which a lost
packet stops for 512 more) and queues have nothing to do. `stock`: aiortc decodes everything,
whether it is wanted or not, and the track is read and its frames dropped; `key_frames` is then a
picture each STOCK_EVERY_S. Owns what a call holds for its video. The parts of
`session_server.video` are handed in (`VideoSetup`): the packages may not import each other.

Invariants: the first video section of an offer that has VP8 is the camera's, and only received; a
frame is handed on only while the session wants some. On the cheap path, while none is wanted, a
packet is counted for the receiver reports and let go; a new viewer gets a key frame first, and the
client is asked for one, again each ASK_EVERY_S until it comes. With `keys_only` deltas are let go,
and a key frame is asked for each KEYS_EVERY_S. Nothing is timed but by packets: where none come
there is nothing to ask for.

Units: seconds of the event loop's clock.

Errors: a fault ends the video of that call, not the call; it is said once, by `failed`, logged once
and counted.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol, cast

import av
from aiortc import MediaStreamTrack, RTCPeerConnection, RTCRtpReceiver, RTCRtpSender
from aiortc.mediastreams import MediaStreamError
from aiortc.rtcrtpparameters import RTCRtpReceiveParameters
from aiortc.rtcrtpreceiver import StreamStatistics
from aiortc.rtp import RtpPacket

from session_server.transports.base import VideoFrame
from session_server.transports.webrtc.aiortc_internals import (
    bound_jitter,
    room_for_one,
    watch_over_reports,
)
from session_server.transports.webrtc.limits import VIDEO_CLOCK
from session_server.transports.webrtc.video_decoder import (
    MOST_PIXELS,
    DecodeThreads,
    Dropped,
    MakeGrid,
    TrackFrame,
    VideoDecoder,
)
from session_server.transports.webrtc.video_frames import EncodedFrame, FrameAssembler, VideoPacket
from session_server.types.audio import NS_PER_S

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

    @property
    def source(self) -> int | None:
        """Of the packets that frames are made of; None before the first."""
        return self._frames.source

    @property
    def waiting(self) -> int:
        """Frames that wait to be decoded."""
        return self._decoder.waiting

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


_log = logging.getLogger(__name__)

STOCK_EVERY_S = 1.0
MOST_KBIT_S = 800
"""What a client is to send at most: enough for 640x480 at 15 frames. There is no feedback of delay from here that would keep video from
filling a narrow way, and the microphone has to share it."""

_VIDEO_LINE = re.compile(r"^m=video .*?\ba=recvonly\b", re.MULTILINE | re.DOTALL)
_CONNECTION_LINE = re.compile(r"^c=.*\r\n", re.MULTILINE)


class FrameClock(Protocol):
    """Says of a call's frames when they were taken."""

    def captured_ns(self, timestamp: int, arrived_ns: int) -> int:
        """By the clock of `arrived_ns`, of a frame that is here now, or a piece of it. Timestamps are 90 kHz, and wrap."""
        ...


@dataclass(frozen=True, slots=True)
class VideoSetup:
    """What is done with pictures outside of this package. `grid` runs in threads."""

    grid: MakeGrid
    new_clock: Callable[[], FrameClock]


class Viewer(Protocol):
    """Whose camera it is. None of these raises."""

    @property
    def wants_video(self) -> bool: ...

    def see(self, frame: VideoFrame, age_ns: int) -> None: ...


class SharedVideo:
    """For one event loop."""

    def __init__(self, *, cheap: bool, sight: VideoSetup) -> None:
        self.cheap = cheap
        self.sight = sight
        self.threads = DecodeThreads()
        self.on_shown: Callable[[], None] = lambda: None
        """Told of each frame that a session was given."""
        self.on_dropped: Callable[[Dropped, int], None] = lambda why, frames: None
        self.on_fault: Callable[[], None] = lambda: None
        """Told of each call whose video ended by a fault."""


class CallVideo:
    """The camera of one call, from the offer to its end. `name`: the call's, for the log."""

    def __init__(
        self,
        shared: SharedVideo,
        peer: RTCPeerConnection,
        viewer: Viewer,
        name: str,
        *,
        keys_only: bool,
    ) -> None:
        self._shared = shared
        self._viewer = viewer
        self._name = name
        self._keys_only = keys_only
        self._loop = asyncio.get_running_loop()
        self._clock = shared.sight.new_clock()
        self._over = False
        self.transceiver = peer.addTransceiver("video", direction="recvonly")
        codecs = RTCRtpSender.getCapabilities("video").codecs
        self.transceiver.setCodecPreferences(
            [codec for codec in codecs if codec.mimeType.lower() == "video/vp8"]
        )
        receiver = self.transceiver.receiver
        self.inline: InlineCamera | None = None
        if shared.cheap:
            self.inline = InlineCamera(receiver, self, shared.threads, keys_only=keys_only)
        else:
            watch_over_reports(receiver, self.failed)

    def bounded(self, answer: str) -> str:
        """The SDP with the most that the camera is to send."""
        section = _VIDEO_LINE.search(answer)
        line = section and _CONNECTION_LINE.search(answer, section.start())
        if line is None:
            return answer
        bound = f"b=AS:{MOST_KBIT_S}\r\nb=TIAS:{1000 * MOST_KBIT_S}\r\n"
        return answer[: line.end()] + bound + answer[line.end() :]

    def read(self, track: MediaStreamTrack) -> Coroutine[None, None, None] | None:
        """The camera's track is there: what has to run for it, until it ends."""
        return None if self.inline is not None else self._watch(track)

    def release(self) -> None:
        """Free everything. Idempotent."""
        self._over = True
        if self.inline is not None:
            self.inline.release()

    async def _watch(self, track: MediaStreamTrack) -> None:
        shown_at = self._loop.time() - STOCK_EVERY_S
        while True:
            try:
                picture = await track.recv()
            except MediaStreamError:
                return
            now = self._loop.time()
            early = self._keys_only and now - shown_at < STOCK_EVERY_S
            if not isinstance(picture, av.VideoFrame) or early or not self.looks:
                continue
            shown_at = now
            if picture.width * picture.height > MOST_PIXELS:
                self.dropped(Dropped.TOO_LARGE, 1)
                continue
            try:
                self.show(picture, self.captured_ns(picture.pts or 0, now))
            except Exception as fault:
                self.failed(fault)

    # -- an `Onlooker`

    @property
    def looks(self) -> bool:
        return not self._over and self._viewer.wants_video

    def new_stream(self) -> None:
        self._clock = self._shared.sight.new_clock()

    def captured_ns(self, rtp_timestamp: int, arrived: float) -> int:
        return self._clock.captured_ns(rtp_timestamp, int(arrived * NS_PER_S))

    def show(self, picture: av.VideoFrame, captured_ns: int) -> None:
        age_ns = max(0, int(self._loop.time() * NS_PER_S) - captured_ns)
        self._viewer.see(TrackFrame(picture, self._shared.sight.grid), age_ns)
        self._shared.on_shown()

    def dropped(self, why: Dropped, frames: int) -> None:
        self._shared.on_dropped(why, frames)

    def failed(self, fault: BaseException) -> None:
        if self._over:
            return
        self.release()
        _log.error("%s: its video failed and is over", self._name, exc_info=fault)
        self._shared.on_fault()
