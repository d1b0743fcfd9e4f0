"""RTP of one call, taken off aiortc's connection before aiortc works on it.

So hundreds of callers fit on a core: nothing is decoded and no thread has anything to do. DTLS,
ICE, data channel and reports stay aiortc's. Owns sequence numbers and timestamps of the outgoing
stream, the counts of the incoming one, and what a bad network does to both
(`loadgen.call_reception.BadNetwork`).

Invariants: it rests on these private names, and a test holds them to it:
`RTCIceTransport._connection`, `RTCDtlsTransport._rx_srtp` and `._tx_srtp`, aioice's
`Connection.data_received`, `._nominated` and `._protocols`, and `_RTCRtpReceiver__remote_streams`.
"""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pylibsrtp
from aiortc import MediaStreamTrack, RTCPeerConnection
from aiortc.rtcrtpreceiver import StreamStatistics

from loadgen.call_reception import FRAME_TICKS, RTP_CLOCK, Arrivals, BadNetwork
from session_server.process.clock import Clock
from session_server.types.audio import NS_PER_S

STATISTICS = "_RTCRtpReceiver__remote_streams"
_HEADER = struct.Struct("!BBHLL")


class SilentTrack(MediaStreamTrack):
    """aiortc's sender waits on it for ever, and sends nothing itself."""

    kind = "audio"

    async def recv(self) -> Any:  # noqa: ANN401
        await asyncio.Event().wait()


@dataclass(frozen=True, slots=True)
class _Seen:
    """What aiortc's statistics read of a packet."""

    sequence_number: int
    timestamp: int


class RtpPort:
    """Sends and takes the audio packets of one connection. `took`: is given (RTP timestamp, payload, now)."""

    def __init__(
        self,
        peer: RTCPeerConnection,
        payload_type: int,
        ssrc: int,
        took: Callable[[int, bytes, int], None],
        clock: Clock,
        network: BadNetwork,
        rng: random.Random,
    ) -> None:
        self.arrivals = Arrivals()
        self.received = 0
        self.heard_at = clock.now()
        """When the last packet came."""
        self._receiver = peer.getReceivers()[0]
        self._dtls: Any = self._receiver.transport
        self._connection: Any = self._dtls.transport._connection
        self._payload_type = payload_type
        self._ssrc = ssrc
        self._took = took
        self._clock = clock
        self._network = network
        self._rng = rng
        self._loop = asyncio.get_running_loop()
        self._sequence = rng.randrange(1 << 16)
        self._timestamp = rng.randrange(1 << 32)
        self._statistics: StreamStatistics | None = None
        self._others = self._connection.data_received
        self._connection.data_received = self._datagram  # type: ignore[method-assign]

    @property
    def expected(self) -> int:
        """Packets that were sent to us, by their numbers."""
        return self._statistics.packets_expected if self._statistics is not None else 0

    @property
    def lost(self) -> int:
        return max(0, self.expected - self.received)

    def send(self, payload: bytes) -> None:
        """The next 20 ms. Nothing is sent while there is no connection, but time goes on."""
        header = _HEADER.pack(0x80, self._payload_type, self._sequence, self._timestamp, self._ssrc)
        self._sequence = (self._sequence + 1) % (1 << 16)
        self._timestamp = (self._timestamp + FRAME_TICKS) % (1 << 32)
        srtp = self._dtls._tx_srtp
        if srtp is None:
            return
        packet = srtp.protect(header + payload)
        fate = self._network.fate(self._rng)
        if fate == 0:
            self._put(packet)
        elif fate is not None:
            self._loop.call_later(fate / NS_PER_S, self._put, packet)

    def vanish(self) -> None:
        """Be gone without a word: the sockets close."""
        for protocol in self._connection._protocols:
            protocol.transport.abort()

    def _put(self, packet: bytes) -> None:
        pair = self._connection._nominated.get(1)
        if pair is not None and not pair.protocol.transport.is_closing():
            pair.protocol.transport.sendto(packet, pair.remote_addr)

    def _datagram(self, data: bytes, component: int) -> None:
        ours = 127 < data[0] < 192 and data[1] & 127 == self._payload_type
        if not ours or self._dtls._rx_srtp is None:
            self._others(data, component)
            return
        now = self.heard_at = self._clock.now()
        self.arrivals.add(int.from_bytes(data[4:8], "big"), now)
        fate = self._network.fate(self._rng)
        if fate == 0:
            self._take(data, now)
        elif fate is not None:
            self._loop.call_later(fate / NS_PER_S, self._take_later, data)

    def _take_later(self, data: bytes) -> None:
        self._take(data, self._clock.now())

    def _take(self, data: bytes, now: int) -> None:
        try:
            plain = self._dtls._rx_srtp.unprotect(data)
        except pylibsrtp.Error:  # sent twice, or not by our peer
            return
        head = 12 + 4 * (plain[0] & 15)
        if plain[0] & 16:  # a header extension
            head += 4 + 4 * int.from_bytes(plain[head + 2 : head + 4], "big")
        if len(plain) <= head:
            return
        sequence, timestamp, ssrc = struct.unpack_from("!HLL", plain, 2)
        self._count(sequence, timestamp, ssrc)
        self._took(timestamp, plain[head:], now)

    def _count(self, sequence: int, timestamp: int, ssrc: int) -> None:
        """aiortc's own task makes receiver reports of this: without them the server has no round trip time."""
        if self._statistics is None:
            self._statistics = StreamStatistics(RTP_CLOCK)
            getattr(self._receiver, STATISTICS)[ssrc] = self._statistics
        self._statistics.add(_Seen(sequence, timestamp))  # type: ignore[arg-type]
        self.received += 1
