"""Cost model, credits, playout estimate, urgency and admission: the arithmetic below the policies."""

from __future__ import annotations

import pytest

from session_server.scheduler.admission import (
    AdmissionVerdict,
    SessionLimit,
    StageLoad,
    TurnAdmission,
)
from session_server.scheduler.cost_model import Average, CostModel, bucket
from session_server.scheduler.flow_control import ChunkSizes, Credits
from session_server.scheduler.params import PolicyName, SchedulerParams
from session_server.scheduler.work import FOREVER_NS, Playhead, ResponseUrgency, Step, WorkClass
from session_server.types.audio import NS_PER_MS, NS_PER_S

pytestmark = pytest.mark.unit

MS, S = NS_PER_MS, NS_PER_S
RATE = 24_000


def test_buckets_are_powers_of_two():
    assert [bucket(n) for n in (0, 1, 2, 3, 4, 5, 8, 9)] == [0, 0, 1, 2, 2, 3, 3, 4]


def test_costs_follow_what_is_measured():
    costs = CostModel()
    assert costs.p90_ns("codec", 1, 8, prior_ns=7) == 7
    for _ in range(100):
        costs.observe("codec", 1, 8, 10 * MS)
    assert costs.p90_ns("codec", 1, 8) == pytest.approx(10 * MS)
    for _ in range(100):
        costs.observe("codec", 1, 8, 30 * MS)
    assert costs.p90_ns("codec", 1, 8) == pytest.approx(30 * MS, rel=0.1)


def test_p90_lies_above_nine_of_ten_steps():
    costs = CostModel()
    for i in range(2000):
        costs.observe("thinker", 4, 1, (50 if i % 20 == 0 else 10 + i % 7) * MS)
    p90 = costs.p90_ns("thinker", 4, 1)
    assert 14 * MS <= p90 <= 30 * MS


def test_an_average_follows_what_it_is_told():
    waits = Average()
    assert waits.ns == 0
    waits.observe(100 * MS)
    assert waits.ns == 100 * MS
    for _ in range(100):
        waits.observe(20 * MS)
    assert waits.ns == pytest.approx(20 * MS, rel=0.01)


@pytest.mark.parametrize(("margin_ms", "frames"), [(0, 25), (100, 12), (600, 8), (2000, 4)])
def test_a_larger_margin_makes_a_chunk_smaller_and_earlier(margin_ms, frames):
    ladder = tuple(n * 0.08 for n in (4, 8, 12, 25))
    sizes = ChunkSizes(SchedulerParams(chunk_ladder_s=ladder))
    size = sizes.size_ns(1000 * MS, False, lambda audio: audio // 2, margin_ms * MS)
    assert size // (80 * MS) == frames


def test_an_unseen_size_is_answered_by_the_nearest():
    costs = CostModel()
    costs.observe("talker", 1, 1, 5 * MS)
    costs.observe("talker", 16, 1, 40 * MS)
    assert costs.p90_ns("talker", 2, 1) == 5 * MS
    assert costs.p90_ns("talker", 9, 1) == 40 * MS
    assert costs.per_job_ns("talker", 16, 1) == 2.5 * MS
    assert costs.per_job_ns("vocoder", 1, 1) == 0


def test_credits_are_never_exceeded():
    edge = Credits(2)
    edge.take()
    edge.take()
    assert edge.free == 0
    with pytest.raises(ValueError, match="took 1"):
        edge.take()
    edge.give(2)
    with pytest.raises(ValueError, match="gave back"):
        edge.give()
    with pytest.raises(ValueError, match="room"):
        Credits(0)


def test_a_listener_plays_from_the_first_chunk_on():
    head = Playhead(RATE, audible=True)
    assert head.dry_ns == FOREVER_NS
    head.deliver(RATE, 5 * S)
    assert head.dry_ns == 6 * S
    assert head.lead_ns(5 * S + S // 4) == 3 * S // 4
    head.deliver(RATE, 5 * S)
    assert head.dry_ns == 7 * S
    assert head.lead_ns(9 * S) == 0


def test_a_listener_that_ran_dry_starts_again_with_the_next_chunk():
    head = Playhead(RATE, audible=True)
    head.deliver(RATE, 0)
    head.deliver(RATE, 5 * S)
    assert head.dry_ns == 6 * S


def test_a_frontier_report_corrects_the_guess():
    head = Playhead(RATE, audible=True)
    head.deliver(2 * RATE, 0)
    head.report(RATE // 2, RATE, False, S)
    assert head.dry_ns == S + 3 * S // 2
    head.report(RATE // 4, RATE, False, S)  # an older report cannot take back what was played
    assert head.played == RATE // 2
    head.report(10 * RATE, RATE, False, S)  # nor can one claim more than there is
    assert head.played == 2 * RATE


def test_a_paused_listener_does_not_run_dry():
    head = Playhead(RATE, audible=True)
    head.deliver(RATE, 0)
    head.report(RATE // 2, RATE, True, S)
    assert head.dry_ns == FOREVER_NS
    assert head.lead_ns(9 * S) == S // 2
    head.report(RATE // 2, RATE, False, 10 * S)
    assert head.dry_ns == 10 * S + S // 2


def test_an_adopted_draft_has_all_its_audio_still_to_play():
    head = Playhead(RATE, audible=False)
    head.deliver(RATE, 0)
    assert head.dry_ns == FOREVER_NS
    assert head.lead_ns(50 * S) == S
    head.adopt(60 * S)
    assert head.dry_ns == 61 * S


PARAMS = SchedulerParams(transport_s=0.0)
KEY = ("s", "r", 0)


def test_first_audio_is_due_by_the_end_of_turn_and_playing_by_the_listener():
    head = Playhead(RATE, audible=True)
    urgency = ResponseUrgency(PARAMS, 10 * S, 9 * S, False, head)
    first = urgency.item(Step(KEY, path_ns=200 * MS), 10 * S)
    assert (first.kind, first.due_ns) == (WorkClass.FIRST_AUDIO, 10 * S)
    assert first.slack_ns(9 * S) == 800 * MS
    head.deliver(RATE, 10 * S)
    step = Step(KEY, path_ns=200 * MS, below_ns=300 * MS, room_ns=100 * MS)
    playing = urgency.item(step, 10 * S)
    assert playing.kind is WorkClass.PLAYING
    assert playing.slack_ns(10 * S) == 1100 * MS
    assert playing.not_before_ns == 11 * S + 400 * MS - 2 * S


def test_a_draft_waits_at_its_cap_for_adoption():
    head = Playhead(RATE, audible=False)
    urgency = ResponseUrgency(PARAMS, 0, None, True, head)
    assert urgency.item(Step(KEY, 0, room_ns=200 * MS), 0).kind is WorkClass.DRAFT
    head.deliver(RATE * 9 // 10, 0)
    assert urgency.item(Step(KEY, 0, room_ns=200 * MS), 0) is None
    urgency.adopt(5 * S, 5 * S)
    assert urgency.item(Step(KEY, 0, room_ns=200 * MS), 5 * S).kind is WorkClass.PLAYING


def test_a_paused_response_asks_for_nothing():
    head = Playhead(RATE, audible=True)
    head.deliver(RATE, 0)
    head.report(0, RATE, True, 0)
    urgency = ResponseUrgency(PARAMS, 0, 0, False, head)
    assert urgency.item(Step(KEY, 0), 0) is None
    assert urgency.thought(Step(KEY, 0), 0) is None


def test_once_the_first_clause_is_on_its_way_the_rest_of_the_text_can_wait():
    urgency = ResponseUrgency(PARAMS, 0, 0, False, Playhead(RATE, audible=True))
    awaited = urgency.thought(Step(KEY, path_ns=300 * MS), 0)
    assert (awaited.kind, awaited.slack_ns(0)) == (WorkClass.FIRST_AUDIO, 700 * MS)
    rest = urgency.thought(Step(KEY, path_ns=300 * MS, below_ns=2 * S), 0)
    assert (rest.kind, rest.slack_ns(0)) == (WorkClass.PLAYING, 2700 * MS)


def test_what_follows_a_first_chunk_that_waits_does_not_keep_newcomers_from_the_talker():
    """A vocoder that is slow held newcomers back at the talker as well: who waited there went on being awaited."""
    params = SchedulerParams(transport_s=0.0, chunk_ladder_s=(0.3, 1.0))
    urgency = ResponseUrgency(params, 0, 0, False, Playhead(RATE, audible=True))
    key = ("s", "r", 0)

    def step(below_ms, ahead=2 * S, **more):
        made = Step(key, 100 * MS, below_ms * MS, ahead_ns=ahead, by_frames=True, **more)
        return urgency.item(made, 0)

    before = step(290)
    assert (before.kind, before.due_ns, before.first) == (WorkClass.FIRST_AUDIO, 1 * S, True)
    after = step(300)
    assert (after.kind, after.due_ns, after.dry_ns) == (WorkClass.PLAYING, 1300 * MS, 1 * S)
    assert not after.first
    assert after.latest_ns == 1200 * MS
    assert step(1000).not_before_ns == 0
    assert step(1100).not_before_ns == 100 * MS, "it is heard from when it is due: that is its lead"
    assert step(1100, ahead=None).not_before_ns == 100 * MS


def test_only_the_deadline_policy_knows_what_follows_a_first_chunk():
    urgency = ResponseUrgency(
        SchedulerParams(policy=PolicyName.LIVESERVE), 0, 0, False, Playhead(RATE, audible=True)
    )
    made = Step(("s", "r", 0), 0, 1 * S, by_frames=True)
    assert urgency.item(made, 0).kind is WorkClass.FIRST_AUDIO


def test_text_answers_have_no_listener():
    urgency = ResponseUrgency(PARAMS, 0, 0, False, None)
    assert urgency.thought(Step(KEY, 0), 0).kind is WorkClass.FINAL


def test_a_session_counts_once_and_leaves_once():
    limit = SessionLimit(2)
    assert [limit.admit(name) for name in ("a", "b", "a")] == [None, None, None]
    assert "2 sessions" in limit.admit("c")
    limit.leave("a")
    limit.leave("a")
    assert limit.admit("c") is None
    assert len(limit) == 2


def test_a_turn_is_admitted_while_every_stage_keeps_up():
    rule = TurnAdmission(SchedulerParams(first_audio_s=1.0, utilisation=0.9, cores=100))
    loads = [StageLoad("thinker", 0.01, 1.0), StageLoad("codec", 0.1, 1.0)]
    assert rule.decide(0, 8, loads) == (AdmissionVerdict.ADMIT, "")
    assert rule.decide(0, 9, loads) == (AdmissionVerdict.DEFER, "codec")
    assert rule.decide(S // 2, 9, loads) == (AdmissionVerdict.REFUSE, "codec")


def test_stages_that_share_cores_are_added_up():
    rule = TurnAdmission(SchedulerParams(utilisation=0.9, cores=1))
    loads = [StageLoad("thinker", 0.05, 1.0), StageLoad("codec", 0.05, 1.0)]
    assert rule.decide(0, 8, loads)[0] is AdmissionVerdict.ADMIT
    assert rule.decide(0, 9, loads) == (AdmissionVerdict.DEFER, "cores")


def test_the_only_turn_is_always_admitted():
    rule = TurnAdmission(SchedulerParams())
    assert rule.decide(0, 0, [StageLoad("thinker", 99.0, 1.0)])[0] is AdmissionVerdict.ADMIT


@pytest.mark.parametrize("ladder", [(), (0.2, 0.1), (0.1, 0.1), (0.0, 0.1), (0.1, 3.0)])
def test_a_ladder_that_does_not_rise_below_the_cap_is_refused(ladder):
    with pytest.raises(ValueError, match="chunk_ladder_s"):
        SchedulerParams(chunk_ladder_s=ladder)
