"""What cameras may take of their rate while the event loop runs late."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from session_server.session.registry import LEAST, LoopLoad
from session_server.types.audio import NS_PER_S

pytestmark = pytest.mark.unit

TENTH = NS_PER_S // 10


def after(*lags: tuple[float, float]) -> float:
    """The share after observations (seconds, lag in seconds)."""
    load = LoopLoad()
    for at_s, lag_s in lags:
        load.observe(lag_s, int(at_s * NS_PER_S))
    return load.share


def test_a_loop_that_is_in_time_costs_nothing():
    assert after((0.0, 0.0), (1.0, 0.020), (2.0, 0.001)) == 1.0


def test_one_late_moment_halves_it_and_a_quiet_second_gives_it_back():
    assert after((5.0, 0.021)) == 0.5
    assert after((5.0, 0.021), (5.9, 0.0)) == 0.5
    assert after((5.0, 0.021), (6.0, 0.0)) == 1.0


def test_late_moments_of_one_second_count_once():
    assert after(*((5.0 + tenth / 10, 0.1) for tenth in range(10))) == 0.5


def test_it_comes_back_step_by_step_and_only_after_a_second_in_which_nothing_was_late():
    late = [(5.0, 0.1), (6.0, 0.1), (7.0, 0.1)]
    assert after(*late) == 1 / 8
    assert after(*late, (7.9, 0.0)) == 1 / 8
    assert after(*late, (8.0, 0.0)) == 1 / 4
    assert after(*late, (8.0, 0.0), (8.9, 0.0)) == 1 / 4
    assert after(*late, (8.0, 0.0), (9.0, 0.0)) == 1 / 2
    assert after(*late, (8.0, 0.0), (8.5, 0.1), (9.0, 0.0)) == 1 / 8


@given(st.lists(st.tuples(st.integers(0, 3 * NS_PER_S), st.floats(0, 5)), max_size=50))
def test_the_share_stays_within_its_bounds(steps):
    load, now = LoopLoad(), 0
    for wait_ns, lag_s in steps:
        now += wait_ns
        load.observe(lag_s, now)
        assert LEAST <= load.share <= 1.0
    for _ in range(80):
        now += TENTH
        load.observe(0.0, now)
    assert load.share == 1.0
