"""Stand-ins for aiortc's receiver, its DTLS transport and the ICE connection below, with the private names of the contract.

What tests do with them has public names. No sockets.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


class FakeConnection:
    """Where datagrams come in. `nominated`: ways to the other side, by component."""

    def __init__(self, nominated: dict[int, Any] | None = None) -> None:
        self.passed_on: list[bytes] = []
        self._nominated = nominated or {}

    def data_received(self, data: bytes, component: int) -> None:
        self.passed_on.append(data)


class FakeDtls:
    """Without keys until `unseal_with`."""

    def __init__(self, connection: FakeConnection, tx_srtp: Any = None) -> None:
        self.transport = SimpleNamespace(_connection=connection)
        self.unregistered: list[object] = []
        self._rx_srtp: Any = None
        self._tx_srtp = tx_srtp

    def unseal_with(self, srtp: Any) -> None:
        self._rx_srtp = srtp

    def _unregister_rtp_receiver(self, receiver: object) -> None:
        self.unregistered.append(receiver)


class FakeReceiver:
    """What a microphone or a camera is put on."""

    def __init__(self, transport: FakeDtls | None = None) -> None:
        self._RTCRtpReceiver__remote_streams: dict[int, Any] = {}
        self.connection = FakeConnection()
        self.transport = transport or FakeDtls(self.connection)
        self.stopped = 0
        """How often its decoder was."""
        self.asked_keys: list[int] = []
        self.asked_packets: list[list[int]] = []

    @property
    def streams(self) -> dict[int, Any]:
        """What is counted of each source."""
        return self._RTCRtpReceiver__remote_streams

    async def receive(self, parameters: Any) -> None: ...

    async def rtp(
        self,
        payload: bytes,
        *,
        kind: int,
        sequence: int,
        timestamp: int,
        source: int = 7,
        marker: int = 0,
    ) -> None:
        """A packet that has just come."""
        packet = SimpleNamespace(
            ssrc=source,
            payload_type=kind,
            sequence_number=sequence,
            timestamp=timestamp,
            marker=marker,
            payload=payload,
        )
        await self._handle_rtp_packet(packet, arrival_time_ms=0)

    async def _handle_rtp_packet(self, packet: Any, arrival_time_ms: int) -> None:
        raise AssertionError("replaced")

    def _RTCRtpReceiver__stop_decoder(self) -> None:
        self.stopped += 1

    async def _send_rtcp_pli(self, media_ssrc: int) -> None:
        self.asked_keys.append(media_ssrc)

    async def _send_rtcp_nack(self, media_ssrc: int, lost: list[int]) -> None:
        self.asked_packets.append(lost)
