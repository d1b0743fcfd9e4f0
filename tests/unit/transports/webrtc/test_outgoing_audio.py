"""Our own RTP: header, numbers and timestamps go on, the grid is kept, reports are fed, losses that the client reports count."""

from __future__ import annotations

import asyncio
import struct
from types import SimpleNamespace
from typing import Any

import pytest

from session_server.transports.webrtc.limits import FRAME_S, RTP_STEP
from session_server.transports.webrtc.outgoing_audio import DirectAudio
from session_server.transports.webrtc.playout import Playout, PlayoutFrame
from session_server.transports.webrtc.ticker import Ticker
from session_server.types.audio import OUTPUT_RATE

pytestmark = pytest.mark.unit


class Encoder:
    """Says what it was given."""

    def __init__(self) -> None:
        self.losses: list[int] = []
        self.closed = False

    def encode(self, pcm: bytes) -> bytes:
        return pcm[:4]

    def expect_loss(self, percent: int) -> None:
        self.losses.append(percent)

    def close(self) -> None:
        self.closed = True


class Wire:
    """Where packets go: aiortc's sender, its transports and the socket, with the names of the contract."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self._ssrc = 77
        self._RTCRtpSender__ntp_timestamp = self._RTCRtpSender__rtp_timestamp = 0
        self._RTCRtpSender__packet_count = self._RTCRtpSender__octet_count = 0
        pair = SimpleNamespace(
            remote_addr=("client", 1),
            protocol=SimpleNamespace(
                transport=SimpleNamespace(
                    sendto=lambda data, address: self.sent.append(data),
                    is_closing=lambda: False,
                )
            ),
        )
        self.line: Any = pair.protocol
        self.nominated: dict[int, Any] = {1: pair}
        self.transport = SimpleNamespace(
            _tx_srtp=SimpleNamespace(protect=lambda data: data),
            transport=SimpleNamespace(_connection=SimpleNamespace(_nominated=self.nominated)),
        )

    async def send(self, parameters: Any) -> None: ...

    @property
    def counters(self) -> tuple[int, int, int, int]:
        """What reports are made of: packets, octets, the last packet's RTP and NTP time."""
        return (
            self._RTCRtpSender__packet_count,
            self._RTCRtpSender__octet_count,
            self._RTCRtpSender__rtp_timestamp,
            self._RTCRtpSender__ntp_timestamp,
        )

    def packets(self) -> list[tuple[int, int, int, int, int]]:
        return [struct.unpack("!BBHLL", data[:12]) for data in self.sent]


class Sending:
    def __init__(self) -> None:
        self.wire, self.encoder, self.playout = Wire(), Encoder(), Playout()
        self.left: list[tuple[PlayoutFrame, float]] = []
        self.faults: list[Exception] = []
        self.ticker = Ticker(asyncio.get_running_loop())
        self.audio = DirectAudio(
            self.wire,  # type: ignore[arg-type]
            self.ticker,
            self.playout,
            self.encoder,
            lambda frame, late: self.left.append((frame, late)),
            self.faults.append,
        )

    async def begin(self) -> None:
        codec = SimpleNamespace(payloadType=111)
        await self.wire.send(SimpleNamespace(codecs=[codec]))
        self.ticker.remove(self.audio)

    def ticks(self, count: int, start: int = 0) -> None:
        for number in range(start, start + count):
            self.audio.tick(100.0 + number * FRAME_S)
            self.audio.tell()


@pytest.mark.asyncio
async def test_packets_follow_each_other_through_the_wrap_of_their_numbers():
    sending = Sending()
    await sending.begin()
    sending.audio._sequence = 65_530
    sending.audio.clock.origin = 2**32 - 5 * RTP_STEP
    sending.ticks(12)
    packets = sending.wire.packets()
    assert {(bits, kind, source) for bits, kind, _, _, source in packets} == {(0x80, 111, 77)}
    assert [number for _, _, number, _, _ in packets] == [(65_530 + n) % 2**16 for n in range(12)]
    assert [time for _, _, _, time, _ in packets] == [
        (2**32 + (n - 5) * RTP_STEP) % 2**32 for n in range(12)
    ]


@pytest.mark.asyncio
async def test_rtp_never_stops_and_sound_goes_out_in_its_place():
    sending = Sending()
    await sending.begin()
    sending.ticks(3)
    sending.playout.put("resp", 0, b"\1\0" * (OUTPUT_RATE // 25))
    sending.ticks(5, start=3)
    spoken = [frame.response_id for frame, _ in sending.left]
    assert spoken == [None] * 3 + ["resp"] * 2 + [None] * 3
    assert len(sending.wire.sent) == 8
    assert sending.audio.clock.due(3) == pytest.approx(100.0 + 3 * FRAME_S)


@pytest.mark.asyncio
async def test_after_a_stall_frames_are_left_out_and_time_goes_on():
    sending = Sending()
    await sending.begin()
    sending.ticks(2)
    sending.ticks(2, start=50)
    first, *_, last = sending.wire.packets()
    assert (last[3] - first[3]) % 2**32 == 51 * RTP_STEP
    assert (last[2] - first[2]) % 2**16 == 3


@pytest.mark.asyncio
async def test_without_a_way_to_the_client_sound_waits():
    sending = Sending()
    await sending.begin()
    way = dict(sending.wire.nominated)
    sending.wire.nominated.clear()
    sending.playout.put("resp", 0, b"\1\0" * (OUTPUT_RATE // 50))
    sending.ticks(5)
    assert (sending.wire.sent, sending.left) == ([], [])
    sending.wire.nominated.update(way)
    sending.ticks(1, start=5)
    assert [frame.response_id for frame, _ in sending.left] == ["resp"]


@pytest.mark.asyncio
async def test_the_senders_reports_have_their_figures():
    sending = Sending()
    await sending.begin()
    sending.ticks(10)
    wire = sending.wire
    packets, octets, rtp_timestamp, ntp_timestamp = wire.counters
    assert (packets, octets) == (10, 40)
    assert rtp_timestamp == wire.packets()[-1][3]
    assert ntp_timestamp > 0


@pytest.mark.asyncio
async def test_a_call_that_ends_while_it_connects_gets_no_place():
    sending = Sending()
    sending.audio.release()
    await sending.wire.send(SimpleNamespace(codecs=[SimpleNamespace(payloadType=111)]))
    assert len(sending.ticker) == 0
    assert sending.encoder.closed


@pytest.mark.asyncio
async def test_the_encoder_hears_of_losses_that_are_worth_it_once():
    sending = Sending()
    for share in (0.0, 0.004, 0.05, 0.051, 0.1, 0.01, 0.0):
        sending.audio.expect_loss(share)
    assert sending.encoder.losses == [5, 10, 0]
    sending.audio.release()
    sending.audio.expect_loss(0.5)
    assert sending.encoder.losses == [5, 10, 0]


@pytest.mark.asyncio
async def test_a_socket_that_was_closed_under_a_call_is_no_fault_of_its_audio():
    sending = Sending()
    await sending.begin()
    loop = asyncio.get_running_loop()
    sending.wire.line.transport, _ = await loop.create_datagram_endpoint(
        asyncio.DatagramProtocol, local_addr=("127.0.0.1", 0)
    )
    sending.wire.line.transport.abort()
    await asyncio.sleep(0.05)  # now the transport has no socket any more
    sending.ticks(3)
    assert (sending.left, sending.faults) == ([], [])
