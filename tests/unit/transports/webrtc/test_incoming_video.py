"""The camera of the cheap path against a receiver that only notes what it is asked to send."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import av
import pytest

from session_server.transports.webrtc.aiortc_internals import MAX_SOURCES, TooManySources
from session_server.transports.webrtc.incoming_video import ASK_EVERY_S, KEYS_EVERY_S, InlineCamera
from session_server.transports.webrtc.video_decoder import DecodeThreads, Dropped
from session_server.transports.webrtc.video_frames import VideoPacket
from tests.unit.transports.webrtc.aiortc_fakes import FakeReceiver
from tests.unit.transports.webrtc.vp8_clip import SOURCE, clip, grey, packets
from tests.until import until

pytestmark = pytest.mark.unit

VP8 = 96


class Onlooker:
    """Who looks, and what there was to see."""

    def __init__(self) -> None:
        self.looks = True
        self.shown: list[int] = []
        self.streams = 0
        self.faults: list[BaseException] = []

    def new_stream(self) -> None:
        self.streams += 1

    def captured_ns(self, rtp_timestamp: int, arrived: float) -> int:
        return rtp_timestamp

    def show(self, picture: av.VideoFrame, captured_ns: int) -> None:
        self.shown.append(captured_ns)

    def dropped(self, why: Dropped, frames: int) -> None: ...

    def failed(self, fault: BaseException) -> None:
        self.faults.append(fault)


class Bench:
    def __init__(self, *, keys_only: bool = False) -> None:
        self.receiver, self.onlooker = FakeReceiver(), Onlooker()
        made: Any = self.receiver
        self.camera = InlineCamera(made, self.onlooker, DecodeThreads(), keys_only=keys_only)
        loop: Any = SimpleNamespace(time=lambda: self.now)
        self.now = 100.0
        self.camera._loop = loop

    async def begin(self) -> None:
        codec = SimpleNamespace(mimeType="video/VP8", payloadType=VP8)
        begin: Any = self.receiver.receive
        await begin(SimpleNamespace(codecs=[codec]))

    async def packet(self, packet: VideoPacket, kind: int = VP8) -> None:
        await self.receiver.rtp(
            packet.payload,
            kind=kind,
            sequence=packet.sequence,
            timestamp=packet.timestamp,
            source=packet.source,
            marker=int(packet.last),
        )

    async def frames(self, made: list[list[VideoPacket]]) -> None:
        for frame in made:
            for packet in frame:
                await self.packet(packet)


def stream(count: int, keys: tuple[int, ...] = (0,)) -> list[list[VideoPacket]]:
    return list(packets(clip([grey(40 + n) for n in range(count)], keys), first_stamp=9000))


@pytest.mark.asyncio
async def test_frames_are_shown_with_the_time_at_which_they_were_taken():
    bench = Bench()
    await bench.begin()
    assert bench.receiver.stopped == 1
    for number, frame in enumerate(stream(3)):
        await bench.frames([frame])
        await until(lambda number=number: len(bench.onlooker.shown) == number + 1)
    assert bench.onlooker.shown == [9000, 15_000, 21_000]
    assert bench.onlooker.streams == 1
    bench.camera.release()
    bench.camera.release()


@pytest.mark.asyncio
async def test_other_payload_types_are_let_go():
    bench = Bench()
    await bench.begin()
    await bench.packet(stream(1)[0][0], kind=VP8 + 1)
    assert bench.receiver.streams == {}


@pytest.mark.asyncio
async def test_while_nobody_looks_packets_are_only_counted():
    bench = Bench()
    await bench.begin()
    bench.onlooker.looks = False
    await bench.frames(stream(20))
    counted = bench.receiver.streams[SOURCE]
    assert counted.packets_received == sum(map(len, stream(20)))
    assert bench.camera.source is None
    assert bench.receiver.asked_keys == []
    assert bench.onlooker.shown == []


@pytest.mark.asyncio
async def test_who_begins_to_look_in_the_middle_has_a_key_frame_asked_for_until_it_comes():
    bench = Bench()
    await bench.begin()
    made = stream(40, keys=(0, 35))
    for frame in made[1:35]:
        bench.now += 1 / 15
        await bench.frames([frame])
    asked = len(bench.receiver.asked_keys)
    assert asked == pytest.approx(34 / 15 / ASK_EVERY_S, abs=1.5)
    await bench.frames(made[35:])
    await until(lambda: len(bench.onlooker.shown) > 0)
    assert len(bench.receiver.asked_keys) == asked
    bench.camera.release()


@pytest.mark.asyncio
async def test_key_frames_are_asked_for_each_second_where_only_those_are_decoded():
    bench = Bench(keys_only=True)
    await bench.begin()
    for frame in stream(60, keys=(0, 30)):
        bench.now += 1 / 15
        await bench.frames([frame])
    assert len(bench.receiver.asked_keys) == pytest.approx(60 / 15 / KEYS_EVERY_S, abs=1)
    await until(lambda: len(bench.onlooker.shown) >= 1)
    assert set(bench.onlooker.shown) <= {9000, 9000 + 30 * 6000}
    bench.camera.release()


@pytest.mark.asyncio
async def test_a_lost_packet_is_asked_for():
    bench = Bench()
    await bench.begin()
    made = stream(4)
    await bench.frames(made[:1])
    await bench.frames(made[2:])
    assert bench.receiver.asked_packets == [[made[1][0].sequence]]
    bench.camera.release()


@pytest.mark.asyncio
async def test_ever_new_sources_end_the_video_and_are_not_routed_any_more():
    bench = Bench()
    await bench.begin()
    first = stream(1)[0][0]
    for source in range(MAX_SOURCES + 5):
        await bench.packet(first._replace(source=source))
    (fault,) = bench.onlooker.faults
    assert isinstance(fault, TooManySources)
    assert bench.receiver.transport.unregistered == [bench.receiver]
    assert len(bench.receiver.streams) == MAX_SOURCES
    await asyncio.sleep(0)
