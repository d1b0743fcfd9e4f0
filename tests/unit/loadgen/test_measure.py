"""Figures from records: percentiles, shares with too few events, goodput, word errors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from loadgen.measure import duration_s, measure, percentile, word_errors
from loadgen.records import BargeIn, Turn, UserRecord

pytestmark = pytest.mark.unit

MS = 1_000_000
S = 1_000 * MS


def turn(ttfa_ms: int, *, gap_ms: int = 0, ended: str = "played", at: int = 0) -> Turn:
    return Turn(
        user=0,
        text=None,
        u0=at,
        u1=at + S,
        decided=at + S + 300 * MS,
        first_audible=at + S + ttfa_ms * MS,
        ended=ended,
        end=at + 5 * S,
        gaps=[gap_ms * 24] if gap_ms else [],
        received=24_000,
        played=24_000,
    )


def record(*turns: Turn) -> UserRecord:
    return UserRecord(turns=list(turns))


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60),
    st.sampled_from([0, 0.5, 0.9, 0.95, 0.99, 1]),
)
def test_percentiles_are_linear(values, share):
    assert percentile(values, share) == pytest.approx(float(np.percentile(values, share * 100)))


def test_shares_of_few_events_are_hidden():
    assert measure([record(*[turn(400)] * 9)], 1.0)["c100"] is None
    assert measure([record(*[turn(400)] * 10)], 1.0)["c100"] == 1.0


def test_c100_judges_the_worst_gap_of_each_answer():
    turns = [turn(400)] * 8 + [turn(400, gap_ms=100), turn(400, gap_ms=101)]
    figures = measure([record(*turns)], 1.0)
    assert (figures["c50"], figures["c100"], figures["c200"]) == (0.8, 0.9, 1.0)


def test_goodput_needs_first_audio_continuity_and_a_satisfied_listener():
    turns = [
        turn(900),
        turn(900, ended="interrupted"),
        turn(1100),
        turn(900, gap_ms=150),
        turn(900, ended="cut"),
        turn(900, ended="timeout"),
    ]
    figures = measure([record(*turns)], 10.0)
    assert figures["goodput_per_s"] == 0.2
    assert figures["goodput"] == {
        "ttfa_500_ms": 0.0,
        "ttfa_1000_ms": 0.2,
        "ttfa_1500_ms": 0.3,
        "response_500_ms": 0.0,
    }
    assert measure([record(turn(800))], 10.0)["goodput"]["response_500_ms"] == 0.1


def waiting(ended: str, *, decided: int | None = 2 * S, heard: int | None = None) -> Turn:
    return Turn(
        0, None, S, int(1.5 * S), decided=decided, first_audible=heard, ended=ended, end=9 * S
    )


def test_a_wait_without_an_end_is_a_failed_one():
    turns = [
        waiting("timeout"),
        waiting("timeout", decided=None),  # the server never noticed that the user had finished
        waiting("failed"),
        waiting("", decided=9 * S),  # the run ends one second later: longer than the objective
        waiting("", decided=int(9.7 * S)),  # not yet
        waiting("", decided=None),  # not decided yet
        waiting("left"),
        waiting("empty"),
        waiting("played", heard=int(2.4 * S)),
        waiting("played", heard=int(1.9 * S)),  # a draft was there before the decision
    ]
    figures = measure([record(*turns)], 10.0, (0, 10 * S))["slo"]
    assert (figures["count"], figures["failed_waits"]) == (6, 4)
    assert figures["p90"] is None
    assert figures["held"] is None  # six answers are too few to tell
    assert measure([record(*turns * 2)], 10.0, (0, 10 * S))["slo"]["held"] is False


def test_a_run_with_nine_answers_is_neither_said_to_hold_nor_to_fail():
    good = [waiting("played", heard=int(2.4 * S))] * 9
    assert measure([record(*good)], 10.0, (0, 10 * S))["slo"]["held"] is None
    assert measure([record(*good, turn(400))], 10.0, (0, 10 * S))["slo"]["held"] is None


def test_only_what_falls_into_the_span_is_measured():
    turns = [turn(400, at=0), turn(400, at=20 * S), turn(400, at=40 * S)]
    inside = UserRecord(
        turns=turns, barge_ins=[BargeIn(0, "r", onset=5 * S), BargeIn(0, "r", 25 * S)]
    )
    figures = measure([inside], 20.0, (15 * S, 35 * S))
    assert (figures["turns"], figures["responses"], figures["barge_in"]["count"]) == (1, 1, 1)
    assert figures["ttfa_ms"]["count"] == 1


def test_a_user_who_left_had_a_turn_that_is_not_counted():
    figures = measure([record(turn(400, ended="left"))], 1.0)
    assert (figures["turns"], figures["turns_ended"]) == (0, {"left": 1})
    assert figures["goodput_per_s"] == 0.0


def test_a_turn_that_still_goes_on_is_not_a_figure():
    assert measure([record(turn(400, ended=""))], 1.0)["turns"] == 0


def test_a_listener_who_heard_nothing_more_was_stopped_at_once():
    stopped = BargeIn(0, "r", onset=5 * S, fence=6 * S, silent=4 * S)
    figures = measure([UserRecord(barge_ins=[stopped])], 1.0)["barge_in"]
    assert figures["stop_ms"]["p50"] == 0.0


def test_a_fence_before_the_onset_is_no_stop_of_ours():
    early = BargeIn(0, "r", onset=5 * S, fence=4 * S, silent=4 * S)
    figures = measure([UserRecord(barge_ins=[early])], 1.0)["barge_in"]
    assert (figures["count"], figures["stopped"]) == (1, 0)


def test_the_duration_is_from_the_first_word_to_the_last_end():
    assert duration_s([record(turn(1, at=2 * S)), record(turn(1, at=4 * S))]) == 7.0
    assert duration_s([]) == 0.0


def test_an_empty_run_has_every_key_and_no_figures():
    figures = measure([], 0.0)
    for key in ("ttfa_ms", "response_ms", "endpoint_ms"):
        assert figures[key] == {"count": 0, "p50": None, "p90": None, "p95": None, "p99": None}
    assert figures["goodput_per_s"] is None
    assert figures["wasted_audio_ratio"] is None


@pytest.mark.parametrize(
    ("said", "heard", "expected"),
    [
        ("How far is the moon?", "how far is the moon", (0, 5)),
        ("How far is the moon?", "how far the moon is", (2, 5)),
        ("one two", "", (2, 2)),
        ("don't", "dont", (0, 1)),
    ],
)
def test_word_errors(said, heard, expected):
    assert word_errors(said, heard) == expected
