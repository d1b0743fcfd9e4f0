"""What the lead cap learns of answers that users cut off, on a whole simulated host."""

from __future__ import annotations

import pytest

from loadgen.lab.simulation import simulate
from loadgen.workloads import find_workload
from session_server.scheduler.flow_control import LeadCap
from session_server.simulation.spec import SimulationSpec
from tests.sim.small_machine import small_machine

pytestmark = pytest.mark.sim


@pytest.mark.parametrize("barge_in", [0.0, 1.0])
def test_the_lead_cap_hears_of_each_answer_that_is_cut_off(
    barge_in: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted near their end, all of it had been made: that wastes little and does not count."""
    told: list[bool] = []
    monkeypatch.setattr(LeadCap, "ended", lambda _, cut: told.append(cut))
    workload = find_workload("closed-eager").workload
    spec = SimulationSpec(
        sessions=8, seconds=40.0, warm_up_s=5.0, workload=workload, barge_in=barge_in
    )
    simulate(spec, small_machine())
    assert len(told) >= 10
    if barge_in:
        assert sum(told) >= 0.5 * len(told)
    else:
        assert not any(told)
