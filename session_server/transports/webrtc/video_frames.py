"""Packets of one VP8 stream to whole frames, in an order in which they can be decoded.

Begins at a key frame, and begins there anew after each loss: what comes between would be decoded to
rubbish. A packet that is missing is asked for (`ask_again`, a negative acknowledgement), and given
up PATIENCE_S after the first one behind it. With `keys_only` each key frame is followed by a wait
for the next. Also reads what a packet says of itself before anything is decoded. Pure.

Invariants: MOST_PACKETS in a frame, as many behind a gap; none is held while a key frame is waited
for. One source: that which came first; another takes its place once the first has been quiet for
QUIET_S.

Units: instants and lengths are seconds, timestamps ticks of a clock of 90 kHz that wraps at 2**32.

Errors: a client writes these bytes: whatever they are, nothing here raises.

Source: RFC 7741, 4; RFC 6386, 9.1.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from session_server.transports.webrtc.jitter_buffer import wrapped

_START_CODE = b"\x9d\x01\x2a"


class Fragment(NamedTuple):
    """A piece of a frame. `first`: the frame begins with it. No `data`: padding, which belongs to no frame."""

    first: bool
    data: bytes


_PADDING = Fragment(False, b"")


def fragment(payload: bytes) -> Fragment | None:
    """What an RTP payload carries; None: it is cut off."""
    if not payload:
        return _PADDING
    octet, at = payload[0], 1
    if octet & 0x80:
        if len(payload) < 2:
            return None
        extended, at = payload[1], 2
        if extended & 0x80:
            at += 2 if payload[at : at + 1] >= b"\x80" else 1
        at += bool(extended & 0x40) + bool(extended & 0x30)
    if len(payload) <= at:
        return None
    return Fragment(octet & 0x17 == 0x10, payload[at:])


def is_key(beginning: bytes) -> bool:
    """Whether a frame that begins so can be decoded by itself."""
    return bool(beginning) and not beginning[0] & 1


def size_of(beginning: bytes) -> tuple[int, int] | None:
    """Width and height that a key frame says it has; None: it says nothing that makes sense."""
    if not is_key(beginning) or len(beginning) < 10 or beginning[3:6] != _START_CODE:
        return None
    width, height = (int.from_bytes(beginning[at : at + 2], "little") & 0x3FFF for at in (6, 8))
    return (width, height) if width and height else None


PATIENCE_S = 0.25
ASK_AGAIN_S = 0.08
QUIET_S = 1.0
MOST_PACKETS = 512
MOST_ASKED = 32
_JUMP = 2000
"""Sequence numbers that are further away than this begin a stream anew."""


class VideoPacket(NamedTuple):
    """As it came. `last`: no further packet of its frame follows."""

    source: int
    sequence: int
    timestamp: int
    last: bool
    payload: bytes


class EncodedFrame(NamedTuple):
    """A whole frame. `captured_ns`: when it was taken, by the event loop's clock, where somebody has said so."""

    data: bytes
    timestamp: int
    captured_ns: int = 0

    @property
    def key(self) -> bool:
        return is_key(self.data)


class _Piece(NamedTuple):
    fragment: Fragment
    timestamp: int
    last: bool


class FrameAssembler:
    """One call's video."""

    def __init__(self, *, keys_only: bool = False) -> None:
        self._keys_only = keys_only
        self._next: int | None = None
        """The packet that is to come next, by a number that does not wrap; None: a key frame is waited for."""
        self._frame: list[_Piece] = []
        """What has come of the frame that it belongs to."""
        self._ahead: dict[int, _Piece] = {}
        """What came before its turn."""
        self._floor: int | None = None
        """What is before it has been in a frame already."""
        self._highest: int | None = None
        self._gap_since: float | None = None
        self._asked_at = 0.0
        self._heard_at = 0.0
        self.source: int | None = None
        self.ask_again: list[int] = []
        """Sequence numbers that are missing, as of the last packet, and are to be asked for now."""

    @property
    def needs_key(self) -> bool:
        """Nothing can be decoded until a key frame comes."""
        return self._next is None

    @property
    def held(self) -> tuple[int, int]:
        """How many packets are kept of the frame that is to be whole next, and how many came before their turn."""
        return len(self._frame), len(self._ahead)

    def put(self, packet: VideoPacket, now: float) -> list[EncodedFrame]:
        """The frames that are whole with it."""
        self.ask_again = []
        if packet.source != self.source:
            if self.source is not None and now - self._heard_at < QUIET_S:
                return []
            self.forget()
            self.source = packet.source
        self._heard_at = now
        number = self._numbered(packet.sequence)
        carried = fragment(packet.payload)
        if carried is None or (self._floor is not None and number < self._floor):
            return []
        if self._next is None and _begins_key(carried):
            self._next = number
        if self._next is None or number < self._next:
            return []
        self._ahead[number] = _Piece(carried, packet.timestamp, packet.last)
        frames = self._whole()
        self._look_for_gaps(now)
        return frames

    def start_anew(self) -> None:
        """Begin at the next key frame."""
        self._next = None
        self._gap_since = None
        self._frame.clear()
        self._ahead.clear()

    def forget(self) -> None:
        """As if nothing had come."""
        self.start_anew()
        self._highest = self._floor = None
        self.source = None
        self.ask_again = []

    def _numbered(self, sequence: int) -> int:
        highest = self._highest
        if highest is None:
            self._highest = sequence
            return sequence
        ahead = wrapped(sequence - highest, 16)
        if abs(ahead) > _JUMP:
            self.start_anew()
            self._floor = None
            self._highest = highest + ahead
        else:
            self._highest = max(highest, highest + ahead)
        return highest + ahead

    def _whole(self) -> list[EncodedFrame]:
        frames: list[EncodedFrame] = []
        while self._next is not None:
            piece = self._ahead.pop(self._next, None)
            if piece is None:
                break
            self._next += 1
            if self._frame and piece.timestamp != self._frame[0].timestamp:
                self._end_frame(frames)  # one without a mark at its end
                if self.needs_key:
                    break
            if piece.fragment.data:
                self._frame.append(piece)
            if piece.last:
                self._end_frame(frames)
            elif len(self._frame) > MOST_PACKETS:
                self.start_anew()
        return frames

    def _end_frame(self, frames: list[EncodedFrame]) -> None:
        pieces, self._frame = self._frame, []
        if not pieces:
            return
        if not pieces[0].fragment.first:
            self.start_anew()
            return
        data = b"".join(piece.fragment.data for piece in pieces)
        frames.append(EncodedFrame(data, pieces[0].timestamp))
        self._floor = self._next
        if self._keys_only:
            self.start_anew()

    def _look_for_gaps(self, now: float) -> None:
        first, highest = self._next, self._highest
        if first is None or highest is None or not self._ahead:
            self._gap_since = None
            return
        if self._gap_since is None:
            self._gap_since = now
            self._asked_at = -math.inf
        missing = highest + 1 - first - len(self._ahead)
        waited_s = now - self._gap_since
        if waited_s > PATIENCE_S or missing > MOST_ASKED or len(self._ahead) > MOST_PACKETS:
            self._give_up()
        elif now - self._asked_at >= ASK_AGAIN_S:
            self._asked_at = now
            numbers = range(first, highest + 1)
            self.ask_again = [n & 0xFFFF for n in numbers if n not in self._ahead]

    def _give_up(self) -> None:
        """Go on at the newest key frame of those that have begun to come, else at the next."""
        starts = [n for n, piece in self._ahead.items() if _begins_key(piece.fragment)]
        if not starts:
            self.start_anew()
            return
        start = max(starts)
        self._ahead = {n: piece for n, piece in self._ahead.items() if n >= start}
        self._frame.clear()
        self._next, self._gap_since = start, None


def _begins_key(carried: Fragment) -> bool:
    return carried.first and is_key(carried.data)
