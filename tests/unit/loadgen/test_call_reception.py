"""The jitter buffer and playback clock of a virtual caller."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, strategies as st

from loadgen.call_reception import FRAME_NS, FRAME_TICKS, MOST_NS, START_NS, Ear

pytestmark = pytest.mark.unit

ORIGIN = 2**32 - 3 * FRAME_TICKS


def timestamp(k: int) -> int:
    return (ORIGIN + k * FRAME_TICKS) % 2**32


def numbers(ear: Ear, now: int) -> list[int]:
    return [int(frame.payload) for frame in ear.due(now) if frame.payload is not None]


def test_frames_become_due_on_the_senders_grid_not_as_they_come():
    ear = Ear()
    for k, late in enumerate((0, 15, 3, 19)):
        ear.packet(timestamp(k), b"%d" % k, k * FRAME_NS + late * 1_000_000)
    for k in range(4):
        assert numbers(ear, START_NS + k * FRAME_NS - 1) == []
        assert numbers(ear, START_NS + k * FRAME_NS) == [k]
    assert ear.depth_ns == START_NS


def test_packets_that_overtake_each_other_are_put_in_order():
    ear = Ear()
    for k in (1, 0, 3, 2):
        ear.packet(timestamp(k), b"%d" % k, FRAME_NS)
    assert numbers(ear, 10 * FRAME_NS) == [1, 2, 3], "the grid begins with the first that came"


def test_a_packet_behind_its_time_makes_the_buffer_deeper():
    ear = Ear()
    ear.packet(timestamp(0), b"0", 0)
    ear.due(START_NS + FRAME_NS)
    ear.packet(timestamp(1), b"1", START_NS + FRAME_NS + 5_000_000)
    assert ear.late == 1
    assert ear.depth_ns == START_NS + FRAME_NS
    ear.packet(timestamp(2), b"2", START_NS + FRAME_NS + 6_000_000)
    assert numbers(ear, START_NS + 2 * FRAME_NS) == []
    assert numbers(ear, START_NS + 3 * FRAME_NS) == [2]


def test_depth_that_no_packet_needs_is_given_back():
    ear = Ear()
    ear.packet(timestamp(0), b"0", 0)
    ear.due(START_NS + FRAME_NS)
    ear.packet(timestamp(1), b"1", 6 * FRAME_NS)
    deep = ear.depth_ns
    assert deep > START_NS
    for k in range(7, 300):
        ear.packet(timestamp(k), b"%d" % k, k * FRAME_NS)
        ear.due(k * FRAME_NS)
        ear.relax()
    assert ear.depth_ns == START_NS
    assert numbers(ear, 299 * FRAME_NS + START_NS)[-1] == 299


def test_a_stream_that_jumps_begins_anew():
    ear = Ear()
    ear.packet(timestamp(0), b"0", 0)
    ear.due(START_NS)
    ear.packet(timestamp(500), b"500", 2 * FRAME_NS)
    assert numbers(ear, 2 * FRAME_NS + START_NS) == [500]
    ear.packet(timestamp(10), b"10", 3 * FRAME_NS)
    assert numbers(ear, 3 * FRAME_NS + START_NS) == [10]


def test_timestamps_of_events_are_found_on_the_line_across_the_wrap():
    ear = Ear()
    assert ear.unwrap(5) is None
    ear.packet(timestamp(0), b"0", 0)
    at = ear.unwrap(timestamp(7))
    assert at is not None
    assert at - (ear.newest or 0) == 7 * FRAME_TICKS
    assert ear.wire_time(at) == timestamp(7)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 200)), max_size=60))
def test_every_frame_comes_once_in_order_whatever_the_network_does(packets):
    ear, seen, now = Ear(), [], 0
    for k, delay_ms in packets:
        now += 7_000_000
        ear.packet(timestamp(k), b"%d" % k, now + delay_ms)
        frames = ear.due(now)
        seen += [frame.at for frame in frames]
        assert ear.depth_ns <= MOST_NS
        assert len(frames) <= 40
    assert seen == sorted(set(seen))
    assert all(b - a == FRAME_TICKS for a, b in itertools.pairwise(seen))
