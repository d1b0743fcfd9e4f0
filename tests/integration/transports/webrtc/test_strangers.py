"""Datagrams of strangers, and of clients that mean ill, to the open port of a call: no call ends by them, and nothing is left."""

from __future__ import annotations

import asyncio
import re
import socket
import struct
from typing import Any

import pytest

from session_server.http.call_routes import MAX_SIDEBANDS
from session_server.http.server import Server
from session_server.transports.webrtc.aiortc_internals import MAX_BYTES, MAX_WAITING
from session_server.transports.webrtc.media import MediaPath
from tests.aiortc_inside import ice_connection, report_task, sockets, waiting
from tests.integration.server.caller import calling as calling_by_websocket
from tests.integration.server.conftest import OpenServer
from tests.integration.transports.webrtc.rtc_caller import (
    ONLY_LOOPBACK,
    RtcCaller,
    calling,
    offering,
    post_offer,
)
from tests.integration.transports.webrtc.test_unconnected_calls import hang_up, join
from tests.until import until

pytestmark = pytest.mark.integration

BAD_STUN = b"\x01\x01\x00\x08\x21\x12\xa4\x42" + b"x" * 12 + b"\x00\x24\x00\x01a\0\0\0"
JUNK = {
    "empty": b"",
    "long RTCP": bytes([0x80, 200]) + bytes(MAX_BYTES),
    "long RTP": bytes([0x80, 0x80 | 96]) + bytes(MAX_BYTES),
    "bad STUN": BAD_STUN,
    "one byte": b"\x80",
}


def to_port(port: int, *datagrams: bytes) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        for datagram in datagrams:
            stranger.sendto(datagram, ("127.0.0.1", port))


def port_of(answer: str) -> int:
    found = re.search(r"a=candidate:\S+ 1 udp \d+ 127.0.0.1 (\d+)", answer)
    assert found is not None
    return int(found[1])


def connection_of(server: Server, call_id: str) -> Any:
    return ice_connection(server.calls.find(call_id).call.peer.getTransceivers()[0].receiver)


@pytest.mark.asyncio
@pytest.mark.parametrize("path", list(MediaPath))
async def test_a_strangers_datagram_ends_no_call_and_makes_no_noise(
    serve: OpenServer, path: MediaPath
):
    async with (
        serve(**ONLY_LOOPBACK, webrtc__media_path=path.value) as server,
        calling(server) as caller,
    ):
        faults: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, what: faults.append(what))
        port = port_of(caller.peer.remoteDescription.sdp)
        for datagram in JUNK.values():
            to_port(port, datagram)
            await caller.fence()
        at = len(caller.ear)
        await caller.until(lambda: len(caller.ear) > at + 5)
        assert server.calls.find(caller.call_id) is not None
        assert faults == []


@pytest.mark.asyncio
async def test_junk_before_a_call_connects_takes_bounded_memory_and_is_gone_with_it(
    serve: OpenServer,
):
    async with serve(**ONLY_LOOPBACK) as server, offering() as (_, offer):
        status, headers, answer = await post_offer(server, offer)
        assert status == 201
        call_id = headers["Location"].rsplit("/", 1)[1]
        connection = connection_of(server, call_id)
        for _ in range(3 * MAX_WAITING // 100):
            to_port(port_of(answer), *[b"\x16" + bytes(99)] * 100)
            await asyncio.sleep(0.005)
        await until(lambda: waiting(connection) >= MAX_WAITING)
        assert waiting(connection) == MAX_WAITING
        assert await hang_up(server, call_id) == 200
        await until(lambda: not server.calls.carried)
        assert waiting(connection) <= 1, "the word that there is no more"


async def swing(caller: RtcCaller, pairs: int) -> None:
    """Time stamps that go from one end of their range to the other."""
    transport: Any = caller.peer.getSenders()[0].transport
    payload_type = int(re.findall(r"SAVPF (\d+)", caller.peer.remoteDescription.sdp)[0])
    for number in range(2 * pairs):
        stamp = 0xFFFFFFFF * (number % 2 == 0)
        head = struct.pack("!BBHLL", 0x80, payload_type, 100 + number, stamp, 4242)
        await transport._send_rtp(head + b"\xf8\xff\xfe")
        if number % 2 == 0:
            await asyncio.sleep(0.004)


@pytest.mark.asyncio
async def test_time_stamps_that_swing_leave_the_receivers_reports_alive(serve: OpenServer):
    async with serve(**ONLY_LOOPBACK) as server, calling(server) as caller:
        receiver: Any = server.calls.find(caller.call_id).call.peer.getTransceivers()[0].receiver
        await swing(caller, 300)
        await asyncio.sleep(1.6)  # the longest time between two reports
        assert not report_task(receiver).done()


@pytest.mark.asyncio
@pytest.mark.parametrize("path", list(MediaPath))
async def test_a_call_whose_reports_died_leaves_no_socket_and_no_connection(
    serve: OpenServer, path: MediaPath
):
    settings = {**ONLY_LOOPBACK, "webrtc__media_path": path.value, "server__close_wait_s": 0.3}
    async with (
        serve(**settings, expect="does not close") as server,
        calling(server) as caller,
    ):
        call = server.calls.find(caller.call_id).call
        receiver: Any = call.peer.getTransceivers()[0].receiver
        transports = sockets(connection_of(server, caller.call_id))
        assert transports

        async def broken(packet: object) -> None:
            raise struct.error("a figure that does not fit")

        receiver._send_rtcp = broken
        report = report_task(receiver)
        await until(report.done)
        assert isinstance(report.exception(), struct.error)
        assert await hang_up(server, caller.call_id) == 200
        await until(lambda: not server.calls.carried)
        assert all(one.is_closing() for one in transports)
        assert call.peer.connectionState == "closed"


@pytest.mark.asyncio
async def test_connections_beside_a_call_are_bounded(serve: OpenServer):
    async with serve(**ONLY_LOOPBACK) as server, calling(server) as caller:
        url = f"{server.address.ws}?call_id={caller.call_id}"
        live = server.calls.find(caller.call_id)
        beside = [calling_by_websocket(url) for _ in range(MAX_SIDEBANDS)]
        for one in beside:
            await one.__aenter__()
        assert await join(server, caller.call_id) == 429
        await beside.pop().__aexit__(None, None, None)
        await until(lambda: live.sidebands == MAX_SIDEBANDS - 1)
        async with calling_by_websocket(url):
            assert live.sidebands == MAX_SIDEBANDS
        for one in beside:
            await one.__aexit__(None, None, None)
        await until(lambda: live.sidebands == 0)
