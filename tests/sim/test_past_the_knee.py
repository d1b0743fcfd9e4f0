"""A third more sessions than a machine holds, nobody refused: some wait in vain, all others are served as before."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from loadgen.lab.simulation import simulate
from loadgen.workloads import find_workload
from session_server.simulation.spec import SimulationSpec
from tests.sim.small_machine import small_machine

pytestmark = pytest.mark.sim

_KNEE, _BEYOND = 15, 20


@functools.cache
def run(sessions: int) -> dict[str, Any]:
    spec = SimulationSpec(
        sessions=sessions,
        seconds=40.0,
        warm_up_s=15.0,
        workload=find_workload("closed-eager").workload,
    )
    return simulate(spec, small_machine()).figures


def test_the_loss_is_borne_by_few_and_the_rest_is_in_time() -> None:
    slo = run(_BEYOND)["slo"]
    assert 0 < slo["starved"] <= 0.25 * slo["count"], "the machine was meant to be too small"
    assert slo["late"] - slo["starved"] <= 0.05 * slo["count"]
    assert slo["p50"] < 1.2 * run(_KNEE)["slo"]["p50"]
    assert slo["broken"] == 0


def test_as_much_is_served_in_time_as_at_the_knee() -> None:
    knee, beyond = run(_KNEE), run(_BEYOND)
    assert knee["slo"]["held"]
    in_time = "response_500_ms"
    assert beyond["goodput"][in_time] >= 0.8 * knee["goodput"][in_time]
