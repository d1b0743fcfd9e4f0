"""Engine state is claimed once and given back once, whatever happens in between."""

from __future__ import annotations

import pytest

from engines.base import JobKey
from session_server.host.stages.runner import JobTable
from session_server.host.stages.stage_worker import Feed, Release, StartJob

pytestmark = pytest.mark.unit

A, B = JobKey("s", "a"), JobKey("s", "b")


class Owner:
    def on_result(self, stage, result, now):
        raise AssertionError

    def on_job_failed(self, stage, key, message):
        raise AssertionError


@pytest.fixture
def table():
    jobs = JobTable()
    jobs.add(A, "job a", Owner())
    jobs.add(B, "job b", Owner())
    return jobs


def test_what_was_fed_before_during_and_after_the_start_arrives_once_and_in_order(table):
    table.feed(A, 1, False)
    assert table.plan([A]) == [StartJob(A, "job a"), Feed(A, 1, False)]
    table.feed(A, 2, False)
    table.started(A)
    table.feed(A, 3, True)
    assert table.plan([A]) == [Feed(A, 2, False), Feed(A, 3, True)]
    assert table.plan([A]) == []


def test_a_start_that_found_no_room_keeps_its_feeds_and_blocks_others(table):
    table.plan([B])
    table.started(B)
    table.feed(A, 1, True)
    table.plan([A])
    assert table.found_no_room(A)
    assert table.free_slots(None) == 0
    table.remove(B)
    assert table.free_slots(None) is None
    assert table.plan([A]) == [Release(B), StartJob(A, "job a"), Feed(A, 1, True)]


def test_no_room_with_nobody_inside_is_hopeless(table):
    table.plan([A])
    assert not table.found_no_room(A)
    assert table.held == 0


def test_a_job_that_never_started_owes_no_release(table):
    table.remove(A)
    table.remove(A)
    assert table.plan([]) == []
    assert A not in table


def test_a_slot_freed_is_a_slot_to_use_in_the_same_plan(table):
    table.plan([A])
    table.started(A)
    assert table.free_slots(1) == 0
    table.remove(A)
    assert table.free_slots(1) == 1
    assert table.plan([B]) == [Release(A), StartJob(B, "job b")]


def test_a_key_is_used_once(table):
    with pytest.raises(ValueError, match="already"):
        table.add(A, "again", Owner())


def test_a_lost_engine_is_owed_nothing(table):
    table.plan([A])
    table.started(A)
    assert table.keys(with_state_only=True) == [A]
    table.remove(A)
    table.lose_engine()
    assert table.plan([]) == []
    assert table.keys() == [B]
