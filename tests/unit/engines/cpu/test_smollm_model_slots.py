"""Slots: affinity, reuse, forks, eviction."""

import pytest

from engines.base import JobKey, NoCapacity
from engines.cpu.smollm_model import Claim, SlotTable, common_prefix, runs

pytestmark = pytest.mark.unit

PROMPT = list(range(100))


def claim(table: SlotTable, session: str, prompt: list[int], work: str = "w") -> Claim:
    made = table.claim(JobKey(session, work), prompt)
    made.slot.tokens = list(prompt)
    table.check()
    return made


def test_a_session_comes_back_to_its_slot() -> None:
    table = SlotTable(3)
    first = claim(table, "a", PROMPT)
    table.release(first.slot)
    claim(table, "b", PROMPT)
    again = claim(table, "a", [*PROMPT[:60], 7, 8], "next")
    assert again.slot is first.slot
    assert (again.known, again.copy_from) == (60, None)


def test_other_sessions_tokens_are_never_reused() -> None:
    table = SlotTable(1)
    table.release(claim(table, "a", PROMPT).slot)
    assert claim(table, "b", PROMPT).known == 0


def test_the_longest_idle_session_gives_way() -> None:
    table = SlotTable(3)
    slots = {s: claim(table, s, PROMPT).slot for s in "abc"}
    for s in "bca":
        table.release(slots[s])
    assert claim(table, "d", PROMPT).slot is slots["b"]


def test_a_sessions_second_slot_gives_way_first() -> None:
    table = SlotTable(3)
    old = claim(table, "a", PROMPT).slot
    main = claim(table, "b", PROMPT, "main").slot
    draft = claim(table, "b", PROMPT, "draft").slot
    for slot in (old, draft, main):
        table.release(slot)
    assert claim(table, "c", PROMPT).slot is draft


def test_a_fork_copies_what_it_shares() -> None:
    table = SlotTable(2)
    main = claim(table, "a", PROMPT, "main")
    fork = table.claim(JobKey("a", "draft"), [*PROMPT[:50], 1000])
    assert fork.slot is not main.slot
    assert (fork.known, fork.copy_from) == (50, main.slot)
    assert fork.slot.tokens == PROMPT[:50]


def test_little_is_not_worth_copying() -> None:
    table = SlotTable(2)
    claim(table, "a", PROMPT, "main")
    assert table.claim(JobKey("a", "draft"), [0, 1, 2, 1000]).copy_from is None


def test_running_jobs_keep_their_slots() -> None:
    table = SlotTable(2)
    claim(table, "a", PROMPT)
    claim(table, "b", PROMPT)
    with pytest.raises(NoCapacity):
        table.claim(JobKey("c", "w"), PROMPT)
    with pytest.raises(NoCapacity):
        table.place("c")


def test_forgetting_leaves_running_jobs_alone() -> None:
    table = SlotTable(2)
    running = claim(table, "a", PROMPT, "run").slot
    idle = claim(table, "a", PROMPT, "idle").slot
    table.release(idle)
    table.forget("a")
    assert idle.session is None
    assert running.tokens == PROMPT
    assert table.find("a") is running


def test_common_prefix() -> None:
    assert common_prefix([1, 2, 3], [1, 2, 4]) == 2
    assert common_prefix([], [1]) == 0
    assert common_prefix([1, 2], [1, 2, 3]) == 2


@pytest.mark.parametrize(
    ("active", "expected"),
    [
        ([], []),
        ([3], [[3]]),
        ([0, 1, 2], [[0, 1, 2]]),
        ([0, 3], [[0, 3]]),
        ([0, 4], [[0], [4]]),
        ([0, 2, 7], [[0, 2], [7]]),
    ],
)
def test_gaps_are_carried_while_that_is_cheaper(
    active: list[int], expected: list[list[int]]
) -> None:
    assert runs(active) == expected
