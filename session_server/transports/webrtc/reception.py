"""What aiortc's receiver reports are made of, on either media path, kept within what a report can say.

A client chooses the numbers in its packets. Time stamps that swing make more jitter than the 32 bits of a report hold, and sources
that are ever new make more entries than the 31 that it can list: aiortc's task of reports would die of either, and the client
would hear nothing of its losses for the rest of the call. So jitter stops at the most that can be said, and a call of more
than MAX_SOURCES sources ends. Private names: `contract`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from aiortc import RTCRtpReceiver
from aiortc.rtcrtpreceiver import StreamStatistics
from aiortc.rtp import RtpPacket

MAX_SOURCES = 16
_MAX_JITTER_Q4 = (2**32 - 1) << 4


class TooManySources(Exception):
    """A client that sends as ever new sources."""

    def __init__(self) -> None:
        super().__init__(f"more than {MAX_SOURCES} sources in one call")


def room_for_one(streams: dict[int, StreamStatistics]) -> None:
    """Raises TooManySources where another source would be too many."""
    if len(streams) >= MAX_SOURCES:
        raise TooManySources


def bound_jitter(stream: Any) -> None:  # noqa: ANN401 - a private part of a StreamStatistics
    """After each packet."""
    if stream._jitter_q4 > _MAX_JITTER_Q4:
        stream._jitter_q4 = _MAX_JITTER_Q4


def watch_over_reports(receiver: RTCRtpReceiver, failed: Callable[[Exception], None]) -> None:
    """For a receiver of aiortc's that counts by itself. `failed` hears of too many sources, once. Where the names are gone the
    receiver does without."""
    private = cast("Any", receiver)
    streams: dict[int, StreamStatistics] | None
    streams = getattr(private, "_RTCRtpReceiver__remote_streams", None)
    handle = getattr(private, "_handle_rtp_packet", None)
    if streams is None or handle is None:
        return
    over = False

    async def bounded(packet: RtpPacket, arrival_time_ms: int) -> None:
        nonlocal over
        if over:
            return
        try:
            if packet.ssrc not in streams:
                room_for_one(streams)
        except TooManySources as fault:
            over = True
            failed(fault)
            return
        await handle(packet, arrival_time_ms=arrival_time_ms)
        stream = streams.get(packet.ssrc)
        if stream is not None and hasattr(stream, "_jitter_q4"):
            bound_jitter(stream)

    private._handle_rtp_packet = bounded
