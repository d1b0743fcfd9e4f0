"""The private parts of aiortc and aioice that the WebRTC transport rests on, in one place.

Owns the contract (which private names, and whether the installed versions have them), the way from
each ICE connection to aiortc, the bounds of aiortc's receiver reports, the end of a peer connection
and the addresses that a call offers. What is used, and by whom:

* `RTCRtpReceiver`: `_handle_rtp_packet` (replaced) and `__stop_decoder`, `__remote_streams` by
  `incoming_audio` and `incoming_video`, the first and the last here too; `_send_rtcp_pli`,
  `_send_rtcp_nack` by `incoming_video`; `__rtcp_exited` here.
* `RTCRtpSender`: `_ssrc`, `__ntp_timestamp`, `__packet_count`, `__octet_count` and
  `__rtp_timestamp` by `outgoing_audio`; `__rtcp_exited`, `__rtp_exited` here.
* `RTCDtlsTransport`: `_rx_srtp` by `incoming_audio`, `_tx_srtp` by `outgoing_audio`,
  `_unregister_rtp_receiver` by `incoming_video`. That `_handle_rtp_data` calls the handler of the
  receiver is looked up in its source.
* `RTCIceTransport`: `_connection`, aioice's `Connection`, by both audio modules and here.
* `aioice.ice.Connection`: `data_received` (replaced) by `incoming_audio` and here, `_nominated` by
  `outgoing_audio`, `_queue` here.
* `aioice.ice.StunProtocol`: that a datagram that comes goes to `data_received`, and that one that
  leaves goes to the socket and the nominated address, is looked up in its source.
* `StreamStatistics`: `_jitter_q4` here; that `add` reads only number and time of a packet.
* `aiortc.clock.current_ntp_time` and `pylibsrtp.Session.protect`, `unprotect`: public names that
  nobody promises.
* `aioice.stun.parse_message` and `aioice.ice.get_host_addresses`: functions, replaced here once for
  the process.

Self-test: `media` asks `broken` (audio) and `broken_video` at start-up, with the event loop
running. An empty list means that the cheap path can run. Otherwise the log has one line that names
what is gone, and that path falls back to aiortc's own (`stock`); a server that insists on the cheap
path does not start. What serves both paths (datagrams, reports, closing) does without a name that
is gone. The stock track looks for the sender's clock likewise.

Invariants:

* A client chooses the numbers in its packets, and aiortc's task of reports dies of one that a
  report cannot hold. So jitter stops at the most that can be said, and a call of more than
  MAX_SOURCES sources ends.
* Anyone can send to an open UDP port. From before the sockets are open, no empty datagram and none
  longer than MAX_BYTES goes on, and no more than MAX_WAITING wait to be read. A packet that only
  looks like STUN is one that nobody wants, not an error of the event loop.
* A peer connection is free in bounded time. aiortc's `close` waits for each RTCP task to say that
  it has ended, which one that died of a fault never does: the word is given in its place, and if
  that does not help the sockets are closed directly.
* A machine with no address but loopback (a laptop without a network) offers that: the browser on it
  must reach us. aioice binds to port 0, so the UDP ports are the system's choice
  (`net.ipv4.ip_local_port_range`).

Units: seconds; bytes; counts of datagrams; jitter in sixteenths of a tick of the stream's clock.

Errors: `TooManySources` ends its call; the self-test raises nothing.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from typing import Any, cast

import aioice.ice
import aioice.stun
import pylibsrtp
from aiortc import (
    RTCIceGatherer,
    RTCIceTransport,
    RTCPeerConnection,
    RTCRtpReceiver,
    RTCRtpSender,
    clock,
)
from aiortc.rtcdtlstransport import RTCCertificate, RTCDtlsTransport
from aiortc.rtcrtpreceiver import StreamStatistics
from aiortc.rtp import RtpPacket

from session_server.transports.webrtc import opus as libopus

RECEIVER = (
    "_handle_rtp_packet",
    "_RTCRtpReceiver__remote_streams",
    "_RTCRtpReceiver__stop_decoder",
)
CAMERA = (*RECEIVER, "_send_rtcp_pli", "_send_rtcp_nack")
SENDER = (
    "_ssrc",
    "_RTCRtpSender__ntp_timestamp",
    "_RTCRtpSender__rtp_timestamp",
    "_RTCRtpSender__packet_count",
    "_RTCRtpSender__octet_count",
)
DTLS = ("_rx_srtp", "_tx_srtp")
CAMERA_DTLS = ("_unregister_rtp_receiver",)
ICE = ("_connection",)
CONNECTION = ("data_received", "_nominated", "_queue")
STATISTICS = ("_jitter_q4",)


_Calls = tuple[tuple[str, Callable[..., Any], str], ...]
_Wanted = tuple[tuple[object, tuple[str, ...]], ...]


def _calls() -> _Calls:
    """Who has to call what, so that a replaced method is the one that is called."""
    return (
        *_receivers_calls(),
        (
            "StunProtocol.datagram_received",
            aioice.ice.StunProtocol.datagram_received,
            "self.receiver.data_received(",
        ),
        ("StunProtocol.send_data", aioice.ice.StunProtocol.send_data, "self.transport.sendto("),
        ("Connection.sendto", aioice.ice.Connection.sendto, "active_pair.remote_addr"),
    )


def _receivers_calls() -> _Calls:
    return (
        (
            "RTCDtlsTransport._handle_rtp_data",
            RTCDtlsTransport._handle_rtp_data,
            "._handle_rtp_packet(packet, arrival_time_ms=",
        ),
    )


def broken() -> list[str]:
    """What the audio misses, a line each. Needs a running event loop."""
    opus = libopus.missing()
    return [*([] if opus is None else [opus]), *_broken(_audio_names, _calls)]


def broken_video() -> list[str]:
    """What the video misses, a line each. Needs a running event loop."""
    return _broken(_video_names, _receivers_calls)


def _broken(names: Callable[[], _Wanted], calls: Callable[[], _Calls]) -> list[str]:
    try:
        found = _missing(names())
        found += [f"{name} calls no {text}" for name, one, text in calls() if not _says(one, text)]
        found += _changed_statistics()
    except Exception as fault:  # a version in which even the way to the names is another
        return [repr(fault)]
    return found


def _transports() -> tuple[RTCIceTransport, RTCDtlsTransport]:
    ice = RTCIceTransport(RTCIceGatherer(iceServers=[]))
    return ice, RTCDtlsTransport(ice, [RTCCertificate.generateCertificate()])


def _video_names() -> _Wanted:
    _, dtls = _transports()
    return (
        (RTCRtpReceiver("video", dtls), CAMERA),
        (dtls, CAMERA_DTLS),
        (StreamStatistics(90_000), STATISTICS),
    )


def _audio_names() -> _Wanted:
    ice, dtls = _transports()
    return (
        (RTCRtpReceiver("audio", dtls), RECEIVER),
        (RTCRtpSender("audio", dtls), SENDER),
        (dtls, DTLS),
        (ice, ICE),
        (ice._connection, CONNECTION),
        (StreamStatistics(48_000), STATISTICS),
        (pylibsrtp.Session, ("protect", "unprotect")),
        (clock, ("current_ntp_time",)),
    )


def _missing(wanted: _Wanted) -> list[str]:
    return [
        f"{type(one).__name__ if not isinstance(one, type) else one.__name__}.{name}"
        for one, names in wanted
        for name in names
        if not hasattr(one, name)
    ]


def _says(one: Callable[..., Any], text: str) -> bool:
    try:
        return text in inspect.getsource(one)
    except OSError:  # an installation without sources: nothing can be said
        return False


class _Packet:
    __slots__ = ("sequence_number", "timestamp")

    def __init__(self) -> None:
        self.sequence_number = 7
        self.timestamp = 9


def _changed_statistics() -> list[str]:
    """The counters must be content with a packet's number and time."""
    counted = StreamStatistics(48_000)
    packet: Any = _Packet()
    counted.add(packet)
    return [] if counted.packets_received == 1 else ["StreamStatistics.add counts something else"]


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


_log = logging.getLogger(__name__)

MAX_BYTES = 1500
"""The size of libsrtp's buffer in pylibsrtp."""

MAX_WAITING = 1024
"""A client's whole SCTP window, and what comes while the event loop is busy."""

_parse_stun: Callable[[bytes], aioice.stun.Message] = aioice.stun.parse_message


def watch_over(peer: RTCPeerConnection) -> None:
    """Let through what aiortc can take. Call it when the sections of a connection are known, before it gathers candidates."""
    aioice.stun.parse_message = _stun
    for ice in ice_transports(peer):
        connection: Any = getattr(ice, "_connection", None)
        queue, pass_on = (getattr(connection, n, None) for n in ("_queue", "data_received"))
        if queue is not None and pass_on is not None:
            connection.data_received = _filtered(pass_on, queue)


def forget(peer: RTCPeerConnection) -> None:
    """Drop what nobody has read of a connection that is closed; who still waits for a datagram is told that there is none."""
    for ice in ice_transports(peer):
        queue = getattr(getattr(ice, "_connection", None), "_queue", None)
        if queue is None:
            continue
        while not queue.empty():
            queue.get_nowait()
        queue.put_nowait(None)


def ice_transports(peer: RTCPeerConnection) -> set[RTCIceTransport]:
    """Those that are in use: bundled sections share one."""
    found = {one.receiver.transport.transport for one in peer.getTransceivers()}
    if peer.sctp is not None:
        found.add(peer.sctp.transport.transport)
    return found


def _filtered(
    pass_on: Callable[[bytes, int], None], queue: asyncio.Queue[object]
) -> Callable[[bytes, int], None]:
    def received(data: bytes, component: int) -> None:
        if 0 < len(data) <= MAX_BYTES and queue.qsize() < MAX_WAITING:
            pass_on(data, component)

    return received


def _stun(data: bytes) -> aioice.stun.Message:
    """In place of aioice's: whatever comes of a broken attribute, callers expect ValueError."""
    try:
        return _parse_stun(data)
    except ValueError:
        raise
    except Exception as fault:
        _log.debug("a malformed STUN packet: %r", fault)
        raise ValueError("malformed STUN packet") from fault


_FORCED_S = 0.4
WORDS = (
    "_RTCRtpReceiver__rtcp_exited",
    "_RTCRtpSender__rtcp_exited",
    "_RTCRtpSender__rtp_exited",
)
"""Events that `close` waits for."""


async def close_peer(peer: RTCPeerConnection, name: str, wait_s: float) -> None:
    """Free everything. `name` is for the log."""
    closing = asyncio.ensure_future(peer.close())  # not cancelled in time: that would break it
    await asyncio.wait({closing}, timeout=wait_s)
    if not closing.done():
        _log.error("%s: the connection does not close: it is made to", name)
        _say_for_the_dead(peer)
        await asyncio.wait({closing}, timeout=_FORCED_S)
    if not closing.done():
        await _close_sockets(peer)
        closing.cancel()
    elif closing.exception() is not None:
        _log.error("%s: closing failed", name, exc_info=closing.exception())
        await _close_sockets(peer)
    forget(peer)


def _say_for_the_dead(peer: RTCPeerConnection) -> None:
    for transceiver in peer.getTransceivers():
        for one in (transceiver.receiver, transceiver.sender):
            for word in WORDS:
                event = getattr(one, word, None)
                if isinstance(event, asyncio.Event):
                    event.set()


async def _close_sockets(peer: RTCPeerConnection) -> None:
    stops = {asyncio.ensure_future(ice.stop()) for ice in ice_transports(peer)}
    if stops:
        await asyncio.wait(stops, timeout=_FORCED_S)


LOOPBACK = "127.0.0.1"

_ask_aioice: Callable[[bool, bool], list[str]] = aioice.ice.get_host_addresses


def offer_addresses(only: tuple[str, ...]) -> None:
    """Offer these addresses; none given: every address of the machine, or loopback if that is all there is."""

    def chosen(use_ipv4: bool, use_ipv6: bool) -> list[str]:
        return list(only) or _ask_aioice(use_ipv4, use_ipv6) or [LOOPBACK]

    aioice.ice.get_host_addresses = chosen
