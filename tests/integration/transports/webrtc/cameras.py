"""A client with a camera, and a session that looks at it, in one process: aiortc on one side, a `Call` on the other.

`filming` makes both. The camera shows one grey level a frame: LEVELS, one after the other.
"""

from __future__ import annotations

import asyncio
import fractions
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import av
import numpy as np
from aiortc import (
    MediaStreamTrack,
    RTCConfiguration,
    RTCPeerConnection,
    RTCRtpSender,
    RTCSessionDescription,
)
from aiortc.rtp import RtcpPsfbPacket

from session_server.http.calls import SIGHT
from session_server.transports.base import AudioSent, VideoFrame
from session_server.transports.webrtc.aiortc_internals import offer_addresses
from session_server.transports.webrtc.call import Call
from session_server.transports.webrtc.limits import VideoMode, WebRtcLimits
from session_server.transports.webrtc.media import Media, MediaPath
from session_server.transports.webrtc.offer import read_offer
from session_server.transports.webrtc.video_decoder import THREAD_NAME, Dropped
from tests.integration.transports.webrtc.rtc_caller import Microphone, offer_of
from tests.unit.transports.webrtc.vp8_clip import RGB, grey
from tests.until import until

LEVELS = (40, 90, 140, 190)


class Camera(MediaStreamTrack):
    """Grey frames on absolute deadlines. `size` may change while it runs."""

    kind = "video"

    def __init__(self, fps: float = 15, size: tuple[int, int] = (160, 120)) -> None:
        super().__init__()
        self.fps, self.size = fps, size
        self.count = 0
        self._start: float | None = None

    async def recv(self) -> av.VideoFrame:
        loop = asyncio.get_running_loop()
        self._start = loop.time() if self._start is None else self._start
        await asyncio.sleep(max(0.0, self._start + self.count / self.fps - loop.time()))
        picture = self.scene(self.count)
        frame = av.VideoFrame.from_ndarray(picture, "rgb24").reformat(format="yuv420p")
        frame.pts = round(self.count * 90_000 / self.fps)
        frame.time_base = fractions.Fraction(1, 90_000)
        self.count += 1
        return frame

    def scene(self, number: int) -> RGB:
        return grey(LEVELS[number % len(LEVELS)], *self.size)


class Bars(Camera):
    """Light bars on a dark ground, which stand for a second: what a gate takes for a change, and grey is not."""

    def scene(self, number: int) -> RGB:
        width, height = self.size
        picture = np.full((height, width, 3), 30, np.uint8)
        for bar in range(3):
            left = (int(number // self.fps) * 37 + bar * 50) % width
            picture[:, left : left + width // 8] = (230, 60 * bar + 80, 40)
        return picture


class Eye:
    """A `TalkingEndpoint` that looks, or does not."""

    def __init__(self) -> None:
        self.wants_video = True
        self.seen: list[tuple[VideoFrame, int]] = []
        self.audio_bytes = 0
        self.closed = 0

    def on_video(self, frame: VideoFrame, age_ns: int) -> None:
        self.seen.append((frame, age_ns))

    def on_audio(self, pcm: bytes, rate: int) -> None:
        self.audio_bytes += len(pcm) * 16_000 // rate

    def on_audio_sent(self, sent: AudioSent) -> None: ...

    def on_frame(self, frame: str | bytes) -> None: ...

    def on_audio_written(self, response_id: str, end_sample: int) -> None: ...

    def on_closed(self) -> None:
        self.closed += 1

    def levels(self, start: int = 0) -> list[int]:
        """The level that each frame from `start` on shows; a frame that is not of one level has none."""
        found = []
        for frame, _ in self.seen[start:]:
            grid = frame.luma()
            level = min(LEVELS, key=lambda one: abs(one - int(grid.mean())))
            even = np.abs(grid - level).max() < 12
            found.append(level if even else -1)
        return found


class Film:
    """Both sides of a call."""

    def __init__(self, peer: RTCPeerConnection, call: Call, eye: Eye, media: Media) -> None:
        self.peer, self.call, self.eye, self.media = peer, call, eye, media
        self.key_frames_asked = 0
        self.dropped: dict[Dropped, int] = {}
        self.shown = 0
        self.faults = 0
        self.ear = 0
        self.answer = ""
        assert media.video is not None
        media.video.on_dropped = self._drop
        media.video.on_shown = self._show
        media.video.on_fault = self._fault

    def _drop(self, why: Dropped, frames: int) -> None:
        self.dropped[why] = self.dropped.get(why, 0) + frames

    def _show(self) -> None:
        self.shown += 1

    def _fault(self) -> None:
        self.faults += 1

    @property
    def camera(self) -> RTCRtpSender:
        return next(s for s in self.peer.getSenders() if s.track and s.track.kind == "video")

    @property
    def inline(self) -> Any:
        """The receiving side on the cheap path, for inspection."""
        return self.call.video.inline  # type: ignore[union-attr]

    def count_requests(self) -> None:
        """Count the key frames that the server asks for."""
        sender: Any = self.camera
        handle = sender._handle_rtcp_packet

        async def counted(packet: Any) -> None:
            if isinstance(packet, RtcpPsfbPacket) and packet.fmt == 1:
                self.key_frames_asked += 1
            await handle(packet)

        sender._handle_rtcp_packet = counted

    async def sees(self, frames: int) -> None:
        """Wait until the session has been given so many more frames."""
        at = len(self.eye.seen)
        await until(lambda: len(self.eye.seen) >= at + frames)

    async def films(self, frames: int) -> None:
        """Wait until the camera has made so many more frames."""
        camera: Any = self.camera.track
        at = camera.count
        await until(lambda: camera.count >= at + frames)

    async def hear(self, track: MediaStreamTrack) -> None:
        with suppress(Exception):
            while True:
                await track.recv()
                self.ear += 1


def decoder_threads() -> int:
    return sum(thread.name.startswith(THREAD_NAME) for thread in threading.enumerate())


def sections(sdp: str, kind: str) -> list[str]:
    return [s for s in sdp.split("\r\nm=")[1:] if s.startswith(kind)]


def direction(section: str) -> str:
    for word in ("sendrecv", "recvonly", "sendonly", "inactive"):
        if f"a={word}" in section:
            return word
    return ""


def prefer(peer: RTCPeerConnection, *mimes: str) -> None:
    """Offer these video codecs alone."""
    codecs = RTCRtpSender.getCapabilities("video").codecs
    for transceiver in peer.getTransceivers():
        if transceiver.kind == "video":
            transceiver.setCodecPreferences(
                [codec for codec in codecs if codec.mimeType.lower() in mimes]
            )


@asynccontextmanager
async def filming(
    path: MediaPath | None = None,
    mode: VideoMode = "all",
    cameras: tuple[Camera, ...] | None = None,
    eye: Eye | None = None,
    prepare: Callable[[RTCPeerConnection], None] = lambda peer: None,
) -> AsyncIterator[Film]:
    """A call with one camera or more, connected."""
    offer_addresses(("127.0.0.1",))
    media = Media(path, sight=SIGHT)
    peer = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    peer.addTrack(Microphone())
    for camera in cameras or (Camera(),):
        peer.addTrack(camera)
    prepare(peer)
    readers: list[asyncio.Task[None]] = []
    connected = asyncio.Event()
    call = Call(
        "rtc_test",
        read_offer((await offer_of(peer)).encode()),
        WebRtcLimits(video=mode),
        connected.set,
        media=media,
    )
    film = Film(peer, call, eye or Eye(), media)
    peer.on("track", lambda t: readers.append(asyncio.ensure_future(film.hear(t))))
    film.answer = await call.answer()
    running = asyncio.ensure_future(call.run(film.eye))
    try:
        film.count_requests()
        await peer.setRemoteDescription(RTCSessionDescription(film.answer, "answer"))
        await until(connected.is_set)
        yield film
    finally:
        call.hang_up()
        await running
        await peer.close()
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
    assert film.eye.closed == 1
