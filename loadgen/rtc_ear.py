"""What a browser does with the packets of a call: a jitter buffer, and the clock by which its frames sound.

Pure. Owns the order and the instants of the 20 ms frames of one RTP stream. The frame with RTP time `t` is due at `zero + t`,
where `zero` is set by the first packet, `START_NS` after it. Invariants: frames become due one by one, in order, each once; a
frame that did not come in time is given as missing, and never comes later.

A packet behind its time makes the buffer deeper, up to MOST_NS; `relax` gives that back when nothing sounds. RTP times are
48 kHz ticks, unwrapped: they never fall.
"""

from __future__ import annotations

from dataclasses import dataclass

from session_server.types.audio import NS_PER_MS

RTP_CLOCK = 48_000
FRAME_TICKS = RTP_CLOCK // 50
FRAME_NS = 20 * NS_PER_MS
START_NS = 2 * FRAME_NS
MOST_NS = 15 * FRAME_NS
_JUMP_TICKS = 2 * RTP_CLOCK
"""A stream that moves on by more than this begins anew."""
_RELAX_AFTER = 250
"""Packets that have to be in time before the buffer may become less deep."""
_WRAP = 1 << 32


def ticks_to_ns(ticks: int) -> int:
    return ticks * FRAME_NS // FRAME_TICKS


@dataclass(slots=True)
class Frame:
    """20 ms of the stream. `payload` None: it did not come in time. `arrived`: when it did, else 0."""

    at: int
    payload: bytes | None
    arrived: int


class Ear:
    """One stream. Its grid is that of its first packet."""

    def __init__(self) -> None:
        self.late = 0
        """Packets that came behind their time."""
        self.newest: int | None = None
        """RTP time of the newest packet, unwrapped."""
        self._zero: int | None = None
        self._held_ns = START_NS
        self._next = 0
        self._frames: dict[int, Frame] = {}
        self._in_time = 0
        self._margin = MOST_NS

    @property
    def depth_ns(self) -> int:
        """How long the first packet was held, or would be now."""
        return self._held_ns

    @property
    def handed(self) -> int | None:
        """RTP time of the frame that was given last."""
        return None if self._zero is None else self._next - FRAME_TICKS

    def unwrap(self, timestamp: int) -> int | None:
        """An RTP timestamp of the wire on the unwrapped line; None before the first packet."""
        if self.newest is None:
            return None
        return self.newest + (timestamp - self.newest + _WRAP // 2) % _WRAP - _WRAP // 2

    def wire_time(self, at: int) -> int:
        """The timestamp of the wire."""
        return at % _WRAP

    def packet(self, timestamp: int, payload: bytes, now: int) -> None:
        """One has come."""
        at = self.unwrap(timestamp)
        if at is None:
            at = timestamp
            self._begin(at, now)
        elif abs(at - self._next) > _JUMP_TICKS:
            self._begin(at, now)
        assert self._zero is not None
        self.newest = max(self.newest or at, at)
        margin = self._zero + ticks_to_ns(at) - now
        if at < self._next:
            self._came_late(-margin)
            return
        self._frames[at] = Frame(at, payload, now)
        self._margin = min(self._margin, margin)
        self._in_time += 1

    def due(self, now: int) -> list[Frame]:
        """The frames whose time has come, in order."""
        found: list[Frame] = []
        if self._zero is None:
            return found
        while self._zero + ticks_to_ns(self._next) <= now:
            found.append(self._frames.pop(self._next, Frame(self._next, None, 0)))
            self._next += FRAME_TICKS
        return found

    def relax(self) -> None:
        """Nothing sounds: give back depth that no packet of late has needed, and leave out the frames in between."""
        if self._zero is None or self._in_time < _RELAX_AFTER:
            return
        spare = min(self._held_ns, self._margin) - START_NS
        self._in_time, self._margin = 0, MOST_NS
        frames = spare // FRAME_NS
        if frames <= 0:
            return
        self._zero -= frames * FRAME_NS
        self._held_ns -= frames * FRAME_NS
        for _ in range(frames):
            self._frames.pop(self._next, None)
            self._next += FRAME_TICKS

    def _begin(self, at: int, now: int) -> None:
        self._zero = now + START_NS - ticks_to_ns(at)
        self._held_ns = START_NS
        self._next = self.newest = at
        self._frames.clear()
        self._in_time, self._margin = 0, MOST_NS

    def _came_late(self, behind_ns: int) -> None:
        self.late += 1
        self._in_time, self._margin = 0, MOST_NS
        assert self._zero is not None
        deeper = -(-max(0, behind_ns) // FRAME_NS) * FRAME_NS
        if deeper and self._held_ns + deeper <= MOST_NS:
            self._zero += deeper
            self._held_ns += deeper
