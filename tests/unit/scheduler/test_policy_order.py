"""The order in which each policy serves the same work."""

from __future__ import annotations

import pytest

from session_server.scheduler.params import PolicyName, SchedulerParams
from session_server.scheduler.policies import LiveservePolicy, make_policy
from session_server.scheduler.policy_deadline import Beginnings
from session_server.scheduler.stage_queue import StageQueue
from session_server.scheduler.work import FOREVER_NS, WorkClass, WorkItem
from session_server.types.audio import NS_PER_MS, NS_PER_S

pytestmark = pytest.mark.unit

S, MS = NS_PER_S, NS_PER_MS
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
    return item(name, WorkClass.PLAYING, dry=lead, due=lead, **more)


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
        item("old", WorkClass.FIRST_AUDIO, arrived=-3),
        item("draft", WorkClass.DRAFT, arrived=-9),
        item("partial", WorkClass.PARTIAL, arrived=-2),
    ]
    assert order(by("fcfs"), work) == ["old", "partial", "dry", "draft"]


def test_liveserve_serves_nearly_dry_then_first_audio_then_the_rest():
    work = [
        playing("full", 1.5),
        playing("low", 0.9),
        playing("lower", 0.2),
        item("new", WorkClass.FIRST_AUDIO, arrived=-0.1),
        item("older", WorkClass.FIRST_AUDIO, arrived=-0.5),
        item("draft", WorkClass.DRAFT, arrived=-5),
        item("partial", WorkClass.PARTIAL, arrived=-4),
    ]
    want = ["lower", "low", "older", "new", "full", "partial", "draft"]
    assert order(by("liveserve"), work) == want


def test_liveserve_gives_the_well_buffered_a_quarter_of_a_batch_while_anyone_is_urgent():
    work = [playing(f"full{i}", 1.5 + i / 10) for i in range(8)]
    urgent = [item("new", WorkClass.FIRST_AUDIO)]
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
        item("first", WorkClass.FIRST_AUDIO, due=0.5),
        item("urgent first", WorkClass.FIRST_AUDIO, due=0.1),
        item("missed", WorkClass.FIRST_AUDIO, due=-3.3),
        item("hopeless", WorkClass.FIRST_AUDIO, due=-3.7),
        item("starving", WorkClass.FIRST_AUDIO, due=-30.5),
        item("final", WorkClass.FINAL, due=-5.0),
        item("partial", WorkClass.PARTIAL, due=-9.0),
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
    work = [item(f"missed{i}", WorkClass.FIRST_AUDIO, due=-1.5 + i / 10) for i in range(4)]
    work += [item("hopeless", WorkClass.FIRST_AUDIO, due=-4.0)]
    talker = make_policy(SchedulerParams(), entry=True)
    assert order(talker, work) == ["missed0"]
    assert order(talker, work[4:]) == ["hopeless"]
    assert len(order(by("deadline"), work)) == 5


def crowd(policy, first, leads, batch=8):
    """The first step of a talker that is behind: `first` by due time, and listeners by lead."""
    work = [item(f"due{due}", WorkClass.FIRST_AUDIO, due=due) for due in first]
    work += [playing(f"lead{lead}", lead, started=True) for lead in leads]
    return order(policy, work, batch=batch)


CROWDED = SchedulerParams(
    begin_lead_s=1.0, rush_lead_s=0.7, late_lead_s=1.5, first_audio_s=0.5, nearly_dry_s=0.5
)


def test_in_a_rush_everybody_is_a_little_late_instead_of_some_being_lost():
    """Whoever is nearly dry goes first, then answers in time, one late one, the other listeners, and those who are lost."""
    talker = make_policy(CROWDED, entry=True)
    leads = [0.4] + [0.8 + i / 100 for i in range(23)]
    chosen = crowd(talker, (0.2, -0.4, -0.5, -2.0), leads, batch=27)
    assert chosen[:4] == ["lead0.4", "due0.2", "due-0.5", "lead0.8"]
    assert chosen[-1] == "due-2.0"
    assert crowd(talker, (0.2, -0.4, -0.5, -2.0), leads, batch=2) == ["lead0.4", "due0.2"]


def test_a_rush_in_which_many_are_late_is_overload():
    """On a small machine everybody would be late before anybody is lost: each late one makes the next one late."""
    talker = make_policy(CROWDED, entry=True)
    leads = [0.8 + i / 100 for i in range(15)]
    begun = {late: crowd(talker, [0.2, *late], leads) for late in ((-0.5,), (-0.5, -0.6))}
    assert begun[-0.5,][:2] == ["due0.2", "due-0.5"]
    assert begun[-0.5, -0.6][:2] == ["due0.2", "lead0.8"]


def test_in_overload_late_answers_do_not_make_those_in_time_late_too():
    """Two are lost: from now on it is chosen who waits, until listeners have a lead again."""
    talker = make_policy(CROWDED, entry=True)
    first = (0.2, -0.5, -2.0, -3.0)
    low, high = [0.8 + i / 100 for i in range(8)], [1.6 + i / 100 for i in range(8)]
    begun = [name for name in crowd(talker, first, low) if name.startswith("due")]
    assert begun == ["due0.2"]
    begun = [name for name in crowd(talker, first, high) if name.startswith("due")]
    assert begun == ["due0.2", "due-0.5"]


def test_a_talker_lets_fewer_answers_begin_the_less_listeners_have_ahead():
    """A step of 8 units of 80 ms takes 40 ms: speech for 16 listeners, less a twentieth."""
    beginnings = Beginnings()
    assert beginnings.places(8, 80 * MS, 30, 0, 700 * MS) == 8, "nothing is known yet"
    for step in range(100):
        beginnings.decides(step * 40 * MS, True)
    leads = (2500, 1700, 700, 500)
    places = [beginnings.places(8, 80 * MS, 14, ms * MS, 700 * MS) for ms in leads]
    assert places == [7, 5, 2, 1]
    assert beginnings.places(8, 80 * MS, 16, 700 * MS, 700 * MS) == 0
    assert beginnings.places(8, 0, 16, 0, 700 * MS) == 8, "its units are no time"


def test_pauses_do_not_count_as_long_steps_of_a_talker():
    beginnings = Beginnings()
    for second in range(0, 10_000, 1000):
        for step in range(5):
            beginnings.decides((second + 40 * step) * MS, step < 4)
    assert beginnings.places(8, 80 * MS, 14, 700 * MS, 700 * MS) == 2


@pytest.mark.parametrize(("step_ms", "begins"), [(1, True), (40, False)])
def test_a_talker_that_is_full_begins_nothing(step_ms, begins):
    """20 listeners with the lead that a rush leaves them; steps of 40 ms make speech for 16."""
    queue = StageQueue(make_policy(CROWDED, entry=True), 8)
    work = [item("new", WorkClass.FIRST_AUDIO, due=0.5, started=True)]
    work += [playing(f"lead{i}", 0.8, unit_ns=80 * MS, started=True) for i in range(20)]
    chosen = []
    for step in range(5):
        for one in work:
            queue.put(one, NOW)
        chosen = [choice.item.key[0] for choice in queue.choose(NOW + step * step_ms * MS)]
    assert len(chosen) == 8
    assert ("new" in chosen) is begins


def test_an_answer_that_cannot_be_in_time_does_not_make_the_next_one_late():
    """Due in 0.2 s, and 0.3 s of work away."""
    talker = make_policy(SchedulerParams(), entry=True)
    work = [
        item("cannot", WorkClass.FIRST_AUDIO, due=0.2, latest=-0.1),
        item("can", WorkClass.FIRST_AUDIO, due=0.4, latest=0.1),
        playing("listener", 0.9),
    ]
    assert order(talker, work, batch=1) == ["can"]
    assert order(talker, work, batch=2) == ["can", "listener"]
    assert order(talker, work, batch=4) == ["cannot", "can", "listener"]


def test_without_the_rule_for_late_ones_first_audio_that_missed_its_time_goes_first():
    work = [
        item("missed", WorkClass.FIRST_AUDIO, due=-0.7),
        item("first", WorkClass.FIRST_AUDIO, due=0.3),
    ]
    late_first = make_policy(SchedulerParams(late_rule=False))
    assert order(late_first, work) == ["missed", "first"]
    assert order(by("deadline"), work) == ["first", "missed"]


def test_speech_that_is_made_is_delivered_by_slack_alone():
    """While all fits into a step, what is late goes first at the last stage: there is nothing to be saved by waiting."""
    work = [
        item("missed", WorkClass.FIRST_AUDIO, due=-0.2),
        item("first", WorkClass.FIRST_AUDIO, due=0.1),
        playing("nearly dry", 0.3),
    ]
    last = make_policy(SchedulerParams(), last=True)
    assert order(last, work) == ["missed", "first", "nearly dry"]
    assert order(by("deadline"), work, batch=3) == ["nearly dry", "first", "missed"]


def test_a_last_stage_that_is_behind_delivers_what_is_in_time_first_and_the_hopeless_last():
    work = [
        item("hopeless", WorkClass.FIRST_AUDIO, due=-4.5),
        item("missed", WorkClass.FIRST_AUDIO, due=-0.2),
        item("first", WorkClass.FIRST_AUDIO, due=0.3),
        playing("dry", 0.12),
        playing("soon", 0.9),
        playing("comfortable", 1.5),
    ]
    last = make_policy(SchedulerParams(), last=True)
    want = ["dry", "first", "missed", "soon", "comfortable", "hopeless"]
    assert order(last, work, batch=6) == want
    assert order(last, work, batch=2) == ["dry", "first"]


def test_in_a_rush_the_last_stage_delivers_late_answers_before_listeners_who_can_wait():
    """Each costs a small chunk; put off, it would fail for good. Two lost ones, and it is overload."""
    work = [
        item("missed", WorkClass.FIRST_AUDIO, due=-0.2),
        playing("soon", 0.9),
        playing("more", 1.5),
    ]
    lost = [item(f"lost{i}", WorkClass.FIRST_AUDIO, due=-4.5 + i / 2) for i in range(2)]
    last = make_policy(SchedulerParams(), last=True)
    assert order(last, [*work, lost[0]], batch=4) == ["missed", "soon", "more", "lost0"]
    assert order(last, [*work, *lost], batch=5) == ["soon", "missed", "more", "lost0", "lost1"]


def test_deadline_keeps_the_step_short_for_those_who_wait():
    full = [playing(f"full{i}", 1.5 + i / 10) for i in range(6)]
    drafts = [item(f"draft{i}", WorkClass.DRAFT, arrived=i) for i in range(6)]
    pressed = [item("new", WorkClass.FIRST_AUDIO, due=0.15)]
    in_time = [item("new", WorkClass.FIRST_AUDIO, due=0.9)]
    assert order(by("deadline"), full + pressed, batch=8) == ["new", "full0", "full1"]
    assert order(by("deadline"), drafts + pressed, batch=8) == ["new", "draft0", "draft1"]
    assert len(order(by("deadline"), full + in_time, batch=8)) == 7
    assert len(order(by("deadline"), full, batch=8)) == 6


def test_a_stage_that_is_behind_fills_its_batches():
    """With more work than a batch holds, what a step carries counts, not how short it is."""
    work = [playing(f"full{i}", 1.5 + i / 10) for i in range(7)]
    pressed = [item("new", WorkClass.FIRST_AUDIO, due=0.15)]
    assert len(order(by("deadline"), work + pressed, batch=8)) == 8


def test_deadline_moves_an_item_between_tiers_as_time_passes():
    work = [playing("listener", 1.0), item("first", WorkClass.FIRST_AUDIO, due=0.9)]
    assert order(by("deadline"), work) == ["first", "listener"]
    assert order(by("deadline"), work, now=NOW + 7 * S // 10) == ["listener", "first"]


@pytest.mark.parametrize("name", list(PolicyName))
def test_a_draft_is_below_all_and_still_served(name):
    policy = make_policy(SchedulerParams(policy=name))
    work = [item("draft", WorkClass.DRAFT, arrived=-100), item("partial", WorkClass.PARTIAL)]
    assert order(policy, work) == ["partial", "draft"]
    assert order(policy, work[:1]) == ["draft"]
