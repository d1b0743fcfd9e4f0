"""One call: a peer connection from the offer to the last thread.

Owns the connection, its tracks, tasks and threads. Invariants:

* audio is sent from the start and never stops; the first audio section is the call's, the first video section its camera's
  (`video`), every other media section is answered `inactive`, so that nothing unread can pile up;
* a client that vanishes is noticed within `silence_s` and a little: no RTP, nothing else either, and no answer to a probe.
  ICE's own checks would take half a minute;
* whatever ends the call, the endpoint hears `on_closed` exactly once, and then everything is closed within
  `close_wait_s`. aiortc's decoder threads would keep the process alive otherwise.

Never renegotiates: aiortc gets that wrong. Units: seconds of the event loop's clock.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Callable, Coroutine

from aiortc import (
    MediaStreamTrack,
    RTCConfiguration,
    RTCDataChannel,
    RTCIceServer,
    RTCPeerConnection,
    RTCRtpSender,
    RTCSessionDescription,
)

from session_server.transports.base import TalkingEndpoint, VideoFrame
from session_server.transports.webrtc.aiortc_internals import close_peer, watch_over
from session_server.transports.webrtc.incoming_audio import discard
from session_server.transports.webrtc.incoming_video import CallVideo
from session_server.transports.webrtc.limits import CHANNEL, WebRtcLimits
from session_server.transports.webrtc.media import CallAudio, Media
from session_server.transports.webrtc.offer import Offer
from session_server.transports.webrtc.outbox import CallOutbox
from session_server.transports.webrtc.playout import PlayoutFrame
from session_server.types.errors import ClientFault

_log = logging.getLogger(__name__)

_PROBE_CHANNEL = "liveness"
_LOOK_EVERY_S = 0.3
_ROUND_TRIP_EVERY_S = 2.0


class Ending(enum.StrEnum):
    """Why a call ended."""

    CLIENT_CLOSED = "client_closed"
    HUNG_UP = "hung_up"
    LOST = "lost"
    NOT_CONNECTED = "not_connected"
    SERVER_CLOSED = "server_closed"


class Call:
    """`answer` the offer, then `run` until the call is over; `close` where it never ran."""

    def __init__(
        self,
        call_id: str,
        offer: Offer,
        limits: WebRtcLimits,
        connected: Callable[[], None] = lambda: None,
        *,
        media: Media,
    ) -> None:
        """`connected` is called when the way to the client is open."""
        self.call_id = call_id
        self._media = media
        self._audio: CallAudio | None = None
        self.video: CallVideo | None = None
        self._offer = offer
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self.peer = RTCPeerConnection(RTCConfiguration(iceServers=_ice_servers(limits)))
        self.outbox = CallOutbox(offer, limits, lambda: self._end(Ending.SERVER_CLOSED))
        self._endpoint: TalkingEndpoint | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._over = asyncio.Event()
        self.ending: Ending | None = None
        self._connected = False
        self._tell_connected = connected
        self._heard_at = self._loop.time()
        self._packets: int | None = None
        self._probe: RTCDataChannel | None = None
        self._has_channel = False
        self.peer.on("track", self._on_track)
        self.peer.on("datachannel", self._on_channel)
        self.peer.on("connectionstatechange", self._on_state)

    # -- signalling

    async def answer(self) -> str:
        """The SDP answer. Raises ClientFault for an offer that aiortc refuses."""
        peer = self.peer
        self._audio = self._media.audio_for(peer, self.outbox.playout, self)
        self.outbox.clock = self._audio.clock
        ours = peer.getTransceivers()[0]
        codecs = RTCRtpSender.getCapabilities("audio").codecs
        ours.setCodecPreferences([c for c in codecs if c.mimeType.lower() == "audio/opus"])
        used = [ours]
        mode, shared = self._limits.video, self._media.video
        if self._offer.has_camera and mode != "off" and shared is not None:
            keys_only = mode == "key_frames"
            self.video = CallVideo(shared, peer, self, self.call_id, keys_only=keys_only)
            used.append(self.video.transceiver)
        try:
            await peer.setRemoteDescription(RTCSessionDescription(self._offer.sdp, "offer"))
            watch_over(peer)
            for transceiver in peer.getTransceivers():
                if transceiver not in used:
                    transceiver.direction = "inactive"
            await peer.setLocalDescription(await peer.createAnswer())
        except Exception as fault:  # aiortc has no exception of its own for a bad offer
            _log.debug("aiortc refuses an offer: %r", fault)
            text = f"The offer cannot be answered: {fault}."
            raise ClientFault("invalid_sdp", text, param="sdp") from fault
        answered = str(peer.localDescription.sdp)
        return answered if self.video is None else self.video.bounded(answered)

    def hang_up(self) -> None:
        """End the call now. Idempotent."""
        self._end(Ending.HUNG_UP)

    def give_up(self) -> None:
        """End a call that does not connect."""
        self._end(Ending.NOT_CONNECTED)

    # -- life

    async def run(self, endpoint: TalkingEndpoint) -> Ending:
        """Carry audio and events until the call is over."""
        self._endpoint = endpoint
        self._keep(self._watch())
        try:
            await self._over.wait()
            if self.ending is Ending.SERVER_CLOSED:
                await self.outbox.flush()
        finally:
            self._endpoint = None
            endpoint.on_closed()
            self.outbox.dismiss()
            await self.close()
        return self.ending or Ending.HUNG_UP

    async def close(self) -> None:
        """Free everything. Bounded; idempotent."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._audio is not None:
            self._audio.release()
        if self.video is not None:
            self.video.release()
        await close_peer(self.peer, self.call_id, self._limits.close_wait_s)

    def _end(self, why: Ending) -> None:
        if self.ending is None:
            self.ending = why
            self._over.set()

    def _keep(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended_task)

    def _ended_task(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("%s: a task failed", self.call_id, exc_info=task.exception())
            self._end(Ending.SERVER_CLOSED)

    # -- what the connection brings

    def _on_track(self, track: MediaStreamTrack) -> None:
        reading: Coroutine[None, None, None] | None
        audio, video = self._audio, self.video
        if audio is not None and track is self.peer.getTransceivers()[0].receiver.track:
            reading = audio.read(track)
        elif video is not None and track is video.transceiver.receiver.track:
            reading = video.read(track)
        else:
            reading = discard(track)
        if reading is not None:
            self._keep(reading)

    def _on_channel(self, channel: RTCDataChannel) -> None:
        if channel.label != CHANNEL:
            return
        if self._has_channel:
            _log.info(
                "%s: a second channel %s is closed: one carries the events", self.call_id, CHANNEL
            )
            channel.close()
            return
        self._has_channel = True
        channel.on("message", self._on_message)
        channel.on("close", lambda: self._end(Ending.CLIENT_CLOSED))
        self.outbox.opened(channel)

    def _on_state(self) -> None:
        state = self.peer.connectionState
        if state == "connected":
            self._connected = True
            self._tell_connected()
            self._heard_at = self._loop.time()
        elif state in ("closed", "failed"):
            self._end(Ending.CLIENT_CLOSED if self._connected else Ending.NOT_CONNECTED)

    def _on_message(self, message: str | bytes) -> None:
        self._heard_at = self._loop.time()
        if self._endpoint is not None and self.outbox.closing is None:
            self._endpoint.on_frame(message)

    # -- the audio's `Listener`

    def hear(self, pcm: bytes, rate: int) -> None:
        self._heard_at = self._loop.time()
        if self._endpoint is not None:
            self._endpoint.on_audio(pcm, rate)

    def frame_left(self, frame: PlayoutFrame) -> None:
        sent = self.outbox.sent(frame)
        if sent is not None and self._endpoint is not None:
            self._endpoint.on_audio_sent(sent)

    def audio_failed(self, fault: Exception) -> None:
        _log.error("%s: its audio failed", self.call_id, exc_info=fault)
        self._end(Ending.SERVER_CLOSED)

    # -- the video's `Viewer`

    @property
    def wants_video(self) -> bool:
        return self._endpoint is not None and self._endpoint.wants_video

    def see(self, frame: VideoFrame, age_ns: int) -> None:
        if self._endpoint is not None:
            self._endpoint.on_video(frame, age_ns)

    # -- liveness

    async def _watch(self) -> None:
        limits = self._limits
        look_every_s = min(_LOOK_EVERY_S, limits.silence_s / 6)
        begun = asked = self._loop.time()
        while True:
            await asyncio.sleep(look_every_s)
            now = self._loop.time()
            if not self._connected:
                if now - begun > limits.connect_s:
                    self._end(Ending.NOT_CONNECTED)
                continue
            if now - asked > _ROUND_TRIP_EVERY_S:
                asked = now
                await self._read_figures()
            if now - self._heard_at < look_every_s:
                self._packets = None
            else:
                await self._look_for_life(now)

    async def _look_for_life(self, now: float) -> None:
        """No microphone and no event lately: is anything else coming in?"""
        before, self._packets = self._packets, await self._read_figures()
        if before is not None and self._packets > before:
            self._heard_at = now
        quiet_s = now - self._heard_at
        if quiet_s > self._limits.silence_s:
            _log.info("%s: nothing came for %.1f s: the client is gone", self.call_id, quiet_s)
            self._end(Ending.LOST)
        elif quiet_s > self._limits.silence_s / 3:
            self._ask_for_a_sign()

    async def _read_figures(self) -> int:
        """Take over round trip time and losses; the number of packets that have come so far."""
        packets = 0
        for entry in (await self.peer.getStats()).values():
            if entry.type == "transport":
                packets += entry.packetsReceived
            elif entry.type == "remote-inbound-rtp":
                if entry.roundTripTime is not None:
                    self.outbox.delay.round_trip(entry.roundTripTime)
                if self._audio is not None:
                    self._audio.peer_misses(entry.fractionLost / 256)
        return packets

    def _ask_for_a_sign(self) -> None:
        """Make the client's network stack answer: a message on a channel of ours has to be acknowledged by SCTP. A client
        that only listens, with its microphone taken off, sends hardly anything by itself."""
        if not self._offer.has_channel:
            return
        if self._probe is None:
            self._probe = self.peer.createDataChannel(_PROBE_CHANNEL)
        elif self._probe.readyState == "open" and not self._probe.bufferedAmount:
            self._probe.send(".")


def _ice_servers(limits: WebRtcLimits) -> list[RTCIceServer]:
    """Never None: aiortc's default asks a public server."""
    return [
        RTCIceServer(url, limits.turn_username, limits.turn_credential)
        if url.startswith(("turn:", "turns:"))
        else RTCIceServer(url)
        for url in limits.ice_servers
    ]
