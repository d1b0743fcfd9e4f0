"""Who has a slot, who gives one up and who waits: decided at given instants."""

from __future__ import annotations

import random

import pytest

from session_server.duplex.core.slots import DuplexSeating, GivenUpOn, GiveUp, SeatState, SitDown

pytestmark = pytest.mark.unit

REST, WAIT = 100, 50


def seating(slots: int = 2, most: int = 9, rest: int | None = REST) -> DuplexSeating:
    made = DuplexSeating(most, rest, WAIT)
    made.slots = slots
    return made


def full(slots: int = 2) -> DuplexSeating:
    """a, b, ... sit since 0."""
    made = seating(slots)
    for name in "abcdef"[:slots]:
        assert made.refusal(0) is None
        assert made.admit(name, 0) == []
    return made


def test_without_rest_there_are_no_more_sessions_than_slots() -> None:
    made = seating(rest=None)
    made.admit("a", 0)
    made.admit("b", 0)
    assert made.refusal(10**9) == "all 2 slots of the duplex model are taken"
    assert made.heard("a", 10**9) == []
    assert seating(most=0).refusal(0) == "all 0 slots of the duplex model are taken"


def test_the_one_that_was_idle_longest_gives_up_its_slot_to_a_newcomer() -> None:
    made = full()
    made.heard("a", 10)
    assert made.refusal(99) == "all 2 slots of the duplex model are taken, and all are in use"
    assert made.refusal(100) is None
    assert made.admit("c", 100) == [GiveUp("b")]
    assert (made.slot("a"), made.slot("b"), made.slot("c")) == (0, None, 1)
    assert made.places() == {SeatState.SEATED: 2, SeatState.RESTING: 1}


def test_a_model_that_speaks_is_not_idle_however_long_it_does() -> None:
    made = full(1)
    made.spoke("a", True, 10)
    assert made.refusal(10**6) is not None
    made.spoke("a", False, 10**6)
    assert made.refusal(10**6 + REST - 1) is not None
    assert made.refusal(10**6 + REST) is None


def test_who_speaks_again_is_seated_where_a_slot_is_free_or_idle() -> None:
    made = full()
    made.admit("c", 100)  # a rests
    assert made.heard("a", 110) == [GiveUp("b"), SitDown("a", 1, 0)]
    made.leave("c", 120)
    assert made.heard("b", 130) == [SitDown("b", 0, 0)]


def test_who_finds_no_slot_waits_first_come_first_served() -> None:
    made = full(1)
    made.admit("b", 100)
    made.admit("c", 200)  # a and b rest
    assert made.heard("b", 210) == []
    assert made.heard("a", 220) == []
    assert made.place("b") is SeatState.WAITING
    assert made.refusal(225) is not None
    assert made.leave("c", 230) == [SitDown("b", 0, 20)]
    assert made.leave("b", 240) == [SitDown("a", 0, 20)]


def test_who_waits_too_long_rests_again_and_may_try_again() -> None:
    made = full(1)
    made.admit("b", 100)
    made.heard("a", 110)
    assert made.settle(159) == []
    assert made.settle(160) == [GivenUpOn("a")]
    assert made.place("a") is SeatState.RESTING
    made.heard("a", 170)
    assert made.settle(200) == [GiveUp("b"), SitDown("a", 0, 30)]


def test_those_who_wait_come_before_newcomers() -> None:
    made = full(1)
    made.admit("b", 100)
    made.heard("a", 190)
    assert made.refusal(200) is not None
    made.settle(200)
    assert made.place("a") is SeatState.SEATED


@pytest.mark.parametrize("seed", range(20))
def test_no_slot_is_ever_two_sessions_and_nobody_waits_for_ever(seed: int) -> None:
    rng = random.Random(seed)
    made, now, open_sessions, waits = seating(3, most=7), 0, set[str](), dict[str, int]()
    for step in range(600):
        now += rng.randrange(20)
        name = f"s{rng.randrange(10)}"
        moves = made.settle(now)
        if name not in open_sessions:
            if made.refusal(now) is None:
                moves += made.admit(name, now)
                open_sessions.add(name)
        elif rng.random() < 0.1:
            moves += made.leave(name, now)
            open_sessions.discard(name)
            waits.pop(name, None)
        elif rng.random() < 0.5:
            moves += made.heard(name, now)
        else:
            made.spoke(name, rng.random() < 0.5, now)
        for move in moves:
            if isinstance(move, SitDown):
                assert move.waited <= WAIT + 20, step
        taken = [made.slot(s) for s in open_sessions if made.slot(s) is not None]
        assert len(taken) == len(set(taken)) == made.taken <= 3
        assert len(made) == len(open_sessions) <= 7
    for name in sorted(open_sessions):
        made.leave(name, now)
    assert len(made) == made.taken == 0
