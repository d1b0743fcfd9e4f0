"""The lead cap: close to the listener while there is time to spare, further ahead under load and jitter."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from session_server.scheduler.flow_control import LeadCap
from session_server.scheduler.params import SchedulerParams
from session_server.scheduler.work import Playhead, ResponseUrgency, Step
from session_server.types.audio import NS_PER_MS, NS_PER_S

pytestmark = pytest.mark.unit

S, MS = NS_PER_S, NS_PER_MS
PARAMS = SchedulerParams(lead_cap_s=2.0, lead_idle_s=1.0, transport_s=0.1)


@dataclass
class Stage:
    crowd: float = 0.0


def test_an_idle_host_stays_close_to_the_listener_and_a_loaded_one_runs_ahead():
    talker, vocoder = Stage(), Stage()
    cap = LeadCap(PARAMS, [talker, vocoder])
    assert cap.ns == S
    talker.crowd = 0.5
    assert cap.ns == 1500 * MS
    vocoder.crowd = 0.8
    assert cap.ns == 1800 * MS
    talker.crowd = 7.0
    assert cap.ns == 2 * S


def test_chunks_that_come_late_raise_the_cap_and_timely_ones_lower_it_slowly():
    cap = LeadCap(PARAMS, [Stage()])
    cap.delivered(99 * MS)
    assert cap.ns == 1050 * MS
    for _ in range(50):
        cap.delivered(500 * MS)
    assert cap.ns == 1025 * MS
    for _ in range(60):
        cap.delivered(500 * MS)
    assert cap.ns == S


def test_the_cap_is_bounded_however_late_everything_is():
    cap = LeadCap(PARAMS, [Stage()])
    for _ in range(1000):
        cap.delivered(-S)
    assert cap.ns == 2 * S


def test_a_talker_that_is_behind_lets_listeners_have_more_for_a_rush():
    """A vocoder that is behind does not: large chunks are all that helps it."""
    params = SchedulerParams(lead_cap_s=2.0, lead_idle_s=1.0, rush_cap_s=3.0)
    talker, vocoder = Stage(), Stage()
    cap = LeadCap(params, [talker, vocoder], talker)
    assert cap.ns == S
    vocoder.crowd = 3.0
    assert cap.ns == 2 * S
    talker.crowd = 0.75
    assert cap.ns == 2500 * MS
    talker.crowd = 3.0
    assert cap.ns == 3 * S


def test_where_users_cut_off_most_answers_less_is_made_ahead():
    stage = Stage(crowd=1.0)
    cap = LeadCap(PARAMS, [stage])
    for i in range(400):
        cap.ended(cut=i % 10 < 3)
    assert cap.ns == 2 * S, "three in ten are usual"
    for i in range(400):
        cap.ended(cut=i % 2 == 0)
    assert 1200 * MS < cap.ns < 1400 * MS
    for _ in range(400):
        cap.ended(cut=True)
    assert cap.ns == S, "never less than on an idle host"
    for _ in range(400):
        cap.ended(cut=False)
    assert cap.ns == 2 * S


def test_a_response_waits_at_the_present_cap():
    head = Playhead(24_000, audible=True)
    head.deliver(24_000, 10 * S)
    urgency = ResponseUrgency(PARAMS, 0, 0, False, head)
    near = urgency.item(Step(("s", "r", 0), 0, room_ns=80 * MS, ahead_ns=S), 10 * S)
    far = urgency.item(Step(("s", "r", 0), 0, room_ns=80 * MS), 10 * S)
    assert near is not None
    assert far is not None
    assert near.not_before_ns == 10 * S + 80 * MS
    assert far.not_before_ns == near.not_before_ns - S
