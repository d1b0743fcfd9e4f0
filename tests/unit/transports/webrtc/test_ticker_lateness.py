"""When frames leave too late for one more call: the 99th percentile of the last seconds, on a line of virtual time."""

from __future__ import annotations

import random

import pytest

from session_server.transports.webrtc.ticker import LEAST_FRAMES, WINDOW_S, Lateness

pytestmark = pytest.mark.unit


def filled(
    late_s: list[float], *, per_second: int = 1000, start: float = 100.0
) -> tuple[Lateness, float]:
    lateness, now = Lateness(), start
    for late in late_s:
        lateness.add(late, now)
        now += 1 / per_second
    return lateness, now


def test_too_few_frames_say_nothing():
    lateness, now = filled([0.5] * (LEAST_FRAMES - 1))
    assert lateness.p99(now) is None
    lateness.add(0.5, now)
    assert lateness.p99(now) == pytest.approx(0.2)


def test_it_is_the_percentile_of_what_left():
    rng = random.Random(5)
    values = [rng.expovariate(300) for _ in range(5000)]
    lateness, now = filled(values)
    exact = sorted(values)[int(0.99 * len(values))]
    assert lateness.p99(now) == pytest.approx(exact, abs=0.0011)


def test_a_percent_that_is_late_counts_and_less_does_not():
    late, now = filled(([0.05] * 2 + [0.001] * 98) * 40)
    assert late.p99(now) == pytest.approx(0.051)
    early, now = filled(([0.05] + [0.001] * 199) * 20)
    assert early.p99(now) == pytest.approx(0.002)


def test_a_bad_moment_is_forgotten():
    lateness, now = filled([0.05] * 3000)
    assert lateness.p99(now) == pytest.approx(0.051)
    for k in range(WINDOW_S * 300 + 600):
        lateness.add(0.0, now + k / 300)
    assert lateness.p99(now + WINDOW_S + 2) == pytest.approx(0.001)
    assert lateness.p99(now + 10 * WINDOW_S) is None, "nothing leaves any more"


def test_frames_before_their_time_are_not_late():
    lateness, now = filled([-0.003] * 3000)
    assert lateness.p99(now) == pytest.approx(0.001)
