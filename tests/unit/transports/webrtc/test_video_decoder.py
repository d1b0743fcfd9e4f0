"""Frames are decoded in threads that come and go; the newest wins, and bad ones cost no more than themselves."""

from __future__ import annotations

import asyncio
import threading

import av
import pytest

from session_server.transports.webrtc import video_decoder
from session_server.transports.webrtc.video_decoder import (
    MOST_IN_A_JOB,
    MOST_WAITING,
    MOST_WAITING_BYTES,
    DecodeThreads,
    Dropped,
    VideoDecoder,
)
from session_server.transports.webrtc.video_frames import EncodedFrame
from tests.integration.transports.webrtc.cameras import decoder_threads
from tests.unit.transports.webrtc.vp8_clip import clip, grey
from tests.until import until

pytestmark = pytest.mark.unit

LEVELS = (20, 80, 140, 200)


class Told:
    """A `Receiver` that notes what it hears."""

    def __init__(self) -> None:
        self.pictures: list[tuple[av.VideoFrame, EncodedFrame]] = []
        self.lost: dict[Dropped, int] = {}
        self.stops = 0
        self.faults: list[BaseException] = []

    def decoded(self, picture: av.VideoFrame, frame: EncodedFrame) -> None:
        self.pictures.append((picture, frame))

    def dropped(self, why: Dropped, frames: int) -> None:
        self.lost[why] = self.lost.get(why, 0) + frames

    def cannot_go_on(self) -> None:
        self.stops += 1

    def failed(self, fault: BaseException) -> None:
        self.faults.append(fault)

    def levels(self) -> list[int]:
        return [int(picture.to_ndarray(format="gray").mean()) for picture, _ in self.pictures]


def made(count: int, keys: tuple[int, ...] = (0,), size: tuple[int, int] = (64, 48)):
    frames = clip([grey(LEVELS[n % 4], *size) for n in range(count)], keys)
    return [EncodedFrame(data, n) for n, data in enumerate(frames)]


class Slow:
    """Holds every job until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gate = threading.Event()
        self.jobs: list[int] = []
        decoded = video_decoder._decoded

        def waiting(codec, frames):
            self.jobs.append(len(frames))
            self.gate.wait(60)
            return decoded(codec, frames)

        monkeypatch.setattr(video_decoder, "_decoded", waiting)


@pytest.mark.asyncio
async def test_frames_come_out_as_pictures_one_after_the_other():
    told, threads = Told(), DecodeThreads()
    decoder = VideoDecoder(threads, told)
    for number, frame in enumerate(made(8)):
        decoder.put(frame)
        await until(lambda number=number: len(told.pictures) == number + 1)
    assert [frame.timestamp for _, frame in told.pictures] == list(range(8))
    assert all(abs(a - b) < 8 for a, b in zip(told.levels(), LEVELS * 2, strict=True))
    assert told.lost == {}
    decoder.rest()
    await until(lambda: decoder_threads() == 0)


@pytest.mark.asyncio
async def test_nothing_is_begun_before_a_key_frame():
    told, threads = Told(), DecodeThreads()
    decoder = VideoDecoder(threads, told)
    for frame in made(4)[1:]:
        decoder.put(frame)
    assert decoder_threads() == 0
    assert told.pictures == []


@pytest.mark.asyncio
async def test_of_what_waited_only_the_newest_picture_is_handed_on(monkeypatch: pytest.MonkeyPatch):
    slow, told = Slow(monkeypatch), Told()
    decoder = VideoDecoder(DecodeThreads(), told)
    frames = made(1 + MOST_IN_A_JOB + 3)
    for frame in frames:
        decoder.put(frame)
    slow.gate.set()
    await until(lambda: len(told.pictures) == 3)
    assert slow.jobs == [1, MOST_IN_A_JOB, 3]
    assert [frame.timestamp for _, frame in told.pictures] == [0, MOST_IN_A_JOB, len(frames) - 1]
    assert told.lost == {Dropped.REPLACED: len(frames) - 3}
    decoder.rest()


@pytest.mark.asyncio
async def test_a_key_frame_puts_away_what_waits_before_it(monkeypatch: pytest.MonkeyPatch):
    slow, told = Slow(monkeypatch), Told()
    decoder = VideoDecoder(DecodeThreads(), told)
    for frame in made(7, keys=(0, 6)):
        decoder.put(frame)
    slow.gate.set()
    await until(lambda: len(told.pictures) == 2)
    assert [frame.timestamp for _, frame in told.pictures] == [0, 6]
    assert told.lost == {Dropped.REPLACED: 5}
    assert told.stops == 0
    decoder.rest()


@pytest.mark.asyncio
async def test_too_much_that_waits_is_given_up_as_a_whole(monkeypatch: pytest.MonkeyPatch):
    slow, told = Slow(monkeypatch), Told()
    decoder = VideoDecoder(DecodeThreads(), told)
    for frame in made(MOST_WAITING + 6):
        decoder.put(frame)
        assert decoder.waiting <= MOST_WAITING
    assert told.stops == 1
    assert told.lost == {Dropped.REPLACED: MOST_WAITING + 1}
    big = EncodedFrame(b"\x01" + bytes(MOST_WAITING_BYTES), 99)
    decoder.put(made(1)[0])
    decoder.put(big)
    assert told.stops == 2
    assert decoder.waiting_bytes == 0
    slow.gate.set()
    decoder.rest()


@pytest.mark.asyncio
async def test_a_frame_that_is_too_large_or_no_frame_is_not_decoded(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(video_decoder, "MOST_PIXELS", 64 * 48)
    told = Told()
    decoder = VideoDecoder(DecodeThreads(), told)
    (wide,) = made(1, size=(66, 48))
    decoder.put(wide)
    decoder.put(EncodedFrame(b"\x00 nonsense of some length", 1))
    assert decoder_threads() == 0
    assert told.lost == {Dropped.TOO_LARGE: 1, Dropped.UNDECODABLE: 1}
    assert told.stops == 2
    decoder.put(made(1)[0])
    await until(lambda: len(told.pictures) == 1)
    decoder.rest()


@pytest.mark.asyncio
async def test_a_frame_that_the_decoder_refuses_is_counted_and_the_next_key_frame_helps():
    told = Told()
    decoder = VideoDecoder(DecodeThreads(), told)
    key, delta, again = made(3, keys=(0, 2))
    decoder.put(key)
    await until(lambda: len(told.pictures) == 1)
    decoder.put(EncodedFrame(key.data[:10], 1))
    await until(lambda: told.stops == 1)
    assert told.lost == {Dropped.UNDECODABLE: 1}
    decoder.put(delta)
    decoder.put(again)
    await until(lambda: len(told.pictures) == 2)
    assert told.pictures[1][1].timestamp == 2
    assert told.faults == []
    decoder.rest()


@pytest.mark.asyncio
async def test_what_a_job_brings_after_rest_is_not_handed_on(monkeypatch: pytest.MonkeyPatch):
    slow, told, threads = Slow(monkeypatch), Told(), DecodeThreads()
    decoder = VideoDecoder(threads, told)
    frames = made(2)
    decoder.put(frames[0])
    decoder.rest()
    decoder.put(frames[0])
    assert slow.jobs == [1]
    slow.gate.set()
    await until(lambda: len(told.pictures) == 1)
    assert slow.jobs == [1, 1]
    decoder.rest()
    await until(lambda: decoder_threads() == 0)


@pytest.mark.asyncio
async def test_a_fault_of_ours_is_told(monkeypatch: pytest.MonkeyPatch):
    def broken(codec, frames):
        raise KeyError("ours")

    monkeypatch.setattr(video_decoder, "_decoded", broken)
    told = Told()
    decoder = VideoDecoder(DecodeThreads(), told)
    decoder.put(made(1)[0])
    await until(lambda: len(told.faults) == 1)
    decoder.rest()


@pytest.mark.asyncio
async def test_threads_live_as_long_as_the_last_call_that_looks():
    threads = DecodeThreads()
    told = Told(), Told()
    decoders = [VideoDecoder(threads, one) for one in told]
    for decoder in decoders:
        decoder.put(made(1)[0])
    await until(lambda: all(one.pictures for one in told))
    decoders[0].rest()
    await asyncio.sleep(0.05)
    assert decoder_threads() >= 1
    decoders[1].rest()
    decoders[1].rest()
    await until(lambda: decoder_threads() == 0)
