"""The cameras of the calls: what those of one process share, and one call's, on either path.

`cheap`: `inline_camera`, on private parts of aiortc (`contract`). `stock`: aiortc decodes everything, whether anybody looks or not, and
the track is read and its frames dropped; `key_frames` is then a picture each STOCK_EVERY_S. Invariants: the first video section of an
offer that has VP8 is the camera's, and only received; a frame is handed on only while the session wants some; what fails here ends
the video of that call, not the call, is logged once and counted.

What comes of `session_server.video` is handed in (`Sight`): the packages may not import each other. Units: seconds of the event loop's
clock.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Protocol

import av
from aiortc import MediaStreamTrack, RTCPeerConnection, RTCRtpSender
from aiortc.mediastreams import MediaStreamError

from session_server.transports.base import VideoFrame
from session_server.transports.webrtc.camera_frame import MakeGrid, TrackFrame
from session_server.transports.webrtc.inline_camera import InlineCamera
from session_server.transports.webrtc.reception import watch_over_reports
from session_server.transports.webrtc.video_decoder import MOST_PIXELS, DecodeThreads, Dropped
from session_server.types.audio import NS_PER_S

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
class Sight:
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

    def __init__(self, *, cheap: bool, sight: Sight) -> None:
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
        self._inline: InlineCamera | None = None
        if shared.cheap:
            self._inline = InlineCamera(receiver, self, shared.threads, keys_only=keys_only)
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
        return None if self._inline is not None else self._watch(track)

    def release(self) -> None:
        """Free everything. Idempotent."""
        self._over = True
        if self._inline is not None:
            self._inline.release()

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
