"""What comes too fast, too late, too large or broken; and an hour of it."""

import asyncio
import gc
import itertools
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from PIL import Image

from session_server.core import events
from session_server.observability.metrics import Metrics
from session_server.process.clock import MonotonicClock
from session_server.session.camera import MOST_TAKEN, FrameIntake
from session_server.types.audio import NS_PER_MS
from session_server.video.frame_gate import EncodedPicture
from tests.encoded_pictures import encoded, half_red, huge_png
from tests.unit.session.camera_bench import CameraBench, DrawnFrame

pytestmark = pytest.mark.unit

MOST_BYTES = 180_000


@pytest.fixture
def bench() -> Iterator[CameraBench]:
    bench = CameraBench()
    yield bench
    bench.close()


def held(most: int = 0) -> int:
    """Drawn frames that anything still refers to; exact where there are more than `most`."""
    if len(DrawnFrame.alive) > most:
        gc.collect()
    return len(DrawnFrame.alive)


def scenery(width: int = 640, height: int = 480) -> Image.Image:
    image = Image.linear_gradient("L").resize((width, height)).convert("RGB")
    image.paste((250, 250, 250), (0, 0, width // 3, height // 3))
    return image


# -- too fast


def test_of_a_burst_two_are_held_and_the_last_is_taken(bench: CameraBench) -> None:
    """100 frames in 50 ms, before the worker is done with the first."""
    before = held()
    for i in range(100):
        bench.show(i % 12)
        bench.loop.run_until(bench.loop.now() + NS_PER_MS // 2)
        assert held(before + 2) - before <= 2
    last_ns = bench.loop.now() - NS_PER_MS // 2
    bench.wait(1)
    assert [event.captured_ns for event in bench.taken][-1] == last_ns
    assert len(bench.taken) == 2
    bench.close()
    assert bench.counts() == {"change": 2, "replaced": 98}


def test_a_flood_costs_the_worker_only_what_it_can_do(bench: CameraBench) -> None:
    """200 frames a second, and a worker that takes 50 ms for each: a third of its time is the camera's."""
    before, works, began_ns = held(), 0, 0
    for i in range(2000):
        bench.show(i % 12)
        bench.loop.run_until(bench.loop.now() + 5 * NS_PER_MS)
        if bench.works > works:
            works, began_ns = bench.works, bench.loop.now()
        if bench.loop.now() - began_ns >= 45 * NS_PER_MS:
            bench.work()
        assert held(before + 3) - before <= 3  # in the gate, waiting, passed over
    assert 60 <= works <= 75 + len(bench.taken)  # a change that waited is judged twice
    assert 14 <= len(bench.taken) <= 21
    bench.close()
    assert sum(bench.counts().values()) == 2000
    assert bench.counts()["replaced"] > 1900


def test_a_frame_that_waits_for_the_worker_to_rest_is_looked_at_though_no_other_follows(
    bench: CameraBench,
) -> None:
    bench.show(1)
    bench.loop.run_until(bench.loop.now() + 100 * NS_PER_MS)
    bench.work()
    bench.show(1)
    bench.loop.run_until(bench.loop.now() + 190 * NS_PER_MS)
    assert bench.works == 1
    bench.wait(0.02)
    assert bench.works == 2


def test_a_wanted_frame_does_not_wait_for_the_worker_to_rest(bench: CameraBench) -> None:
    bench.show(1)
    bench.loop.run_until(bench.loop.now() + 100 * NS_PER_MS)
    bench.work()
    bench.show(1)
    bench.camera.want()
    bench.work()
    assert bench.taken[-1].reason == "forced"
    bench.camera.want()
    for _ in range(3):  # bad frames get that once
        bench.show(EncodedPicture(b"none", MOST_BYTES))
        bench.loop.run_until(bench.loop.now() + 100 * NS_PER_MS)
        bench.work()
    assert len(bench.told) <= 2


# -- too late


def test_frames_out_of_order_are_dropped(bench: CameraBench) -> None:
    bench.show(1, age_ms=100)
    bench.wait(1)
    bench.show(2, age_ms=1101)
    bench.show(3, age_ms=1100)  # of the same instant
    bench.work()
    bench.show(4, age_ms=2000)
    bench.wait(1)
    bench.close()
    assert [event.at_sample for event in bench.taken] == [bench.taken[0].at_sample] * 2
    assert bench.counts() == {"change": 2, "stale": 2}


def test_a_late_frame_does_not_replace_a_newer_one_that_waits(bench: CameraBench) -> None:
    bench.show(1, age_ms=50)
    bench.show(2)
    newest_ns = bench.loop.now()
    bench.show(3, age_ms=20)
    bench.wait(1)
    assert bench.taken[-1].captured_ns == newest_ns
    bench.close()
    assert bench.counts() == {"change": 2, "stale": 1}


# -- what a camera may do


def test_a_camera_that_stops_is_silence(bench: CameraBench) -> None:
    for _ in range(30):
        bench.show(1)
        bench.wait(1 / 30)
    bench.wait(0.2)
    fed = len(bench.fed)
    bench.wait(60)
    assert len(bench.fed) == fed
    assert bench.loop.events < 10_000
    bench.show(1)
    bench.work()
    assert bench.taken[-1].reason == "heartbeat"


def test_a_frozen_camera_is_a_still_picture(bench: CameraBench) -> None:
    frozen = EncodedPicture(encoded(scenery()), MOST_BYTES)
    for _ in range(70):
        bench.show(frozen)
        bench.wait(0.1)
    assert [event.reason for event in bench.taken] == ["change", "heartbeat"]
    assert len(bench.alike) >= 30


def test_a_covered_camera_is_a_change_and_then_still(bench: CameraBench) -> None:
    bench.show(EncodedPicture(encoded(scenery()), MOST_BYTES))
    bench.wait(1)
    for _ in range(10):
        bench.show(EncodedPicture(encoded(Image.new("RGB", (640, 480))), MOST_BYTES))
        bench.wait(0.1)
    assert [event.reason for event in bench.taken] == ["change", "change"]


def test_a_camera_that_is_turned_is_a_change_unless_its_pictures_say_so(bench: CameraBench) -> None:
    bench.show(EncodedPicture(encoded(scenery()), MOST_BYTES))
    bench.wait(1)
    exif = Image.Exif()
    exif[0x0112] = 6  # "rotate by 90 degrees clockwise to show"
    lying = scenery().transpose(Image.Transpose.ROTATE_90)
    bench.show(EncodedPicture(encoded(lying, exif=exif), MOST_BYTES))
    bench.wait(1)
    assert len(bench.taken) == 1
    bench.show(EncodedPicture(encoded(lying), MOST_BYTES))
    bench.wait(1)
    assert len(bench.taken) == 2


def test_a_camera_of_another_size_shows_the_same(bench: CameraBench) -> None:
    for size in ((640, 480), (3840, 2160), (176, 132)):
        bench.show(EncodedPicture(encoded(scenery(*size)), 10**6))
        bench.wait(1)
    assert len(bench.taken) == 1
    assert len(bench.alike) == 2


@pytest.mark.parametrize(
    ("data", "reason", "text"),
    [
        (encoded(scenery())[:-500], "undecodable", "is no whole JPEG, PNG, WEBP picture"),
        (b"%PDF-1.7", "undecodable", "is no whole JPEG, PNG, WEBP picture"),
        (encoded(half_red(), "GIF"), "undecodable", "is no whole JPEG, PNG, WEBP picture"),
        (encoded(Image.new("RGB", (1, 1))), "undecodable", "is 1x1 pixels"),
        (huge_png(20_000, 20_000), "too_large", "pixels; the limit is 10000000"),
        (huge_png(5_000, 2_500), "too_large", "is 5000x2500 pixels"),
        (encoded(scenery()) + bytes(MOST_BYTES), "too_large", f"the limit is {MOST_BYTES}"),
    ],
    ids=["cut", "type", "gif", "1x1", "bomb", "pixels", "bytes"],
)
def test_a_hostile_frame_is_told_and_counted_and_the_next_one_is_taken(
    bench: CameraBench, data: bytes, reason: str, text: str
) -> None:
    bench.show(EncodedPicture(data, MOST_BYTES))
    bench.wait(0.1)
    assert len(bench.told) == 1
    assert text in bench.told[0]
    assert bench.fed == []
    bench.show(EncodedPicture(encoded(scenery()), MOST_BYTES))
    bench.wait(0.1)
    bench.close()
    assert len(bench.taken) == 1
    assert bench.counts() == {reason: 1, "change": 1}


def test_a_fault_of_ours_costs_one_frame(
    bench: CameraBench, caplog: pytest.LogCaptureFixture
) -> None:
    class Faulty(DrawnFrame):
        def luma(self) -> Any:
            raise ZeroDivisionError("a bug")

    bench.show(Faulty())
    bench.work()
    assert "a bug" in caplog.text
    bench.show(1)
    bench.work()
    assert len(bench.taken) == 1
    bench.close()
    assert bench.counts() == {"undecodable": 1, "change": 1}


# -- for long


@pytest.mark.timeout(900)
def test_an_hour_at_thirty_frames_a_second_needs_no_more_than_its_first_minute() -> None:
    """Still for 20 s, then moving for 10, and so on; the core takes half a second to look, and sometimes forces a frame."""
    bench, rng, before = CameraBench(looks=False, threaded=False), random.Random(7), held()
    looking: list[tuple[int, int]] = []  # until, frame
    most = 0

    def tend() -> None:
        if looking and bench.loop.now() >= looking[0][0]:
            looking.clear()
        if bench.taken and not looking:
            number = bench.taken[-1].frame
            if bench.camera.picture(number) is not None:
                looking.append((bench.loop.now() + 500 * NS_PER_MS, number))
                bench.camera.forget(number + 1)

    for second in range(3600):
        moves = second % 30 >= 20
        for _ in range(30):
            bench.show(rng.randrange(12) if moves else 1)
            bench.work()
            bench.loop.run_until(bench.loop.now() + 33_333_333)
            bench.work()
            tend()
        if rng.random() < 0.1:
            bench.camera.want()
            bench.work()
        if second % 60 == 0:
            most = max(most, held() - before)
            assert len(bench.camera._taken) <= MOST_TAKEN
            bench.fed = [*bench.taken[-1:]]  # what a core that has dealt with them holds
    bench.close()
    assert most <= 3
    counts = bench.counts()
    dropped_by_core = bench.frames - sum(counts.values())
    assert 0 <= dropped_by_core <= counts["change"] // 3
    assert counts["heartbeat"] >= 120 * 2
    assert counts["forced"] >= 100
    assert 120 * 10 <= counts["change"] <= 120 * 21


# -- on a loop and threads that are real


@pytest.mark.asyncio
async def test_real_frames_on_a_real_loop_come_to_one_end_each() -> None:
    loop, metrics, fed = asyncio.get_running_loop(), Metrics(strict=True), list[events.Event]()
    pool = ThreadPoolExecutor(2)
    seen = asyncio.Event()

    def run(work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        def finish(future: asyncio.Future[Any]) -> None:
            fault = future.exception()
            done(future.result() if fault is None else fault)

        loop.run_in_executor(pool, work).add_done_callback(finish)

    def feed(event: events.Event) -> None:
        fed.append(event)
        if isinstance(event, events.FrameTaken):
            picture = camera.picture(event.frame)
            assert picture in (dark, bright)
            if picture == bright:
                seen.set()

    clock = MonotonicClock()
    dark, bright = encoded(Image.new("RGB", (320, 240))), encoded(scenery(320, 240))
    camera = FrameIntake(clock, metrics, feed, lambda: 0, run, 5.0, itertools.count(1))
    told = asyncio.Event()
    camera.on_bad = lambda _: told.set()
    camera.on_frame(EncodedPicture(b"none", MOST_BYTES), clock.now())
    await asyncio.wait_for(told.wait(), 60)
    for _ in range(50):
        camera.on_frame(EncodedPicture(dark, MOST_BYTES), clock.now())
        camera.on_frame(EncodedPicture(bright, MOST_BYTES), clock.now())
    await asyncio.wait_for(seen.wait(), 60)
    camera.close()
    pool.shutdown()
    await asyncio.sleep(0)
    counted = [
        sample.value
        for family in metrics.families()
        if family.name == "session_server_video_frames"
        for sample in family.samples
    ]
    assert sum(counted) == 101
