"""Packets of one incoming stream in their order: what overtook another waits for it a moment, what is late is dropped.

Invariants: what comes out is in the order of its sequence numbers, nothing twice; a packet that follows on the last one comes
out at once; no more than MOST_HELD packets wait, none longer than PATIENCE_S. A packet that is missing is given up as lost
PATIENCE_S after it was due, reckoned from the last one that came out, and LONGEST_STOP_S after that one: so one loss stops the
stream for 80 ms, more in a row for 90, and packets that come up to 60 ms late are not lost.

A new source (SSRC), or a jump of more than RESTART packets, counts as a new stream once a second packet of it has come; a
stray one changes nothing (RFC 3550, A.1). Sequence numbers wrap at 2**16, timestamps at 2**32.

Pure; instants and lengths are seconds, timestamps ticks of the RTP clock.
"""

from __future__ import annotations

from typing import NamedTuple

from session_server.transports.webrtc.limits import FRAME_S, RTP_CLOCK

PATIENCE_S = 0.06
MOST_HELD = 3
LONGEST_STOP_S = 0.09
RESTART = 200


class Incoming(NamedTuple):
    """A packet as it came. Here are tuples: there are fifty a second."""

    source: int
    sequence: int
    timestamp: int
    payload: bytes


class Ordered(NamedTuple):
    """A packet in its place: `lost` of those right before it never came. `restarted`: the first one of a stream."""

    packet: Incoming
    lost: int = 0
    restarted: bool = False


class _Held(NamedTuple):
    packet: Incoming
    at: float


def wrapped(difference: int, bits: int) -> int:
    """A difference of two numbers that wrap, as the nearer way round says."""
    half = 1 << (bits - 1)
    return (difference + half) % (1 << bits) - half


class ReorderWindow:
    """One stream."""

    def __init__(self) -> None:
        self._source: int | None = None
        self._next = 0
        self._last: _Held | None = None
        self._held: dict[int, _Held] = {}
        self._stray: Incoming | None = None
        self.late = 0
        """Packets that came twice, or after they had been given up."""
        self.lost = 0
        """Packets that were given up."""

    @property
    def deadline(self) -> float | None:
        """When `expire` has something to say; None: nothing waits."""
        if not self._held:
            return None
        first = self._held[self._first_held()]
        bound = first.at + PATIENCE_S
        if self._last is None:
            return bound
        ticks = wrapped(first.packet.timestamp - self._last.packet.timestamp, 32)
        missing_s = ticks / RTP_CLOCK - FRAME_S
        wait_s = missing_s + PATIENCE_S
        if missing_s < LONGEST_STOP_S:
            wait_s = min(wait_s, LONGEST_STOP_S)
        return min(bound, self._last.at + wait_s)

    def put(self, packet: Incoming, now: float) -> list[Ordered]:
        """Take one that has just come; what comes out now."""
        if packet.source != self._source:
            return self._strange(packet, now)
        away = wrapped(packet.sequence - self._next, 16)
        if away == 0 and not self._held:
            self._stray = None
            return [self._pass_on(_Held(packet, now), 0)]
        if abs(away) > RESTART:
            return self._strange(packet, now)
        self._stray = None
        if away < 0 or packet.sequence in self._held:
            self.late += 1
            return []
        self._held[packet.sequence] = _Held(packet, now)
        return self._drain(now)

    def expire(self, now: float) -> list[Ordered]:
        """What comes out because time has passed."""
        return self._drain(now)

    def _drain(self, now: float) -> list[Ordered]:
        out: list[Ordered] = []
        while self._held:
            first = self._first_held()
            lost = wrapped(first - self._next, 16)
            deadline = self.deadline
            assert deadline is not None
            if lost and len(self._held) <= MOST_HELD and now < deadline:
                break
            out.append(self._pass_on(self._held.pop(first), lost))
        return out

    def _pass_on(self, held: _Held, lost: int) -> Ordered:
        self._last = held
        self._next = (held.packet.sequence + 1) & 0xFFFF
        self.lost += lost
        return Ordered(held.packet, lost)

    def _first_held(self) -> int:
        return min(self._held, key=lambda sequence: wrapped(sequence - self._next, 16))

    def _strange(self, packet: Incoming, now: float) -> list[Ordered]:
        """A packet of another stream, or the first one of all."""
        if self._source is None:
            return self._restart([packet], now)
        before, self._stray = self._stray, packet
        if before is None or before.source != packet.source:
            return []
        if wrapped(packet.sequence - before.sequence, 16) != 1:
            return []
        return self._restart([before, packet], now)

    def _restart(self, packets: list[Incoming], now: float) -> list[Ordered]:
        self._held.clear()
        self._stray = None
        self._source = packets[0].source
        first, *others = [self._pass_on(_Held(packet, now), 0) for packet in packets]
        return [Ordered(first.packet, restarted=True), *others]
