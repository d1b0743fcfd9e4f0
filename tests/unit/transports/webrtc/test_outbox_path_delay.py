"""From the wire to the ear: what the client reports, else an estimate that says so."""

from __future__ import annotations

import pytest

from session_server.transports.webrtc.outbox import STALE_S, PathDelay

pytestmark = pytest.mark.unit


def test_without_reports_it_is_half_the_round_trip_and_the_constant():
    delay = PathDelay(0.08)
    assert delay.seconds(1.0) == pytest.approx(0.08)
    delay.round_trip(0.1)
    assert delay.seconds(1.0) == pytest.approx(0.13)
    assert delay.estimated(1.0)


def test_a_report_counts_less_its_own_way_and_with_the_sound_card():
    delay = PathDelay(0.08)
    delay.round_trip(0.04)
    delay.report(age_s=0.10, latency_s=0.03, now=1.0)
    assert delay.seconds(1.0) == pytest.approx(0.11)
    assert not delay.estimated(1.0)


def test_reports_are_smoothed():
    delay = PathDelay(0.08)
    delay.report(0.1, 0.0, 1.0)
    delay.report(0.2, 0.0, 1.1)
    assert 0.1 < delay.seconds(1.1) < 0.15


def test_old_reports_are_forgotten():
    delay = PathDelay(0.08)
    delay.report(0.5, 0.0, 1.0)
    late = 1.0 + STALE_S + 0.1
    assert delay.estimated(late)
    assert delay.seconds(late) == pytest.approx(0.08)
    delay.report(0.1, 0.0, late)
    assert delay.seconds(late) == pytest.approx(0.1)


@pytest.mark.parametrize(("age", "expected"), [(-1.0, 0.0), (100.0, 2.0)])
def test_nonsense_is_bounded(age: float, expected: float):
    delay = PathDelay(0.08)
    delay.report(age, 0.0, 1.0)
    assert delay.seconds(1.0) == expected
