"""The way into a call, as a browser goes it: an offer by HTTP, an answer, and what of both the sender of RTP has to know.

aiortc's threads and tasks are freed by `close`, which is bounded. Seconds.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import aiohttp
import aioice.ice
from aiortc import RTCPeerConnection, RTCSessionDescription

from loadgen.drivers.wire import NOT_TRUSTED, REFUSED, message_of

CHANNEL = "oai-events"
CLOSE_S = 5.0
LOOPBACK = "127.0.0.1"
NO_CALLS = "no calls are served here: this server has no WebRTC, or it is off (webrtc.enabled)"

_ask_aioice = aioice.ice.get_host_addresses
_SSRC = re.compile(r"^a=ssrc:(\d+)", re.MULTILINE)
_AUDIO = re.compile(r"^m=audio \d+ \S+ (\d+)", re.MULTILINE)


class CallRefused(Exception):
    """The server gave no answer. `status`, `headers` and `body`: of HTTP; `why`: what it said."""

    def __init__(
        self,
        status: int,
        why: str,
        headers: Mapping[str, str] | None = None,
        body: str = "",
    ) -> None:
        super().__init__(why)
        self.status = status
        self.why = why
        self.headers: Mapping[str, str] = {} if headers is None else headers
        self.body = body


@dataclass(frozen=True, slots=True)
class Negotiated:
    """What offer and answer say of the outgoing audio, and the call's URL on the server."""

    payload_type: int
    ssrc: int
    location: str


def offer_addresses(url: str) -> None:
    """To a server on this machine offer loopback alone: aioice leaves it out, and every other address costs checks."""
    host = urllib.parse.urlsplit(url).hostname or ""
    local = host == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)
    aioice.ice.get_host_addresses = _loopback if local else _ask_aioice


def _loopback(use_ipv4: bool, use_ipv6: bool) -> list[str]:
    return [LOOPBACK]


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


async def negotiate(
    http: aiohttp.ClientSession,
    url: str,
    headers: Mapping[str, str],
    peer: RTCPeerConnection,
    answered: Callable[[], None],
) -> Negotiated:
    """Offer what `peer` has, and take the answer. Raises CallRefused, or aiohttp.ClientError."""
    await peer.setLocalDescription(await peer.createOffer())
    sdp = str(peer.localDescription.sdp)
    sent = {**headers, "Content-Type": "application/sdp"}
    async with http.post(url, data=sdp.encode(), headers=sent) as response:
        text = await response.text()
        if response.status != 201:
            raise CallRefused(response.status, message_of(text), response.headers, text)
        location = response.headers.get("Location", "")
    audio, ssrc = _AUDIO.search(text), _SSRC.search(sdp)
    if audio is None or ssrc is None:
        raise CallRefused(response.status, "the answer has no audio section")
    answered()
    await peer.setRemoteDescription(RTCSessionDescription(text, "answer"))
    return Negotiated(int(audio[1]), int(ssrc[1]), location)


async def close(peer: RTCPeerConnection) -> None:
    """Free everything; never cancelled halfway, and never for longer than CLOSE_S."""
    closing = asyncio.ensure_future(peer.close())
    await asyncio.wait({closing}, timeout=CLOSE_S)


def describe(fault: Exception, url: str) -> tuple[str, str]:
    """(one line for people, key for `error_kinds`) of why a call could not be begun."""
    if isinstance(fault, CallRefused):
        reason = {
            **REFUSED,
            404: NO_CALLS,
            405: NO_CALLS,
            501: NO_CALLS,
        }.get(fault.status, fault.why or "the server refused the call")
        return f"{url}: HTTP {fault.status}: {reason}", f"http:{fault.status}"
    if isinstance(fault, aiohttp.ClientConnectorCertificateError):
        return f"{url}: {NOT_TRUSTED}", "connect:certificate"
    if isinstance(fault, TimeoutError):
        return f"{url}: the call does not connect: does UDP get through?", "connect:timeout"
    if isinstance(fault, ConnectionError | aiohttp.ClientConnectionError):
        return f"{url}: cannot connect: is the server running? ({fault})", "connect:refused"
    return f"{url}: not a server of calls ({fault})", "connect:http"
