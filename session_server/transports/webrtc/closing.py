"""The end of a peer connection: in bounded time everything of it is free, whatever aiortc waits for.

aiortc's `close` waits for each RTCP task to say that it has ended; one that died of a fault never does. Then the word is given
in its place, and if that does not help the sockets are closed directly. Units: seconds.
"""

from __future__ import annotations

import asyncio
import logging

from aiortc import RTCPeerConnection

from session_server.transports.webrtc.datagrams import forget, ice_transports

_log = logging.getLogger(__name__)

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
