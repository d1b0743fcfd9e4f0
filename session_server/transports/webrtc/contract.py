"""Which private parts of aiortc and aioice the cheap paths rest on, and whether they are where they were.

`broken` and `broken_video` look at the installed versions, at start-up and in a test: an empty list means that the cheap path of audio,
or of video, can run. Each name
is used in the module that stands beside it; no other module of ours uses one that is not in the list, but `addresses` and
`paced_track`, which do without.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import aioice.ice
import pylibsrtp
from aiortc import RTCIceGatherer, RTCIceTransport, RTCRtpReceiver, RTCRtpSender, clock
from aiortc.rtcdtlstransport import RTCCertificate, RTCDtlsTransport
from aiortc.rtcrtpreceiver import StreamStatistics

from session_server.transports.webrtc import libopus

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
