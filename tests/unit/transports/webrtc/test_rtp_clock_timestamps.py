import itertools
import random

import pytest
from hypothesis import given, strategies as st

from session_server.transports.webrtc.rtp_clock import MOST_LATE_S, VIDEO_RATE, WINDOW_S, VideoClock
from session_server.types.audio import NS_PER_MS, NS_PER_S

pytestmark = pytest.mark.unit

START_NS = 1_000 * NS_PER_S
WRAP = 1 << 32
FRAME_TICKS = VIDEO_RATE // 30


def test_the_first_frame_was_taken_when_it_came() -> None:
    assert VideoClock().captured_ns(123_456, START_NS) == START_NS


def test_frames_that_wait_in_a_network_keep_their_distance() -> None:
    clock = VideoClock()
    clock.captured_ns(0, START_NS)
    late = clock.captured_ns(VIDEO_RATE, START_NS + NS_PER_S + 300 * NS_PER_MS)
    assert late == START_NS + NS_PER_S


def test_a_first_frame_that_was_late_is_put_right_by_the_next() -> None:
    clock = VideoClock()
    clock.captured_ns(0, START_NS + 500 * NS_PER_MS)
    assert clock.captured_ns(VIDEO_RATE, START_NS + NS_PER_S) == START_NS + NS_PER_S
    held = clock.captured_ns(2 * VIDEO_RATE, START_NS + 2 * NS_PER_S + 80 * NS_PER_MS)
    assert held == START_NS + 2 * NS_PER_S


@pytest.mark.parametrize("drift_ppm", [-200, 0, 200])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_clock_that_is_off_for_ten_minutes_stays_within_a_tenth_of_a_second(
    drift_ppm: int, seed: int
) -> None:
    """200 ppm are 120 ms in ten minutes. The way takes 20 ms and, exponentially, 30 more on average."""
    rng, clock = random.Random(seed), VideoClock()
    origin = rng.randrange(WRAP)
    arrived_ns, errors_ms = 0, []
    for i in range(10 * 60 * 30):
        taken_s = i / 30
        ticks = origin + round(taken_s * VIDEO_RATE * (1 + drift_ppm * 1e-6))
        way_s = 0.02 + rng.expovariate(1 / 0.03)
        arrived_ns = max(arrived_ns, START_NS + int((taken_s + way_s) * NS_PER_S))
        found = clock.captured_ns(ticks % WRAP, arrived_ns)
        errors_ms.append((found - START_NS) / NS_PER_MS - 1000 * taken_s)
    settled = errors_ms[30:]
    assert max(map(abs, settled)) < 100
    assert (
        max(map(abs, settled)) < 20 + 10
    )  # the shortest way is all that is not seen, and a little


def test_time_stamps_wrap() -> None:
    clock = VideoClock()
    clock.captured_ns(WRAP - FRAME_TICKS, START_NS)
    assert clock.captured_ns(0, START_NS + NS_PER_S) - START_NS == pytest.approx(
        NS_PER_S / 30, abs=2
    )
    assert clock.captured_ns(FRAME_TICKS, START_NS + NS_PER_S) - START_NS == pytest.approx(NS_PER_S / 15, abs=2)  # fmt: skip


def test_a_frame_out_of_order_was_taken_before_the_one_that_overtook_it() -> None:
    clock = VideoClock()
    for i in (0, 1, 2, 4):
        newest = clock.captured_ns(i * FRAME_TICKS, START_NS + i * NS_PER_S // 30)
    overtaken = clock.captured_ns(3 * FRAME_TICKS, START_NS + 5 * NS_PER_S // 30)
    assert newest - overtaken == pytest.approx(NS_PER_S / 30, abs=2)
    after = clock.captured_ns(5 * FRAME_TICKS, START_NS + 5 * NS_PER_S // 30)
    assert after - newest == pytest.approx(NS_PER_S / 30, abs=2)


@pytest.mark.parametrize("jump_s", [-7_000, -60, 60, 7_000])
def test_a_camera_that_begins_anew_is_on_time_at_once(jump_s: int) -> None:
    clock = VideoClock()
    for i in range(60):
        clock.captured_ns(i * FRAME_TICKS, START_NS + i * NS_PER_S // 30)
    begins = (60 * FRAME_TICKS + jump_s * VIDEO_RATE) % WRAP
    for i in range(60):
        arrived_ns = START_NS + (60 + i) * NS_PER_S // 30
        assert (
            abs(clock.captured_ns((begins + i * FRAME_TICKS) % WRAP, arrived_ns) - arrived_ns)
            < 1_000
        )


def test_a_way_that_became_longer_is_the_usual_one_after_the_window() -> None:
    clock = VideoClock()
    clock.captured_ns(0, START_NS)
    for i in range(1, 30 * (WINDOW_S + 2)):
        arrived_ns = START_NS + i * NS_PER_S // 30 + 200 * NS_PER_MS
        found = clock.captured_ns(i * FRAME_TICKS, arrived_ns)
    assert arrived_ns - found < NS_PER_MS


frames = st.lists(st.tuples(st.integers(0, 2 * WRAP), st.integers(0, 30 * NS_PER_S)), max_size=60)


@given(frames)
def test_whatever_the_stamps_are_no_frame_comes_from_the_future_or_from_long_ago(
    sequence: list[tuple[int, int]],
) -> None:
    clock, arrived_ns = VideoClock(), START_NS
    for stamp, delta_ns in sequence:
        arrived_ns += delta_ns
        found = clock.captured_ns(stamp, arrived_ns)
        assert arrived_ns - MOST_LATE_S * NS_PER_S <= found <= arrived_ns


@given(
    st.integers(0, WRAP - 1),
    st.lists(st.tuples(st.integers(1, VIDEO_RATE), st.integers(0, 2 * NS_PER_S)), max_size=60),
)
def test_frames_that_come_in_order_were_taken_in_order(
    origin: int, sequence: list[tuple[int, int]]
) -> None:
    clock, stamp, arrived_ns = VideoClock(), origin, START_NS
    found = []
    for ticks, delta_ns in sequence:
        stamp, arrived_ns = (stamp + ticks) % WRAP, arrived_ns + delta_ns
        found.append(clock.captured_ns(stamp, arrived_ns))
    assert all(a <= b for a, b in itertools.pairwise(found))
