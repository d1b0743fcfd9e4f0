"""After what pause an engine is brought back, and how long its loading may take."""

from __future__ import annotations

import pytest

from session_server.host.stages.engine_keeper import AGAIN_S, LOAD_LIMIT_S, RETRY_S, Restarts

pytestmark = pytest.mark.unit


def test_the_first_loss_is_made_good_at_once_and_the_next_ones_after_longer_and_longer_pauses():
    restarts = Restarts()
    pauses = [restarts.pause_s() for _ in range(len(RETRY_S) + 3)]
    assert pauses == [0.0, *RETRY_S, RETRY_S[-1], RETRY_S[-1]]


def test_an_engine_that_has_worked_is_brought_back_at_once_again():
    restarts = Restarts()
    restarts.pause_s()
    assert restarts.pause_s() > 0
    restarts.worked()
    assert restarts.pause_s() == 0.0


@pytest.mark.parametrize(
    ("took_s", "limit_s"), [(0.5, AGAIN_S), (6.0, AGAIN_S), (20.0, 200.0), (800.0, LOAD_LIMIT_S)]
)
def test_a_load_may_take_what_another_took_before_and_some_more(took_s: float, limit_s: float):
    restarts = Restarts()
    assert restarts.load_limit_s == LOAD_LIMIT_S
    restarts.loaded(took_s)
    assert restarts.load_limit_s == limit_s


def test_a_disk_that_has_become_slow_is_waited_for():
    restarts = Restarts(500.0)
    restarts.loaded(1.0)
    limits = []
    for _ in range(5):
        limits.append(restarts.load_limit_s)
        restarts.overdue()
    assert limits == [60.0, 120.0, 240.0, 480.0, 500.0]
    restarts.loaded(2.0)
    assert restarts.load_limit_s == AGAIN_S
