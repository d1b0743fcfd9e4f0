"""A simulated engine's own memory: nothing is held twice, and what was used longest ago goes first."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from engines.base import NoCapacity
from engines.sim.kv_cache import ForgetfulPool, Unlimited

pytestmark = pytest.mark.unit


def test_the_session_used_longest_ago_is_forgotten_first():
    pool = ForgetfulPool(100)
    for name in "abc":
        pool.begin(name, 20, 30)
        pool.end(name, 30)
    pool.begin("a", 30, 35)
    pool.end("a", 35)
    pool.begin("d", 10, 30)
    assert pool.begin("c", 30, 30) == (30, 0)
    assert pool.forgotten_tokens == 30, "b"
    pool.end("c", 30)
    pool.end("d", 30)
    assert pool.begin("b", 30, 30)[0] == 0


def test_running_jobs_keep_their_room():
    pool = ForgetfulPool(50)
    pool.begin("a", 20, 40)
    with pytest.raises(NoCapacity):
        pool.begin("b", 20, 20)
    pool.end("a", 40)
    assert pool.begin("b", 20, 20) == (0, 0)


def test_a_session_that_finds_no_room_keeps_what_it_had():
    pool = ForgetfulPool(50)
    pool.begin("b", 10, 10)
    pool.end("b", 10)
    pool.begin("a", 20, 35)
    with pytest.raises(NoCapacity):
        pool.begin("b", 30, 30)
    pool.end("a", 35)
    pool.forget("a")
    assert pool.begin("b", 30, 30)[0] == 10


@given(
    st.lists(
        st.tuples(st.sampled_from("abcd"), st.sampled_from("+-x"), st.integers(1, 60)), max_size=80
    )
)
def test_tokens_are_conserved(steps):
    pool, running = ForgetfulPool(100), []
    for name, what, size in steps:
        if what == "+":
            try:
                pool.begin(name, size, size)
            except NoCapacity:
                continue
            running.append((name, size))
        elif what == "-" and running:
            one, room = running.pop()
            pool.end(one, room)
        elif what == "x":
            pool.forget(name)
        assert 0 <= pool.free <= 100
    for one, room in running:
        pool.end(one, room)
    for name in "abcd":
        pool.forget(name)
    assert pool.free == 100


def test_without_bound_all_stays_until_the_session_ends():
    memory = Unlimited()
    memory.begin("a", 1, 2)
    memory.end("a", 2)
    assert memory.begin("a", 5, 9) == (2, 0)
    memory.forget("a")
    assert memory.begin("a", 5, 9) == (0, 0)
