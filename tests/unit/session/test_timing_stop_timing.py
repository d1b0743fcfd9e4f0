"""Legs of an interruption, each from where the metrics page says."""

from __future__ import annotations

import pytest

from session_server.core.turn_taking import TurnState
from session_server.observability.metrics import Metrics
from session_server.session.timing import StopTiming

pytestmark = pytest.mark.unit

MS = 1_000_000
ONSET = 1_000 * MS


def legs(metrics: Metrics) -> dict[str, float]:
    """Milliseconds of each leg that has a sample; each has one."""
    found = {}
    for leg in ("detect", "duck", "fence", "last_byte", "silent"):
        count = metrics.value("interruption_stop_seconds_count", leg=leg)
        assert count in (0, 1)
        if count:
            seconds = metrics.value("interruption_stop_seconds_sum", leg=leg)
            assert seconds is not None
            found[leg] = round(seconds * 1000, 3)
    return found


def talked_over(stops: StopTiming) -> None:
    """An answer with two frames on their way is ducked by speech."""
    stops.look(TurnState.ANSWERING, None, ONSET - 1)
    stops.sending("r")
    stops.sending("r")
    stops.look(TurnState.OVERLAPPED, ONSET, ONSET + 100 * MS)
    stops.look(TurnState.OVERLAPPED, ONSET, ONSET + 132 * MS)
    stops.look(TurnState.DUCKED, ONSET, ONSET + 200 * MS)


def barge_in(stops: StopTiming, at: int, purged: int) -> None:
    stops.look(TurnState.HEARING, ONSET, at)
    stops.certain()
    stops.fence(at)
    stops.purged("r", purged, at)


def test_legs_of_a_reversible_stop():
    metrics = Metrics(strict=True)
    stops = StopTiming(metrics)
    talked_over(stops)
    fence = ONSET + 300 * MS
    barge_in(stops, fence, purged=2)
    stops.silent("r", fence + 40 * MS)
    assert legs(metrics) == {"detect": 100, "duck": 200, "fence": 300, "last_byte": 0, "silent": 40}


def test_a_frame_that_was_with_the_socket_is_the_last_byte():
    metrics = Metrics(strict=True)
    stops = StopTiming(metrics)
    talked_over(stops)
    fence = ONSET + 300 * MS
    barge_in(stops, fence, purged=1)
    assert "last_byte" not in legs(metrics)
    stops.look(TurnState.HEARING, ONSET, fence + 7 * MS)
    stops.written("r", fence + 7 * MS)
    assert legs(metrics)["last_byte"] == 7
    stops.written("r", fence + 9 * MS)
    assert legs(metrics)["last_byte"] == 7


def test_a_cancel_by_the_client_is_no_interruption():
    metrics = Metrics(strict=True)
    stops = StopTiming(metrics)
    talked_over(stops)
    stops.look(TurnState.HEARING, ONSET, ONSET + 300 * MS)
    stops.fence(ONSET + 300 * MS)
    stops.purged("r", 0, ONSET + 300 * MS)
    stops.silent("r", ONSET + 340 * MS)
    assert legs(metrics) == {"detect": 100, "duck": 200}


def test_an_answer_that_was_let_go_on_has_no_fence():
    metrics = Metrics(strict=True)
    stops = StopTiming(metrics)
    talked_over(stops)
    stops.look(TurnState.ANSWERING, ONSET, ONSET + 700 * MS)
    stops.written("r", ONSET + 710 * MS)
    assert legs(metrics) == {"detect": 100, "duck": 200}
