"""What calls are measured by beside what every user is: the way in, the packets, how late they came.

`lateness` is of packets against the 20 ms grid that the earliest twentieth of a call's packets keeps: what server and network add to
a perfect clock, on the client's own clock. What `--loss` and `--jitter-ms` add is not in it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from loadgen.measure import spread
from loadgen.records import UserRecord
from loadgen.rtc_ear import FRAME_NS, ticks_to_ns
from session_server.types.audio import NS_PER_MS, OUTPUT_RATE, samples_to_ms

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
