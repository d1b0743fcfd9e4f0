"""What the calls of one process share: the path that their audio takes, one ticker, and how late it is; the path of video.

Two paths. `cheap`: our own RTP out and decoding inline, on private parts of aiortc (`aiortc_internals`). `stock`: aiortc's sender and
receiver; the way back when a new version has moved something, or when it is asked for. Video has its own contract, and may take
the stock path alone. Invariants: a path is decided once, at the start, and said in one line of the log; a call keeps its paths.

Units: seconds of the event loop's clock.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Protocol

from aiortc import MediaStreamTrack, RTCPeerConnection

from session_server.transports.webrtc import aiortc_internals
from session_server.transports.webrtc.aiortc_internals import watch_over_reports
from session_server.transports.webrtc.incoming_audio import InlineMicrophone, listen
from session_server.transports.webrtc.incoming_video import SharedVideo, VideoSetup
from session_server.transports.webrtc.opus import new_encoder
from session_server.transports.webrtc.outgoing_audio import DirectAudio, PacedTrack, QuietTrack
from session_server.transports.webrtc.playout import Playout, PlayoutFrame
from session_server.transports.webrtc.rtp_clock import RtpClock
from session_server.transports.webrtc.ticker import Lateness, Ticker

_log = logging.getLogger(__name__)


class MediaPath(enum.StrEnum):
    """How audio travels between the wire and a session."""

    CHEAP = "cheap"
    STOCK = "stock"


class PathUnavailable(Exception):
    """The path that is insisted on cannot run; the text says why."""


class CallAudio(Protocol):
    """The audio of one call, both ways, from the offer to its end."""

    @property
    def clock(self) -> RtpClock:
        """That of the outgoing stream."""
        ...

    def peer_misses(self, share: float) -> None:
        """The client reports that it lost so much of what was sent of late."""
        ...

    def read(self, track: MediaStreamTrack) -> Coroutine[None, None, None] | None:
        """The microphone's track is there: what has to run for it, until it ends."""
        ...

    def release(self) -> None:
        """Free everything. Idempotent."""
        ...


class MediaSink(Protocol):
    """Whose audio it is. None of these raises."""

    def hear(self, pcm: bytes, rate: int) -> None:
        """The microphone: s16le mono."""
        ...

    def frame_left(self, frame: PlayoutFrame) -> None:
        """It is on the wire."""
        ...

    def audio_failed(self, fault: Exception) -> None:
        """A fault of ours: the call cannot go on."""
        ...


class Media:
    """For one event loop. `wanted`: a path, or None for the cheap one where it can run.

    Raises PathUnavailable. `max_lateness_s`: what the 99th percentile may be before new calls are refused. `sight`: None
    where calls take no video.
    """

    def __init__(
        self,
        wanted: MediaPath | None = None,
        max_lateness_s: float = 0.01,
        *,
        sight: VideoSetup | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._max_lateness_s = max_lateness_s
        self._lateness = Lateness()
        self._ticker = Ticker(self._loop)
        self.path = _choose(wanted, aiortc_internals.broken, "media path")
        self.video: SharedVideo | None = None
        """None: no call takes video."""
        if sight is not None:
            path = _choose(wanted, aiortc_internals.broken_video, "path of video")
            self.video = SharedVideo(cheap=path is MediaPath.CHEAP, sight=sight)
        self.live: Counter[MediaPath] = Counter()
        """Calls that have audio now, by their path."""
        self.on_lateness: Callable[[float], None] | None = None
        """Told of each frame that left, how late it was."""

    def too_late(self) -> str | None:
        """Why no further call should be let in; None: there is room."""
        p99 = self._lateness.p99(self._loop.time())
        if p99 is None or p99 <= self._max_lateness_s:
            return None
        return f"audio leaves up to {p99 * 1000:.0f} ms late"

    def audio_for(
        self, peer: RTCPeerConnection, playout: Playout, listener: MediaSink
    ) -> CallAudio:
        """Put audio on a connection that has none yet; its first audio section is the call's."""
        kind = _CheapAudio if self.path is MediaPath.CHEAP else _StockAudio
        audio = kind(self, peer, playout, listener)
        self.live[self.path] += 1
        return audio

    def calls_on(self, path: MediaPath) -> float:
        """How many calls have audio now on this path."""
        return float(self.live[path])

    @property
    def ticker(self) -> Ticker:
        return self._ticker

    def left(self, late_s: float) -> None:
        """A frame left."""
        self._lateness.add(late_s, self._loop.time())
        if self.on_lateness is not None:
            self.on_lateness(late_s)


def _choose(wanted: MediaPath | None, broken: Callable[[], list[str]], what: str) -> MediaPath:
    if wanted is MediaPath.STOCK:
        return MediaPath.STOCK
    reasons = broken()
    if not reasons:
        return MediaPath.CHEAP
    text = "; ".join(reasons)
    if wanted is MediaPath.CHEAP:
        raise PathUnavailable(text)
    _log.warning("the cheap %s cannot run, calls take the stock one: %s", what, text)
    return MediaPath.STOCK


class _Audio:
    """What both have: a place among the live ones, and the listener, until it is released."""

    def __init__(self, media: Media, listener: MediaSink) -> None:
        self._media = media
        self._listener = listener
        self._path = media.path
        self._released = False

    def _left(self, frame: PlayoutFrame, late_s: float) -> None:
        self._media.left(late_s)
        self._listener.frame_left(frame)

    def peer_misses(self, share: float) -> None:
        """The stock path does nothing about it."""

    def release(self) -> None:
        if not self._released:
            self._released = True
            self._media.live[self._path] -= 1


class _CheapAudio(_Audio):
    def __init__(
        self, media: Media, peer: RTCPeerConnection, playout: Playout, listener: MediaSink
    ) -> None:
        super().__init__(media, listener)
        sender = peer.addTrack(QuietTrack())
        receiver = peer.getTransceivers()[0].receiver
        failed = listener.audio_failed
        encoder = new_encoder(media.live.total())
        self._out = DirectAudio(sender, media.ticker, playout, encoder, self._left, failed)
        self._in = InlineMicrophone(receiver, listener.hear, failed)

    @property
    def clock(self) -> RtpClock:
        return self._out.clock

    def peer_misses(self, share: float) -> None:
        self._out.expect_loss(share)

    def read(self, track: MediaStreamTrack) -> None:
        """Nothing comes by the track."""

    def release(self) -> None:
        super().release()
        self._out.release()
        self._in.release()


class _StockAudio(_Audio):
    def __init__(
        self, media: Media, peer: RTCPeerConnection, playout: Playout, listener: MediaSink
    ) -> None:
        super().__init__(media, listener)
        self._failed = listener.audio_failed
        self._track = PacedTrack(playout, new_encoder(media.live.total()), self._left)
        self._track.sender = peer.addTrack(self._track)
        watch_over_reports(peer.getTransceivers()[0].receiver, listener.audio_failed)

    @property
    def clock(self) -> RtpClock:
        return self._track.clock

    def read(self, track: MediaStreamTrack) -> Coroutine[None, None, None]:
        return listen(track, self._listener.hear)

    def _left(self, frame: PlayoutFrame, late_s: float) -> None:
        try:
            super()._left(frame, late_s)
        except Exception as fault:  # aiortc would go on without sound
            self._failed(fault)

    def release(self) -> None:
        super().release()
        self._track.release()
