"""The time line of the microphone stays whole: what is lost is made up, what was never sent is silence."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from session_server.transports.webrtc.jitter_buffer import Incoming, Ordered
from session_server.transports.webrtc.packet_loss_concealment import (
    AHEAD,
    LONGEST_HOLE,
    MOST_MADE_UP,
    Allowance,
    Do,
    MicLine,
    packet_ticks,
)

pytestmark = pytest.mark.unit

VOICE = bytes([1 << 3, 7, 7])
"""20 ms, SILK."""


def at(
    timestamp: int, lost: int = 0, *, restarted: bool = False, payload: bytes = VOICE
) -> Ordered:
    return Ordered(Incoming(1, 0, timestamp % 2**32, payload), lost, restarted)


def after(first: int, then: Ordered) -> list[tuple[Do, int]]:
    line = MicLine()
    list(line.stretches(at(first)))
    return [(stretch.do, stretch.ticks) for stretch in line.stretches(then)]


@pytest.mark.parametrize(
    ("payload", "ms"),
    [
        (b"", 0),
        (bytes([0]), 10),
        (bytes([3 << 3]), 60),
        (bytes([13 << 3]), 20),
        (bytes([16 << 3]), 2.5),
        (bytes([31 << 3 | 1]), 40),
        (bytes([31 << 3 | 3, 5]), 100),
        (bytes([31 << 3 | 3, 6 | 0xC0]), 120),
        (bytes([31 << 3 | 3, 7]), 0),
        (bytes([31 << 3 | 3, 0]), 0),
        (bytes([31 << 3 | 3]), 0),
    ],
)
def test_the_length_of_a_packet_stands_in_its_first_bytes(payload: bytes, ms: float):
    assert packet_ticks(payload) == ms * 48


def test_a_packet_in_its_place_is_only_decoded():
    assert after(0, at(960)) == [(Do.DECODE, 960)]


def test_one_lost_packet_is_recovered_from_the_next():
    assert after(0, at(1920, lost=1)) == [(Do.RECOVER, 960), (Do.DECODE, 960)]


def test_a_longer_loss_is_made_up_at_first_and_silent_then():
    hole = 20 * 960
    assert after(0, at(960 + hole, lost=20)) == [
        (Do.CONCEAL, MOST_MADE_UP),
        (Do.SILENCE, hole - MOST_MADE_UP),
        (Do.DECODE, 960),
    ]


def test_a_microphone_that_sends_nothing_in_silence_gives_silence():
    hole = 19 * 960
    assert after(0, at(960 + hole)) == [(Do.SILENCE, hole), (Do.DECODE, 960)]


def test_a_hole_that_is_too_long_a_step_back_and_a_new_stream_add_nothing():
    only = [(Do.DECODE, 960)]
    assert after(0, at(960 + LONGEST_HOLE + 1)) == only
    assert after(9600, at(0)) == only
    assert after(0, at(96_000, restarted=True)) == only


def test_timestamps_wrap():
    assert after(2**32 - 960, at(0)) == [(Do.DECODE, 960)]
    assert after(2**32 - 960, at(960, lost=1)) == [(Do.RECOVER, 960), (Do.DECODE, 960)]


@given(st.lists(st.tuples(st.integers(0, LONGEST_HOLE), st.integers(0, 3)), max_size=30))
def test_the_line_is_as_long_as_the_timestamps_say(holes: list[tuple[int, int]]):
    line, timestamp, filled = MicLine(), 5, 0
    list(line.stretches(at(timestamp)))
    for hole, lost in holes:
        timestamp += 960 + hole
        filled += sum(s.ticks for s in line.stretches(at(timestamp, lost)))
    ignored = 119 * len(holes)
    assert 0 <= timestamp - 5 - filled <= ignored
    assert all(
        s.ticks % 120 == 0
        for s in line.stretches(at(timestamp + 2000, 1))
        if s.do in (Do.RECOVER, Do.CONCEAL)
    )


@given(st.lists(st.tuples(st.floats(0, 3), st.floats(0, 0.5)), max_size=60))
def test_more_than_real_time_and_a_burst_is_never_allowed(asked: list[tuple[float, float]]):
    allowance, now, taken = Allowance(0.0), 0.0, 0.0
    for seconds, wait in asked:
        now += wait
        if allowance.take(seconds, now):
            taken += seconds
    assert taken <= Allowance.BURST_S + Allowance.RATE * now + 1e-6


def test_a_client_in_real_time_is_always_allowed():
    allowance = Allowance(0.0)
    assert all(allowance.take(0.02, k * 0.02) for k in range(5000))


def test_what_was_made_up_before_there_was_evidence_does_not_sound_twice():
    line = MicLine()
    list(line.stretches(at(0)))
    assert line.ahead() == (Do.CONCEAL, AHEAD, b"", 0)
    assert line.ahead() is None, "once only"
    assert [(s.do, s.ticks, s.sounded) for s in line.stretches(at(960))] == [(Do.DECODE, 960, 960)]
    assert [(s.do, s.ticks, s.sounded) for s in line.stretches(at(1920))] == [(Do.DECODE, 960, 0)]


def test_after_a_stretch_that_was_made_up_the_rest_of_the_hole_is_filled():
    line = MicLine()
    list(line.stretches(at(0)))
    line.ahead()
    found = [(s.do, s.ticks, s.sounded) for s in line.stretches(at(4 * 960, 3))]
    assert found == [(Do.RECOVER, 2 * 960, 0), (Do.DECODE, 960, 0)]


def test_nothing_is_made_up_for_a_client_that_stops_in_silence_or_has_not_begun():
    line = MicLine()
    assert line.ahead() is None
    list(line.stretches(at(0)))
    list(line.stretches(at(960, payload=VOICE[:2])))
    assert line.ahead() is None


SHORT = bytes([0, 7, 7])
"""10 ms."""


@given(
    steps=st.lists(
        st.tuples(st.sampled_from([VOICE, SHORT]), st.integers(0, 6), st.booleans(), st.booleans()),
        min_size=1,
        max_size=30,
    ),
    start=st.integers(0, 2**32 - 1),
)
def test_the_line_is_whole_whatever_is_made_up_ahead(
    steps: list[tuple[bytes, int, bool, bool]], start: int
):
    """Each step: packets are lost or late, perhaps 20 ms are made up meanwhile, then one comes."""
    line, now, sounding = MicLine(), start, 0
    list(line.stretches(at(start)))
    now += 960
    for payload, lost, made_up, late in steps:
        ahead = line.ahead() if made_up else None
        sounding += 0 if ahead is None else ahead.ticks
        now += 0 if late else 960 * lost
        found = list(line.stretches(at(now, 0 if late else lost, payload=payload)))
        sounding += sum(s.ticks - s.sounded for s in found)
        now += packet_ticks(payload)
    over = sounding - (now - start - 960)
    assert 0 <= over <= AHEAD, "what is made up is at most that far ahead of what came"
