"""The time line of the microphone: which sound stands where, and what stands in for what is missing. No gap, no overlap.

Each packet says where it belongs by its timestamp. What is missing before it is

* made up, where packets were lost: the end from the copy of itself that the next packet may hold, the rest from what came before
  (`recover`, which is concealment where there is no copy), up to MOST_MADE_UP;
* silence, where the client sent nothing (a microphone that stops in silence), and beyond MOST_MADE_UP;
* left out, if it is longer than LONGEST_HOLE or the stream has begun anew: the time line goes on without it.

Where nothing at all comes for a while, AHEAD is made up before there is evidence of a loss (`ahead`), once. What comes later for
that stretch is decoded, for the decoder's sake, and its sound is left out.

Audio that a client sends faster than real time is bounded (`Allowance`): decoding it costs the other calls their time.

Pure. Lengths are ticks of the RTP clock (48 kHz) unless they say seconds.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import NamedTuple

from session_server.transports.webrtc.jitter_buffer import Ordered, wrapped
from session_server.transports.webrtc.limits import RTP_CLOCK

LONGEST_HOLE = 2 * RTP_CLOCK
MOST_MADE_UP = RTP_CLOCK * 120 // 1000
STEP = RTP_CLOCK * 25 // 10_000
"""2.5 ms: what Opus counts in."""

AHEAD = RTP_CLOCK // 50
LONGEST_DTX_BYTES = 2
"""A client that stops in silence says so with a packet no longer than this (RFC 6716, 3.1)."""

_SILK_OR_HYBRID = ((480, 960, 1920, 2880),) * 3 + ((480, 960, 480, 960),)
_CELT = (120, 240, 480, 960)
_LONGEST_PACKET = MOST_MADE_UP


class Do(enum.Enum):
    """What to do for a stretch of the time line."""

    DECODE = enum.auto()
    RECOVER = enum.auto()
    CONCEAL = enum.auto()
    SILENCE = enum.auto()


class Stretch(NamedTuple):
    """A tuple: there are fifty a second. `payload`: what is decoded, or what follows the lost part. `sounded`: so much of its
    beginning has been made up already, and is not to sound again."""

    do: Do
    ticks: int
    payload: bytes = b""
    sounded: int = 0


def packet_ticks(payload: bytes) -> int:
    """How long the audio in an Opus packet is (RFC 6716, 3.1); 0: it is none."""
    if not payload:
        return 0
    config, code = payload[0] >> 3, payload[0] & 3
    frame = _CELT[config & 3] if config >= 16 else _SILK_OR_HYBRID[config >> 2][config & 3]
    counted = payload[1] & 63 if len(payload) > 1 else 0
    count = (1, 2, 2, counted)[code]
    ticks = frame * count
    return ticks if ticks <= _LONGEST_PACKET else 0


class MicLine:
    """One call's."""

    def __init__(self) -> None:
        self._expected: int | None = None
        self._ahead = 0
        """What was made up without evidence, and may still come."""
        self._last = b""
        """The packet that may be followed by something made up."""

    def stretches(self, ordered: Ordered) -> Iterator[Stretch]:
        """What to play for a packet, in order."""
        packet = ordered.packet
        ticks = packet_ticks(packet.payload)
        expected, self._expected = self._expected, packet.timestamp + ticks
        ahead, self._ahead = self._ahead, 0
        self._last = packet.payload
        hole = sounded = 0
        if expected is not None and not ordered.restarted:
            hole = wrapped(packet.timestamp - expected, 32)
            if -ahead <= hole < 0:
                sounded = min(-hole, ticks)
                if sounded == ticks:  # another packet may belong there
                    self._expected, self._ahead = expected, -hole - ticks
        if STEP <= hole <= LONGEST_HOLE:
            yield from _filling(hole, packet.payload, lost=ordered.lost > 0)
        yield Stretch(Do.DECODE, ticks, packet.payload, sounded)

    def ahead(self) -> Stretch | None:
        """What to play where nothing has come for long; None: that has been done, or the client sends nothing in silence."""
        if self._expected is None or self._ahead or len(self._last) <= LONGEST_DTX_BYTES:
            return None
        self._expected += AHEAD
        self._ahead = AHEAD
        self._last = b""
        return Stretch(Do.CONCEAL, AHEAD)


def _filling(hole: int, following: bytes, *, lost: bool) -> Iterator[Stretch]:
    odd = hole % STEP
    if odd:
        yield Stretch(Do.SILENCE, odd)
        hole -= odd
    if not lost:
        yield Stretch(Do.SILENCE, hole)
    elif hole <= MOST_MADE_UP:
        yield Stretch(Do.RECOVER, hole, following)
    else:
        yield Stretch(Do.CONCEAL, MOST_MADE_UP)
        yield Stretch(Do.SILENCE, hole - MOST_MADE_UP)


class Allowance:
    """How much audio a client may bring: real time, a little faster, and a burst after a stall of the network."""

    RATE = 1.25
    BURST_S = 5.0

    def __init__(self, now: float) -> None:
        self._left_s = self.BURST_S
        self._at = now

    def take(self, seconds: float, now: float) -> bool:
        """May so much be played now? If so it is taken off."""
        self._left_s = min(self.BURST_S, self._left_s + self.RATE * (now - self._at))
        self._at = now
        if seconds > self._left_s:
            return False
        self._left_s -= seconds
        return True
