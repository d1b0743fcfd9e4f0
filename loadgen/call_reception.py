"""How a call's packets arrive and what that says: jitter buffer, figures, a bad network.

Pure. `Ear` does what a browser does with the packets of a call: it owns the order and the instants
of the 20 ms frames of one RTP stream. The frame with RTP time `t` is due at `zero + t`, where
`zero` is set by the first packet, `START_NS` after it. A packet behind its time makes the buffer
deeper, up to MOST_NS; `relax` gives that back when nothing sounds.

`CallFigures` and `section` are what calls are measured by beside what every user is: the way in,
the packets, how late they came. `lateness` is of packets against the 20 ms grid that the earliest
twentieth of a call's packets keeps: what server and network add to a perfect clock, on the client's
own clock. What `--loss` and `--jitter-ms` add is not in it.

`BadNetwork` is one on purpose, seeded: a packet is lost with probability `loss`; one that is not
comes between 0 and twice `jitter_ns` later, evenly spread, so that it may overtake others: what
`netem delay J J` does.

Invariants: frames become due one by one, in order, each once; a frame that did not come in time is
given as missing, and never comes later.

Units: RTP times are 48 kHz ticks, unwrapped: they never fall.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from loadgen.measure import spread
from loadgen.records import UserRecord
from session_server.types.audio import NS_PER_MS, OUTPUT_RATE, samples_to_ms

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
class ReceivedFrame:
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
        self._frames: dict[int, ReceivedFrame] = {}
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
        self._frames[at] = ReceivedFrame(at, payload, now)
        self._margin = min(self._margin, margin)
        self._in_time += 1

    def due(self, now: int) -> list[ReceivedFrame]:
        """The frames whose time has come, in order."""
        found: list[ReceivedFrame] = []
        if self._zero is None:
            return found
        while self._zero + ticks_to_ns(self._next) <= now:
            found.append(self._frames.pop(self._next, ReceivedFrame(self._next, None, 0)))
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


CALL_ROWS: tuple[tuple[str, str], ...] = (
    ("connect p50, ms", "webrtc.connect_ms.p50"),
    ("connect p95, ms", "webrtc.connect_ms.p95"),
    ("answer -> ICE p50, ms", "webrtc.ice_ms.p50"),
    ("answer -> media p50, ms", "webrtc.media_ms.p50"),
    ("packets", "webrtc.packets"),
    ("packets lost", "webrtc.packets_lost"),
    ("packets late p50, ms", "webrtc.lateness_ms.p50"),
    ("packets late p95, ms", "webrtc.lateness_ms.p95"),
    ("packets late p99, ms", "webrtc.lateness_ms.p99"),
    ("missing in answers, ms", "webrtc.concealed_ms"),
    ("longest gap in an answer, ms", "webrtc.longest_gap_ms"),
    ("fence -> silence p50, ms", "webrtc.fence_to_silent_ms.p50"),
    ("fence -> silence p95, ms", "webrtc.fence_to_silent_ms.p95"),
)
"""Titles and paths of a report of calls."""

_KEPT = 20_000
"""Arrivals that are remembered of one call."""


class Arrivals:
    """When packets came, less their RTP time: bounded, evenly thinned out where there are too many."""

    def __init__(self) -> None:
        self._kept = array("q")
        self._stride = 1
        self._skip = 0
        self._first: int | None = None

    def add(self, timestamp: int, now: int) -> None:
        """`timestamp`: of the wire."""
        if self._skip:
            self._skip -= 1
            return
        self._skip = self._stride - 1
        if self._first is None:
            self._first = timestamp
        self._kept.append(now - ticks_to_ns((timestamp - self._first) % (1 << 32)))
        if len(self._kept) > _KEPT:
            self._kept = self._kept[::2]
            self._stride *= 2

    def clear(self) -> None:
        """Only what comes from here on counts."""
        self._kept = array("q")
        self._stride, self._skip, self._first = 1, 0, None

    def late_ns(self) -> list[int]:
        """Of each packet that is kept."""
        ordered = sorted(self._kept)
        if not ordered:
            return []
        base = ordered[len(ordered) // 20]
        return [max(0, value - base) for value in ordered]


@dataclass(slots=True)
class CallFigures:
    """One call. `connect_ns`: from the first thought of it until the session takes events; `ice_ns`, `media_ns`: from the
    server's answer until a way was found, and until audio and events could take it (DTLS). `late`: packets behind their turn, `concealed`:
    frames that an answer lacked."""

    connect_ns: int = 0
    ice_ns: int = 0
    media_ns: int = 0
    received: int = 0
    lost: int = 0
    late: int = 0
    concealed: int = 0
    depth_ns: int = 0
    arrivals: Arrivals = field(default_factory=Arrivals)


def section(calls: Sequence[CallFigures], records: Iterable[UserRecord]) -> dict[str, Any]:
    """The report's part on calls."""
    records = list(records)
    gaps = [gap for record in records for turn in record.turns for gap in turn.gaps]
    received = sum(call.received for call in calls)
    lost = sum(call.lost for call in calls)
    stops = [
        barge_in.silent - barge_in.fence
        for record in records
        for barge_in in record.barge_ins
        if barge_in.fence is not None and barge_in.silent is not None
    ]
    return {
        "connect_ms": spread((call.connect_ns for call in calls), (50, 95)),
        "ice_ms": spread((call.ice_ns for call in calls), (50, 95)),
        "media_ms": spread((call.media_ns for call in calls), (50, 95)),
        "packets": received,
        "packets_lost": lost,
        "lost_share": round(lost / (received + lost), 5) if received + lost else None,
        "packets_late": sum(call.late for call in calls),
        "longest_gap_ms": samples_to_ms(max(gaps, default=0), OUTPUT_RATE),
        "concealed_ms": sum(call.concealed for call in calls) * FRAME_NS // NS_PER_MS,
        "lateness_ms": spread(
            (late for call in calls for late in call.arrivals.late_ns()), (50, 95, 99, 100)
        ),
        "buffer_ms": spread((call.depth_ns for call in calls), (50, 100)),
        "fence_to_silent_ms": spread((max(0, stop) for stop in stops), (50, 95)),
    }


@dataclass(frozen=True, slots=True)
class BadNetwork:
    """A bad network on purpose: what is lost, how late the rest is. Nothing is wrong with the default one."""

    loss: float = 0.0
    jitter_ms: float = 0.0

    def __bool__(self) -> bool:
        return bool(self.loss or self.jitter_ms)

    def fate(self, rng: random.Random) -> int | None:
        """Nanoseconds by which the next packet is late; None: it is lost."""
        if self.loss and rng.random() < self.loss:
            return None
        if not self.jitter_ms:
            return 0
        return int(rng.random() * 2 * self.jitter_ms * NS_PER_MS)

    def told(self) -> str:
        """For the report."""
        if not self:
            return "real sockets, nothing added"
        return (
            f"real sockets; of RTP both ways {self.loss:.1%} lost, {self.jitter_ms:g} ms of jitter"
        )
