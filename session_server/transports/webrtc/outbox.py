"""The way to one caller: events over the data channel, audio through the playout queue.

Owns the events that are queued for the client, and how long audio takes from the wire to the
listener's ear. Followers (sideband connections) get every event as it is. Audio deltas do not
travel here: a transport that plays has a `Player`.

The way to the ear has two sources. While the client reports what it plays, its reports count: the
age of what it plays, less the way of the report, plus what its sound card adds, smoothed. Without
them for STALE_S: half the round trip plus an assumed constant, and that is an estimate.

Invariants: events leave in order, the first ones once the channel is open; beyond `outbox_bytes`
the call closes; a message that the client says it cannot take is made smaller
(`protocol.frames.fit`), never split and never an error of the session.

Units: seconds, bytes.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from aiortc import RTCDataChannel
from aiortc.exceptions import InvalidStateError

from session_server.protocol.frames import MAX_FRAME, fit
from session_server.transports.base import AudioSent, Outbox
from session_server.transports.webrtc.limits import FRAME_S, RTP_CLOCK, RTP_STEP, WebRtcLimits
from session_server.transports.webrtc.offer import Offer
from session_server.transports.webrtc.playout import Playout, PlayoutFrame
from session_server.transports.webrtc.rtp_clock import RtpClock
from session_server.types.audio import NS_PER_S

STALE_S = 2.0
LONGEST_S = 2.0
_SMOOTHING = 0.2


class PathDelay:
    """The delay of one call."""

    def __init__(self, assumed_s: float) -> None:
        self._assumed_s = assumed_s
        self._round_trip_s = 0.0
        self._reported_s: float | None = None
        self._reported_at = 0.0

    def round_trip(self, seconds: float) -> None:
        """A newer round trip time."""
        self._round_trip_s = max(0.0, seconds)

    def report(self, age_s: float, latency_s: float, now: float) -> None:
        """The client is playing what left `age_s` ago, and its speaker lags `latency_s` behind that."""
        delay = min(max(0.0, age_s - self._round_trip_s / 2 + latency_s), LONGEST_S)
        before = self._reported_s
        if before is None or now - self._reported_at > STALE_S:
            self._reported_s = delay
        else:
            self._reported_s = before + _SMOOTHING * (delay - before)
        self._reported_at = now

    def estimated(self, now: float) -> bool:
        """No report stands behind `seconds`."""
        return self._reported_s is None or now - self._reported_at > STALE_S

    def seconds(self, now: float) -> float:
        if self._reported_s is None or self.estimated(now):
            return self._round_trip_s / 2 + self._assumed_s
        return self._reported_s


_log = logging.getLogger(__name__)

CLOSE_NORMAL = 1000
CLOSE_TRY_AGAIN_LATER = 1013
_FLUSH_STEP_S = 0.01
_LINGER_S = 0.1
"""For the last messages to be acknowledged: closing the connection drops what is under way."""


class CallOutbox:
    """An `Outbox` and a `Player`; see `transports.base`."""

    def __init__(self, offer: Offer, limits: WebRtcLimits, closed: Callable[[], None]) -> None:
        self._limits = limits
        self._closed = closed
        self._loop = asyncio.get_running_loop()
        self._has_channel = offer.has_channel
        wanted = (limits.max_message_bytes, MAX_FRAME, offer.max_message_bytes or MAX_FRAME)
        self._largest = min(wanted)
        self._channel: RTCDataChannel | None = None
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._playout = Playout()
        self.delay = PathDelay(limits.path_delay_ms / 1000)
        self.clock: RtpClock | None = None
        """That of the outgoing stream."""
        self.followers: list[Outbox] = []
        self.closing: tuple[int, str] | None = None

    @property
    def playout(self) -> Playout:
        return self._playout

    @property
    def queued_bytes(self) -> int:
        """Bytes of events that SCTP has not taken yet."""
        channel = self._channel
        return self._waiting_bytes + (0 if channel is None else channel.bufferedAmount)

    # -- events

    def send(self, frame: bytes) -> None:
        if self.closing is not None:
            return
        for follower in list(self.followers):
            follower.send(frame)
        if not self._has_channel:
            return
        if self.queued_bytes + len(frame) > self._limits.outbox_bytes:
            self._waiting.clear()
            self.close(CLOSE_TRY_AGAIN_LATER, "outbox full: the client does not read")
        elif self._channel is None:
            self._waiting.append(frame)
            self._waiting_bytes += len(frame)
        else:
            self._write(self._channel, frame)

    def send_audio(self, frame: bytes, response_id: str, end_sample: int) -> None:
        """Audio goes over RTP; a delta has no business here."""
        raise AssertionError("a player gets audio by `play`")

    def opened(self, channel: RTCDataChannel) -> None:
        """The client's data channel is there."""
        self._channel = channel
        waiting, self._waiting, self._waiting_bytes = self._waiting, deque(), 0
        for frame in waiting:
            self._write(channel, frame)

    def _write(self, channel: RTCDataChannel, frame: bytes) -> None:
        frame = fit(frame, self._largest)
        if len(frame) > self._largest:
            _log.warning("an event of %d bytes is too long for the client: left out", len(frame))
            return
        try:
            channel.send(frame.decode())
        except (InvalidStateError, ConnectionError):
            _log.debug("the data channel is gone")

    def close(self, code: int, reason: str) -> None:
        if self.closing is not None:
            return
        self.closing = (code, reason)
        self.dismiss(code, reason)
        self._closed()

    def dismiss(self, code: int = CLOSE_NORMAL, reason: str = "the call is over") -> None:
        """Close the connections that follow this one."""
        for follower in list(self.followers):
            follower.close(code, reason)

    async def flush(self) -> None:
        """Wait, bounded, until the client has what was sent before `close`."""
        until = self._loop.time() + self._limits.close_wait_s
        channel = self._channel
        while channel is not None and channel.readyState == "open" and channel.bufferedAmount:
            if self._loop.time() > until:
                return
            await asyncio.sleep(_FLUSH_STEP_S)
        if channel is not None:
            await asyncio.sleep(_LINGER_S)

    # -- audio

    def play(self, response_id: str, start_sample: int, pcm: bytes) -> None:
        self._playout.put(response_id, start_sample, pcm)

    def finish(self, response_id: str) -> None:
        self._playout.finish(response_id)

    def purge(self, response_id: str) -> int:
        return self._playout.purge(response_id)

    def hold(self) -> None:
        self._playout.hold()

    def release(self, response_id: str | None, from_sample: int) -> None:
        self._playout.release(response_id, from_sample)

    def starts_at(self, response_id: str) -> int | None:
        if self.clock is None:
            return None
        return self.clock.timestamp(self._playout.starts_at(response_id))

    def heard(self, response_id: str, rtp_timestamp: int, latency_ms: int) -> int | None:
        clock = self.clock
        place = None if clock is None else clock.frame_at(rtp_timestamp, self._playout.next_index)
        if clock is None or place is None:
            return None
        index, into = place
        due = clock.due(index)
        if due is not None:
            now = self._loop.time()
            self.delay.report(now - due - into / RTP_CLOCK, latency_ms / 1000, now)
        index, into = divmod(index * RTP_STEP + into - latency_ms * RTP_CLOCK // 1000, RTP_STEP)
        return self._playout.heard(response_id, index, into // 2)

    def sent(self, frame: PlayoutFrame) -> AudioSent | None:
        """What the session is told of a frame that has just left; None: it was silence."""
        if frame.response_id is None:
            return None
        now = self._loop.time()
        return AudioSent(
            frame.response_id,
            frame.end_sample,
            frame.sound,
            round((self.delay.seconds(now) + FRAME_S) * NS_PER_S),
            self.delay.estimated(now),
            frame.gap_samples,
            frame.waiting_samples,
        )
