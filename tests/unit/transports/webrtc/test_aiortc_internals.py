"""What the transport rests on in aiortc and aioice beside their public interface. A new version that fails here needs a look
at the module that is named."""

from __future__ import annotations

import ast
import asyncio
import inspect
from pathlib import Path
from typing import Any

import aioice.ice
import pytest
from aiortc import RTCPeerConnection, RTCRtpReceiver, RTCRtpSender
from aiortc.rtcdtlstransport import RTCDtlsTransport

from session_server.config import load
from session_server.http.calls import SIGHT, shared_media
from session_server.transports.webrtc import (
    aiortc_internals,
    incoming_audio,
    incoming_video,
    outgoing_audio,
)
from session_server.transports.webrtc.media import Media, MediaPath, PathUnavailable
from session_server.transports.webrtc.outgoing_audio import SENDER_CLOCK
from session_server.transports.webrtc.ticker import LEAST_FRAMES
from session_server.types.errors import ConfigError

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
        ([], (), [aiortc_internals.LOOPBACK]),
        (["10.0.0.1"], ("10.0.0.2",), ["10.0.0.2"]),
    ):
        monkeypatch.setattr(aiortc_internals, "_ask_aioice", lambda _4, _6, known=machine: known)
        aiortc_internals.offer_addresses(only)
        assert aioice.ice.get_host_addresses(use_ipv4=True, use_ipv6=True) == expected


@pytest.mark.asyncio
async def test_call_the_figures_of_a_connection_have_its_packets():
    peer = RTCPeerConnection()
    peer.addTransceiver("audio")
    report = await peer.getStats()
    counts = [entry.packetsReceived for entry in report.values() if entry.type == "transport"]
    assert counts == [0]
    await peer.close()


@pytest.mark.asyncio
async def test_closing_the_events_that_aiortc_waits_for_are_where_they_were():
    peer = RTCPeerConnection()
    one = peer.addTransceiver("audio")
    for word in aiortc_internals.WORDS:
        owner = one.receiver if "Receiver" in word else one.sender
        assert isinstance(getattr(owner, word), asyncio.Event)
    await peer.close()


@pytest.mark.asyncio
async def test_the_cheap_path_can_run_on_the_installed_versions():
    assert aiortc_internals.broken() == []
    assert aiortc_internals.broken_video() == []


@pytest.mark.asyncio
@pytest.mark.parametrize("name", [*aiortc_internals.SENDER, *aiortc_internals.RECEIVER])
async def test_each_private_name_that_is_gone_is_named(name: str, monkeypatch: pytest.MonkeyPatch):
    owner = RTCRtpSender if name in aiortc_internals.SENDER else RTCRtpReceiver
    made = owner.__init__

    def without(self: Any, *arguments: Any) -> None:
        made(self, *arguments)
        self.__dict__.pop(name, None)

    monkeypatch.setattr(owner, "__init__", without)
    monkeypatch.delattr(owner, name, raising=False)
    assert aiortc_internals.broken() == [f"{owner.__name__}.{name}"]


@pytest.mark.asyncio
@pytest.mark.parametrize("name", [*aiortc_internals.CAMERA, *aiortc_internals.CAMERA_DTLS])
async def test_each_private_name_that_the_video_misses_is_named(
    name: str, monkeypatch: pytest.MonkeyPatch
):
    owner = RTCDtlsTransport if name in aiortc_internals.CAMERA_DTLS else RTCRtpReceiver
    made = owner.__init__

    def without(self: Any, *arguments: Any) -> None:
        made(self, *arguments)
        self.__dict__.pop(name, None)

    monkeypatch.setattr(owner, "__init__", without)
    monkeypatch.delattr(owner, name, raising=False)
    assert aiortc_internals.broken_video() == [f"{owner.__name__}.{name}"]


@pytest.mark.asyncio
async def test_video_alone_takes_the_stock_path_where_only_its_names_are_gone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.delattr(RTCRtpReceiver, "_send_rtcp_pli")
    media = Media(sight=SIGHT)
    assert media.path is MediaPath.CHEAP
    assert media.video is not None
    assert not media.video.cheap
    (line,) = [r.getMessage() for r in caplog.records]
    assert "path of video" in line
    assert "RTCRtpReceiver._send_rtcp_pli" in line


@pytest.mark.asyncio
async def test_a_caller_that_calls_something_else_is_named(monkeypatch: pytest.MonkeyPatch):
    def datagram_received(self: object, data: bytes, addr: object) -> None:
        """Another way."""

    monkeypatch.setattr(aioice.ice.StunProtocol, "datagram_received", datagram_received)
    (reason,) = aiortc_internals.broken()
    assert reason.startswith("StunProtocol.datagram_received calls no ")


def test_every_private_name_that_is_used_is_in_the_contract():
    """Reads the modules of the cheap path: an underscore after a dot that is not our own object's."""
    known = {
        *aiortc_internals.RECEIVER,
        *aiortc_internals.SENDER,
        *aiortc_internals.DTLS,
        *aiortc_internals.ICE,
        *aiortc_internals.CONNECTION,
        *aiortc_internals.STATISTICS,
        *aiortc_internals.CAMERA,
        *aiortc_internals.CAMERA_DTLS,
    }
    for module in (outgoing_audio, incoming_audio, incoming_video):
        tree = ast.parse(inspect.getsource(module))
        foreign = {
            node.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute)
            and node.attr.startswith("_")
            and not node.attr.endswith("__")
            and not (isinstance(node.value, ast.Name) and node.value.id == "self")
        }
        assert foreign
        assert foreign <= known, module.__name__


@pytest.mark.asyncio
async def test_a_broken_contract_means_the_stock_path_and_one_line_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(aiortc_internals, "broken", lambda: ["RTCRtpSender._ssrc"])
    assert Media().path is MediaPath.STOCK
    (line,) = [r.getMessage() for r in caplog.records]
    assert "RTCRtpSender._ssrc" in line
    with pytest.raises(PathUnavailable, match="_ssrc"):
        Media(MediaPath.CHEAP)


@pytest.mark.asyncio
async def test_the_stock_path_runs_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(aiortc_internals, "broken", lambda: pytest.fail("nobody asks"))
    monkeypatch.setattr(aiortc_internals, "broken_video", lambda: pytest.fail("nobody asks"))
    media = Media(MediaPath.STOCK, sight=SIGHT)
    assert media.path is MediaPath.STOCK
    assert media.video is not None
    assert not media.video.cheap


@pytest.mark.asyncio
async def test_frames_that_leave_late_close_the_door():
    media = Media(MediaPath.STOCK, max_lateness_s=0.01)
    seen: list[float] = []
    media.on_lateness = seen.append
    assert media.too_late() is None
    for _ in range(LEAST_FRAMES):
        media.left(0.004)
    assert media.too_late() is None
    for _ in range(LEAST_FRAMES):
        media.left(0.03)
    reason = media.too_late()
    assert reason is not None
    assert "31 ms late" in reason
    assert len(seen) == 2 * LEAST_FRAMES


@pytest.mark.asyncio
async def test_a_server_that_insists_on_the_cheap_path_says_why_it_does_not_start(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(aiortc_internals, "broken", lambda: ["RTCRtpSender._ssrc"])
    config = load(Path("configs/sim.yaml"), flags={"webrtc.media_path": "cheap"}).config
    with pytest.raises(ConfigError, match=r"webrtc\.media_path: .*RTCRtpSender\._ssrc; use auto"):
        shared_media(config)
    config = load(Path("configs/sim.yaml"), flags={"webrtc.media_path": "auto"}).config
    assert shared_media(config).path is MediaPath.STOCK
