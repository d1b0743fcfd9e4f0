"""A camera's track reaches the session: the right frames, no more work than is wanted, and the audio never minds."""

from __future__ import annotations

import asyncio
import io
import logging
import random
from typing import Any

import numpy as np
import pytest
from PIL import Image

from session_server.transports.webrtc.incoming_video import MOST_KBIT_S
from session_server.transports.webrtc.media import MediaPath
from session_server.transports.webrtc.video_frames import FrameAssembler
from tests.aiortc_inside import lose_sent, waiting
from tests.integration.transports.webrtc.cameras import (
    LEVELS,
    Camera,
    Eye,
    decoder_threads,
    direction,
    filming,
    prefer,
    sections,
)
from tests.until import until

pytestmark = pytest.mark.integration


def filmed(levels: list[int]) -> bool:
    """Whether each of them was before the camera, whole. Some may be missing: of frames that wait the newest is shown."""
    return bool(levels) and all(level in LEVELS for level in levels)


@pytest.mark.asyncio
@pytest.mark.parametrize("path", list(MediaPath))
async def test_frames_arrive_as_they_were_filmed(path: MediaPath):
    async with filming(path) as film:
        (section,) = sections(film.answer, "video")
        assert direction(section) == "recvonly"
        assert "VP8/90000" in section
        assert "H264" not in section
        assert "rtx" not in section
        assert f"b=AS:{MOST_KBIT_S}\r\n" in section
        assert film.answer.count("b=AS:") == 1
        await until(lambda: set(film.eye.levels()) >= set(LEVELS))
        levels = film.eye.levels()
        assert filmed(levels), levels
        for frame, age_ns in film.eye.seen:
            assert 0 <= age_ns < 5e9
            picture = Image.open(io.BytesIO(frame.encoded()))
            assert picture.size == (160, 120)
        level = int(np.asarray(picture.convert("L")).mean())
        assert abs(level - film.eye.levels()[-1]) < 12
        assert film.shown == len(film.eye.seen)
        assert film.faults == 0


@pytest.mark.asyncio
async def test_while_nobody_looks_nothing_is_decoded_or_kept_and_reports_go_on():
    eye = Eye()
    eye.wants_video = False
    async with filming(MediaPath.CHEAP, eye=eye) as film:
        await film.films(40)
        assert film.shown == 0
        assert eye.seen == []
        assert decoder_threads() == 0
        assert film.inline.source is None
        assert film.key_frames_asked == 0
        sender = film.camera

        async def reported() -> bool:
            stats = (await sender.getStats()).values()
            ours = [s for s in stats if s.type == "remote-inbound-rtp"]
            return bool(ours) and ours[0].packetsReceived > 0

        await until(reported, every_s=0.05)
        eye.wants_video = True
        await film.sees(6)
        assert film.key_frames_asked >= 1
        assert filmed(eye.levels())
        assert decoder_threads() >= 1
        eye.wants_video = False
        at = len(eye.seen)
        await film.films(10)
        assert len(eye.seen) - at <= 1
        await until(lambda: decoder_threads() == 0)


@pytest.mark.asyncio
async def test_on_the_stock_path_frames_that_nobody_wants_are_read_and_dropped():
    eye = Eye()
    eye.wants_video = False
    async with filming(MediaPath.STOCK, eye=eye) as film:
        await film.films(20)
        track: Any = film.call.video.transceiver.receiver.track  # type: ignore[union-attr]
        await until(lambda: waiting(track) == 0)
        assert eye.seen == []
        eye.wants_video = True
        await film.sees(4)
        assert filmed(eye.levels())


@pytest.mark.asyncio
async def test_of_key_frames_only_those_are_decoded_and_they_are_asked_for():
    async with filming(MediaPath.CHEAP, "key_frames") as film:
        await film.films(60)
        await film.sees(2)
        made = film.camera.track.count  # type: ignore[union-attr]
        assert film.key_frames_asked >= 3
        assert len(film.eye.seen) <= film.key_frames_asked + 1
        assert len(film.eye.seen) < made / 5
        assert -1 not in film.eye.levels()


@pytest.mark.asyncio
async def test_on_the_stock_path_key_frames_are_a_frame_a_second():
    async with filming(MediaPath.STOCK, "key_frames") as film:
        await film.sees(2)
        made = film.camera.track.count  # type: ignore[union-attr]
        assert len(film.eye.seen) < made / 3


@pytest.mark.asyncio
async def test_a_camera_is_not_taken_where_video_is_off():
    async with filming(mode="off") as film:
        (section,) = sections(film.answer, "video")
        assert direction(section) == "inactive"
        await until(lambda: film.ear > 5)
        assert film.eye.seen == []


@pytest.mark.asyncio
async def test_a_camera_without_vp8_is_not_taken_and_the_call_goes_on():
    async with filming(prepare=lambda peer: prefer(peer, "video/h264")) as film:
        (section,) = sections(film.answer, "video")
        assert direction(section) == "inactive"
        await until(lambda: film.ear > 5)
        assert film.eye.seen == []


@pytest.mark.asyncio
async def test_the_first_of_two_cameras_is_taken():
    async with filming(cameras=(Camera(), Camera())) as film:
        first, second = sections(film.answer, "video")
        assert (direction(first), direction(second)) == ("recvonly", "inactive")
        assert "b=AS:" in first
        assert "b=AS:" not in second
        await film.sees(4)


@pytest.mark.asyncio
@pytest.mark.parametrize("path", list(MediaPath))
async def test_the_size_may_change_on_the_way(path: MediaPath):
    camera = Camera()
    async with filming(path, cameras=(camera,)) as film:
        await film.sees(3)
        for size in ((120, 160), (322, 242), (64, 48)):
            camera.size = size

            def now_so(size: tuple[int, int] = size) -> bool:
                shown = Image.open(io.BytesIO(film.eye.seen[-1][0].encoded()))
                return shown.size == size

            await until(now_so)
        assert -1 not in film.eye.levels()


@pytest.mark.asyncio
async def test_after_a_loss_no_rubbish_is_shown_and_a_key_frame_asked_for(
    monkeypatch: pytest.MonkeyPatch,
):
    async with filming(MediaPath.CHEAP, cameras=(Camera(30, (320, 240)),)) as film:
        await film.sees(3)
        rng, lost = random.Random(5), 0
        (section,) = sections(film.answer, "video")
        kinds = {int(section.split(" VP8/")[0].rsplit("a=rtpmap:", 1)[1])}

        def loses(data: bytes) -> bool:
            nonlocal lost
            video = 127 < data[0] < 192 and data[1] & 127 in kinds and len(data) > 40
            gone = video and rng.random() < 0.1
            lost += gone
            return gone

        lose_sent(film.camera, loses)

        async def never(sequence_number: int) -> None:
            """What is lost is lost."""

        with monkeypatch.context() as patch:
            patch.setattr(film.camera, "_retransmit", never)
            asked = film.key_frames_asked
            await film.films(120)
            assert lost > 3
            assert film.key_frames_asked > asked
            at = len(film.eye.seen)
        await film.sees(5)
        assert -1 not in film.eye.levels()
        assert len(film.eye.seen) > at


@pytest.mark.asyncio
@pytest.mark.parametrize("path", list(MediaPath))
async def test_the_end_of_a_call_frees_threads_and_tasks(path: MediaPath):
    tasks = len(asyncio.all_tasks())
    async with filming(path) as film:
        await film.sees(3)
    await until(lambda: decoder_threads() == 0)
    await until(lambda: len(asyncio.all_tasks()) <= tasks)
    at = len(film.eye.seen)
    await asyncio.sleep(0.1)
    assert len(film.eye.seen) == at


@pytest.mark.asyncio
async def test_a_camera_that_goes_away_leaves_the_call():
    async with filming(MediaPath.CHEAP) as film:
        await film.sees(3)
        film.camera.replaceTrack(None)
        at, heard = len(film.eye.seen), film.eye.audio_bytes
        await until(lambda: film.eye.audio_bytes > heard + 32_000)
        assert len(film.eye.seen) - at <= 3
        assert film.call.ending is None


@pytest.mark.asyncio
async def test_audio_goes_on_while_video_floods():
    async with filming(MediaPath.CHEAP, cameras=(Camera(400, (640, 480)),)) as film:
        await film.sees(20)
        loop = asyncio.get_running_loop()
        begun, heard, ear = loop.time(), film.eye.audio_bytes, film.ear
        await film.films(150)
        lasted_s = loop.time() - begun
        assert film.eye.audio_bytes - heard > 0.8 * 32_000 * lasted_s
        assert film.ear - ear > 0.8 * 50 * lasted_s
        assert film.inline.waiting <= 30


@pytest.mark.asyncio
async def test_a_fault_in_the_video_of_a_call_ends_the_video_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    async with filming(MediaPath.CHEAP) as film:
        await film.sees(2)

        def broken(*_: object) -> None:
            raise ValueError("no frame of it")

        monkeypatch.setattr(FrameAssembler, "put", broken)
        with caplog.at_level(logging.ERROR):
            await until(lambda: film.faults == 1)
            at = len(film.eye.seen)
            await film.films(20)
        assert [r.getMessage() for r in caplog.records] == [
            "rtc_test: its video failed and is over"
        ]
        assert film.faults == 1
        assert len(film.eye.seen) <= at + 1
        assert decoder_threads() == 0
        heard = film.eye.audio_bytes
        await until(lambda: film.eye.audio_bytes > heard + 16_000)
        assert film.call.ending is None


@pytest.mark.asyncio
async def test_a_fault_on_the_stock_path_ends_the_video_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    class Blind(Eye):
        def on_video(self, frame: Any, age_ns: int) -> None:
            raise ValueError("not that one")

    with caplog.at_level(logging.ERROR):
        async with filming(MediaPath.STOCK, eye=Blind()) as film:
            await until(lambda: film.faults == 1)
            await film.films(20)
            track: Any = film.call.video.transceiver.receiver.track  # type: ignore[union-attr]
            await until(lambda: waiting(track) == 0)
            assert film.call.ending is None
    assert len(caplog.records) == 1
