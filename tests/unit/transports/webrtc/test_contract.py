"""What the transport rests on in aiortc and aioice beside their public interface. A new version that fails here needs a look
at the module that is named."""

from __future__ import annotations

import inspect

import aioice.ice
import pytest
from aiortc import RTCPeerConnection, RTCRtpSender

from session_server.transports.webrtc import addresses
from session_server.transports.webrtc.paced_track import SENDER_CLOCK

pytestmark = pytest.mark.unit


def test_paced_track_the_senders_clock_is_where_it_was():
    assert SENDER_CLOCK.removeprefix("_RTCRtpSender") in inspect.getsource(RTCRtpSender)


def test_paced_track_packets_are_packed_as_they_are():
    assert ".pack(data)" in inspect.getsource(RTCRtpSender._next_encoded_frame)


def test_addresses_one_function_is_asked_for_the_hosts_addresses():
    source = inspect.getsource(aioice.ice.Connection.gather_candidates)
    assert "get_host_addresses(" in source


def test_addresses_loopback_only_where_there_is_nothing_else(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(aioice.ice, "get_host_addresses", None)
    for machine, only, expected in (
        (["10.0.0.1"], (), ["10.0.0.1"]),
        ([], (), [addresses.LOOPBACK]),
        (["10.0.0.1"], ("10.0.0.2",), ["10.0.0.2"]),
    ):
        monkeypatch.setattr(addresses, "_ask_aioice", lambda _4, _6, known=machine: known)
        addresses.offer_addresses(only)
        assert aioice.ice.get_host_addresses(use_ipv4=True, use_ipv6=True) == expected


@pytest.mark.asyncio
async def test_call_the_figures_of_a_connection_have_its_packets():
    peer = RTCPeerConnection()
    peer.addTransceiver("audio")
    report = await peer.getStats()
    counts = [entry.packetsReceived for entry in report.values() if entry.type == "transport"]
    assert counts == [0]
    await peer.close()
