"""Work that no stage counts: guessed at first, then what the process's processors did beside the steps."""

from __future__ import annotations

import pytest

from session_server.scheduler.admission import AdmissionVerdict, StageLoad, TurnAdmission
from session_server.scheduler.cost_model import Uncounted
from session_server.scheduler.params import SchedulerParams
from session_server.types.audio import NS_PER_S

pytestmark = pytest.mark.unit

S = NS_PER_S


def test_before_anything_was_measured_a_session_costs_a_share_of_its_speech():
    assert Uncounted().per_session(0.1) == pytest.approx(0.1)
    assert Uncounted().per_session(0.0) == 0


def test_what_the_steps_do_not_account_for_is_shared_out_among_the_open_sessions():
    beside = Uncounted()
    for second in range(600):
        beside.look(second * S, second * S * 6 // 10, 4, second * S)
    assert beside.per_session(0.05) == pytest.approx(0.1, abs=0.01)


def test_a_server_without_sessions_charges_nobody():
    beside = Uncounted()
    for second in range(100):
        beside.look(second * S, 0, 0, second * S)
    assert beside.per_session(0.1) == pytest.approx(0.1)


def test_a_machine_that_other_programs_starve_does_not_make_sessions_look_free():
    beside = Uncounted()
    for second in range(600):
        beside.look(0, 0, 8, second * S)
    assert beside.per_session(0.1) == pytest.approx(0.04)


def test_a_step_that_is_counted_later_than_it_ran_makes_no_work_negative():
    beside = Uncounted()
    beside.look(0, 0, 1, 0)
    beside.look(0, 1000 * S, 1, 100 * S)
    assert beside.per_session(0.1) > 0


def test_work_beside_the_stages_fills_the_cores_too():
    rule = TurnAdmission(SchedulerParams(utilisation=0.9, cores=2))
    loads = [StageLoad("thinker", 0.055, 1.0), StageLoad("codec", 0.055, 1.0)]
    assert rule.capacity == pytest.approx(1.8)
    assert rule.load(8, loads) == pytest.approx(0.88 / 1.8)
    assert rule.load(8, loads, beside=0.8) == pytest.approx(1.68 / 1.8)
    assert rule.decide(0, 9, loads)[0] is AdmissionVerdict.ADMIT
    assert rule.decide(0, 9, loads, beside=0.8) == (AdmissionVerdict.DEFER, "cores")
