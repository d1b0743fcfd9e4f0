"""Frames, instants and RTP timestamps of an outgoing stream."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from session_server.transports.webrtc.limits import RTP_STEP
from session_server.transports.webrtc.rtp_clock import WRAP, RtpClock

pytestmark = pytest.mark.unit


def test_nothing_is_known_before_the_first_frame():
    clock = RtpClock()
    assert (clock.due(3), clock.timestamp(3), clock.frame_at(0, 3)) == (None, None, None)


def test_frames_are_due_every_twenty_milliseconds():
    clock = RtpClock()
    clock.start = 7.0
    assert clock.due(50) == pytest.approx(8.0)


@given(
    st.integers(0, WRAP - 1),
    st.integers(0, 10_000_000),
    st.integers(-1000, 1000),
    st.integers(0, RTP_STEP - 1),
)
def test_a_timestamp_finds_its_frame_across_the_wrap(origin: int, near: int, away: int, into: int):
    clock = RtpClock()
    clock.origin = origin
    stamp = clock.timestamp(near + away)
    assert stamp is not None
    assert clock.frame_at((stamp + into) % WRAP, near) == (near + away, into)
