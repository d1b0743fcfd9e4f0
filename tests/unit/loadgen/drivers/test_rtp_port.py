"""What the light caller rests on in aiortc and aioice beside their public interface, and its arithmetic. A new version that fails
here needs a look at `loadgen/drivers/rtp_port.py`."""

from __future__ import annotations

import inspect
import random

import aioice.ice
import pytest
from aiortc import RTCConfiguration, RTCPeerConnection
from aiortc.rtcdtlstransport import RTCDtlsTransport
from aiortc.rtcrtpreceiver import RTCRtpReceiver

from loadgen.call_reception import FRAME_NS, FRAME_TICKS, Arrivals, BadNetwork, CallFigures, section
from loadgen.drivers.rtp_port import STATISTICS, RtpPort, SilentTrack
from loadgen.records import Turn, UserRecord
from session_server.process.clock import VirtualClock
from tests.aiortc_inside import ice_connection, sockets

pytestmark = pytest.mark.unit


@pytest.mark.asyncio
async def test_the_private_names_are_where_they_were():
    peer = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    peer.addTrack(SilentTrack())
    receiver = peer.getReceivers()[0]
    dtls = receiver.transport
    assert dtls._rx_srtp is None
    assert dtls._tx_srtp is None
    connection = ice_connection(receiver)
    assert connection._nominated == {}
    assert sockets(connection) == []
    assert getattr(receiver, STATISTICS) == {}
    await peer.close()


def test_datagrams_go_through_the_connections_own_sink():
    source = inspect.getsource(aioice.ice.StunProtocol.datagram_received)
    assert "self.receiver.data_received(" in source
    assert "unprotect(data)" in inspect.getsource(RTCDtlsTransport._recv_next)
    assert "__remote_streams" in inspect.getsource(RTCRtpReceiver._run_rtcp)


@pytest.mark.asyncio
async def test_datagrams_that_are_not_audio_are_aiortcs():
    peer = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    peer.addTrack(SilentTrack())
    connection = ice_connection(peer.getReceivers()[0])
    others: list[bytes] = []
    connection.data_received = lambda data, component: others.append(data)
    took: list[object] = []
    port = RtpPort(
        peer,
        96,
        1,
        lambda *packet: took.append(packet),
        VirtualClock(),
        BadNetwork(),
        random.Random(1),
    )
    stun, dtls, rtcp = b"\x00\x01" + bytes(18), b"\x16\xfe" + bytes(20), b"\x80\xc8" + bytes(20)
    audio = bytes([0x80, 96]) + bytes(30)  # no key yet: aiortc drops it as it does everything then
    for datagram in (stun, dtls, rtcp, audio):
        connection.data_received(datagram, 1)
    assert others == [stun, dtls, rtcp, audio]
    assert took == []
    port.send(b"x")  # there is no connection: nothing happens
    assert port.lost == 0
    await peer.close()


def test_lateness_is_measured_against_the_grid_of_the_earliest_packets():
    arrivals = Arrivals()
    start = 2**32 - 7 * FRAME_TICKS
    for k in range(100):
        late = 30_000_000 if k == 50 else 0
        arrivals.add((start + k * FRAME_TICKS) % 2**32, 5_000_000 + k * FRAME_NS + late)
    late_ns = arrivals.late_ns()
    assert len(late_ns) == 100
    assert late_ns[-1] == 30_000_000
    assert late_ns[-2] == 0
    arrivals.clear()
    assert arrivals.late_ns() == []


def test_a_long_call_does_not_grow_the_list_of_arrivals():
    arrivals = Arrivals()
    for k in range(100_000):
        arrivals.add((k * FRAME_TICKS) % 2**32, k * FRAME_NS)
    assert 5_000 <= len(arrivals.late_ns()) <= 20_000
    assert set(arrivals.late_ns()) == {0}


def test_a_bad_network_is_what_was_asked_for_and_the_same_for_the_same_seed():
    network = BadNetwork(0.05, 30)
    fates = [network.fate(random.Random(3)) for _ in range(1)]
    assert fates == [network.fate(random.Random(3))]
    rng = random.Random(3)
    many = [network.fate(rng) for _ in range(20_000)]
    delays = [fate / 1e6 for fate in many if fate is not None]
    assert 0.045 < 1 - len(delays) / len(many) < 0.055
    assert 29 < sum(delays) / len(delays) < 31
    assert max(delays) < 60
    assert not BadNetwork()
    assert BadNetwork().fate(rng) == 0
    assert "5.0% lost, 30 ms" in network.told()


def test_figures_of_no_call_at_all():
    empty = section([], [])
    assert empty["lost_share"] is None
    assert empty["lateness_ms"]["count"] == 0
    turn = Turn(0, None, 0, 0, gaps=[480, 2880])
    call = CallFigures(connect_ns=200_000_000, received=95, lost=5)
    one = section([call], iter([UserRecord(turns=[turn])]))
    assert one["longest_gap_ms"] == 120
    assert one["lost_share"] == 0.05
    assert one["connect_ms"]["p50"] == 200.0
