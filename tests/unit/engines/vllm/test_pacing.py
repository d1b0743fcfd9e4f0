"""Who takes part in vLLM's next step."""

import pytest
from hypothesis import given, strategies as st

from engines.vllm.pacing import RankedRequest, select

pytestmark = pytest.mark.unit


def run(name: str, urgency: int, held: bool = False) -> RankedRequest:
    return RankedRequest(name, urgency, held)


def test_an_urgent_answer_takes_the_place_of_the_least_urgent() -> None:
    choice = select([run("a", 10), run("b", 30), run("c", 20)], [run("new", 5)], slots=3)
    assert choice.active == {"a", "c"}
    assert choice.parked == 1


def test_nobody_is_parked_for_one_that_is_not_more_urgent() -> None:
    choice = select([run("a", 10), run("b", 30)], [run("new", 30)], slots=2)
    assert choice.active == {"a", "b"}


def test_a_held_answer_takes_no_place() -> None:
    choice = select([run("a", 1, held=True), run("b", 30)], [run("new", 99)], slots=2)
    assert choice.active == {"b"}
    assert choice.parked == 0


def test_a_held_answer_that_waits_pushes_nobody_out() -> None:
    choice = select([run("a", 9)], [run("evicted", 1, held=True)], slots=1)
    assert choice.active == {"a"}


def test_parked_answers_come_back_by_urgency() -> None:
    choice = select([run(str(n), n) for n in range(5)], [], slots=2)
    assert choice.active == {"0", "1"}
    assert choice.parked == 3


candidates = st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=12)


@given(candidates, candidates, st.integers(1, 5))
def test_places_are_never_exceeded_nor_left_empty_while_somebody_could_run(
    running: list[tuple[int, bool]], waiting: list[tuple[int, bool]], slots: int
) -> None:
    here = [run(f"r{i}", *entry) for i, entry in enumerate(running)]
    queue = [run(f"w{i}", *entry) for i, entry in enumerate(waiting)]
    choice = select(here, queue, slots)
    ready = [c for c in here if not c.held]
    want = [c for c in queue if not c.held]
    assert choice.active <= {c.name for c in ready}
    let_in = min(slots - len(choice.active), len(want))
    assert len(choice.active) + let_in == min(slots, len(ready) + len(want))
    stay = [c.urgency for c in ready if c.name in choice.active]
    parked = [c.urgency for c in ready if c.name not in choice.active]
    assert len(parked) == choice.parked
    if parked:
        assert max(stay, default=-1) <= min(parked)
        entered = sorted(c.urgency for c in want)[:let_in]
        assert not entered or len(ready) > slots or max(entered) < max(parked)
