"""Lateness of pieces of audio, and the age of what the client said last."""

from __future__ import annotations

import pytest

from session_server.core.actions import PartAddress, ReportFrontier, SendAudio
from session_server.core.events import PlaybackAcked
from session_server.observability.metrics import Metrics
from session_server.session.timing import PlaybackTiming
from session_server.types.audio import OUTPUT_RATE, PlaybackSnapshot

pytestmark = pytest.mark.unit

MS = 1_000_000
PIECE = OUTPUT_RATE // 10
PART = PartAddress("r", "i", 0, 0)


class Listener:
    """Played so many samples by now."""

    def __init__(self) -> None:
        self.played = 0
        self.metrics = Metrics(strict=True)
        self.timing = PlaybackTiming(self.metrics, self.mark)

    def mark(self, response_id: str) -> PlaybackSnapshot | None:
        return PlaybackSnapshot(99 * PIECE, 9 * PIECE, self.played, OUTPUT_RATE)

    def send(self, number: int, at_ms: int) -> None:
        self.timing.sending(SendAudio(PART, 1, number * PIECE, bytes(2 * PIECE)), at_ms * MS)

    def report(self, at_ms: int, *, paused: bool = False) -> None:
        self.timing.reporting(ReportFrontier("r", self.mark("r"), paused), at_ms * MS)

    def ages(self) -> tuple[float | None, float]:
        """How many ages of acknowledgements, and their sum in milliseconds."""
        name = "frontier_report_age_seconds"
        total = self.metrics.value(f"{name}_sum")
        assert total is not None
        return self.metrics.value(f"{name}_count"), round(total * 1000, 3)

    def late_by_at_most(self, *edges: str) -> list[float | None]:
        """How many pieces, for each of these edges of buckets in seconds."""
        return [self.metrics.value("send_lateness_seconds_bucket", le=edge) for edge in edges]


def test_a_piece_is_late_by_what_the_listener_waited():
    listener = Listener()
    listener.send(0, 0)
    assert listener.late_by_at_most("+Inf") == [0], "nobody awaits the first one"
    listener.send(1, 60)  # 40 ms before it is needed
    assert listener.late_by_at_most("-0.05", "0.0") == [0, 1]
    listener.played = 2 * PIECE
    listener.send(2, 290)  # 30 ms after
    assert listener.late_by_at_most("0.0", "0.02", "0.05") == [1, 1, 2]


def test_a_piece_after_a_pause_is_not_late():
    listener = Listener()
    listener.send(0, 0)
    listener.report(50, paused=True)
    listener.send(1, 900)
    assert listener.late_by_at_most("+Inf") == [0]


def test_the_age_of_an_acknowledgement_is_that_at_the_report():
    listener = Listener()
    listener.report(0)
    assert listener.ages() == (0, 0), "no client that tells"
    listener.timing.acknowledged(PlaybackAcked("r", "i", 0, PIECE), 100 * MS)
    listener.report(130)
    assert listener.ages() == (1, 30)
    listener.timing.acknowledged(PlaybackAcked("r", "i", 0, PIECE, final=True), 200 * MS)
    listener.report(230)
    assert listener.ages() == (1, 30)


def test_answers_that_never_end_do_not_pile_up():
    listener = Listener()
    for number in range(100):
        listener.timing.acknowledged(PlaybackAcked(f"r{number}", "i", 0, 0), number)
    assert len(listener.timing._acked_ns) <= 8
