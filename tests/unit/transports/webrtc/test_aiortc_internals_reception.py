"""The stock path: whatever numbers a client puts into its packets, aiortc goes on reporting, or the call ends."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from aiortc import RTCIceGatherer, RTCIceTransport, RTCRtpReceiver
from aiortc.rtcdtlstransport import RTCCertificate, RTCDtlsTransport
from aiortc.rtcrtpparameters import RTCRtpCodecParameters
from aiortc.rtp import RtcpPacket, RtcpRrPacket, RtpPacket

from session_server.transports.webrtc import aiortc_internals
from session_server.transports.webrtc.aiortc_internals import (
    MAX_SOURCES,
    TooManySources,
    watch_over_reports,
)
from tests.aiortc_inside import arrived_earlier, streams

pytestmark = pytest.mark.unit
OPUS = 111


class Receiving:
    """aiortc's receiver as it is, but for a transport that keeps what is reported, and reports each 10 ms."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        ice = RTCIceTransport(RTCIceGatherer(iceServers=[]))
        dtls = RTCDtlsTransport(ice, [RTCCertificate.generateCertificate()])
        self.reports: list[bytes] = []
        self.reported = asyncio.Event()
        self.faults: list[Exception] = []
        self.receiver: Any = RTCRtpReceiver("audio", dtls)

        async def sent(data: bytes) -> None:
            self.reports.append(data)
            self.reported.set()

        monkeypatch.setattr(dtls, "_send_rtp", sent)
        monkeypatch.setattr("aiortc.rtcrtpreceiver.random.random", lambda: -0.49)
        codec = RTCRtpCodecParameters("audio/opus", 48_000, 2, OPUS)
        self.receiver._RTCRtpReceiver__codecs[OPUS] = codec
        self.receiver._set_rtcp_ssrc(9)
        watch_over_reports(self.receiver, self.faults.append)

    async def packet(self, number: int, timestamp: int, source: int = 7) -> None:
        one = RtpPacket(payload_type=OPUS, sequence_number=number, timestamp=timestamp, ssrc=source)
        await self.receiver._handle_rtp_packet(one, arrival_time_ms=0)

    async def report(self) -> RtcpRrPacket:
        """What aiortc's task says next."""
        task = asyncio.ensure_future(self.receiver._run_rtcp())
        said = asyncio.ensure_future(self.reported.wait())
        await asyncio.wait({task, said}, return_when=asyncio.FIRST_COMPLETED)
        task.cancel()
        said.cancel()
        await asyncio.gather(task)
        (found,) = RtcpPacket.parse(self.reports[0])
        assert isinstance(found, RtcpRrPacket)
        return found


@pytest.mark.asyncio
async def test_time_stamps_that_swing_do_not_end_the_reports_of_the_stock_path(
    monkeypatch: pytest.MonkeyPatch,
):
    one = Receiving(monkeypatch)
    for number in range(600):
        if number % 2:
            arrived_earlier(streams(one.receiver)[7], 4800)  # each second packet comes 0.1 s later
        await one.packet(number, 0xFFFFFFFF * (number % 2 == 0))
    (entry,) = (await one.report()).reports
    assert entry.jitter > 2**31, "the packets were counted"
    assert one.faults == []


@pytest.mark.asyncio
async def test_a_flood_of_sources_ends_a_call_on_the_stock_path(monkeypatch: pytest.MonkeyPatch):
    one = Receiving(monkeypatch)
    for source in range(100):
        await one.packet(0, 0, source)
    assert [type(fault) for fault in one.faults] == [TooManySources]
    assert len((await one.report()).reports) == MAX_SOURCES


def test_a_receiver_without_the_names_is_left_as_it_is():
    strange: Any = SimpleNamespace()
    aiortc_internals.watch_over_reports(strange, pytest.fail)
    assert vars(strange) == {}
