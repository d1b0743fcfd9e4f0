"""Admission, demand and the overload ladder: who is let in, what is predicted, what is given up first."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from session_server.scheduler.admission import (
    AdmissionVerdict,
    Appointments,
    Headroom,
    OverloadLadder,
    OverloadStep,
    SessionLimit,
    StageLoad,
    TurnAdmission,
    retry_after_s,
)
from session_server.scheduler.cost_model import CostModel, Demand
from session_server.scheduler.flow_control import ChunkSizes
from session_server.scheduler.params import SchedulerParams
from session_server.scheduler.work import Playhead
from session_server.types.audio import NS_PER_S

pytestmark = pytest.mark.unit

S = NS_PER_S


def test_a_session_beyond_the_predicted_load_is_told_that_the_server_is_busy():
    limit = SessionLimit(100)
    assert limit.admit("a", load=5.0) is None, "whoever is alone is let in"
    assert "busy" in (limit.admit("b", load=1.01) or "")
    assert limit.admit("b", load=0.99) is None
    assert limit.admit("b", load=9.0) is None, "it is in already"


@given(
    arrivals=st.lists(st.integers(0, 60), max_size=200),
    capacity=st.integers(1, 20),
    each=st.floats(0, 0.5),
)
def test_a_burst_of_arrivals_never_overshoots(arrivals, capacity, each):
    limit = SessionLimit(capacity)
    for name in arrivals:
        limit.admit(str(name), (len(limit) + 1) * each)
    assert len(limit) <= capacity
    assert len(limit) <= 1 or len(limit) * each <= 1


@given(job_s=st.floats(0.001, 0.2), cores=st.floats(0.5, 8), burst=st.integers(1, 200))
def test_turns_at_once_are_let_in_up_to_the_load_and_no_further(job_s, cores, burst):
    rule = TurnAdmission(SchedulerParams(utilisation=0.9, cores=cores))
    loads = [StageLoad("codec", job_s, 1.0), StageLoad("talker", job_s / 2, 1.0)]
    inside = 0
    for _ in range(burst):
        inside += rule.decide(0, inside, loads)[0] is AdmissionVerdict.ADMIT
    assert inside == 1 or rule.load(inside, loads) <= 1 + 1e-9
    assert inside == burst or rule.load(inside + 1, loads) > 1 - 1e-9


def test_what_a_device_or_another_machine_does_takes_no_core_and_can_still_be_busy():
    """One core; the thinker takes 0.5 of a second for each second of speech, and each other stage 0.1."""
    rule = TurnAdmission(SchedulerParams(cores=1.0, utilisation=0.9))
    here = [StageLoad(stage, 0.1, 1.0) for stage in ("talker", "vocoder")]
    thinker = StageLoad("thinker", 0.45, 1.0)
    away = replace(thinker, on_host=False)
    assert rule.decide(0, 1, [thinker, *here]) == (AdmissionVerdict.DEFER, "cores")
    assert rule.decide(0, 1, [away, *here]) == (AdmissionVerdict.ADMIT, "")
    assert rule.load(2, [thinker, *here]) == pytest.approx(1.3 / 0.9)
    assert rule.load(2, [away, *here]) == pytest.approx(1.0), "the thinker itself is full"
    assert rule.host_work(2, [away, *here]) == pytest.approx(0.4)
    assert rule.decide(0, 2, [away, *here]) == (AdmissionVerdict.DEFER, "thinker")
    assert rule.decide(0, 1, [away, *here], beside=0.6) == (AdmissionVerdict.DEFER, "cores")


def test_reading_prompts_counts_as_load():
    rule = TurnAdmission(SchedulerParams(utilisation=0.9, cores=100))
    decoding = StageLoad("thinker", 0.01, 1.0)
    reading = StageLoad("thinker", 0.01, 1.0, once_s=0.5, answer_s=5.0)
    assert rule.decide(0, 20, [decoding])[0] is AdmissionVerdict.ADMIT
    assert rule.decide(0, 20, [reading]) == (AdmissionVerdict.DEFER, "thinker")


def test_a_turn_whose_first_audio_would_come_too_late_waits_then_is_refused():
    rule = TurnAdmission(SchedulerParams(first_audio_s=1.0, first_audio_limit_s=2.0))
    assert rule.decide(0, 3, [], 2 * S) == (AdmissionVerdict.ADMIT, "")
    assert rule.decide(0, 3, [], 2 * S + 1) == (AdmissionVerdict.DEFER, "first_audio")
    assert rule.decide(S // 2, 3, [], 3 * S) == (AdmissionVerdict.REFUSE, "first_audio")
    assert rule.decide(0, 0, [], 3 * S)[0] is AdmissionVerdict.ADMIT


def test_with_admission_off_everybody_comes_in():
    rule = TurnAdmission(SchedulerParams(admission=False))
    assert (
        rule.decide(9 * S, 99, [StageLoad("codec", 1.0, 1.0)], 99 * S)[0] is AdmissionVerdict.ADMIT
    )


def test_hints_grow_with_the_queue_and_stay_in_bounds():
    hints = [retry_after_s(6.0, 3, ahead) for ahead in range(5)]
    assert hints == sorted(hints)
    assert hints[0] == 2
    assert retry_after_s(0.0, 5, 0) == 1
    assert retry_after_s(1000.0, 1, 50) == 60


def converse(demand: Demand, sessions: int, answers_s: int, every_s: int, rounds: int) -> int:
    """Sessions that each have an answer of `answers_s` every `every_s`, evenly shifted; when it ends."""
    now = 0
    for name in range(sessions):
        demand.opened(str(name), 0)
    for at in range(rounds * every_s):
        now = at * S
        for name in range(sessions):
            phase = (at - name * every_s // sessions) % every_s
            if phase == 0:
                demand.began(str(name), now)
            elif phase == answers_s and at >= answers_s:
                demand.ended(str(name), now)
    return now


def test_duty_follows_what_sessions_do():
    demand = Demand()
    now = converse(demand, 20, 4, 20, 40)
    assert demand.duty == pytest.approx(0.2, abs=0.02)
    assert 4 < demand.responses(now) < 7


def test_newcomers_count_whole_until_their_first_answer_is_over():
    demand = Demand()
    for name in "abcd":
        demand.opened(name, 0)
    assert demand.responses(0) == 4
    assert demand.responses(0, newcomers=3) == 7
    demand.began("a", 5 * S)
    demand.ended("a", 9 * S)
    assert 3 < demand.responses(9 * S) < 4.5
    demand.began("b", 9 * S)
    demand.ended("b", 10 * S, draft=True)
    assert demand.responses(10 * S) > 3, "a draft that was dropped makes nobody older"


def test_a_newcomer_who_says_nothing_does_not_count_whole_for_ever():
    demand = Demand()
    demand.opened("a", 0)
    assert demand.responses(29 * S) == 1
    assert demand.responses(31 * S) < 1.01
    demand.closed("a", 40 * S)
    demand.closed("a", 40 * S)
    assert demand.responses(40 * S) == 0


def test_one_minute_of_a_few_sessions_does_not_overthrow_the_prior():
    demand = Demand()
    converse(demand, 4, 1, 20, 3)
    assert 0.25 < demand.duty < 0.5


def test_pace_counts_audio_that_is_made_faster_than_it_is_heard():
    demand = Demand()
    assert demand.pace == 1
    for _ in range(1000):
        demand.made(6.0, 4.0)
    assert demand.pace == pytest.approx(1.5, abs=0.02)


def test_appointments_are_spread_at_the_pace_at_which_others_leave():
    hints = Appointments()
    assert [hints.give(3.0, 0) for _ in range(4)] == [3, 6, 9, 12]
    assert hints.give(3.0, 12 * S) == 3
    assert max(hints.give(3.0, 12 * S) for _ in range(100)) == 60
    assert Appointments().give(0.01, 0) == 1


def test_work_done_ahead_lets_a_short_crowd_in_and_nothing_ahead_does_not():
    rule = TurnAdmission(SchedulerParams(utilisation=0.9, cores=100))
    load = [StageLoad("talker", 0.1, 1.0)]
    assert rule.decide(0, 8, load)[0] is AdmissionVerdict.ADMIT
    assert rule.decide(0, 9, load) == (AdmissionVerdict.DEFER, "talker")
    assert rule.decide(0, 9, load, spare=1.0)[0] is AdmissionVerdict.ADMIT
    assert rule.decide(0, 10, load, spare=1.0) == (AdmissionVerdict.DEFER, "talker")


def test_answers_teach_their_length_and_their_reading():
    demand = Demand()
    for _ in range(100):
        demand.answered(3.0, 200)
    demand.answered(0.0, 10_000)
    assert demand.answer_s == pytest.approx(3.0, rel=0.01)
    assert demand.read_tokens == pytest.approx(200, rel=0.01)


def test_the_ladder_is_climbed_in_order_and_left_with_hysteresis():
    ladder = OverloadLadder(SchedulerParams(overload_max_tokens=40))
    steps = [ladder.look(load, 0, 0) for load in (0.5, 0.7, 0.85, 0.8, 0.7, 0.62, 0.5)]
    assert steps == [
        OverloadStep.NONE,
        OverloadStep.LONGER_CHUNKS,
        OverloadStep.SHORTER_ANSWERS,
        OverloadStep.SHORTER_ANSWERS,
        OverloadStep.LONGER_CHUNKS,
        OverloadStep.LONGER_CHUNKS,
        OverloadStep.NONE,
    ]
    assert ladder.look(0.5, 1, 0) is OverloadStep.DEFER
    ladder.refused(0)
    assert ladder.look(0.5, 0, 4 * S) is OverloadStep.REFUSE
    assert ladder.look(0.5, 0, 6 * S) is OverloadStep.NONE


def test_answers_are_shortened_only_where_that_is_allowed():
    allowed = OverloadLadder(SchedulerParams(overload_max_tokens=40))
    never = OverloadLadder(SchedulerParams())
    for ladder in (allowed, never):
        ladder.look(0.75, 0, 0)
        assert ladder.longer_chunks
        assert ladder.max_tokens is None
        ladder.look(0.9, 0, 0)
    assert allowed.max_tokens == 40
    assert never.max_tokens is None


def test_longer_chunks_give_up_the_margin_but_not_the_deadline():
    chunks = ChunkSizes(SchedulerParams(chunk_ladder_s=(0.1, 0.2, 0.4)))
    making = lambda audio_ns: audio_ns  # noqa: E731
    slack = 3 * S // 10
    assert chunks.size_ns(slack, False, making) == S // 5
    slack = S // 4
    assert chunks.size_ns(slack, False, making) == S // 10
    chunks.longer = True
    assert chunks.size_ns(slack, False, making) == S // 5
    assert chunks.size_ns(0, False, making) == S // 10


def test_batches_far_from_what_was_seen_are_unknown():
    costs = CostModel()
    assert not costs.knows("talker", 1)
    costs.observe("talker", 4, 1, S)
    assert [costs.knows("talker", batch) for batch in (1, 2, 4, 8, 9, 32)] == [
        False,
        True,
        True,
        True,
        False,
        False,
    ]


def test_sessions_get_less_room_when_answers_come_late_and_more_while_they_are_turned_away():
    room = Headroom()
    first = room.share
    room.answered(True, False, 40, 0)
    assert room.share == first, "nobody asks for more"
    for _ in range(200):
        room.answered(True, True, 40, 0)
    assert first < room.share < 1
    before = room.share
    for late in range(3):
        room.answered(False, True, 40, late * S)
    assert room.share == pytest.approx(before * 0.9), "once in a while only"
    for late in range(2000):
        room.answered(False, True, 40, late * 6 * S)
    assert 0.3 < room.share < 0.5
    for _ in range(10_000):
        room.answered(True, False, 40, 10**15)
    assert room.share == pytest.approx(first), "what a bad hour took comes back by itself"


def test_a_playhead_knows_how_close_its_listener_came_to_running_dry():
    head = Playhead(24_000, audible=True)
    head.deliver(24_000, 0)
    head.deliver(24_000, S // 2)
    assert head.least_ns == S // 2, "the first chunk meets nobody who listens"
    head.deliver(24_000, 3 * S)
    assert head.least_ns == -S


def test_load_is_work_and_not_the_time_that_steps_wait_for_a_core():
    costs = CostModel()
    for _ in range(50):
        costs.observe("codec", 2, 16, 40 * S // 1000, 10 * S // 1000)
    assert costs.per_job_ns("codec", 2, 16) == pytest.approx(5 * S / 1000)
    assert costs.work_ns("codec", 2, 16) == pytest.approx(10 * S / 1000)
    assert costs.p90_ns("codec", 2, 16) == pytest.approx(40 * S / 1000)
