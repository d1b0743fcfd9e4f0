"""Any network: what comes out of the jitter buffer is in order, complete but for what was lost or late, and soon."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from session_server.transports.webrtc.jitter_buffer import (
    LONGEST_STOP_S,
    MOST_HELD,
    PATIENCE_S,
    Incoming,
    ReorderWindow,
)
from session_server.transports.webrtc.limits import RTP_STEP

pytestmark = pytest.mark.property

FRAME_S = 0.02
JITTER_S = 0.03

Trip = tuple[bool, float, bool]
"""Lost; how long it takes beside the shortest way; comes twice."""

trips = st.lists(
    st.tuples(st.integers(0, 9).map(lambda n: n == 0), st.floats(0, JITTER_S), st.booleans()),
    min_size=2,
    max_size=60,
)
starts = st.integers(0, 2**32 - 1)


def arrivals(way: list[Trip]) -> list[tuple[float, int]]:
    """When which packet comes, by time; the first one always does, and without delay."""
    coming = [(0.0, 0)]
    for number, (lost, delay, twice) in enumerate(way[1:], 1):
        if not lost:
            at = number * FRAME_S + delay
            coming += [(at, number), (at + 0.001, number)] if twice else [(at, number)]
    return sorted(coming)


class Run:
    """The window on a line of virtual time, with what came out of it and when."""

    def __init__(self, start: int, timestamp: int) -> None:
        self.window = ReorderWindow()
        self.start, self.timestamp = start, timestamp
        self.out: list[tuple[float, int, int]] = []

    def put(self, number: int, now: float) -> None:
        self.until(now)
        sequence = (self.start + number) % 2**16
        timestamp = (self.timestamp + number * RTP_STEP) % 2**32
        self.take(self.window.put(Incoming(1, sequence, timestamp, b"x"), now), now)

    def until(self, now: float) -> None:
        """Fire the timer, if it is due."""
        while (deadline := self.window.deadline) is not None and deadline <= now:
            before = len(self.out)
            self.take(self.window.expire(deadline), deadline)
            assert len(self.out) > before, "a deadline after which nothing happens"

    def take(self, ordered, now: float) -> None:
        for one in ordered:
            number = (one.packet.sequence - self.start) % 2**16
            self.out.append((now, number, one.lost))
        assert len(self.window._held) <= MOST_HELD


def run(way: list[Trip], start: int, timestamp: int) -> Run:
    going = Run(start % 2**16, timestamp)
    for at, number in arrivals(way):
        going.put(number, at)
    going.until(float("inf"))
    return going


@given(trips, starts, starts)
def test_jitter_loses_nothing_and_losses_stop_nothing_for_long(
    way: list[Trip], start: int, timestamp: int
):
    going = run(way, start, timestamp)
    came = {number for _, number in arrivals(way)}
    out = [number for _, number, _ in going.out]
    assert out == sorted(out)
    skipped = came - set(out)
    assert going.window.lost == sum(lost for *_, lost in going.out)
    for (at, number, _), (then, following, lost) in zip(going.out, going.out[1:], strict=False):
        assert lost == following - number - 1
        if any(
            number < one < following for one in skipped
        ):  # what had stopped so long did not wait for it
            assert then - at >= LONGEST_STOP_S - 1e-9
        way_s = FRAME_S * (lost + 1) + JITTER_S
        missing_s = FRAME_S * lost
        waiting_s = missing_s + PATIENCE_S if lost else 0.0
        if (
            missing_s < LONGEST_STOP_S - 1e-9
        ):  # else it has stopped too long already, and only order can be saved
            waiting_s = min(LONGEST_STOP_S, waiting_s)
        assert then - at <= max(way_s, waiting_s) + 1e-9


@given(
    st.lists(st.tuples(st.integers(-6, 6), st.floats(0, 0.2)), max_size=80),
    starts,
)
def test_whatever_comes_comes_out_in_order_and_once(steps: list[tuple[int, float]], start: int):
    going = Run(start % 2**16, start)
    now, number = 0.0, 10
    going.put(number, now)
    for step, wait in steps:
        now += wait
        number = max(0, number + step)
        going.put(number, now)
    going.until(float("inf"))
    came = [number for _, number, _ in going.out]
    assert came == sorted(set(came))
