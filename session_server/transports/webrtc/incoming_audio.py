"""The incoming audio of a call: microphone of the cheap path, track of the stock path.

Cheap path: each packet is decoded to 16 kHz as it comes, on the event loop, without aiortc's jitter
buffer, decoder thread and queues. Owns one call's jitter buffer, time line and decoder. Packets
come by one of two ways: from aiortc's receiver, whose handler is replaced; or, where the payload
type cannot be taken for RTCP, from the socket itself, before aiortc sees them. aiortc's statistics
go on being fed: without them the client gets no receiver reports. Other payload types (telephone
events, redundancy) and packets that are no Opus are ignored. Where nothing at all comes for
AHEAD_AFTER_S, 20 ms are made up before there is evidence of a loss: several packets lost in a row,
and the one after them late, would else be a stop of over 100 ms. A network that only stood still
loses the sound of one packet by it.

Stock path: decoded frames go to mono PCM on one gapless time line. A hole in the stream's time
stamps (lost packets, a microphone that sends nothing in silence) is filled with silence up to
LONGEST_HOLE_S; beyond that the time line goes on without it. Every frame is taken at once: a track
that is not read would keep them all.

Invariants: a few packets wait at most, statistics stay within what a report can say
(`aiortc_internals`, which also has the private names), and `Allowance` bounds audio that comes
faster than real time: time stamps that swing would else make seconds of silence out of every
packet.

Units: seconds of the event loop's clock.

Errors: a fault here ends this call alone, by `failed`.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any, cast

import av
import numpy as np
import pylibsrtp
from aiortc import MediaStreamTrack, RTCRtpReceiver
from aiortc.mediastreams import MediaStreamError
from aiortc.rtcrtpparameters import RTCRtpReceiveParameters
from aiortc.rtcrtpreceiver import StreamStatistics
from aiortc.rtp import RtpPacket

from session_server.transports.webrtc import opus
from session_server.transports.webrtc.aiortc_internals import bound_jitter, room_for_one
from session_server.transports.webrtc.jitter_buffer import (
    PATIENCE_S,
    Incoming,
    Ordered,
    ReorderWindow,
)
from session_server.transports.webrtc.limits import RTP_CLOCK
from session_server.transports.webrtc.packet_loss_concealment import (
    Allowance,
    Do,
    MicLine,
    Stretch,
    packet_ticks,
)
from session_server.types.audio import INPUT_RATE

AHEAD_AFTER_S = 0.09
_LEAST_DIRECT = 96
"""From here on payload types are dynamic, and their second byte is never that of RTCP."""

_TIMER_S = 0.002
"""How much too early a loop may call."""

_HEADER = struct.Struct("!BBHLL")


class _Seen:
    """What StreamStatistics reads of a packet."""

    __slots__ = ("sequence_number", "timestamp")

    def __init__(self, sequence_number: int, timestamp: int) -> None:
        self.sequence_number = sequence_number
        self.timestamp = timestamp


class InlineMicrophone:
    """`hear` is given s16le mono with its rate, gapless. `failed`: what broke, at most once."""

    def __init__(
        self,
        receiver: RTCRtpReceiver,
        hear: Callable[[bytes, int], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._receiver = cast("Any", receiver)
        self._hear = hear
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._window = ReorderWindow()
        self._line = MicLine()
        self._allowance = Allowance(self._loop.time())
        self._decoder = opus.Decoder(INPUT_RATE)
        self._payload_types: frozenset[int] = frozenset()
        self._timer: asyncio.TimerHandle | None = None
        self._quiet_timer: asyncio.TimerHandle | None = None
        self._played_at, self._played = 0.0, b""
        self._closed = False
        self._receive = receiver.receive
        self._receiver.receive = self._begin
        self._receiver._handle_rtp_packet = self._handle
        self._connection: Any = None
        self._pass_on: Callable[[bytes, int], None] | None = None

    def release(self) -> None:
        """Nothing is heard any more. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._disarm()
        if self._quiet_timer is not None:
            self._quiet_timer.cancel()
        self._decoder.close()
        self._receiver._handle_rtp_packet = _ignore
        if self._connection is not None:
            self._connection.data_received = self._pass_on

    # -- the two ways in

    async def _begin(self, parameters: RTCRtpReceiveParameters) -> None:
        """aiortc starts its receiver: the connection is up. Its decoder thread has nothing to do, and ends."""
        self._payload_types = frozenset(
            codec.payloadType
            for codec in parameters.codecs
            if codec.mimeType.lower() == "audio/opus" and codec.payloadType is not None
        )
        await self._receive(parameters)
        self._receiver._RTCRtpReceiver__stop_decoder()
        if self._payload_types and min(self._payload_types) >= _LEAST_DIRECT and not self._closed:
            self._connection = self._receiver.transport.transport._connection
            self._pass_on = self._connection.data_received
            self._connection.data_received = self._datagram

    async def _handle(self, packet: RtpPacket, arrival_time_ms: int) -> None:
        """In place of the receiver's own."""
        kind, source = packet.payload_type, packet.ssrc
        self._take(source, kind, packet.sequence_number, packet.timestamp, packet.payload)

    def _datagram(self, data: bytes, component: int) -> None:
        """In place of the connection's own: everything but our audio goes on to it."""
        assert self._pass_on is not None
        ours = len(data) > 12 and 127 < data[0] < 192 and data[1] & 127 in self._payload_types
        session = self._receiver.transport._rx_srtp
        if not ours or session is None:
            self._pass_on(data, component)
            return
        try:
            plain = session.unprotect(data)
        except (pylibsrtp.Error, ValueError):  # forged, came twice, or longer than any packet
            return
        bits, kind, sequence, timestamp, source = _HEADER.unpack_from(plain)
        payload = _payload(plain, bits)
        if payload is not None:
            self._take(source, kind & 127, sequence, timestamp, payload)

    # -- one packet

    def _take(self, source: int, kind: int, sequence: int, timestamp: int, payload: bytes) -> None:
        if self._closed or kind not in self._payload_types:
            return
        try:
            self._count(source, sequence, timestamp)
            if packet_ticks(payload):
                now = self._loop.time()
                packet = Incoming(source, sequence, timestamp, payload)
                self._play(self._window.put(packet, now), now)
        except Exception as fault:
            self._broke(fault)

    def _count(self, source: int, sequence: int, timestamp: int) -> None:
        """aiortc's receiver reports are made of this."""
        streams = self._receiver._RTCRtpReceiver__remote_streams
        stream = streams.get(source)
        if stream is None:
            room_for_one(streams)
            stream = streams[source] = StreamStatistics(RTP_CLOCK)
        seen: Any = _Seen(sequence, timestamp)
        stream.add(seen)
        bound_jitter(stream)

    def _expire(self) -> None:
        self._timer = None
        try:
            now = self._loop.time()
            self._play(self._window.expire(now), now)
        except Exception as fault:
            self._broke(fault)

    def _play(self, ready: list[Ordered], now: float) -> None:
        sound = b"".join(self._sound(ordered, now) for ordered in ready)
        if sound:
            self._hear(sound, INPUT_RATE)
        if ready:
            self._played_at, self._played = now, ready[-1].packet.payload
            if self._quiet_timer is None and not self._closed:
                self._quiet_timer = self._loop.call_at(now + AHEAD_AFTER_S, self._look_for_quiet)
        self._disarm()
        deadline = self._window.deadline
        if deadline is not None and not self._closed:
            self._timer = self._loop.call_at(deadline, self._expire)

    def _look_for_quiet(self) -> None:
        """One timer that is seldom set, instead of one that every packet sets. It waits longer where packets are longer."""
        self._quiet_timer = None
        now = self._loop.time()
        packet_s = packet_ticks(self._played) / RTP_CLOCK
        due = self._played_at + max(AHEAD_AFTER_S, packet_s + PATIENCE_S)
        if now < due - _TIMER_S:
            self._quiet_timer = self._loop.call_at(due, self._look_for_quiet)
            return
        try:
            stretch = self._line.ahead()
            if stretch is not None and self._affordable([stretch], now):
                self._hear(self._stretch(stretch), INPUT_RATE)
        except Exception as fault:
            self._broke(fault)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _sound(self, ordered: Ordered, now: float) -> bytes:
        if ordered.restarted:
            self._decoder.forget()
        stretches = list(self._line.stretches(ordered))
        if self._affordable(stretches, now):
            return b"".join(map(self._stretch, stretches))
        packet = stretches[-1:]
        return self._stretch(packet[0]) if self._affordable(packet, now) else b""

    def _affordable(self, stretches: list[Stretch], now: float) -> bool:
        return self._allowance.take(sum(s.ticks for s in stretches) / RTP_CLOCK, now)

    def _stretch(self, stretch: Stretch) -> bytes:
        samples = stretch.ticks * INPUT_RATE // RTP_CLOCK
        match stretch.do:
            case Do.SILENCE:
                return bytes(2 * samples)
            case Do.CONCEAL:
                return self._decoder.conceal(samples)
            case Do.RECOVER:
                return self._recovered(stretch.payload, samples)
            case Do.DECODE:
                sound = self._decoded(stretch.payload, samples)
                return sound[2 * (stretch.sounded * INPUT_RATE // RTP_CLOCK) :]

    def _decoded(self, payload: bytes, samples: int) -> bytes:
        try:
            return self._decoder.decode(payload)
        except opus.OpusError:
            return self._decoder.conceal(samples)

    def _recovered(self, following: bytes, samples: int) -> bytes:
        try:
            return self._decoder.recover(following, samples)
        except opus.OpusError:
            return self._decoder.conceal(samples)

    def _broke(self, fault: Exception) -> None:
        self.release()
        self._failed(fault)


async def _ignore(packet: RtpPacket, arrival_time_ms: int) -> None:
    """For a call that is over."""


def _payload(packet: bytes, bits: int) -> bytes | None:
    """What follows the header, sources and extensions of an RTP packet, without padding; None: it is cut off."""
    at = 12 + 4 * (bits & 15)
    if bits & 16:
        if len(packet) < at + 4:
            return None
        at += 4 + 4 * int.from_bytes(packet[at + 2 : at + 4], "big")
    end = len(packet) - (packet[-1] if bits & 32 else 0)
    return packet[at:end] if at <= end else None


LONGEST_HOLE_S = 2.0
_LEAST_HOLE_S = 0.001


async def listen(track: MediaStreamTrack, hear: Callable[[bytes, int], None]) -> None:
    """Hand on what comes, s16le mono with its rate, until the track ends."""
    loop, line = asyncio.get_running_loop(), _TimeLine()
    allowance = Allowance(loop.time())
    while True:
        try:
            frame = await track.recv()
        except MediaStreamError:
            return
        if isinstance(frame, av.AudioFrame):
            rate, now = frame.sample_rate, loop.time()
            hole, sound = line.hole_before(frame), _mono(frame)
            if allowance.take((len(hole) + len(sound)) / (2 * rate), now):
                hear(hole + sound, rate)
            elif allowance.take(len(sound) / (2 * rate), now):
                hear(sound, rate)


async def discard(track: MediaStreamTrack) -> None:
    """Read a track that nobody wants, so that it keeps nothing."""
    while True:
        try:
            await track.recv()
        except MediaStreamError:
            return


def _mono(frame: av.AudioFrame) -> bytes:
    """aiortc decodes to interleaved s16 of one or two channels. The mean of two, without leaving int16."""
    channels = len(frame.layout.channels)
    samples = np.frombuffer(memoryview(frame.planes[0]), "<i2", frame.samples * channels)
    if channels == 2:
        left, right = samples[0::2], samples[1::2]
        samples = (left >> 1) + (right >> 1) + (left & right & 1)
    mono: bytes = samples.tobytes()
    return mono


class _TimeLine:
    """Where the next frame is expected, in samples of the stream's own clock."""

    def __init__(self) -> None:
        self._expected: int | None = None

    def hole_before(self, frame: av.AudioFrame) -> bytes:
        """Silence for what is missing between the last frame and this one."""
        rate, at, base = frame.sample_rate, frame.pts, frame.time_base
        if at is None or base is None:
            return b""
        if base.denominator != rate or base.numerator != 1:
            at = at * base.numerator * rate // base.denominator
        expected, self._expected = self._expected, at + frame.samples
        hole = 0 if expected is None else at - expected
        if not _LEAST_HOLE_S * rate < hole <= LONGEST_HOLE_S * rate:
            return b""
        return bytes(2 * hole)
