"""RTP clocks: of an outgoing audio stream, and of an incoming video track.

Outgoing: frame k is due at start + k * 20 ms, and carries the RTP timestamp origin + k * 960.

Incoming: when a frame was taken, on the session's clock. A camera's clock has an origin and a pace
of its own (up to some hundred parts per million off). The least of (arrival - time stamp) over the
last seconds is the offset between the two clocks, with the shortest way that a frame took; what a
frame needed beyond that is its lateness. So a constant delay cannot be seen, and counts as none.

Pure: instants come in from outside.

Invariants: a frame's instant is never after its arrival; where time stamps and arrivals do not
fall, instants do not.

Units: outgoing seconds, and ticks of the RTP clock, which wraps at 2**32; incoming nanoseconds, and
ticks of 90 kHz in 32 bits, which wrap after 13 hours.
"""

from __future__ import annotations

import collections

from session_server.transports.webrtc.limits import FRAME_S, RTP_STEP
from session_server.types.audio import NS_PER_S

WRAP = 1 << 32


class RtpClock:
    """`start` and `origin` are None until they are known: before the first frame, and before the first packet is out."""

    def __init__(self) -> None:
        self.start: float | None = None
        self.origin: int | None = None

    def due(self, index: int) -> float | None:
        """When frame `index` leaves, or left."""
        return None if self.start is None else self.start + index * FRAME_S

    def timestamp(self, index: int) -> int | None:
        """The RTP timestamp of a frame."""
        return None if self.origin is None else (self.origin + index * RTP_STEP) % WRAP

    def frame_at(self, rtp_timestamp: int, near: int) -> tuple[int, int] | None:
        """The frame that a timestamp lies in, the one nearest to `near`, and how far in, in ticks."""
        at = self.timestamp(near)
        if at is None:
            return None
        away = (rtp_timestamp - at + WRAP // 2) % WRAP - WRAP // 2
        frames, into = divmod(away, RTP_STEP)
        return near + frames, into


VIDEO_RATE = 90_000
"""Hz of RTP video time stamps."""
WINDOW_S = 10
"""The offset is looked for in so many seconds: at 200 parts per million two milliseconds go by in that."""
MOST_LATE_S = 10
"""A frame that is later than this is of another time line: the camera began anew."""
_WRAP = 1 << 32


class VideoClock:
    """Of one track. Holds one offset for each second of the window."""

    def __init__(self) -> None:
        self._newest: int | None = None
        self._least: collections.deque[tuple[int, int]] = collections.deque(maxlen=WINDOW_S + 1)

    def captured_ns(self, timestamp: int, arrived_ns: int) -> int:
        """When the frame with this RTP time stamp was taken, that is here now."""
        taken = self._unwrapped(timestamp) * NS_PER_S // VIDEO_RATE
        offset = self._offset(arrived_ns - taken, arrived_ns)
        if arrived_ns - (taken + offset) > MOST_LATE_S * NS_PER_S:
            self._newest = timestamp % _WRAP
            self._least.clear()
            taken = self._newest * NS_PER_S // VIDEO_RATE
            offset = self._offset(arrived_ns - taken, arrived_ns)
        return taken + offset

    def _unwrapped(self, timestamp: int) -> int:
        """Ticks that go on where 32 bits wrap; a late one is smaller than the newest."""
        if self._newest is None:
            self._newest = timestamp % _WRAP
        step = (timestamp - self._newest) % _WRAP
        if step >= _WRAP // 2:
            return self._newest + step - _WRAP
        self._newest += step
        return self._newest

    def _offset(self, sample: int, arrived_ns: int) -> int:
        """The least sample of the window, this one included."""
        second = arrived_ns // NS_PER_S
        while self._least and self._least[0][0] <= second - WINDOW_S:
            self._least.popleft()
        if self._least and self._least[-1][0] == second:
            sample = min(sample, self._least.pop()[1])
        self._least.append((second, sample))
        return min(least for _, least in self._least)
