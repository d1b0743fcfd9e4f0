"""Packets that overtake each other, come twice, or never: what comes out is in order, and soon."""

from __future__ import annotations

import pytest

from session_server.transports.webrtc.jitter_buffer import (
    LONGEST_STOP_S,
    MOST_HELD,
    PATIENCE_S,
    RESTART,
    Incoming,
    Ordered,
    ReorderWindow,
)
from session_server.transports.webrtc.limits import RTP_STEP

pytestmark = pytest.mark.unit

FRAME_S = 0.02


def packet(number: int, source: int = 1) -> Incoming:
    sequence, timestamp = number % 2**16, number * RTP_STEP % 2**32
    return Incoming(source, sequence, timestamp, bytes([number % 251]))


def numbers(ordered: list[Ordered]) -> list[tuple[int, int]]:
    return [(one.packet.sequence, one.lost) for one in ordered]


def opened(number: int = 100) -> ReorderWindow:
    window = ReorderWindow()
    (first,) = window.put(packet(number), 0.0)
    assert first.restarted
    return window


def test_what_follows_comes_out_at_once():
    window = opened()
    assert numbers(window.put(packet(101), 0.02)) == [(101, 0)]
    assert window.deadline is None


def test_two_that_overtook_each_other_come_out_in_order():
    window = opened()
    assert window.put(packet(102), 0.04) == []
    assert numbers(window.put(packet(101), 0.045)) == [(101, 0), (102, 0)]
    assert (window.late, window.lost) == (0, 0)


def test_one_lost_packet_stops_nothing_for_longer_than_eighty_milliseconds():
    window = opened()
    assert window.put(packet(102), 0.04) == []
    assert window.deadline == pytest.approx(FRAME_S + PATIENCE_S)
    assert window.expire(0.075) == []
    assert numbers(window.expire(0.08)) == [(102, 1)]
    assert numbers(window.put(packet(103), 0.081)) == [(103, 0)]
    assert window.lost == 1


@pytest.mark.parametrize("lost", [2, 3])
def test_more_lost_in_a_row_stop_it_for_ninety(lost: int):
    window = opened()
    assert window.put(packet(101 + lost), FRAME_S * (lost + 1)) == []
    assert window.deadline == pytest.approx(LONGEST_STOP_S)
    assert numbers(window.expire(LONGEST_STOP_S)) == [(101 + lost, lost)]


def test_no_packet_waits_longer_than_the_patience_whatever_the_timestamps_say():
    window = opened()
    wild = Incoming(1, 102, 2**31, b"x")
    window.put(wild, 0.04)
    assert window.deadline is not None
    assert window.deadline <= 0.04 + PATIENCE_S


def test_a_burst_gives_up_what_is_missing_at_once():
    window = opened()
    out = [numbers(window.put(packet(n), 0.02)) for n in range(102, 102 + MOST_HELD + 1)]
    assert out[:-1] == [[]] * MOST_HELD
    assert [sequence for sequence, _ in out[-1]] == [102, 103, 104, 105]
    assert out[-1][0] == (102, 1)


def test_what_comes_twice_or_too_late_is_dropped():
    window = opened()
    window.put(packet(101), 0.02)
    window.put(packet(103), 0.06)
    for number in (101, 103):
        assert window.put(packet(number), 0.061) == []
    assert window.late == 2
    window.expire(1.0)
    assert window.put(packet(102), 1.0) == []
    assert window.late == 3


def test_numbers_and_timestamps_wrap():
    start = 2**16 * (2**32 // RTP_STEP // 2**16) + 65_530
    window = opened(start)
    wanted = [n % 2**16 for n in range(start + 1, start + 12)]
    got: list[tuple[int, int]] = []
    for step, number in enumerate((1, 3, 2, 4, 5, 7, 6, 8, 9, 10, 11)):
        got += numbers(window.put(packet(start + number), 0.02 * (step + 1)))
    assert got == [(sequence, 0) for sequence in wanted]


def test_a_new_source_is_followed_once_it_goes_on_and_a_stray_packet_is_not():
    window = opened()
    assert window.put(packet(7, source=2), 0.01) == []
    assert numbers(window.put(packet(101), 0.02)) == [(101, 0)]
    assert window.put(packet(900, source=3), 0.03) == []
    first, second = window.put(packet(901, source=3), 0.05)
    assert (first.packet.sequence, first.restarted) == (900, True)
    assert (second.packet.sequence, second.restarted) == (901, False)
    assert window.put(packet(102), 0.06) == [], "the old one is over"


@pytest.mark.parametrize("away", [RESTART + 50, -RESTART - 50])
def test_a_jump_is_a_new_stream_once_it_goes_on(away: int):
    window = opened(1000)
    assert window.put(packet(1001 + away), 0.02) == []
    first, _ = window.put(packet(1002 + away), 0.04)
    assert first.restarted
    assert first.lost == 0
