"""A session's camera between its client, its transport and its core: what each of them hears of the others."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
import pytest_asyncio
from PIL import Image

from session_server.audio.vad_webrtc import WebRtcVad
from session_server.core import actions, events
from session_server.core.settings import CoreParams
from session_server.host.messages import LookAt, ToHost
from session_server.observability.metrics import Metrics
from session_server.process.clock import VirtualClock
from session_server.protocol.client_events import InputImageAppend
from session_server.protocol.extensions import MIN_FPS
from session_server.protocol.session_config import session_rules, voices
from session_server.session.camera_feed import CameraFeed
from session_server.session.input_timeline import InputTimeline
from session_server.session.registry import SessionServices, random_id
from session_server.types.audio import INPUT_RATE, NS_PER_MS, NS_PER_S
from session_server.types.errors import BadPicture, ClientFault
from session_server.types.vision import VideoLimits
from session_server.video.picture_limits import GRID_HEIGHT, GRID_WIDTH, LumaGrid
from tests.until import PATIENCE_S, until

pytestmark = pytest.mark.unit

CHOSEN = VideoLimits(max_fps=4.0)


def jpeg(level: int) -> bytes:
    out = io.BytesIO()
    Image.new("L", (64, 48), level).save(out, "JPEG")
    return out.getvalue()


def append(level: int = 100, **fields: object) -> InputImageAppend:
    return InputImageAppend(base64.b64encode(jpeg(level)).decode(), **fields)


class Track:
    """A frame of a video track. `fault`: it cannot be decoded."""

    def __init__(self, level: int = 0, fault: BadPicture | None = None) -> None:
        self._level = level
        self._fault = fault

    def luma(self) -> LumaGrid:
        if self._fault is not None:
            raise self._fault
        shades = np.zeros((GRID_HEIGHT, GRID_WIDTH), np.int16)
        shades[: self._level] = 200
        return shades

    def encoded(self) -> bytes:
        return bytes([self._level])


class Bench:
    """A feed with all that is around it."""

    def __init__(self) -> None:
        self.clock = VirtualClock(100 * NS_PER_S)
        self.posted: list[ToHost] = []
        self.events: list[events.Event] = []
        self.faults: list[ClientFault] = []
        self.metrics = Metrics(strict=True)
        self.audio = InputTimeline(INPUT_RATE, 60_000)
        self.services = SessionServices(
            session_rules(voices(["heart"])),
            CoreParams(),
            self.clock,
            random_id,
            self.metrics,
            self.posted.append,
            lambda session, receive: None,
            WebRtcVad,
            lambda: None,
        )
        self.feed = CameraFeed(
            self.services, "s", self.audio, self.events.append, self.faults.append
        )

    async def taken(self, count: int = 1) -> list[events.FrameTaken]:
        def found() -> list[events.FrameTaken]:
            return [e for e in self.events if isinstance(e, events.FrameTaken)]

        await until(lambda: len(found()) >= count)
        return found()

    def counted(self, reason: str) -> float:
        labels = {"reason": reason, "kept": "yes" if reason == "change" else "no"}
        return self.metrics.value("video_frames_total", **labels) or 0.0


@pytest_asyncio.fixture
async def bench():
    made = Bench()
    yield made
    made.feed.close()
    made.services.side_thread.close()
    assert made.services.side_thread.join(PATIENCE_S)


@pytest.mark.asyncio
async def test_without_the_extension_there_is_no_camera(bench: Bench):
    assert not bench.feed.is_on
    bench.feed.on_track(Track(), 0)
    bench.feed.perform(actions.WantFrame(), 0)
    bench.feed.perform(actions.SetFrameRate(1.0), 0)
    assert bench.events == []
    bench.feed.choose(CHOSEN)
    assert bench.feed.is_on
    bench.feed.choose(None)
    assert not bench.feed.is_on


@pytest.mark.asyncio
async def test_a_frame_of_a_track_is_placed_by_its_age(bench: Bench):
    bench.feed.choose(CHOSEN)
    bench.audio.append(b"", bytes(2 * INPUT_RATE))
    end = bench.audio.appended_end
    bench.feed.on_track(Track(), 250 * NS_PER_MS)
    [frame] = await bench.taken()
    assert frame.captured_ns == bench.clock.now() - 250 * NS_PER_MS
    assert frame.at_sample == max(0, end - INPUT_RATE // 4)


@pytest.mark.asyncio
async def test_the_bytes_of_a_taken_frame_go_to_the_engines_when_the_core_asks(bench: Bench):
    bench.feed.choose(CHOSEN)
    bench.feed.append(append())
    [frame] = await bench.taken()
    now = bench.clock.now()
    bench.feed.perform(actions.LookAtFrame("w", frame.frame, read=True), now)
    assert bench.posted == [LookAt("s", "w", jpeg(100), now + 300 * NS_PER_MS, True, True)]


@pytest.mark.asyncio
async def test_a_camera_that_was_off_goes_on_with_the_numbers_of_its_frames(bench: Bench):
    """They began anew, and the core looked at nothing until as many had been taken as before."""
    for count in (1, 2, 3):
        bench.feed.choose(CHOSEN)
        bench.feed.append(append())
        await bench.taken(count)
        bench.feed.choose(None)
    numbers = [frame.frame for frame in await bench.taken(3)]
    assert numbers == sorted(set(numbers))


@pytest.mark.asyncio
async def test_a_frame_that_is_gone_fails_after_the_cores_other_commands(bench: Bench):
    bench.feed.choose(CHOSEN)
    bench.feed.append(append())
    [frame] = await bench.taken()
    bench.feed.perform(actions.ForgetFrames(frame.frame + 1), 0)
    bench.feed.perform(actions.LookAtFrame("w", frame.frame, read=False), 0)
    assert len(bench.events) == 1
    await until(lambda: len(bench.events) == 2)
    failed = bench.events[1]
    assert isinstance(failed, events.WorkFailed)
    assert (failed.work_id, failed.code) == ("w", "invalid_value")
    assert bench.posted == []


@pytest.mark.asyncio
async def test_clearing_is_told_at_once_with_the_clients_id(bench: Bench):
    bench.feed.choose(CHOSEN)
    bench.feed.clear("mine")
    assert bench.events == [events.FramesCleared("mine")]


@pytest.mark.asyncio
async def test_the_time_stamp_of_a_frame_is_a_place_on_the_input_time_line(bench: Bench):
    bench.feed.choose(CHOSEN)
    bench.audio.append(bytes(4 * INPUT_RATE), bytes(4 * INPUT_RATE))
    end = bench.audio.appended_end
    assert end == 2 * INPUT_RATE
    bench.feed.append(append(timestamp_ms=1_500))
    [frame] = await bench.taken()
    assert frame.at_sample == 3 * INPUT_RATE // 2
    assert frame.captured_ns == bench.clock.now() - NS_PER_S // 2


@pytest.mark.asyncio
@pytest.mark.parametrize(("ahead_ms", "taken"), [(0, True), (10_000, True), (10_001, False)])
async def test_a_time_stamp_may_be_ten_seconds_ahead(bench: Bench, ahead_ms: int, taken: bool):
    bench.feed.choose(CHOSEN)
    event = append(timestamp_ms=ahead_ms, event_id="mine")
    if taken:
        bench.feed.append(event)
        [frame] = await bench.taken()
        assert (frame.at_sample, frame.captured_ns) == (0, bench.clock.now())
        return
    with pytest.raises(ClientFault) as caught:
        bench.feed.append(event)
    assert (caught.value.code, caught.value.param) == ("invalid_value", "timestamp_ms")
    assert caught.value.event_id == "mine"
    assert bench.counted("stale") == 1


@pytest.mark.asyncio
async def test_an_event_that_cannot_be_decoded_is_told_and_a_track_is_not(bench: Bench):
    bench.feed.choose(CHOSEN)
    cut = base64.b64encode(jpeg(9)[:60]).decode()
    bench.feed.append(InputImageAppend(cut))
    await until(lambda: bool(bench.faults))
    assert (bench.faults[0].code, bench.faults[0].param) == ("invalid_value", "image")
    bench.clock.advance(NS_PER_S)
    bench.feed.on_track(Track(fault=BadPicture("is no picture")), 0)
    await until(lambda: bench.counted("undecodable") == 2)
    assert len(bench.faults) == 1


@pytest.mark.asyncio
async def test_the_rate_is_the_cores_cut_while_the_loop_is_late(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    allowed: list[float] = []
    monkeypatch.setattr(
        "session_server.session.camera.FrameIntake.allow", lambda self, fps: allowed.append(fps)
    )
    bench.feed.perform(actions.SetFrameRate(2.0), 0)
    bench.feed.choose(CHOSEN)
    bench.services.loop_load.observe(0.5, bench.clock.now())
    bench.feed.on_track(Track(), 0)
    bench.feed.perform(actions.SetFrameRate(4.0), 0)
    bench.feed.perform(actions.SetFrameRate(4.0), 0)
    for _ in range(10):
        bench.clock.advance(NS_PER_S)
        bench.services.loop_load.observe(0.5, bench.clock.now())
    bench.feed.on_track(Track(), 0)
    assert allowed == [2.0, 1.0, 2.0, MIN_FPS]


@pytest.mark.asyncio
async def test_after_the_end_nothing_is_chosen_or_taken(bench: Bench):
    bench.feed.choose(CHOSEN)
    bench.feed.close()
    bench.feed.choose(CHOSEN)
    assert not bench.feed.is_on
