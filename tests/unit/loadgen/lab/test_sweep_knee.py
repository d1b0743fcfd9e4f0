"""Knee search: exact, few trials, honest where a system near its limit is not monotone."""

from __future__ import annotations

import pytest

from loadgen.lab.sweep import Knee, search, settle

pytestmark = pytest.mark.unit


class Trials:
    """A system that holds up to `knee` sessions; counts what it was asked."""

    def __init__(self, knee: int) -> None:
        self.knee = knee
        self.asked: list[int] = []

    def __call__(self, sessions: int) -> bool:
        self.asked.append(sessions)
        return sessions <= self.knee


@pytest.mark.parametrize("guess", [1, 2, 31, 32, 33, 90, 200])
@pytest.mark.parametrize("step", [1, 4, 32])
def test_it_finds_every_knee_exactly(guess: int, step: int):
    for knee in range(131):
        trials = Trials(knee)
        assert search(trials, guess, step, 200) == Knee(knee)
        assert len(set(trials.asked)) == len(trials.asked), "nothing is tried twice"
        assert all(1 <= n <= 200 for n in trials.asked)
        assert knee + 1 in trials.asked, "the failure next to the knee was seen"
        assert knee in trials.asked or knee == 0


def test_a_good_guess_takes_few_trials():
    for knee in range(85, 96):
        trials = Trials(knee)
        search(trials, 90, 1, 4096)
        assert len(trials.asked) <= 6


@pytest.mark.parametrize("within", [1, 3, 8])
def test_a_knee_may_be_known_only_so_exactly_and_takes_fewer_trials(within: int):
    exact = rough = 0
    for knee in range(1, 131):
        trials, every = Trials(knee), Trials(knee)
        found = search(trials, 90, 8, 200, within).sessions
        search(every, 90, 8, 200)
        assert found in trials.asked, "it was seen to hold"
        assert found <= knee < found + within
        assert any(found < n <= found + within for n in trials.asked), "a failure near it was seen"
        exact, rough = exact + len(every.asked), rough + len(trials.asked)
    assert (rough < exact) == (within > 1)


def test_a_poor_guess_costs_a_logarithm():
    trials = Trials(1000)
    search(trials, 32, 32, 4096)
    assert len(trials.asked) <= 16


def test_the_limit_is_said():
    assert search(Trials(10_000), 32, 32, 500) == Knee(500, limited=True)
    assert search(Trials(10_000), 900, 1, 500) == Knee(500, limited=True)
    assert search(Trials(0), 1, 1, 1) == Knee(0)


def test_all_seeds_must_hold_where_the_answer_is():
    fails = {(8, 2), (7, 1)}
    asked = []

    def holds(sessions: int, seed: int) -> bool:
        asked.append((sessions, seed))
        return (sessions, seed) not in fails

    knees = {1: Knee(9), 2: Knee(10), 3: Knee(8)}
    assert settle(knees, holds) == 6
    assert {(6, 1), (6, 2), (6, 3)} <= set(asked)


def test_no_sessions_at_all():
    assert settle({0: Knee(0), 1: Knee(4)}, lambda sessions, seed: True) == 0
