"""What tests reach of aiortc's and aioice's insides; the one place, beside the tests of the contract, that names them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiortc import RTCPeerConnection


def ice_connection(receiver: Any) -> Any:
    """aioice's connection under a receiver."""
    return receiver.transport.transport._connection


def sockets(connection: Any) -> list[Any]:
    """The asyncio transports of an ICE connection."""
    return [protocol.transport for protocol in connection._protocols]


def abort_sockets(peer: RTCPeerConnection) -> None:
    """Cut a peer off without a word: nothing is sent any more, nothing comes."""
    for transceiver in peer.getTransceivers():
        for one in sockets(ice_connection(transceiver.receiver)):
            one.abort()


def waiting(source: Any) -> int:
    """What nobody has read yet: datagrams of an ICE connection, or frames of a remote track."""
    count: int = source._queue.qsize()
    return count


def lose_sent(sender: Any, loses: Callable[[bytes], bool]) -> None:
    """Lose those packets of a sender's ICE transport for which `loses` is true."""
    transport = sender.transport.transport
    send = transport._send

    async def some(data: bytes) -> None:
        if not loses(data):
            await send(data)

    transport._send = some


def report_task(receiver: Any) -> Any:
    """The task that sends a receiver's reports."""
    return receiver._RTCRtpReceiver__rtcp_task


def streams(receiver: Any) -> dict[int, Any]:
    """What a receiver counts of each source."""
    found: dict[int, Any] = receiver._RTCRtpReceiver__remote_streams
    return found


def arrived_earlier(stream: Any, ticks: int) -> None:
    """As if the newest packet of a source had come so much earlier."""
    stream._last_arrival -= ticks
