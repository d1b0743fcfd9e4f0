"""What may come in by a call's sockets before anybody has proved who it is: anyone can send to an open UDP port.

Owns the way from each ICE connection of a call to aiortc, on both media paths, from before its sockets are open. Invariants: no
empty datagram and none longer than MAX_BYTES goes on, since aiortc's loop would die of it and the call with it; no more than
MAX_WAITING wait to be read, while nobody reads either; a packet that only looks like STUN is one that nobody wants, not an error
of the event loop. The private names are in `contract`; where they are gone the call does without.

Units: bytes; counts of datagrams.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import aioice.stun
from aiortc import RTCIceTransport, RTCPeerConnection

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
