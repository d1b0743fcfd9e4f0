"""A stage's queue: batches, slots, the lead cap, chunk sizes, ageing."""

from __future__ import annotations

import pytest

from session_server.scheduler.flow_control import ChunkSizes
from session_server.scheduler.params import PolicyName, SchedulerParams
from session_server.scheduler.policies import make_policy
from session_server.scheduler.stage_queue import StageQueue
from session_server.scheduler.work import FOREVER_NS, WorkClass, WorkItem
from session_server.types.audio import NS_PER_MS, NS_PER_S

pytestmark = pytest.mark.unit

MS = NS_PER_MS


def queue(batch=4, **more):
    params = SchedulerParams(policy=PolicyName.DEADLINE)
    return StageQueue(make_policy(params), batch, **more)


def item(name, due_ms=0, kind=WorkClass.PLAYING, **more):
    return WorkItem((name, "r", 0), kind, 0, due_ms * MS, due_ms * MS, **more)


def names(choices):
    return [choice.item.key[0] for choice in choices]


def test_a_batch_takes_the_most_urgent_and_leaves_the_rest():
    stage = queue(2)
    for i in (3, 1, 2):
        stage.put(item(f"s{i}", 1000 * i), 0)
    assert names(stage.choose(0)) == ["s1", "s2"]
    assert names(stage.choose(0)) == ["s3"]
    assert stage.choose(0) == []
    assert len(stage) == 0


def test_a_new_urgency_replaces_the_old_one():
    stage = queue(1)
    stage.put(item("a", 1000), 0)
    stage.put(item("b", 2000), 0)
    stage.put(item("b", 500), 0)
    assert len(stage) == 2
    assert names(stage.choose(0)) == ["b"]


def test_a_removed_item_is_not_served():
    stage = queue()
    stage.put(item("a"), 0)
    stage.put(item("b", not_before_ns=5 * MS), 0)
    assert stage.remove(("a", "r", 0)) is not None
    assert stage.remove(("a", "r", 0)) is None
    assert stage.remove(("b", "r", 0)) is not None
    assert stage.choose(10 * MS) == []
    assert stage.next_wake() is None


def test_the_lead_cap_holds_an_item_until_its_instant():
    stage = queue()
    stage.put(item("a", 5000, not_before_ns=700 * MS), 0)
    assert stage.choose(699 * MS) == []
    assert stage.next_wake() == 700 * MS
    assert names(stage.choose(700 * MS)) == ["a"]
    assert stage.next_wake() is None


def test_a_held_item_that_became_urgent_runs_at_once_and_once():
    stage = queue()
    stage.put(item("a", 5000, not_before_ns=700 * MS), 0)
    stage.put(item("a", 100), 0)
    assert names(stage.choose(0)) == ["a"]
    assert stage.choose(800 * MS) == []


def test_new_jobs_wait_for_slots_and_started_ones_do_not():
    stage = queue(4)
    stage.put(item("new1", 1), 0)
    stage.put(item("new2", 2), 0)
    stage.put(item("old", 3, started=True), 0)
    assert names(stage.choose(0, free_slots=1)) == ["new1", "old"]
    assert stage.starved
    assert stage.choose(0, free_slots=0) == []
    assert stage.starved
    assert names(stage.choose(0, free_slots=None)) == ["new2"]
    assert not stage.starved


def test_one_prompt_is_read_in_a_step_beside_the_decodes():
    stage = queue(4, prefill_batch=1)
    for i in range(3):
        stage.put(item(f"prompt{i}", i, WorkClass.FIRST_AUDIO, opening=True), 0)
    stage.put(item("decode", 900), 0)
    assert names(stage.choose(0)) == ["prompt0", "decode"]


def test_a_step_with_a_nearly_dry_listener_carries_no_draft():
    stage = queue(4, nearly_dry_ns=400 * MS)
    stage.put(item("dry", 100), 0)
    stage.put(item("draft", kind=WorkClass.DRAFT), 0)
    assert names(stage.choose(0)) == ["dry"]
    assert names(stage.choose(0)) == ["draft"]


def test_a_step_with_a_nearly_dry_listener_begins_no_prompt():
    stage = queue(4, nearly_dry_ns=400 * MS)
    stage.put(item("dry", 100), 0)
    stage.put(item("prompt", 200, WorkClass.FIRST_AUDIO, opening=True), 0)
    assert names(stage.choose(0)) == ["dry"]
    assert names(stage.choose(0)) == ["prompt"]


def test_a_prompt_does_not_slow_the_tokens_of_a_more_urgent_answer():
    decode = item("decode", 100, WorkClass.FIRST_AUDIO, started=True)
    early, soon, late = (
        item("prompt", due, WorkClass.FIRST_AUDIO, opening=True) for due in (50, 200, 600)
    )
    for prompt, short, want in (
        (late, 400 * MS, ["decode"]),
        (soon, 400 * MS, ["decode", "prompt"]),
        (early, 400 * MS, ["prompt", "decode"]),
        (late, None, ["decode", "prompt"]),
    ):
        stage = queue(4, nearly_dry_ns=short)
        stage.put(decode, 0)
        stage.put(prompt, 0)
        assert names(stage.choose(0)) == want


@pytest.mark.parametrize("policy", list(PolicyName))
def test_nobody_starves_behind_a_stream_of_more_urgent_work(policy):
    """Whoever stays ready is served within 64 decisions for each item that was ready before it."""
    stage = StageQueue(make_policy(SchedulerParams(policy=policy)), 1)
    patient = {
        PolicyName.FCFS: WorkItem(("p", "r", 0), WorkClass.PLAYING, 10**18, 0, 0),
        PolicyName.LIVESERVE: item("p", 9000, dry_ns=9000 * MS),
        PolicyName.DEADLINE: item("p", 9000),
    }[policy]
    stage.put(item("before", 100, dry_ns=100 * MS), 0)
    stage.put(patient, 0)
    served = []
    for i in range(2 * 64):
        stage.put(item(f"s{i}", 100, dry_ns=100 * MS), 0)
        served += names(stage.choose(0))
    assert "p" in served[-70:]
    assert served.count("p") == 1


def test_in_overload_an_answer_that_came_too_late_does_not_come_up_by_its_age():
    """Every 64th step would begin one that helps nobody, and one in time would wait for it. Its bound is `starve_s`."""
    stage = StageQueue(make_policy(SchedulerParams(), entry=True), 1)
    stage.put(item("hopeless", -5000, WorkClass.FIRST_AUDIO), 0)
    for i in range(2 * 64):
        stage.put(item(f"s{i}", 100), 0)
        assert names(stage.choose(0)) == [f"s{i}"]


def test_first_audio_that_starves_goes_before_everything_in_time():
    """However many are nearly dry: at the latest `starve_s` after it was due."""
    stage = StageQueue(make_policy(SchedulerParams(starve_s=3.0)), 2)
    stage.put(item("waiting", 500, WorkClass.FIRST_AUDIO), 0)
    for step in range(200):
        now = step * 20 * MS
        for i in range(4):
            stage.put(item(f"s{step}_{i}", now // MS), now)
        if "waiting" in names(stage.choose(now)):
            break
    assert 500 * MS < now <= 3520 * MS


def chunked(**params):
    return queue(4, chunks=ChunkSizes(SchedulerParams(**params)))


def units(stage, work, now=0, making=lambda size: 0):
    stage.put(work, now)
    return stage.choose(now, making=making)[0].units


FRAME = {"units": 1000, "unit_ns": 10 * MS}


def test_chunks_grow_with_slack():
    stage = chunked(chunk_ladder_s=(0.1, 0.2, 0.4))
    for slack_ms, frames in ((50, 10), (300, 10), (400, 20), (500, 40)):
        work = item("a", slack_ms, **FRAME)
        assert units(stage, work, making=lambda size: size // 2 + 100 * MS) == frames


def test_fixed_chunks_are_small_once_then_large():
    from session_server.scheduler.params import Chunking

    stage = chunked(chunk_ladder_s=(0.1, 0.4), chunking=Chunking.FIXED)
    assert units(stage, item("a", 10, first=True, **FRAME)) == 10
    assert units(stage, item("a", 10, **FRAME)) == 40


def test_the_first_chunk_lasts_until_the_second_can_be_there():
    stage = chunked(chunk_ladder_s=(0.1, 0.2, 0.4))
    first = item("a", 10, WorkClass.FIRST_AUDIO, first=True, **FRAME)
    assert units(stage, first, making=lambda size: 30 * MS) == 10
    assert units(stage, first, making=lambda size: 150 * MS) == 20
    assert units(stage, first, making=lambda size: 999 * MS) == 40


def test_a_chunk_never_exceeds_what_is_ready_or_what_the_cap_leaves():
    stage = chunked()
    assert units(stage, item("a", 5000, units=3, unit_ns=10 * MS)) == 3
    assert units(stage, item("a", 5000, cap_ns=-150 * MS, **FRAME)) == 15
    assert units(stage, item("a", 5000, cap_ns=-1, **FRAME)) == 1


def test_text_steps_take_what_they_are_offered():
    stage = chunked()
    assert units(stage, item("a", units=64)) == 64


def test_a_decision_looks_at_few_of_many_items():
    looked = 0

    class Spy:
        def __init__(self, inner):
            self.inner = inner
            self.ages = inner.ages

        def place(self, work):
            return self.inner.place(work)

        def walk(self, bands, now, room, behind):
            nonlocal looked
            for group in self.inner.walk(bands, now, room, behind):
                if isinstance(group, list):
                    looked += len(group)
                    yield group
                else:
                    yield self.counted(group)

        def counted(self, group):
            nonlocal looked
            for work in group:
                looked += 1
                yield work

    stage = StageQueue(Spy(make_policy(SchedulerParams())), 8)
    for i in range(1000):
        stage.put(item(f"s{i}", i, dry_ns=FOREVER_NS), 0)
    assert len(stage.choose(0)) == 8
    assert looked <= 9


def test_the_crowd_is_the_share_of_a_batch_that_waits():
    stage = queue(4)
    for step in range(200):
        for i in range(8):
            stage.put(item(f"s{i}"), step)
        stage.choose(step)
    assert stage.crowd == pytest.approx(2.0, rel=0.01)
    for step in range(200):
        stage.put(item("s"), step)
        stage.choose(step)
    assert stage.crowd == pytest.approx(0.25 + 1.75 / 200, abs=0.3)


def test_alarms_of_items_that_were_put_again_do_not_pile_up():
    stage = queue()
    for i in range(5000):
        stage.put(item("a", not_before_ns=NS_PER_S + i), 0)
    assert len(stage._alarms) < 200
    assert stage.next_wake() == NS_PER_S + 4999


def test_ages_of_items_that_were_served_do_not_pile_up():
    stage = queue(2)
    stage.put(item("patient", 10**6), 0)
    for i in range(5000):
        stage.put(item("a", i), 0)
        stage.put(item("b", i), 0)
        if i % 64 != 63:  # all but the decisions that begin with the oldest
            assert names(stage.choose(0)) == ["a", "b"]
        else:
            assert names(stage.choose(0))[0] == "patient"
            assert stage.remove(("b", "r", 0)) is not None
            stage.put(item("patient", 10**6), 0)
    assert len(stage) == 1


@pytest.mark.parametrize("entry", [False, True])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("batch", [2, 8])
def test_with_a_short_starve_s_nobody_is_chosen_twice_in_a_step(batch, last, entry):
    """An answer overdue by more than `starve_s`, but not yet lost by its objective, stood in two tiers."""
    params = SchedulerParams(starve_s=0.2, first_audio_s=1.0, begin_lead_s=1.0)
    stage = StageQueue(make_policy(params, last, entry), batch)
    now = 10_000 * MS
    for number in range(4):
        stage.put(
            item(f"s{number}", 9_000 + 300 * number, WorkClass.FIRST_AUDIO, started=True), now
        )
    served = names(stage.choose(now)) + names(stage.choose(now)) + names(stage.choose(now))
    assert served == ["s0", "s1", "s2", "s3"]


def test_age_counts_from_when_an_item_began_to_age():
    """First audio does not age under `deadline`; what it becomes does, behind those who waited before."""
    stage = StageQueue(make_policy(SchedulerParams()), 1)
    stage.put(item("early", 9_000, WorkClass.FIRST_AUDIO, started=True), 0)
    stage.put(item("patient", 9_000, started=True), 0)
    stage.put(item("early", 9_000, started=True), 0)
    for step in range(64):
        stage.put(item(f"rival{step}", 0, started=True), 0)
    served = [names(stage.choose(0)) for _ in range(64)]
    assert served.index(["patient"]) == 63
    assert ["early"] not in served
