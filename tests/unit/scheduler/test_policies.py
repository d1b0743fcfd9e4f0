"""The order in which each policy serves the same work."""

from __future__ import annotations

import pytest

from session_server.media import NS_PER_S
from session_server.scheduler.params import PolicyName, SchedulerParams
from session_server.scheduler.policy import make_policy
from session_server.scheduler.policy_liveserve import LiveservePolicy
from session_server.scheduler.stage_queue import StageQueue
from session_server.scheduler.work import FOREVER_NS, Kind, WorkItem

pytestmark = pytest.mark.unit

S = NS_PER_S
NOW = 100 * S


def item(name, kind, *, arrived=0.0, due=1.0, dry=None, latest=None, **more):
    """Instants are seconds from NOW."""
    due_ns = int(NOW + due * S)
    return WorkItem(
        (name, name, 0),
        kind,
        int(NOW + arrived * S),
        due_ns,
        due_ns if latest is None else int(NOW + latest * S),
        FOREVER_NS if dry is None else int(NOW + dry * S),
        **more,
    )


def playing(name, lead, **more):
    return item(name, Kind.PLAYING, dry=lead, due=lead, **more)


def order(policy, items, *, batch=100, now=NOW):
    queue = StageQueue(policy, batch, prefill_batch=100)
    for work in items:
        queue.put(work, now)
    return [choice.item.key[0] for choice in queue.choose(now)]


def by(name):
    return make_policy(SchedulerParams(policy=PolicyName(name)))


def test_fcfs_serves_by_arrival_whatever_is_urgent_and_drafts_last():
    work = [
        playing("dry", 0.0, arrived=-1),
        item("old", Kind.FIRST_AUDIO, arrived=-3),
        item("draft", Kind.DRAFT, arrived=-9),
        item("partial", Kind.PARTIAL, arrived=-2),
    ]
    assert order(by("fcfs"), work) == ["old", "partial", "dry", "draft"]


def test_liveserve_serves_nearly_dry_then_first_audio_then_the_rest():
    work = [
        playing("full", 1.5),
        playing("low", 0.9),
        playing("lower", 0.2),
        item("new", Kind.FIRST_AUDIO, arrived=-0.1),
        item("older", Kind.FIRST_AUDIO, arrived=-0.5),
        item("draft", Kind.DRAFT, arrived=-5),
        item("partial", Kind.PARTIAL, arrived=-4),
    ]
    want = ["lower", "low", "older", "new", "full", "partial", "draft"]
    assert order(by("liveserve"), work) == want


def test_liveserve_gives_the_well_buffered_a_quarter_of_a_batch_while_anyone_is_urgent():
    work = [playing(f"full{i}", 1.5 + i / 10) for i in range(8)]
    urgent = [item("new", Kind.FIRST_AUDIO)]
    assert order(by("liveserve"), work + urgent, batch=8) == ["new", "full0", "full1"]
    assert len(order(by("liveserve"), work, batch=8)) == 8


class Memory:
    """Shares of a pool by session."""

    def __init__(self, occupancy, **shares):
        self.occupancy = occupancy
        self.share = lambda session: shares.get(session, 0.0)


def test_liveserve_under_memory_pressure_finishes_the_big_ones_first():
    policy = LiveservePolicy(SchedulerParams())
    work = [playing("small", 1.5), playing("big", 1.9)]
    assert order(policy, work) == ["small", "big"]
    policy.memory = Memory(0.9, small=0.01, big=0.1)
    assert order(policy, work) == ["big", "small"]
    policy.memory = Memory(0.0, small=0.01, big=0.1)
    assert order(policy, work) == ["small", "big"]


def test_liveserve_weighs_the_memory_that_is_held_against_the_speech_that_may_be_wasted():
    """0.03 interruptions a second: 0.4 s more of lead cost as much as 0.012 of a full pool."""
    work = [playing("small", 1.5), playing("big", 1.9)]
    for share, first in ((0.011, "small"), (0.013, "big")):
        policy = LiveservePolicy(SchedulerParams())
        policy.memory = Memory(1.0, big=share)
        assert order(policy, work)[0] == first
    unweighted = LiveservePolicy(SchedulerParams(memory_weight=0.0))
    unweighted.memory = Memory(1.0, big=0.9)
    assert order(unweighted, work)[0] == "small"


def test_deadline_serves_tiers_then_least_slack():
    work = [
        playing("comfortable", 1.5),
        playing("soon", 0.45),
        playing("nearly dry", 0.3),
        playing("dry", -0.1),
        item("first", Kind.FIRST_AUDIO, due=0.5),
        item("urgent first", Kind.FIRST_AUDIO, due=0.1),
        item("missed", Kind.FIRST_AUDIO, due=-3.3),
        item("hopeless", Kind.FIRST_AUDIO, due=-3.7),
        item("starving", Kind.FIRST_AUDIO, due=-30.5),
        item("final", Kind.FINAL, due=-5.0),
        item("partial", Kind.PARTIAL, due=-9.0),
    ]
    assert order(by("deadline"), work) == [
        "starving",
        "dry",
        "nearly dry",
        "final",
        "urgent first",
        "soon",
        "first",
        "missed",
        "hopeless",
        "comfortable",
        "partial",
    ]


def test_those_who_missed_their_time_begin_to_speak_one_by_one():
    work = [item(f"missed{i}", Kind.FIRST_AUDIO, due=-1.5 + i / 10) for i in range(4)]
    work += [item("hopeless", Kind.FIRST_AUDIO, due=-4.0)]
    talker = make_policy(SchedulerParams(), entry=True)
    assert order(talker, work) == ["missed0"]
    assert order(talker, work[4:]) == ["hopeless"]
    assert len(order(by("deadline"), work)) == 5


def crowd(policy, first, leads, batch=8):
    """The first step of a talker that is behind: `first` by due time, and listeners by lead."""
    work = [item(f"due{due}", Kind.FIRST_AUDIO, due=due) for due in first]
    work += [playing(f"lead{lead}", lead) for lead in leads]
    return order(policy, work, batch=batch)


def test_in_overload_listeners_are_given_their_lead_before_anybody_begins():
    params = SchedulerParams(begin_lead_s=1.0, late_lead_s=1.25, first_audio_s=0.5)
    talker = make_policy(params, entry=True)
    leads = (0.9, 1.1, 1.2, 1.3, 1.4)
    want = ["lead0.9", "due0.2", "lead1.1", "lead1.2", "due-0.5", "lead1.3", "lead1.4", "due-2.0"]
    assert crowd(talker, (0.2, -0.5, -2.0), leads) == want
    assert crowd(talker, (0.2, -0.5, -2.0), leads, batch=2) == ["lead0.9", "due0.2"]


def test_in_overload_one_late_answer_begins_in_a_step_and_the_hopeless_wait():
    """Each of them would make one that is in time hopeless."""
    talker = make_policy(SchedulerParams(begin_lead_s=1.0, first_audio_s=0.5), entry=True)
    leads = [1.5 + i / 100 for i in range(8)]
    chosen = crowd(talker, (-0.2, -0.3, -2.0, -3.0), leads)
    assert [name for name in chosen if name.startswith("due")] == ["due-0.3"]


def test_an_answer_that_cannot_be_in_time_does_not_make_the_next_one_late():
    """Due in 0.2 s, and 0.3 s of work away."""
    talker = make_policy(SchedulerParams(), entry=True)
    work = [
        item("cannot", Kind.FIRST_AUDIO, due=0.2, latest=-0.1),
        item("can", Kind.FIRST_AUDIO, due=0.4, latest=0.1),
        playing("listener", 0.9),
    ]
    assert order(talker, work, batch=1) == ["can"]
    assert order(talker, work, batch=2) == ["can", "listener"]
    assert order(talker, work, batch=4) == ["cannot", "can", "listener"]


def test_without_the_rule_for_late_ones_first_audio_that_missed_its_time_goes_first():
    work = [item("missed", Kind.FIRST_AUDIO, due=-0.7), item("first", Kind.FIRST_AUDIO, due=0.3)]
    late_first = make_policy(SchedulerParams(late_rule=False))
    assert order(late_first, work) == ["missed", "first"]
    assert order(by("deadline"), work) == ["first", "missed"]


def test_speech_that_is_made_is_delivered_by_slack_alone():
    """While all fits into a step, what is late goes first at the last stage: there is nothing to be saved by waiting."""
    work = [
        item("missed", Kind.FIRST_AUDIO, due=-0.2),
        item("first", Kind.FIRST_AUDIO, due=0.1),
        playing("nearly dry", 0.3),
    ]
    last = make_policy(SchedulerParams(), last=True)
    assert order(last, work) == ["missed", "first", "nearly dry"]
    assert order(by("deadline"), work, batch=3) == ["nearly dry", "first", "missed"]


def test_a_last_stage_that_is_behind_delivers_what_is_in_time_first_and_the_hopeless_last():
    work = [
        item("hopeless", Kind.FIRST_AUDIO, due=-4.5),
        item("missed", Kind.FIRST_AUDIO, due=-0.2),
        item("first", Kind.FIRST_AUDIO, due=0.3),
        playing("dry", 0.12),
        playing("soon", 0.9),
        playing("comfortable", 1.5),
    ]
    last = make_policy(SchedulerParams(), last=True)
    want = ["dry", "first", "soon", "missed", "comfortable", "hopeless"]
    assert order(last, work, batch=6) == want
    assert order(last, work, batch=2) == ["dry", "first"]


def test_deadline_keeps_the_step_short_for_those_who_wait():
    full = [playing(f"full{i}", 1.5 + i / 10) for i in range(6)]
    drafts = [item(f"draft{i}", Kind.DRAFT, arrived=i) for i in range(6)]
    pressed = [item("new", Kind.FIRST_AUDIO, due=0.15)]
    in_time = [item("new", Kind.FIRST_AUDIO, due=0.9)]
    assert order(by("deadline"), full + pressed, batch=8) == ["new", "full0", "full1"]
    assert order(by("deadline"), drafts + pressed, batch=8) == ["new", "draft0", "draft1"]
    assert len(order(by("deadline"), full + in_time, batch=8)) == 7
    assert len(order(by("deadline"), full, batch=8)) == 6


def test_a_stage_that_is_behind_fills_its_batches():
    """With more work than a batch holds, what a step carries counts, not how short it is."""
    work = [playing(f"full{i}", 1.5 + i / 10) for i in range(7)]
    pressed = [item("new", Kind.FIRST_AUDIO, due=0.15)]
    assert len(order(by("deadline"), work + pressed, batch=8)) == 8


def test_deadline_moves_an_item_between_tiers_as_time_passes():
    work = [playing("listener", 1.0), item("first", Kind.FIRST_AUDIO, due=0.9)]
    assert order(by("deadline"), work) == ["first", "listener"]
    assert order(by("deadline"), work, now=NOW + 7 * S // 10) == ["listener", "first"]


@pytest.mark.parametrize("name", list(PolicyName))
def test_a_draft_is_below_all_and_still_served(name):
    policy = make_policy(SchedulerParams(policy=name))
    work = [item("draft", Kind.DRAFT, arrived=-100), item("partial", Kind.PARTIAL)]
    assert order(policy, work) == ["partial", "draft"]
    assert order(policy, work[:1]) == ["draft"]
